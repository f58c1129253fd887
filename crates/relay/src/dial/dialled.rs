//! A connection to a target, before the caller decides to keep it.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::Socket;

/// A connected socket before the caller decides to keep it. The dial drops the socket when another
/// address wins the race, or when the visitor has disconnected. The target may have accepted the
/// connection already, so the drop sends RST: a clean end would look like an empty request. (A Unix
/// socket has no RST; its service sees a clean end.)
#[derive(Debug)]
pub struct Dialled {
    pub(super) socket: Socket,
    pub(super) took: Duration,
}

impl AsFd for Dialled {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Dialled {
    /// The time of the connection itself, without the lookup of a name and without waiting.
    #[must_use]
    pub const fn took(&self) -> Duration {
        self.took
    }

    /// Writes all bytes. Waits while the buffer of the socket is full.
    ///
    /// # Errors
    /// The error of the socket.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            poll_fn(|cx| self.socket.poll_write_ready(cx)).await?;
            let written = self.socket.write(&[IoSlice::new(bytes)], bytes.len())?;
            bytes = bytes.get(written.unwrap_or(0)..).unwrap_or_default();
        }
        Ok(())
    }

    /// Ready when the target has sent bytes or its end, or the socket has an error.
    pub(crate) fn poll_speaks(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_read_ready(cx).map(drop)
    }

    /// Keeps the connection: from now on, closing the socket ends it cleanly.
    #[must_use]
    pub fn keep(self) -> Socket {
        self.socket.end_on_close();
        self.socket
    }
}
