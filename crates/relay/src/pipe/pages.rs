//! The bytes of a bulk stream move as pages, where both ends are plain TCP sockets and nobody has to
//! see the bytes.
//!
//! ```text
//!   socket --splice--> pipe --Inlet::pages--> ... --PageOutlet::deliver_pages--> socket
//! ```
//!
//! A stream is bulk after several large reads in a row ([`super::reader`]). A turn takes a pipe from
//! the pool of the thread and returns it empty, unless the target takes fewer bytes than came.
//! Then the pipe waits in the queue of the target.

use std::task::{Context, Poll};

use net::pages::{self, Pages};
use transport::PageOutlet;

use super::pump::{Pause, Progress};
use super::{ByteEnd, MOVED, PACED, Pipe, Pump, READ, WRITTEN};
use crate::{Permit, pace};

impl Pump {
    /// Moves pages as long as there is room, the socket has bytes and the budget lasts. `Ok(None)`:
    /// the bytes have to be read. `Err` is an error of the socket.
    pub(super) fn read_pages(
        &mut self,
        end: &ByteEnd,
        cx: &mut Context<'_>,
    ) -> Result<Option<Pause>, ()> {
        let Some(socket) = end.page_socket() else { return Ok(self.calm()) };
        let mut turn = Progress::default();
        while self.size.is_bulk() {
            // The bytes of a rate are counted one by one.
            let of_permit = self.permit.as_ref().map(Permit::gate);
            if of_permit.is_some_and(|gate| pace::is_paced(gate, self.pipe.way(true)))
                || self.pipe.is_paced(true)
            {
                return Ok(self.calm());
            }
            // The link may take pages when the others who share it are quiet.
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
            let Some(mut pages) = Pages::take() else { return Ok(self.calm()) };
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
                Err(error) if pages::is_refusal(&error) => return Ok(self.calm()),
                Err(_) => return Err(()),
            }
        }
        Ok(None)
    }

    fn calm(&mut self) -> Option<Pause> {
        self.size.calm();
        None
    }
}

impl Pipe {
    /// Whether the end is a plain TCP socket whose bytes nobody looks at.
    pub(super) fn takes_pages(&self) -> bool {
        let is_socket = self.end.borrow().as_ref().is_some_and(|end| end.page_socket().is_some());
        is_socket
            && self.is_unguarded()
            && !self.is_paced(false)
            && !self.queue.borrow().is_full_of_pages()
    }

    /// Whether bytes that are read from the end, or written to it, have a rate now.
    fn is_paced(&self, is_read: bool) -> bool {
        let way = self.way(is_read);
        self.is(PACED) || self.settings.gate.as_ref().is_some_and(|gate| pace::is_paced(gate, way))
    }

    /// Whether no guard looks at the bytes, now and later.
    pub(super) fn is_unguarded(&self) -> bool {
        self.guard.get().is_none_or(|guard| guard.is_done())
    }
}

impl PageOutlet for Pipe {
    fn deliver_pages(&self, mut pages: Pages) -> usize {
        let size = pages.len();
        if self.deaf.get() {
            return size;
        }
        self.note_active(MOVED);
        self.note_served();
        let mut written = 0;
        if self.queue.borrow().is_empty()
            && let Some(end) = &*self.end.borrow()
        {
            match end.write_pages(&mut pages) {
                Ok(n) => written = n,
                // The queue copies the rest.
                Err(error) if pages::is_refusal(&error) => written = size - pages.len(),
                Err(error) => {
                    self.note_write_error(&error);
                    self.wake();
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
