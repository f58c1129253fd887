//! The exchange after the loss of a carrier: each side announces which bytes it has, and
//! retransmits the bytes that the other side lacks.
//!
//! RESUME lists every stream that its sender has not forgotten. The fate of a stream that is not
//! listed follows from the rules of forgetting (protocol decision 10). An id above the highest id
//! that the sender has seen was never opened there: OPEN and all bytes are sent again. Any other id
//! was forgotten or refused. A side forgets a stream only after both directions have ended. So the
//! stream is finished if this end has received its end too, and aborted otherwise. A refusal also
//! is an abort. The model of these rules was checked exhaustively; `tests/kill_model` runs the
//! model over this code.

use crate::Instant;
use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::carrier::{Carrier, Phase};
use super::queue::{Listed, stands_in};
use super::{Event, Link, StreamKey, lookup};
use crate::frame::{
    Entry, FLAG_MORE, HEAD, MAX_RESUME, RESUME_ENTRY, RESUME_FIXED, encode_resume_head,
};
use crate::{CarrierNumber, ResetCode, StreamId, Violation, ViolationCode};

/// Maximum number of entries in one RESUME frame.
const ENTRIES: usize = (MAX_RESUME - RESUME_FIXED) / RESUME_ENTRY;

/// Maximum number of entries in a list for streams that this side does not know. Such a stream is
/// forgotten here, or its OPEN was lost. A peer with more entries would have opened more streams
/// than the default [`LinkConfig::streams_max`] permits.
///
/// [`LinkConfig::streams_max`]: super::LinkConfig::streams_max
const UNKNOWN_MAX: usize = 1 << 20;

/// The relation of a new carrier to the other carriers of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The first carrier of the link.
    New,
    /// A standby in addition to the active carrier, instead of an older standby.
    Adds,
    /// Replaces the carrier with this number and all earlier carriers.
    Replaces(CarrierNumber),
}

impl Link {
    /// Attaches a carrier after its greeting. The driver has closed the carriers that it replaces
    /// and dropped their unread bytes. [`Event::CarrierDead`] names each carrier that is replaced.
    pub fn attach(&mut self, now: Instant, number: CarrierNumber, how: Attach) {
        match how {
            Attach::New => self.carriers.add(Carrier::new(number, Phase::Live, now)),
            Attach::Adds if self.carriers.active().is_some() => {
                self.carriers.remove(&mut self.events, |one| one.phase == Phase::Standby);
                self.carriers.add(Carrier::new(number, Phase::Standby, now));
            }
            Attach::Adds | Attach::Replaces(_) => {
                self.carriers.remove(&mut self.events, |_| true);
                self.carriers.add(Carrier::new(number, Phase::Standby, now));
                self.begin_resume(number);
            }
        }
    }

    /// Detaches a lost carrier. Its unread bytes are dropped, and a standby takes over at once.
    pub fn detach(&mut self, now: Instant, number: CarrierNumber) {
        if self.carriers.lose(number)
            && let Some(standby) = self.carriers.standby()
        {
            self.take_over(standby);
        }
        self.carriers.note_absence(now);
        self.rest();
    }

    /// Makes the standby the active carrier after the loss of the active one.
    fn take_over(&mut self, standby: CarrierNumber) {
        self.begin_resume(standby);
        self.events.push_back(Event::TookOver(standby));
    }

    /// Makes a standby the active carrier: queues our RESUME on it.
    pub(super) fn begin_resume(&mut self, number: CarrierNumber) {
        // A list that the last carrier delivered in part is invalid.
        self.listed.clear(&mut self.streams);
        let resume = self.resume_frames();
        let Some(carrier) = self.carriers.find(number) else { return };
        carrier.phase = Phase::Resuming;
        carrier.resume = resume;
    }

    /// Our RESUME of the current state.
    pub(super) fn resume_frames(&self) -> VecDeque<Bytes> {
        let entries: Vec<Entry> = self.streams.iter().map(|(_, stream)| stream.entry()).collect();
        let parts = entries.chunks(ENTRIES).enumerate();
        let frames = parts.len();
        parts.map(|(n, part)| encode_resume(self.highest, part, n + 1 < frames)).collect()
    }

    pub(super) fn handle_resume(
        &mut self,
        number: CarrierNumber,
        flags: u8,
        mut body: &[u8],
    ) -> Result<(), Violation> {
        match self.carriers.find(number).map(|carrier| carrier.phase) {
            Some(Phase::Resuming) => {}
            Some(Phase::Standby) => {
                // The peer has lost the active carrier.
                self.carriers.remove(&mut self.events, |carrier| carrier.number != number);
                self.take_over(number);
            }
            Some(Phase::Live) | None => {
                return Err(Violation::link(ViolationCode::BadResume));
            }
        }
        let highest = StreamId::new(body.try_get_u32().unwrap_or_default());
        if highest != StreamId::CONTROL
            && (highest.opener() != Some(self.side) || !self.was_opened(highest))
        {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        let continues = flags & FLAG_MORE != 0;
        // If each frame has an entry, the limit of entries also limits the frames.
        if continues && body.is_empty() {
            return Err(Violation::link(ViolationCode::BadResume));
        }
        while !body.is_empty() {
            let entry =
                Entry::decode(&mut body).ok_or(Violation::link(ViolationCode::BadLength))?;
            self.resume_stream(number, entry)?;
        }
        if !continues {
            self.finish_resume(number, highest)?;
        }
        Ok(())
    }

    fn resume_stream(&mut self, number: CarrierNumber, entry: Entry) -> Result<(), Violation> {
        let Some(key) = self.implicit_key(entry.stream) else {
            return self.pass_unknown(number, entry.stream);
        };
        let Some(stream) = lookup(&mut self.streams, key) else { return Ok(()) };
        if stands_in::<Listed>(stream) {
            return Err(Violation::link(ViolationCode::Contradiction));
        }
        self.listed.push(key, stream);
        stream.open = None;
        self.store.limit_by(&*self.budget);
        stream
            .send
            .acknowledge(entry.limit, entry.consumed, &mut self.store)
            .map_err(Violation::link)?;
        stream
            .send
            .resume(entry.received, entry.end_seen, &mut self.store)
            .map_err(Violation::link)?;
        if entry.end_seen {
            stream.send.end_acknowledged();
        }
        stream.account(&*self.budget);
        self.store.account(&*self.budget);
        Ok(())
    }

    /// Counts an entry for a stream that is forgotten here, or whose OPEN has not arrived. The peer
    /// detects this from our RESUME.
    fn pass_unknown(&mut self, number: CarrierNumber, id: StreamId) -> Result<(), Violation> {
        let may_come = id.opener() == Some(self.side.peer()) && id <= StreamId::LAST;
        if !may_come && !self.was_opened(id) {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        let Some(carrier) = self.carriers.find(number) else { return Ok(()) };
        carrier.unknown_listed += 1;
        if carrier.unknown_listed > UNKNOWN_MAX {
            return Err(Violation::link(ViolationCode::Flood));
        }
        Ok(())
    }

    /// Handles the end of the peer's list: decides the fate of streams that are not listed, and
    /// starts sending.
    fn finish_resume(&mut self, number: CarrierNumber, highest: StreamId) -> Result<(), Violation> {
        let mut keys: Vec<StreamKey> =
            self.streams.iter().map(|(index, stream)| StreamKey { index, id: stream.id }).collect();
        // OPENs go out in the order of their ids.
        keys.sort_unstable_by_key(|key| key.id);
        self.schedule.clear(&mut self.streams);
        let was_previewed = self.carriers.find(number).is_some_and(|carrier| carrier.was_previewed);
        for &key in &keys {
            let Some(stream) = lookup(&mut self.streams, key) else { continue };
            if stands_in::<Listed>(stream) {
                stream.recv.resume();
                // Consumption since the preview was announced on a carrier that is lost.
                if was_previewed {
                    stream.recv.owe_credit();
                }
            } else if key.id == StreamId::CONTROL {
                return Err(Violation::link(ViolationCode::BadResume));
            } else if key.id.opener() == Some(self.side) && key.id > highest {
                stream.recv.resume();
                stream.rewind(&mut self.store);
                stream.account(&*self.budget);
                self.schedule.opens.push_back(key);
            } else {
                self.lose_stream(key);
                continue;
            }
            let Some(stream) = lookup(&mut self.streams, key) else { continue };
            if stream.has_signal() {
                self.schedule.signals.push(key, stream);
            }
            self.schedule.make_ready(key, stream);
        }
        self.listed.clear(&mut self.streams);
        self.listed.shrink_to_fit();
        if let Some(carrier) = self.carriers.find(number) {
            carrier.phase = Phase::Live;
        }
        self.repeat_goaway();
        self.events.push_back(Event::Resumed);
        for key in keys {
            self.announce_room(key);
            self.try_forget(key);
        }
        Ok(())
    }

    /// Aborts a stream that the peer has forgotten or refused: the peer ignores all later frames of
    /// it.
    fn lose_stream(&mut self, key: StreamKey) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        let code = ResetCode::Shutdown;
        let is_aborted = stream.recv.reset();
        if is_aborted {
            self.events.push_back(Event::Reset { key, code });
        }
        // The RESET of a refusal may have arrived without its STOP.
        if is_aborted || stream.send.is_open() {
            self.events.push_back(Event::Stopped { key, code });
        }
        stream.recv.take_credit_due();
        stream.send.abandon();
        stream.account(&*self.budget);
        self.try_forget(key);
    }
}

fn encode_resume(highest: StreamId, entries: &[Entry], more: bool) -> Bytes {
    let length = HEAD + RESUME_FIXED + entries.len() * RESUME_ENTRY;
    let mut out = BytesMut::with_capacity(length);
    encode_resume_head(&mut out, highest, entries.len(), more);
    for entry in entries {
        entry.encode(&mut out);
    }
    out.freeze()
}
