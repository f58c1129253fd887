//! One end of a pair: the link and a small application that uses it.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use proto::control::{ControlDecoder, ControlMessage};
use proto::{
    CarrierNumber, Event, FlowId, FlowKey, LaneInput, Link, Open, Pages, ResetCode, StreamId,
    StreamKey, Violation,
};

/// The application's record of one stream: its own actions and the events of the link.
#[derive(Debug)]
pub struct Seen {
    /// The stream's key at this end.
    pub key: StreamKey,
    /// The peer's request; `None` for streams that this end opened.
    pub open: Option<Open>,
    /// Bytes that arrived, unless [`End::keeps`] is false.
    pub got: Vec<u8>,
    /// The number of bytes that arrived.
    pub count: u64,
    /// Whether the peer's direction ended cleanly.
    pub finished: bool,
    /// The code of the peer's abort of its direction.
    pub reset: Option<ResetCode>,
    /// The code with which the peer stopped this end's direction.
    pub stopped: Option<ResetCode>,
    /// Whether the link has forgotten the stream.
    pub closed: bool,
    /// Whether arriving bytes are consumed at once.
    pub automatic: bool,
    /// Bytes that have arrived and are not consumed.
    pub held: usize,
    pending: VecDeque<Bytes>,
    finish: bool,
}

impl Seen {
    const fn new(key: StreamKey, open: Option<Open>, automatic: bool) -> Self {
        Self {
            key,
            open,
            got: Vec::new(),
            count: 0,
            finished: false,
            reset: None,
            stopped: None,
            closed: false,
            automatic,
            held: 0,
            pending: VecDeque::new(),
            finish: false,
        }
    }

    /// Bytes for which the link had no room yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.iter().map(Bytes::len).sum()
    }
}

/// The application's record of one flow.
#[derive(Debug)]
pub struct Conversation {
    /// The flow's key at this end.
    pub key: FlowKey,
    /// The peer's request; `None` for flows that this end opened.
    pub open: Option<Open>,
    /// The datagrams that arrived.
    pub got: Vec<Bytes>,
    /// Why the flow was closed, and whether the peer closed it.
    pub closed: Option<(ResetCode, bool)>,
}

impl Conversation {
    const fn new(key: FlowKey, open: Option<Open>) -> Self {
        Self { key, open, got: Vec::new(), closed: None }
    }
}

/// One end of a pair.
#[derive(Debug)]
pub struct End {
    /// The link under test.
    pub link: Link,
    /// Streams by the number of their id, including closed streams.
    pub streams: BTreeMap<u32, Seen>,
    /// Streams that the peer opened and the test has not looked at yet.
    pub opened: VecDeque<StreamId>,
    /// Flows by the number of their id, including closed flows.
    pub flows: BTreeMap<u32, Conversation>,
    messages: ControlDecoder,
    /// Received bytes of the control stream.
    pub control: Vec<u8>,
    /// Events of the link itself, not of its streams, with their times.
    pub log: Vec<(Instant, Event)>,
    /// The rule that the peer broke. After a violation, this end reads nothing more.
    pub violation: Option<Violation>,
    /// Whether arriving bytes are kept in [`Seen::got`].
    pub keeps: bool,
    /// Whether the transport of the active carrier hears nothing when only the standby answers.
    pub hears_nothing: bool,
    /// Whether bytes of new streams are consumed at once.
    pub automatic: bool,
    pub(super) dead: Vec<CarrierNumber>,
    /// Streams that may have something to send.
    eager: Vec<u32>,
    /// The number of payloads that were sent. Every second payload is in pages.
    sent: u64,
    /// The number of events that arrived.
    received: u64,
}

/// Bytes instead of pages.
#[derive(Debug)]
struct Page(Bytes);

impl Pages for Page {
    fn copy(&self, len: usize) -> Bytes {
        self.0.slice(self.0.len() - len..)
    }

    fn number(&self) -> usize {
        0
    }
}

impl End {
    pub(super) fn new(link: Link) -> Self {
        Self {
            link,
            streams: BTreeMap::new(),
            opened: VecDeque::new(),
            flows: BTreeMap::new(),
            messages: ControlDecoder::new(),
            control: Vec::new(),
            log: Vec::new(),
            sent: 0,
            received: 0,
            violation: None,
            keeps: true,
            hears_nothing: false,
            automatic: true,
            dead: Vec::new(),
            eager: Vec::new(),
        }
    }

    /// The number of the link's events that match.
    pub fn times(&self, matches: impl Fn(&Event) -> bool) -> usize {
        self.log.iter().filter(|(_, event)| matches(event)).count()
    }

    pub(super) fn open(&mut self, open: &Open) -> Option<StreamId> {
        let key = self.link.open(open)?;
        self.streams.insert(key.id().raw(), Seen::new(key, None, self.automatic));
        Some(key.id())
    }

    pub(super) fn write(&mut self, id: StreamId, bytes: Bytes) {
        if let Some(seen) = self.streams.get_mut(&id.raw()) {
            seen.pending.push_back(bytes);
            self.eager.push(id.raw());
        }
    }

    pub(super) fn finish(&mut self, id: StreamId) {
        if let Some(seen) = self.streams.get_mut(&id.raw()) {
            seen.finish = true;
            self.eager.push(id.raw());
        }
    }

    pub(super) fn reset(&mut self, id: StreamId, code: ResetCode) {
        if let Some(seen) = self.streams.get_mut(&id.raw()) {
            seen.pending.clear();
            self.link.reset(seen.key, code);
        }
    }

    pub(super) fn stop(&mut self, id: StreamId, code: ResetCode) {
        if let Some(seen) = self.streams.get_mut(&id.raw()) {
            self.link.stop(seen.key, code);
        }
    }

    pub(super) fn refuse(&mut self, id: StreamId, code: ResetCode) {
        if let Some(seen) = self.streams.get_mut(&id.raw()) {
            seen.pending.clear();
            self.link.refuse(seen.key, code);
        }
    }

    pub(super) fn consume(&mut self, now: Instant, id: StreamId, most: usize) {
        if let Some(seen) = self.streams.get_mut(&id.raw()) {
            let n = seen.held.min(most);
            seen.held -= n;
            self.link.consume(now, seen.key, n);
        }
    }

    /// Handles due timers, then gives the link as many bytes as it has room for.
    pub(super) fn turn(&mut self, now: Instant) {
        if self.link.poll_timeout().is_some_and(|at| at <= now) {
            self.link.handle_timeout(now);
        }
        self.collect(now);
        while let Some(key) = self.link.poll_room() {
            self.eager.push(key.id().raw());
        }
        let mut eager = std::mem::take(&mut self.eager);
        for id in eager.drain(..) {
            self.supply(id);
        }
        if self.eager.is_empty() {
            self.eager = eager;
        }
    }

    fn supply(&mut self, id: u32) {
        let Some(seen) = self.streams.get_mut(&id) else { return };
        while let Some(front) = seen.pending.front_mut() {
            let n = self.link.room(seen.key).min(front.len());
            if n == 0 {
                return;
            }
            self.sent += 1;
            if self.sent.is_multiple_of(2) {
                self.link.send_pages(seen.key, Rc::new(Page(front.slice(..n))), n);
            } else {
                assert!(self.link.send_slice(seen.key, &front[..n]), "room() was kept to");
            }
            front.advance(n);
            if front.is_empty() {
                seen.pending.pop_front();
            }
        }
        if std::mem::take(&mut seen.finish) {
            self.link.finish(seen.key);
        }
    }

    pub(super) fn receive(&mut self, now: Instant, number: CarrierNumber, buf: &mut BytesMut) {
        while self.violation.is_none() {
            // Every second payload is received as a driver receives pages: directly after a header.
            let until = self.link.until_payload(number, &[]);
            let rest = (self.received.is_multiple_of(2) && buf.len() > until)
                .then(|| buf.split_off(until));
            let outcome = self.link.handle_input(now, number, buf);
            if let Some(rest) = rest {
                let is_whole = buf.is_empty();
                buf.unsplit(rest);
                if let Ok(None) = outcome {
                    self.received += u64::from(!is_whole);
                    if let Some((key, left)) = self.link.expected(number).filter(|_| is_whole) {
                        let bytes = buf.split_to(left.min(buf.len())).freeze();
                        self.received += 1;
                        self.link.moved(now, number, bytes.len());
                        self.take(now, Event::Data { key, bytes });
                    }
                    continue;
                }
            }
            match outcome {
                Ok(Some(event)) => {
                    self.received += 1;
                    self.take(now, event);
                }
                Ok(None) => return,
                Err(violation) => {
                    self.violation = Some(violation);
                    self.link.abort(violation);
                }
            }
        }
    }

    pub(super) fn receive_lane(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        lane: &mut LaneInput,
        buf: &mut BytesMut,
    ) {
        while self.violation.is_none() {
            match self.link.handle_lane(now, number, lane, buf) {
                Ok(Some(event)) => self.take(now, event),
                Ok(None) => return,
                Err(violation) => {
                    self.violation = Some(violation);
                    self.link.abort(violation);
                }
            }
        }
    }

    /// Handles all pending events.
    pub(super) fn collect(&mut self, now: Instant) {
        while let Some(event) = self.link.poll_event() {
            self.take(now, event);
        }
    }

    fn take(&mut self, now: Instant, event: Event) {
        match event {
            Event::Opened { key, open } => {
                let old =
                    self.streams.insert(key.id().raw(), Seen::new(key, Some(open), self.automatic));
                assert!(old.is_none(), "{key:?} was opened twice");
                self.opened.push_back(key.id());
            }
            Event::Data { key, bytes } => {
                let keeps = self.keeps;
                let seen = self.of(key);
                assert!(!seen.finished && seen.reset.is_none(), "bytes after the end of {key:?}");
                seen.count += bytes.len() as u64;
                if keeps {
                    seen.got.extend_from_slice(&bytes);
                }
                if seen.automatic {
                    self.link.consume(now, key, bytes.len());
                } else {
                    seen.held += bytes.len();
                }
            }
            Event::Finished { key } => {
                let seen = self.of(key);
                assert!(!seen.finished && seen.reset.is_none(), "two ends of {key:?}");
                seen.finished = true;
            }
            Event::Reset { key, code } => {
                let seen = self.of(key);
                assert!(!seen.finished && seen.reset.is_none(), "two ends of {key:?}");
                seen.reset = Some(code);
            }
            Event::Stopped { key, code } => self.of(key).stopped = Some(code),
            Event::Closed { key } => {
                let seen = self.of(key);
                assert!(!seen.closed, "{key:?} closed twice");
                seen.closed = true;
                seen.pending.clear();
            }
            Event::Control(bytes) => {
                self.control.extend_from_slice(&bytes);
                if self.link.has_flows() {
                    self.take_control(bytes);
                }
            }
            Event::FlowOpened { key, open } => {
                let old = self.flows.insert(key.id().raw(), Conversation::new(key, Some(open)));
                assert!(old.is_none(), "{key:?} was opened twice");
            }
            Event::Datagram { key, bytes } => self.conversation(key).got.push(bytes),
            Event::FlowClosed { key, code, by_peer } => {
                let of = self.conversation(key);
                of.closed = Some((code, by_peer));
            }
            Event::CarrierDead(number) => {
                self.dead.push(number);
                self.log.push((now, event));
            }
            Event::Unanswered(number) => {
                self.log.push((now, event));
                if self.hears_nothing {
                    self.link.give_up(now, number);
                }
            }
            Event::Resumed
            | Event::ProbeNextPath
            | Event::Silent
            | Event::Heard
            | Event::Doubted(_)
            | Event::TookOver(_)
            | Event::GoingAway(_)
            | Event::Expired => {
                self.log.push((now, event));
            }
        }
    }

    /// Passes messages about flows to the link. Other bytes of the control stream belong to the
    /// test.
    fn take_control(&mut self, mut bytes: Bytes) {
        while let Ok(Some(message)) = self.messages.decode(&mut bytes) {
            let outcome = match message {
                ControlMessage::FlowOpen(open) => self.link.handle_flow_open(open),
                ControlMessage::FlowClose(close) => {
                    self.link.handle_flow_close(close);
                    Ok(())
                }
                ControlMessage::Register(_)
                | ControlMessage::Registered(_)
                | ControlMessage::Strained(_)
                | ControlMessage::Signal(_)
                | ControlMessage::Node(_)
                | ControlMessage::Stun(_)
                | ControlMessage::Homes(_)
                | ControlMessage::Invite(_)
                | ControlMessage::Invited(_) => Ok(()),
            };
            self.judge(outcome);
        }
    }

    fn judge(&mut self, outcome: Result<(), Violation>) {
        if let Err(violation) = outcome {
            self.violation = Some(violation);
            self.link.abort(violation);
        }
    }

    pub(super) fn receive_packet(&mut self, now: Instant, number: CarrierNumber, packet: Bytes) {
        match self.link.handle_packet(now, number, packet) {
            Ok(event) => event.into_iter().for_each(|event| self.take(now, event)),
            Err(violation) => self.judge(Err(violation)),
        }
        self.collect(now);
    }

    /// Opens a flow, if the link allows it.
    pub(super) fn open_flow(&mut self, open: &Open) -> Option<FlowId> {
        let key = self.link.open_flow(open)?;
        self.flows.insert(key.id().raw(), Conversation::new(key, None));
        Some(key.id())
    }

    fn conversation(&mut self, key: FlowKey) -> &mut Conversation {
        let of = self.flows.get_mut(&key.id().raw()).expect("events name known flows");
        assert!(of.closed.is_none(), "an event of {key:?} after it was closed");
        of
    }

    fn of(&mut self, key: StreamKey) -> &mut Seen {
        let seen = self.streams.get_mut(&key.id().raw()).expect("events name known streams");
        assert!(!seen.closed, "an event of {key:?} after it was closed");
        seen
    }
}
