//! Decodes the bytes of a carrier into events. Payload becomes an event as it arrives, as a slice
//! of the read buffer. Every other frame is small and is decoded when it is complete.

use crate::Instant;

use bytes::{Buf, BytesMut};

use super::carrier::Phase;
use super::decoder::{Decoder, Payload};
use super::schedule::ANSWERS_MAX;
use super::{Event, LaneInput, Link, StreamKey, lookup};
use crate::budget::Reported;
use crate::flow::DATAGRAM_MAX;
use crate::frame::{
    CREDIT_LENGTH, Credit, END_LENGTH, FLAG_WAITING, HEAD, Head, Kind, MAX_OPEN, MAX_PAYLOAD,
    MAX_RESUME, OFFSET_LENGTH, PING_LENGTH, RESUME_FIXED, decode_open,
};
use crate::offset::{Offset, length};
use crate::stream::{IMPLICIT_WINDOW, Stream};
use crate::{
    CarrierNumber, GoAwayReason, HEAD_ROOM, ResetCode, StreamId, Violation, ViolationCode,
};

impl Link {
    /// Consumes bytes that arrived on a carrier from `buf` until there is an event. `None`: the
    /// rest of `buf`, at most a part of a small frame, waits for more bytes.
    ///
    /// # Errors
    /// The peer broke the rules: the driver calls [`Link::abort`], sends the output of
    /// [`Link::poll_transmit`], and ends the link.
    pub fn handle_input(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        buf: &mut BytesMut,
    ) -> Result<Option<Event>, Violation> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if buf.is_empty() {
                return Ok(None);
            }
            let Some(carrier) = self.carriers.find(number) else {
                // Bytes of a carrier that was replaced are dropped, not read.
                buf.clear();
                return Ok(None);
            };
            carrier.received(now, &mut self.events);
            let (phase, mut decoder) = (carrier.phase, std::mem::take(&mut carrier.decoder));
            let (event, enough) = match decoder {
                Decoder::Payload(_) => (self.handle_payload(now, &mut decoder, buf), true),
                Decoder::Head => self.handle_frame(now, number, phase, &mut decoder, buf)?,
            };
            if let (Decoder::Payload(_), Some(carrier)) = (&decoder, self.carriers.find(number)) {
                carrier.decoder = decoder;
            }
            if event.is_some() || !enough {
                return Ok(event);
            }
        }
    }

    /// The stream whose payload follows on the first lane of a carrier, and the payload's length in
    /// bytes, if all bytes are new and not discarded. The driver may take them as pages:
    /// [`Link::moved`].
    #[must_use]
    pub fn expected(&mut self, number: CarrierNumber) -> Option<(StreamKey, usize)> {
        let carrier = self.carriers.find(number).filter(|carrier| carrier.is_live())?;
        let Decoder::Payload(Payload { key: Some(key), known: 0, left }) = carrier.decoder else {
            return None;
        };
        let stream = lookup(&mut self.streams, key)?;
        let is_wanted = !stream.recv.has_ended() && !stream.recv.is_stopped();
        (is_wanted && key.id != StreamId::CONTROL).then_some((key, left))
    }

    /// The number of bytes, at least 1, up to the end of the header of the next DATA frame on the
    /// first lane of a carrier. `buf` holds the bytes that [`Link::handle_input`] has left. A
    /// driver that reads no more than these bytes may take the payload after the header as pages.
    #[must_use]
    pub fn until_payload(&mut self, number: CarrierNumber, buf: &[u8]) -> usize {
        let decoder = self.carriers.find(number).map(|carrier| &carrier.decoder);
        let end = match (decoder, buf.first_chunk::<HEAD>()) {
            (Some(Decoder::Payload(payload)), _) => payload.left,
            (Some(Decoder::Head), Some(raw)) => match Head::decode(*raw) {
                Head { kind: None | Some(Kind::Data | Kind::Control), .. } => 0,
                head => HEAD + head.length,
            },
            (Some(Decoder::Head), None) | (None, _) => 0,
        };
        (end + HEAD_ROOM).saturating_sub(buf.len()).max(1)
    }

    /// Records that the driver has taken the first `bytes` bytes of the payload that
    /// [`Link::expected`] returned.
    pub fn moved(&mut self, now: Instant, number: CarrierNumber, bytes: usize) {
        let Some(carrier) = self.carriers.find(number) else { return };
        carrier.received(now, &mut self.events);
        let Decoder::Payload(payload) = &mut carrier.decoder else { return };
        let key = payload.key;
        payload.left = payload.left.saturating_sub(bytes);
        if payload.left == 0 {
            carrier.decoder = Decoder::Head;
        }
        if let Some(stream) = key.and_then(|key| lookup(&mut self.streams, key)) {
            stream.recv.advance(length(bytes));
            stream.account(&*self.budget);
        }
    }

    /// Consumes bytes that arrived on a stream's own lane, as [`Link::handle_input`] does. After a
    /// `None` see [`LaneInput::waits`].
    ///
    /// # Errors
    /// As for [`Link::handle_input`].
    pub fn handle_lane(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        lane: &mut LaneInput,
        buf: &mut BytesMut,
    ) -> Result<Option<Event>, Violation> {
        lane.waits = false;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if buf.is_empty() {
                return Ok(None);
            }
            let Some(carrier) = self.carriers.find(number) else {
                buf.clear();
                return Ok(None);
            };
            carrier.received(now, &mut self.events);
            carrier.has_lanes = true;
            if let Decoder::Payload(_) = lane.decoder {
                let event = self.handle_payload(now, &mut lane.decoder, buf);
                if event.is_some() {
                    return Ok(event);
                }
                continue;
            }
            let Some(raw) = buf.first_chunk::<HEAD>() else { return Ok(None) };
            let head = Head::decode(*raw);
            self.check_lane(lane, head)?;
            lane.waits = self.is_early(number, head.stream);
            if lane.waits || !self.handle_lane_frame(head, &mut lane.decoder, buf)? {
                return Ok(None);
            }
        }
    }

    /// Checks that the frame is allowed on a stream's own lane, and on this lane.
    fn check_lane(&self, lane: &mut LaneInput, head: Head) -> Result<(), Violation> {
        match head.kind {
            Some(kind @ (Kind::Data | Kind::Fin)) => check_length(kind, head.length)?,
            None if head.is_ignorable() => {}
            Some(_) | None => return Err(Violation::link(ViolationCode::UnknownKind)),
        }
        let is_first = lane.stream.is_none();
        let stream = *lane.stream.get_or_insert(head.stream);
        // A stream that is not open yet must be one that the peer may open.
        let may_come = stream.opener() == Some(self.side.peer()) && stream <= StreamId::LAST;
        let is_possible = stream != StreamId::CONTROL && (may_come || self.was_opened(stream));
        if stream != head.stream || (is_first && !is_possible) {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        Ok(())
    }

    /// Handles DATA up to its payload, or a complete FIN. Returns `false` if more bytes are needed.
    fn handle_lane_frame(
        &mut self,
        head: Head,
        decoder: &mut Decoder,
        buf: &mut BytesMut,
    ) -> Result<bool, Violation> {
        if head.kind == Some(Kind::Data) {
            return self.handle_data_head(Kind::Data, head, decoder, buf);
        }
        if head.kind.is_none() {
            buf.advance(HEAD);
            decoder.expect(Payload { key: None, known: 0, left: head.length });
            return Ok(true);
        }
        let Some(body) = buf.get(HEAD..HEAD + head.length) else { return Ok(false) };
        self.handle_fin(head.stream, body)?;
        buf.advance(HEAD + head.length);
        Ok(true)
    }

    fn handle_payload(
        &mut self,
        now: Instant,
        decoder: &mut Decoder,
        buf: &mut BytesMut,
    ) -> Option<Event> {
        let Decoder::Payload(mut payload) = std::mem::take(decoder) else { return None };
        let known = payload.known.min(buf.len());
        buf.advance(known);
        payload.known -= known;
        payload.left -= known;
        let piece = payload.left.min(buf.len());
        let key = payload.key;
        payload.left -= piece;
        if payload.left > 0 {
            *decoder = Decoder::Payload(payload);
        }
        if piece == 0 {
            return None;
        }
        let wanted = key.and_then(|key| {
            let stream = lookup(&mut self.streams, key)?;
            // Bytes that arrive after a RESET or STOP are discarded.
            if stream.recv.has_ended() {
                return None;
            }
            stream.recv.advance(length(piece));
            // Bytes in the implicit window were not drawn from the budget when they were granted.
            stream.account(&*self.budget);
            Some((key, !stream.recv.is_stopped()))
        });
        match wanted {
            Some((key, true)) => {
                let bytes = buf.split_to(piece).freeze();
                if key.id == StreamId::CONTROL {
                    self.consume(now, key, piece);
                    return Some(Event::Control(bytes));
                }
                Some(Event::Data { key, bytes })
            }
            Some((key, false)) => {
                buf.advance(piece);
                self.consume(now, key, piece);
                None
            }
            None => {
                buf.advance(piece);
                None
            }
        }
    }

    /// Handles the header of a frame and, except for payload, its body. Returns the event of a
    /// datagram, and `false` if more bytes are needed.
    fn handle_frame(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        phase: Phase,
        decoder: &mut Decoder,
        buf: &mut BytesMut,
    ) -> Result<(Option<Event>, bool), Violation> {
        let Some(raw) = buf.first_chunk::<HEAD>() else { return Ok((None, false)) };
        let head = Head::decode(*raw);
        let Some(kind) = head.kind else {
            if !head.is_ignorable() {
                return Err(Violation::link(ViolationCode::UnknownKind));
            }
            buf.advance(HEAD);
            decoder.expect(Payload { key: None, known: 0, left: head.length });
            return Ok((None, true));
        };
        check_length(kind, head.length)?;
        let early = matches!(kind, Kind::Resume | Kind::Ping | Kind::Pong | Kind::GoAway);
        if phase != Phase::Live && !early {
            return Err(Violation::link(ViolationCode::BadResume));
        }
        if matches!(kind, Kind::Data | Kind::Control) {
            let enough = self.handle_data_head(kind, head, decoder, buf)?;
            return Ok((None, enough));
        }
        if kind == Kind::Datagram {
            if !self.flows.are_on() {
                return Err(Violation::link(ViolationCode::UnknownKind));
            }
            if buf.len() < HEAD + head.length {
                return Ok((None, false));
            }
            buf.advance(HEAD);
            let payload = buf.split_to(head.length).freeze();
            return Ok((self.handle_datagram(head.stream, payload)?, true));
        }
        let Some(body) = buf.get(HEAD..HEAD + head.length) else { return Ok((None, false)) };
        match kind {
            Kind::Open => self.handle_open(head.stream, body)?,
            Kind::Fin => self.handle_fin(head.stream, body)?,
            Kind::Reset => self.handle_reset(head.stream, body)?,
            Kind::Stop => self.handle_stop(head.stream, body)?,
            Kind::Credit => self.handle_credit(now, head.stream, head.flags, body)?,
            Kind::Ping | Kind::Pong => self.handle_ping(now, number, kind, body),
            Kind::GoAway => {
                let raw = ResetCode::decode(body).map_or(0, ResetCode::raw);
                self.handle_goaway(GoAwayReason::from_raw(raw));
            }
            Kind::Resume => self.handle_resume(number, head.flags, body)?,
            Kind::Data | Kind::Control | Kind::Datagram => {}
        }
        buf.advance(HEAD + head.length);
        Ok((None, true))
    }

    fn handle_data_head(
        &mut self,
        kind: Kind,
        head: Head,
        decoder: &mut Decoder,
        buf: &mut BytesMut,
    ) -> Result<bool, Violation> {
        let Some(low) = buf.get(HEAD..).and_then(<[u8]>::first_chunk::<4>) else {
            return Ok(false);
        };
        let low = u32::from_be_bytes(*low);
        let left = head.length - OFFSET_LENGTH;
        if (kind == Kind::Control) != (head.stream == StreamId::CONTROL) {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        let key = self.known_stream(head.stream)?;
        let mut payload = Payload { key, known: 0, left };
        if let Some(stream) = key.and_then(|key| lookup(&mut self.streams, key))
            && !stream.recv.has_ended()
        {
            let arrival = stream.recv.place(low, length(left)).map_err(Violation::link)?;
            payload.known = crate::offset::memory(arrival.known);
            if head.flags & FLAG_WAITING != 0 {
                stream.recv.await_credit();
            }
        }
        buf.advance(HEAD + OFFSET_LENGTH);
        decoder.expect(payload);
        Ok(true)
    }

    /// The stream of an id; `None` if it is forgotten, an error if it was never opened.
    fn known_stream(&self, id: StreamId) -> Result<Option<StreamKey>, Violation> {
        match self.implicit_key(id) {
            Some(key) => Ok(Some(key)),
            None if self.was_opened(id) => Ok(None),
            None => Err(Violation::link(ViolationCode::BadStream)),
        }
    }

    fn handle_open(&mut self, id: StreamId, body: &[u8]) -> Result<(), Violation> {
        if id.opener() != Some(self.side.peer()) || id > StreamId::LAST {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        if id <= self.highest {
            // A repetition of an OPEN that was already received; the first counts.
            return Ok(());
        }
        self.highest = id;
        if self.schedule.refusals.len() >= ANSWERS_MAX {
            return Err(Violation::link(ViolationCode::Flood));
        }
        let Some((open, limit)) = decode_open(body) else {
            let violation = Violation::stream(id, ViolationCode::Malformed);
            self.schedule.refusals.push_back((id, violation.reset_code()));
            return Ok(());
        };
        let obstacle = if self.going_away {
            Some(ResetCode::Shutdown)
        } else if self.stream_count() >= self.config.streams_max
            || !Stream::is_affordable(&*self.budget)
            || !self.has_room_for(open.visitor)
        {
            Some(ResetCode::Limit)
        } else {
            None
        };
        if let Some(code) = obstacle {
            self.schedule.refusals.push_back((id, code));
            return Ok(());
        }
        let mut stream = Stream::new(id, open.priority, IMPLICIT_WINDOW);
        stream.reported =
            open.visitor.and_then(|visitor| self.budget.share(visitor)).map(Reported::new);
        stream.recv.open_window(self.first_window(id), &*self.budget);
        let limit = limit.max(Offset::new(IMPLICIT_WINDOW));
        stream.send.acknowledge(limit, Offset::ZERO, &mut self.store).map_err(Violation::link)?;
        stream.account(&*self.budget);
        // Grants credit to the opener, and acknowledges the OPEN.
        stream.recv.owe_credit();
        let key = StreamKey { index: self.streams.insert(stream), id };
        self.ids.insert(id, key.index);
        if let Some(stream) = lookup(&mut self.streams, key) {
            self.schedule.signals.push(key, stream);
        }
        self.events.push_back(Event::Opened { key, open });
        Ok(())
    }

    fn handle_fin(&mut self, id: StreamId, mut body: &[u8]) -> Result<(), Violation> {
        if id == StreamId::CONTROL {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        let low = body.try_get_u32().unwrap_or_default();
        let Some(key) = self.known_stream(id)? else { return self.acknowledge_forgotten(id) };
        let Some(stream) = lookup(&mut self.streams, key) else { return Ok(()) };
        let news = stream.recv.finish(low).map_err(Violation::link)?;
        self.acknowledge_end(key, news.then_some(Event::Finished { key }));
        Ok(())
    }

    fn handle_reset(&mut self, id: StreamId, body: &[u8]) -> Result<(), Violation> {
        if id == StreamId::CONTROL {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        let code = ResetCode::decode(body).unwrap_or(ResetCode::Internal);
        let Some(key) = self.known_stream(id)? else { return self.acknowledge_forgotten(id) };
        let Some(stream) = lookup(&mut self.streams, key) else { return Ok(()) };
        let news = stream.recv.reset();
        self.acknowledge_end(key, news.then_some(Event::Reset { key, code }));
        Ok(())
    }

    fn acknowledge_forgotten(&mut self, id: StreamId) -> Result<(), Violation> {
        if self.schedule.acknowledge(id) {
            Ok(())
        } else {
            Err(Violation::link(ViolationCode::Flood))
        }
    }

    fn acknowledge_end(&mut self, key: StreamKey, event: Option<Event>) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        stream.account(&*self.budget);
        stream.recv.owe_credit();
        self.schedule.signals.push(key, stream);
        // After STOP the application ignores how the direction ended.
        if !stream.recv.is_stopped() {
            self.events.extend(event);
        }
    }

    fn handle_stop(&mut self, id: StreamId, body: &[u8]) -> Result<(), Violation> {
        if id == StreamId::CONTROL {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        let code = ResetCode::decode(body).unwrap_or(ResetCode::Internal);
        let Some(key) = self.known_stream(id)? else { return Ok(()) };
        let Some(stream) = lookup(&mut self.streams, key) else { return Ok(()) };
        if stream.send.reset(code) {
            stream.account(&*self.budget);
            self.schedule.signals.push(key, stream);
            self.events.push_back(Event::Stopped { key, code });
        }
        Ok(())
    }

    fn handle_credit(
        &mut self,
        now: Instant,
        id: StreamId,
        flags: u8,
        body: &[u8],
    ) -> Result<(), Violation> {
        let Some(key) = self.known_stream(id)? else { return Ok(()) };
        let Some(credit) = Credit::decode(flags, body) else { return Ok(()) };
        let Some(stream) = lookup(&mut self.streams, key) else { return Ok(()) };
        stream.open = None;
        self.store.limit_by(&*self.budget);
        if credit.consumed > stream.send.consumed() {
            stream.send.moves(now, &mut self.moving.sending);
        }
        let consumed = stream
            .send
            .acknowledge(credit.limit, credit.consumed, &mut self.store)
            .map_err(Violation::link)?;
        self.rate.sample(now, consumed);
        if credit.ack_end && id != StreamId::CONTROL {
            stream.send.end_acknowledged();
        }
        stream.account(&*self.budget);
        self.store.account(&*self.budget);
        if id == StreamId::CONTROL {
            // Flows may wait until their FlowOpen is read.
            self.flows.unpark();
        }
        // The stream may have been held back until this CREDIT.
        self.schedule.make_ready(key, stream);
        self.announce_room(key);
        self.try_forget(key);
        Ok(())
    }

    fn handle_ping(&mut self, now: Instant, number: CarrierNumber, kind: Kind, mut body: &[u8]) {
        let value = body.try_get_u64().unwrap_or_default();
        let Some(carrier) = self.carriers.find(number) else { return };
        if kind == Kind::Ping {
            carrier.pong = Some(value);
        } else {
            carrier.liveness.pong(now, value);
        }
    }
}

fn check_length(kind: Kind, n: usize) -> Result<(), Violation> {
    let fits = match kind {
        Kind::Open => n <= MAX_OPEN,
        Kind::Data | Kind::Control => n > OFFSET_LENGTH && n <= OFFSET_LENGTH + MAX_PAYLOAD,
        Kind::Datagram => n <= DATAGRAM_MAX,
        Kind::Fin => n == OFFSET_LENGTH,
        Kind::Reset | Kind::Stop | Kind::GoAway => n == END_LENGTH,
        Kind::Credit => n == CREDIT_LENGTH,
        Kind::Ping | Kind::Pong => n == PING_LENGTH,
        Kind::Resume => (RESUME_FIXED..=MAX_RESUME).contains(&n),
    };
    if fits { Ok(()) } else { Err(Violation::link(ViolationCode::BadLength)) }
}
