//! Moves the bytes of a bulk stream as pages, if both ends are plain TCP sockets and the bytes are
//! not inspected.
//!
//! ```text
//!   socket --splice--> pipe --Inlet::pages--> ... --Outlet::deliver_pages--> socket
//! ```
//!
//! A stream is bulk after several large reads in a row ([`super::reader`]). A turn takes a pipe
//! from the thread's pool and returns it empty, unless the target takes fewer bytes than arrived.
//! Then the pipe waits in the target's queue.

use std::task::{Context, Poll};

use net::pages::{self, Pages};
use transport::deliver_copy;

use super::pump::{Pause, Progress};
use super::{ByteEnd, MOVED, Pipe, Pump, READ, WRITTEN};
use crate::{Permit, pace};

impl Pump {
    /// Moves pages as long as there is room, the socket has bytes and the budget lasts. `Ok(None)`:
    /// the bytes must be read into memory. `Err` is an error of the socket.
    pub(super) fn read_pages(
        &mut self,
        end: &ByteEnd,
        cx: &mut Context<'_>,
    ) -> Result<Option<Pause>, ()> {
        let Some(socket) = end.page_socket() else { return Ok(self.leave_bulk()) };
        let mut turn = Progress::default();
        while self.size.is_bulk() {
            // Bytes under a rate are read in exact amounts.
            let of_permit = self.permit.as_ref().map(Permit::gate);
            if of_permit.is_some_and(|gate| pace::is_paced(gate, self.pipe.way(true)))
                || self.pipe.is_paced(true)
            {
                return Ok(self.leave_bulk());
            }
            // The link takes pages only when the other streams that share it are quiet.
            let Some(inlet) = self.inlet.pages() else { return Ok(None) };
            let room = match turn.left_of(inlet.page_room()) {
                Ok(room) => room,
                Err(pause) => return Ok(Some(pause)),
            };
            match end.poll_read_ready(cx) {
                Poll::Pending => return Ok(Some(Pause::Empty)),
                Poll::Ready(Err(_)) => return Err(()),
                Poll::Ready(Ok(())) => {}
            }
            let Some(mut pages) = Pages::take() else { return Ok(self.leave_bulk()) };
            match pages.fill(socket, room) {
                // The readiness is cleared: the next `poll_read_ready` waits for new bytes.
                Ok(None) => {}
                Ok(Some(0)) => return self.end_of_reading().map(Some),
                Ok(Some(n)) => {
                    self.size.moved(n, room);
                    self.pipe.note_active(MOVED | READ);
                    self.pipe.count_in(n);
                    turn.note(n);
                    inlet.send_pages(pages);
                }
                Err(error) if pages::is_refusal(&error) => return Ok(self.leave_bulk()),
                Err(_) => return Err(()),
            }
        }
        Ok(None)
    }

    fn leave_bulk(&mut self) -> Option<Pause> {
        self.size.leave_bulk();
        None
    }
}

impl Pipe {
    /// Whether the end is a plain TCP socket whose bytes are not inspected.
    pub(super) fn welcomes_pages(&self) -> bool {
        self.is_page_socket()
            && self.is_unguarded()
            && !self.is_paced(false)
            && !self.queue.borrow().is_full_of_pages()
    }

    fn is_page_socket(&self) -> bool {
        self.end.borrow().as_ref().is_some_and(|end| end.page_socket().is_some())
    }

    /// Whether no guard inspects these or later bytes.
    pub(super) fn is_unguarded(&self) -> bool {
        self.guard.get().is_none_or(|guard| guard.is_done())
    }
}

impl Pipe {
    /// Takes pages even if [`Self::welcomes_pages`] now returns false. Under a rate, the pump
    /// writes them when they are due.
    pub(super) fn take_pages(&self, mut pages: Pages) -> usize {
        let size = pages.len();
        if self.deaf.get() {
            pages.discard();
            return size;
        }
        if !self.is_page_socket() || !self.is_unguarded() {
            return deliver_copy(self, pages);
        }
        self.note_active(MOVED);
        self.note_served();
        let mut written = 0;
        if self.queue.borrow().is_empty()
            && let Some(end) = &*self.end.borrow()
            && !self.is_paced(false)
        {
            match end.write_pages(&mut pages, usize::MAX) {
                // The queue copies pages that the system refuses.
                Ok(n) => written = n.unwrap_or(0),
                Err(error) => {
                    self.note_write_error(&error);
                    self.wake();
                    pages.discard();
                    return self.unreported(size);
                }
            }
            if written > 0 {
                self.note_active(WRITTEN);
            }
            self.count_out(written);
        }
        if !pages.is_empty() {
            self.queue.borrow_mut().push_pages(pages);
            self.wake();
        }
        self.unreported(written)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::num::NonZeroU64;
    use std::rc::Rc;
    use std::sync::Arc;

    use proto::{Bounds, Limits, ResetCode};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use transport::Outlet as _;

    use super::*;
    use crate::{Gate, Settings};

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    /// Bytes in a pipe, as read from a socket.
    pub(crate) async fn paged(bytes: &[u8]) -> Pages {
        let (mut from, to) = pair().await;
        from.write_all(bytes).await.unwrap();
        let mut peeked = vec![0; bytes.len()];
        while to.peek(&mut peeked).await.unwrap() < bytes.len() {
            tokio::task::yield_now().await;
        }
        let mut pages = Pages::take().unwrap();
        while pages.is_empty() {
            to.readable().await.unwrap();
            pages.fill(&to, bytes.len()).unwrap();
        }
        pages
    }

    /// A pipe with a socket, whose gate has no rate yet.
    async fn piped() -> (Rc<Pipe>, Arc<Gate>, TcpStream) {
        let gate = Gate::new(None);
        let settings = Settings { gate: Some(Arc::clone(&gate)), ..Settings::default() };
        let pipe = Pipe::new(Rc::new(settings), crate::Visitor::Unknown);
        let (near, far) = pair().await;
        pipe.attach(crate::Socket::from(near).into());
        (pipe, gate, far)
    }

    #[tokio::test]
    async fn pages_on_their_way_when_a_rate_begins_wait_for_their_turn() {
        let (pipe, gate, far) = piped().await;
        assert!(pipe.takes_pages());
        let pages = paged(b"abcdef").await;
        let down = NonZeroU64::new(1000);
        let all = Bounds { up: down, down, ..Bounds::default() };
        gate.set(&Limits { all, ..Limits::default() });
        assert!(!pipe.takes_pages());
        assert_eq!(pipe.deliver_pages(pages), 0);
        assert_eq!(pipe.queue.borrow().len(), 6, "the pump writes them under the rate");
        let mut seen = [0; 8];
        assert!(far.try_read(&mut seen).is_err(), "none has moved yet");
        let end = pipe.end.borrow().clone().unwrap();
        end.page_socket().unwrap().writable().await.unwrap();
        for part in [&b"ab"[..], b"cd", b"ef"] {
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            let written = pipe.queue.borrow_mut().poll_write(cx, &end, 2);
            assert!(matches!(written, Poll::Ready(Ok(Some(2)))), "{written:?}");
            far.readable().await.unwrap();
            assert_eq!(far.try_read(&mut seen).unwrap(), 2);
            assert_eq!(&seen[..2], part);
        }
        assert!(pipe.queue.borrow().is_empty());
    }

    #[tokio::test]
    async fn pages_that_the_system_refuses_are_counted_up_to_the_refusal_and_copied() {
        let (pipe, _, far) = piped().await;
        let end = pipe.end.borrow().clone().unwrap();
        end.page_socket().unwrap().writable().await.unwrap();
        pages::refuse_after(2);
        let pages = paged(b"abcdef").await;
        assert_eq!(pipe.deliver_pages(pages), 2);
        let cx = &mut Context::from_waker(std::task::Waker::noop());
        let mut written = 0;
        while !pipe.queue.borrow().is_empty() {
            match pipe.queue.borrow_mut().poll_write(cx, &end, usize::MAX) {
                Poll::Ready(moved) => written += moved.unwrap().unwrap_or(0),
                Poll::Pending => panic!("the socket takes no bytes"),
            }
        }
        assert_eq!(written, 4);
        let mut seen = vec![0; 8];
        far.readable().await.unwrap();
        let n = far.try_read(&mut seen).unwrap();
        assert_eq!(&seen[..n], b"abcdef");
    }

    #[tokio::test]
    async fn pages_go_where_a_reset_or_the_end_of_writing_leaves_nobody_to_take_them() {
        let (pipe, _, _far) = piped().await;
        let (first, second) = (paged(b"abc").await, paged(b"defg").await);
        pipe.queue.borrow_mut().push_pages(first);
        pipe.reset(ResetCode::Aborted);
        assert!(pipe.queue.borrow().is_empty());
        assert_eq!(pipe.deliver_pages(second), 4, "a deaf pipe throws them away");
        assert_eq!(pages::pipes().0, 0);
    }
}
