//! The outlet of a measuring stream. It consumes bytes at once, and wakes its task only for events
//! that need an action, not for every frame.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

use bytes::Bytes;
use proto::{ResetCode, TALLY, Tally};
use tokio::sync::Notify;
use transport::Outlet;

/// The peer's events that matter for a measurement.
#[derive(Default)]
pub(super) struct Signals {
    received: Cell<u64>,
    first: Cell<Option<Instant>>,
    last: Cell<Option<Instant>>,
    /// The last bytes received, at most [`TALLY`] bytes.
    tail: RefCell<Vec<u8>>,
    /// The bytes that an echo must send back; `None` for other measurements.
    echo: RefCell<Option<Vec<u8>>>,
    finished: Cell<bool>,
    /// The peer aborted one of the two directions.
    aborted: Cell<Option<ResetCode>>,
    notify: Notify,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").field("received", &self.received).finish_non_exhaustive()
    }
}

impl Signals {
    /// The signals of an echo. Received bytes are kept and wake the task.
    pub(super) fn of_echo() -> Self {
        Self { echo: RefCell::new(Some(Vec::new())), ..Self::default() }
    }

    /// The number of bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    /// The time of the first byte.
    pub(super) fn first(&self) -> Option<Instant> {
        self.first.get()
    }

    /// Microseconds from the first byte to the last.
    pub(super) fn micros(&self) -> u64 {
        let span = self.first.get().zip(self.last.get());
        let micros = span.map_or(0, |(first, last)| last.duration_since(first).as_micros());
        u64::try_from(micros).unwrap_or(u64::MAX)
    }

    pub(super) fn has_finished(&self) -> bool {
        self.finished.get()
    }

    pub(super) fn aborted(&self) -> Option<ResetCode> {
        self.aborted.get()
    }

    /// The tally at the end of the peer's bytes; `None` when the peer sent fewer than [`TALLY`]
    /// bytes.
    pub(super) fn tally(&self) -> Option<Tally> {
        let tail = self.tail.borrow();
        let tally: &[u8; TALLY] = tail.as_slice().try_into().ok()?;
        Some(Tally::decode(tally))
    }

    /// Takes the bytes that an echo received since the last call.
    pub(super) fn take_echo(&self) -> Vec<u8> {
        self.echo.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Waits for an event: room, an end, an abort, or bytes for an echo.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Waits until the peer has finished.
    ///
    /// # Errors
    /// The peer's reset code when it aborts.
    pub(super) async fn end(&self) -> Result<(), ResetCode> {
        loop {
            if let Some(code) = self.aborted() {
                return Err(code);
            }
            if self.has_finished() {
                return Ok(());
            }
            self.wait().await;
        }
    }

    fn abort(&self, code: ResetCode) {
        // The first reason is kept, because later reasons follow from it.
        self.aborted.set(self.aborted.get().or(Some(code)));
        self.notify.notify_one();
    }
}

impl Signals {
    fn take(&self, data: &Bytes) -> usize {
        let now = Instant::now();
        self.first.set(self.first.get().or(Some(now)));
        self.last.set(Some(now));
        self.received.set(self.received.get() + data.len() as u64);
        if let Some(echo) = &mut *self.echo.borrow_mut() {
            echo.extend_from_slice(data);
            self.notify.notify_one();
            return data.len();
        }
        let mut tail = self.tail.borrow_mut();
        let kept = TALLY.saturating_sub(data.len()).min(tail.len());
        let old = tail.len() - kept;
        tail.drain(..old);
        tail.extend_from_slice(&data[data.len().saturating_sub(TALLY)..]);
        let over = tail.len().saturating_sub(TALLY);
        tail.drain(..over);
        data.len()
    }
}

impl Outlet for Signals {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        pieces.drain(..).map(|data| self.take(&data)).sum()
    }

    fn finish(&self) {
        self.finished.set(true);
        self.notify.notify_one();
    }

    fn reset(&self, code: ResetCode) {
        self.abort(code);
    }

    fn stop(&self, code: ResetCode) {
        self.abort(code);
    }

    fn room(&self) {
        self.notify.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_are_the_tally_however_they_are_cut() {
        let tally = Tally { bytes: 77, busy: 5, ..Tally::default() };
        let mut all = vec![9; 100];
        all.extend_from_slice(&tally.encode());
        for size in 1..all.len() {
            let signals = Signals::default();
            assert_eq!(signals.tally(), None);
            for piece in all.chunks(size) {
                signals.take(&Bytes::copy_from_slice(piece));
            }
            assert_eq!(signals.tally(), Some(tally), "pieces of {size}");
            assert_eq!(signals.received(), all.len() as u64);
        }
        let short = Signals::default();
        short.take(&Bytes::from_static(&[1; TALLY - 1]));
        assert_eq!(short.tally(), None);
    }
}
