//! What a lane and the tasks of its channel share. The lane may live on another thread than the
//! connection; a mutex that is held for the length of a copy joins the two.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::sync::Notify;

use crate::error::End;

/// The length of a message that is full, bytes: 14 times the payload of a packet (1,160). Packets
/// of one length leave in one call; a shorter one in between ends a run.
pub(crate) const MESSAGE: usize = 16_240;

/// The most bytes that the lane holds for the task that sends. The library holds as many as a
/// window has beside them.
pub(crate) const OUTGOING: usize = 16 * MESSAGE;

/// As many bytes wait for a reader before the task leaves further messages to the library, and so
/// to the window of SCTP.
pub(crate) const INCOMING: usize = 256 << 10;

/// As many bytes wait for the reader of a peer that has not proved its identity. A greeting needs
/// less than 4 KiB.
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
    /// Messages that are full.
    full: VecDeque<BytesMut>,
    /// The message that is being filled.
    filling: BytesMut,
    /// Bytes in both.
    outgoing: usize,
    /// The lane has ended its direction.
    is_finishing: bool,
    /// The library has taken all bytes and the end mark.
    is_finished: bool,
    arrived: VecDeque<BytesMut>,
    incoming: usize,
    /// The end mark of the peer has arrived.
    is_ended: bool,
    /// The reader has seen the end, and the peer is to learn of it.
    owes_receipt: bool,
    has_read_end: bool,
    /// The peer has read all bytes up to our end mark.
    is_received: bool,
    /// Why the channel is over. Bytes that arrived before are still read.
    end: Option<End>,
    is_authenticated: bool,
    is_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// What the sending task does next.
#[derive(Debug)]
pub(crate) enum Work {
    Send(BytesMut),
    /// Sends the end mark.
    Finish,
    /// Tells the peer that its bytes were read to the end.
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

    /// What there is to do, in its order.
    pub(crate) async fn next(&self) -> Work {
        loop {
            let work = self.lock().work();
            match work {
                Some(work) => return work,
                None => self.work.notified().await,
            }
        }
    }

    /// Waits until the reader takes a further message. `false`: nobody reads any more.
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

    /// Ready when nothing that is left is worth sending.
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

    /// Ready when nobody waits for messages any more: no reader, and no lane that lingers.
    pub(crate) async fn left(&self) {
        while !self.lock().has_left() {
            self.room.notified().await;
        }
    }

    /// Ready when the peer has read all bytes, or nobody will.
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

    /// The peer says that it has read all bytes.
    pub(crate) fn receipt(&self) {
        self.lock().is_received = true;
        self.work.notify_one();
        self.room.notify_one();
    }

    /// Bytes have arrived.
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

    /// The library has taken the end mark.
    pub(crate) fn finished(&self) {
        let mut state = self.lock();
        state.is_finished = true;
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }

    /// A message was handed to the library.
    pub(crate) fn sent(&self, length: usize) {
        let mut state = self.lock();
        state.outgoing = state.outgoing.saturating_sub(length);
        let writer = state.writer.take();
        drop(state);
        wake(writer);
    }

    /// The channel is over.
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

    /// Nobody reads or writes any more.
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
        // What an aborted lane has not sent is lost; after an end all of it is delivered.
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

    /// Whether the reader has all bytes up to the end. `true`, and the first time: the peer is to
    /// learn of it.
    pub(crate) const fn read_end(&mut self) -> (bool, bool) {
        let is_first = self.is_ended && !self.has_read_end;
        self.has_read_end = self.is_ended;
        self.owes_receipt |= is_first;
        (self.is_ended, is_first)
    }

    /// Whether nobody waits for messages.
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

    /// Bytes that wait in either direction.
    pub(crate) const fn held(&self) -> usize {
        self.incoming + self.outgoing
    }

    /// Whether all bytes were handed to the library.
    pub(crate) const fn is_flushed(&self) -> bool {
        self.outgoing == 0
    }

    /// Appends bytes that have arrived to `buf`, at most its spare capacity. Returns their number,
    /// and whether the task may go on to receive.
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
            // A message of bulk is filled; a message of a few bytes leaves as it is.
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
