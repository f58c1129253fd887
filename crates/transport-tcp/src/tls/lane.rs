//! The lane of `tls://`, and that of a session inside another lane.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use net::{cache, pool};
use rustls::Error;
use tls::io_error;
use transport::{Death, Lane, Producer, Through, Unchanged};

use super::engine::{Engine, WIRE_RECORD};
use super::session::Session;
use super::under::{BATCH, Under};

/// The limits of ciphertext per read in bytes, even when the caller has more room.
const READ_LEAST: usize = 64 << 10;
const READ_MOST: usize = 256 << 10;

/// The limit of ciphertext per read on a core with a second-level cache of `cache` bytes. The
/// ciphertext stays in this cache until it is decrypted, and its plaintext until it is sent on: the
/// two take half of it. With a cache of 2 MiB reads of 128 and 256 KiB took 0.55 CPU-s/GB of both
/// ends (`examples/tls_bulk.rs`, medians of 3), of 64 KiB 0.57, of 512 KiB 0.58, of 2 MiB 0.69.
fn read_limit(cache: usize) -> usize {
    (cache / 4).clamp(READ_LEAST, READ_MOST)
}

#[derive(Debug)]
pub(crate) struct TlsLane<S, U> {
    engine: Engine<S>,
    under: U,
    /// Ciphertext per read.
    read: usize,
    batch: usize,
    death: Death,
    closing: bool,
    finished: bool,
}

impl<S: Session, U: Under> TlsLane<S, U> {
    pub(super) fn new(engine: Engine<S>, under: U) -> Self {
        let batch = under.batch(BATCH);
        let read = read_limit(cache::second_level());
        let death = Death::default();
        Self { engine, under, read, batch, death, closing: false, finished: false }
    }

    /// Ends the lane after a TLS failure. The alert is sent if the socket takes it at once.
    fn fail<T>(&mut self, error: &Error) -> Poll<io::Result<T>> {
        // The write does not poll, because the reader must not replace the writer's waker.
        self.under.try_write(self.engine.outgoing());
        self.death.by(io_error(error, S::SIDE))
    }

    /// Writes `outgoing` until it is empty, then returns its buffer to the pool.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outgoing = self.engine.outgoing();
        while !outgoing.is_empty() {
            ready!(self.under.poll_write(cx, outgoing))?;
        }
        if outgoing.capacity() > 0 {
            pool::give(std::mem::take(outgoing));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Session, U: Under> Lane for TlsLane<S, U> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.poll_read_through(cx, buf, &mut Unchanged)
    }

    fn poll_read_through(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        through: &mut dyn Through,
    ) -> Poll<io::Result<usize>> {
        let through = &mut Counted { through, bytes: 0 };
        loop {
            if self.engine.take_surplus(buf, through) > 0 || through.bytes > 0 {
                return Poll::Ready(Ok(through.bytes));
            }
            if self.engine.peer_closed() {
                return Poll::Ready(Ok(0));
            }
            self.death.check()?;
            // The read takes at most the caller's room, except for the last record.
            let limit = (buf.capacity() - buf.len()).clamp(WIRE_RECORD, self.read);
            let incoming = self.engine.incoming(limit);
            let n = match self.under.poll_read(cx, incoming, limit) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return self.death.by(error),
                Poll::Pending => {
                    self.engine.rest();
                    return Poll::Pending;
                }
            };
            if n == 0 {
                let text = "the peer ended the connection without close_notify";
                return self.death.by(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            if let Err(error) = self.engine.process(buf, through) {
                return self.fail(&error);
            }
        }
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.death.check()?;
        if self.closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        match ready!(self.poll_drain(cx)) {
            Ok(()) => {}
            Err(error) => return self.death.by(error),
        }
        let sealed = match self.engine.seal(frames, self.batch) {
            Ok(sealed) => sealed,
            Err(error) => return self.fail(&error),
        };
        match self.poll_drain(cx) {
            Poll::Ready(Err(error)) => self.death.by(error),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(sealed)),
        }
    }

    fn takes_from_source(&self) -> bool {
        true
    }

    fn poll_write_from(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut dyn Producer,
    ) -> Poll<io::Result<()>> {
        self.death.check()?;
        if self.closing {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if let Err(error) = ready!(self.poll_drain(cx)) {
            return self.death.by(error);
        }
        if let Err(error) = self.engine.seal_from(source) {
            return self.fail(&error);
        }
        match self.poll_drain(cx) {
            Poll::Ready(Err(error)) => self.death.by(error),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        match ready!(self.poll_drain(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => self.death.by(error),
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.death.check()?;
        if !self.closing {
            self.closing = true;
            if let Err(error) = self.engine.close() {
                return self.fail(&error);
            }
        }
        ready!(self.poll_flush(cx))?;
        if !self.finished {
            match ready!(self.under.poll_finish(cx)) {
                Ok(()) => self.finished = true,
                Err(error) => return self.death.by(error),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn set_send_limit(&mut self, bytes: usize) {
        self.batch = self.under.batch(bytes);
        self.under.set_send_limit(bytes);
    }

    fn held(&self) -> usize {
        self.engine.held() + self.under.held()
    }

    fn detach(&mut self) -> io::Result<()> {
        self.under.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        self.under.attach()
    }
}

/// Counts what goes through.
struct Counted<'a> {
    through: &'a mut dyn Through,
    bytes: usize,
}

impl Through for Counted<'_> {
    fn change(&mut self, bytes: &mut [u8]) -> usize {
        self.bytes += bytes.len();
        self.through.change(bytes)
    }

    fn append(&mut self, bytes: &[u8], out: &mut BytesMut) {
        self.bytes += bytes.len();
        self.through.append(bytes, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ciphertext_and_plaintext_of_a_read_fit_half_the_cache() {
        let kib = |size: usize| size >> 10;
        let limits = [0, 256, 512, 1024, 2048, 1 << 16].map(|size| kib(read_limit(size << 10)));
        assert_eq!(limits, [64, 64, 128, 256, 256, 256]);
        const { assert!(READ_LEAST >= WIRE_RECORD, "a whole record fits") };
    }
}
