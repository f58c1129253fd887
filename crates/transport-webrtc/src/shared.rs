//! The state that a lane and the tasks of its channel share. The lane may be on another thread than
//! the connection; the state is in a mutex that is held only for the duration of a copy.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::sync::Notify;

use crate::error::End;

/// The length of a full message, in bytes: 14 times the payload of a packet (1,160). Packets of
/// equal length are sent in one call; a shorter packet ends a batch.
pub(crate) const MESSAGE: usize = 16_240;

/// The maximum number of bytes that the lane holds for the sending task. In addition, the library
/// holds up to a window.
pub(crate) const OUTGOING: usize = 16 * MESSAGE;

/// The number of bytes that wait for a reader before the task leaves more messages to the library,
/// and thus to the SCTP window.
pub(crate) const INCOMING: usize = 256 << 10;

/// The maximum number of bytes that wait for the reader of a peer that has not proved its identity.
/// A greeting needs less than 4 KiB.
pub(crate) const STRANGER: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The sending task has work.
    pub(crate) work: Notify,
    /// The reader has made room.
    pub(crate) room: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Full messages.
    full: VecDeque<BytesMut>,
    /// The message that is being filled.
    filling: BytesMut,
    /// Bytes in both.
    outgoing: usize,
    /// The lane has ended its direction.
    is_finishing: bool,
    /// The library has accepted all bytes and the end mark.
    is_finished: bool,
    arrived: VecDeque<BytesMut>,
    incoming: usize,
    /// The end mark of the peer has arrived.
    is_ended: bool,
    /// The reader has seen the end, and the peer must be informed.
    owes_receipt: bool,
    has_read_end: bool,
    /// The peer has read all bytes up to our end mark.
    is_received: bool,
    /// Why the channel has ended. Bytes that arrived before are still read.
    end: Option<End>,
    is_authenticated: bool,
    is_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The next step of the sending task.
#[derive(Debug)]
pub(crate) enum Work {
    Send(BytesMut),
    /// Sends the end mark.
    Finish,
    /// Informs the peer that its bytes were read to the end.
    Receipt,
    /// The lane was dropped. `is_clean`: both directions had ended.
    Leave {
        is_clean: bool,
    },
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::default()), work: Notify::new(), room: Notify::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next step, in order.
    pub(crate) async fn next(&self) -> Work {
        loop {
            let work = self.lock().work();
            match work {
                Some(work) => return work,
                None => self.work.notified().await,
            }
        }
    }

    /// Waits until the reader accepts another message. `false`: there is no reader any more.
    pub(crate) async fn wait_for_room(&self) -> bool {
        loop {
            let (has_left, has_room) = {
                let state = self.lock();
                (state.has_left(), state.is_dropped || state.incoming < INCOMING)
            };
            if has_left || has_room {
                return !has_left;
            }
            self.room.notified().await;
        }
    }

    /// Waits until the remaining bytes need not be sent.
    pub(crate) async fn given_up(&self) {
        loop {
            let is_over = {
                let state = self.lock();
                state.is_dropped && !state.is_finishing || state.end.is_some()
            };
            if is_over {
                return;
            }
            self.work.notified().await;
        }
    }

    /// Waits until messages are no longer needed: there is no reader and no lingering lane.
    pub(crate) async fn left(&self) {
        while !self.lock().has_left() {
            self.room.notified().await;
        }
    }

    /// Waits until the peer has read all bytes, or never will.
    pub(crate) async fn received(&self) {
        loop {
            let is_over = {
                let state = self.lock();
                state.is_received || state.end.is_some()
            };
            if is_over {
                return;
            }
            self.work.notified().await;
        }
    }

    /// Records the receipt of the peer: it has read all bytes.
    pub(crate) fn receipt(&self) {
        self.lock().is_received = true;
        self.work.notify_one();
        self.room.notify_one();
    }

    /// Handles arrived bytes.
    pub(crate) fn arrive(&self, message: BytesMut) -> Result<(), End> {
        let mut state = self.lock();
        if state.is_ended {
            return Err(End::Late);
        }
        if state.is_dropped {
            return Ok(());
        }
        state.incoming += message.len();
        if !state.is_authenticated && state.incoming > STRANGER {
            return Err(End::Flood);
        }
        state.arrived.push_back(message);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        Ok(())
    }

    /// The end mark of the peer has arrived.
    pub(crate) fn end_of_peer(&self) -> Result<(), End> {
        let mut state = self.lock();
        if state.is_ended {
            return Err(End::Late);
        }
        state.is_ended = true;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
        Ok(())
    }

    /// Records that the library has accepted the end mark.
    pub(crate) fn finished(&self) {
        let mut state = self.lock();
        state.is_finished = true;
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }

    /// Records that a message was passed to the library.
    pub(crate) fn sent(&self, length: usize) {
        let mut state = self.lock();
        state.outgoing = state.outgoing.saturating_sub(length);
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }

    /// Ends the channel.
    pub(crate) fn die(&self, end: End) {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        let (reader, writer) = (state.reader.take(), state.writer.take());
        drop(state);
        wake(reader);
        wake(writer);
        self.work.notify_one();
        self.room.notify_one();
    }

    /// Records that the lane was dropped.
    pub(crate) fn leave(&self) {
        let mut state = self.lock();
        state.is_dropped = true;
        state.arrived = VecDeque::new();
        state.incoming = 0;
        drop(state);
        self.work.notify_one();
        self.room.notify_one();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl State {
    fn work(&mut self) -> Option<Work> {
        // The unsent bytes of an aborted lane are lost; after an end all bytes are delivered.
        if self.is_dropped && !self.is_finishing || self.end.is_some() {
            return Some(Work::Leave { is_clean: false });
        }
        if let Some(message) = self.full.pop_front() {
            return Some(Work::Send(message));
        }
        if !self.filling.is_empty() {
            return Some(Work::Send(self.filling.split()));
        }
        if self.is_finishing && !self.is_finished {
            return Some(Work::Finish);
        }
        if self.owes_receipt {
            self.owes_receipt = false;
            return Some(Work::Receipt);
        }
        self.is_dropped.then_some(Work::Leave { is_clean: true })
    }

    pub(crate) const fn end(&self) -> Option<End> {
        self.end
    }

    pub(crate) const fn is_finishing(&self) -> bool {
        self.is_finishing
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether the reader has all bytes up to the end, and whether this is the first such call, so
    /// that the peer must be informed.
    pub(crate) const fn read_end(&mut self) -> (bool, bool) {
        let is_first = self.is_ended && !self.has_read_end;
        self.has_read_end = self.is_ended;
        self.owes_receipt |= is_first;
        (self.is_ended, is_first)
    }

    /// Whether messages are no longer needed.
    const fn has_left(&self) -> bool {
        self.is_dropped && (!self.is_finishing || self.is_received || self.end.is_some())
    }

    pub(crate) const fn finish(&mut self) {
        self.is_finishing = true;
    }

    pub(crate) const fn authenticated(&mut self) {
        self.is_authenticated = true;
    }

    pub(crate) fn wait_to_read(&mut self, waker: &Waker) {
        self.reader = Some(waker.clone());
    }

    pub(crate) fn wait_to_write(&mut self, waker: &Waker) {
        self.writer = Some(waker.clone());
    }

    /// The number of bytes that wait in both directions.
    pub(crate) const fn held(&self) -> usize {
        self.incoming + self.outgoing
    }

    /// Whether all bytes were handed to the library.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.outgoing == 0
    }

    /// Appends bytes that have arrived to `buf`, at most its spare capacity. Returns their number,
    /// and whether the task may continue to receive.
    pub(crate) fn read(&mut self, buf: &mut BytesMut) -> (usize, bool) {
        let was_full = self.incoming >= INCOMING;
        let before = buf.len();
        while let Some(front) = self.arrived.front_mut() {
            let length = front.len().min(buf.capacity() - buf.len());
            if length == 0 {
                break;
            }
            buf.extend_from_slice(&front[..length]);
            front.advance(length);
            if front.is_empty() {
                self.arrived.pop_front();
            }
        }
        let read = buf.len() - before;
        self.incoming -= read;
        (read, was_full && self.incoming < INCOMING)
    }

    /// Takes bytes from the front of `frames` while there is room for them; returns their number.
    pub(crate) fn write(&mut self, frames: &mut VecDeque<Bytes>, limit: usize) -> usize {
        let mut taken = 0;
        while let Some(front) = frames.front_mut() {
            if front.is_empty() {
                frames.pop_front();
                continue;
            }
            let room = limit.saturating_sub(self.outgoing);
            let length = front.len().min(room).min(MESSAGE - self.filling.len());
            if length == 0 {
                break;
            }
            // A bulk message is filled; a message of a few bytes is sent as it is.
            let bulk = if length > 2_048 { MESSAGE - self.filling.len() } else { length };
            self.filling.reserve(bulk);
            self.filling.extend_from_slice(&front[..length]);
            front.advance(length);
            self.outgoing += length;
            taken += length;
            if self.filling.len() == MESSAGE {
                self.full.push_back(std::mem::take(&mut self.filling));
            }
        }
        taken
    }
}
