//! Answers a request whose target fails before the first byte of its answer.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::timeout;

use super::connect;
use super::handshake::{HANDSHAKE, Speech, linger_upload};
use crate::Duplex;
use crate::pipe::{Leaving, Onward, Why};

/// Answers instead of the target.
#[derive(Debug)]
pub(super) struct Substitute {
    /// The protocol of the visitor.
    pub(super) speech: Speech,
    /// The stream of the visitor; `None`: the visitor has a socket.
    pub(super) stream: Option<Shared>,
}

impl Onward for Substitute {
    fn onward(&self, leaving: Leaving) {
        let page = match leaving.why {
            Why::Down(code) => connect::refusal(code),
            Why::Bad(fault) => connect::page(fault.status(), "", fault.reason()),
            Why::Doubt(doubt) => {
                let reason = doubt.reason();
                tracing::debug!(reason, "a response to a request at a proxy is not passed on");
                let reason = format!("The target sent a response that is not safe: {reason}.");
                connect::page(502, "", &reason)
            }
            // A connection has only one request, and its rules do not change.
            Why::Other(_) | Why::Changed => return,
        };
        let page = self.speech.answer(page);
        match (leaving.socket, &self.stream) {
            (Some(socket), _) => drop(tokio::task::spawn_local(say(socket, page))),
            (None, Some(stream)) => drop(tokio::task::spawn_local(say(stream.clone(), page))),
            (None, None) => {}
        }
    }

    fn is_current(&self) -> bool {
        true
    }
}

async fn say(mut io: impl AsyncRead + AsyncWrite + Unpin, page: Vec<u8>) {
    if let Ok(Ok(())) = timeout(HANDSHAKE, io.write_all(&page)).await {
        linger_upload(&mut io).await;
    }
}

/// The stream of a visitor, shared by the pump and the substitute answer. Only one of them polls it
/// at a time.
#[derive(Clone)]
pub(super) struct Shared(Rc<RefCell<Duplex>>);

impl Shared {
    pub(super) fn new(stream: Duplex) -> Self {
        Self(Rc::new(RefCell::new(stream)))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_read(cx, buf)
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)
    }
}
