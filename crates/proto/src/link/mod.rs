//! A link: an authenticated multiplexed connection between a client process and a server process,
//! as a plain value.
//!
//! **Inputs** are `handle_*`: [`Link::handle_input`] takes bytes of a carrier and returns the next
//! [`Event`], [`Link::handle_lane`] takes bytes of a stream's own lane, [`Link::handle_timeout`]
//! takes the time. **Carriers** are added and removed by [`Link::attach`] and [`Link::detach`].
//! **Commands** are verbs: `open`, `send`, `finish`, `reset`, `stop`, `consume`. **Outputs** are
//! `poll_*`: [`Link::poll_transmit`] returns frames for a carrier, [`Link::poll_event`] events,
//! [`Link::poll_room`] streams that may send again, [`Link::poll_timeout`] the next deadline.
//!
//! A driver obeys one rule. After each input and each command it drains `poll_event`, `poll_room`
//! and `poll_spent` (together: [`Link::has_news`]), calls `poll_transmit` when the carrier can take
//! more, and then arms a timer for `poll_timeout`. Commands cause events as well: `consume` and
//! `stop` may close a stream although no frame is sent.
//!
//! Datagrams: [`Link::open_flow`], [`Link::send_datagrams`], [`Link::close_flow`]. On a carrier
//! with native datagrams the driver transfers them by [`Link::handle_packet`] and
//! [`Link::poll_packets`]; on any other carrier they are frames.
//!
//! The two directions of a stream are in `stream/`, flows in `flow/`. Carriers and their phases are
//! in `carrier.rs`, decoding in `input.rs`, the rules of lanes in `lane.rs`, the order of frames in
//! `queue.rs`, `schedule.rs` and `output.rs`, first windows in `first_window.rs`, the exchange
//! after the loss of a carrier in `resume.rs`, its early form in `preview.rs`, silence in
//! `liveness.rs` and `doubt.rs`, retirement in `goaway.rs`.

mod carrier;
mod command;
mod config;
mod decoder;
mod doubt;
mod event;
mod first_window;
mod flows;
mod goaway;
mod ids;
mod input;
mod lane;
mod liveness;
mod output;
mod preview;
mod queue;
mod rate;
mod resume;
mod schedule;
mod stall;
mod turns;

use crate::Instant;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use slab::Slab;

pub use config::LinkConfig;
pub use event::{Event, StreamKey};
pub use lane::{LaneInput, Outgoing};
pub use preview::Preview;
pub use resume::Attach;
pub use stall::Stall;

use crate::flow::Flows;
use crate::offset::Offset;
use crate::stream::{CONTROL_WINDOW, MovingBoth, Store, Stream};
use crate::{Budget, CarrierNumber, GoAwayReason, Priority, Side, StreamId};
use carrier::Carriers;
use first_window::FirstWindow;
use goaway::Said;
pub(crate) use ids::Ids;
use queue::{Listed, Queue, Sweep};
use rate::Rate;
use schedule::Schedule;
use turns::Turns;

/// The delay of small credits, which are then sent together: one sweep per link, no timer per
/// stream. After the sweep an idle stream retains nothing.
const SWEEP: Duration = Duration::from_millis(50);

/// Initial size of the buffer in which frames of the link are encoded, in bytes: about forty
/// CREDITs.
const SCRATCH: usize = 1 << 10;

/// The traffic of a stream so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamCounts {
    /// The id of the stream.
    pub id: StreamId,
    /// Whether this side opened the stream.
    pub is_ours: bool,
    /// Payload bytes from the peer.
    pub received: u64,
    /// Payload bytes accepted for the peer.
    pub sent: u64,
    /// Payload bytes kept for replay.
    pub retained: u64,
}

/// The state of a link at one end. See the module documentation.
#[derive(Debug)]
pub struct Link {
    side: Side,
    config: LinkConfig,
    budget: Rc<dyn Budget>,
    streams: Slab<Stream>,
    ids: Ids<StreamId>,
    /// The id of our next OPEN; `None` if the ids are exhausted.
    next_id: Option<StreamId>,
    /// The highest id that the peer opened.
    highest: StreamId,
    flows: Flows,
    /// Bytes by which datagrams are ahead of stream payload, while both wait for a carrier.
    datagram_lead: isize,
    schedule: Schedule,
    carriers: Carriers,
    rate: Rate,
    events: VecDeque<Event>,
    room: Vec<StreamKey>,
    /// Memory of the frames that streams retain.
    store: Store,
    /// Streams with consumption that no CREDIT has announced.
    unswept: Queue<Sweep>,
    /// Streams that the RESUME in progress has listed so far.
    listed: Queue<Listed>,
    turns: Turns,
    first_window: FirstWindow,
    moving: MovingBoth,
    sweep_at: Option<Instant>,
    /// Either end accepts no new streams: OPENs that still arrive are refused.
    going_away: bool,
    /// On a server: the client opens no more streams here.
    client_left: bool,
    /// The last GOAWAY state that we announced, to be repeated after a resume.
    said: Said,
    /// The link was aborted: only GOAWAY is still sent.
    is_aborted: bool,
    /// Buffer in which frames of the link are encoded; its memory is reused after sending.
    scratch: BytesMut,
    /// The reason of a GOAWAY that must be sent.
    farewell: Option<GoAwayReason>,
}

impl Link {
    /// A link without a carrier. `now` starts its `resume_timeout`.
    #[must_use]
    pub fn new(side: Side, config: LinkConfig, budget: Rc<dyn Budget>, now: Instant) -> Self {
        let mut streams = Slab::new();
        let mut control = Stream::new(StreamId::CONTROL, Priority::Interactive, CONTROL_WINDOW);
        control.account(&*budget);
        let control = streams.insert(control);
        let mut ids = Ids::default();
        ids.insert(StreamId::CONTROL, control);
        Self {
            side,
            config,
            budget,
            streams,
            ids,
            next_id: Some(StreamId::first(side)),
            highest: StreamId::CONTROL,
            flows: Flows::new(side, config.flows_max),
            datagram_lead: 0,
            schedule: Schedule::default(),
            carriers: Carriers::new(now),
            rate: Rate::default(),
            events: VecDeque::new(),
            room: Vec::new(),
            store: Store::new(),
            unswept: Queue::default(),
            listed: Queue::default(),
            turns: Turns::default(),
            first_window: FirstWindow::default(),
            moving: MovingBoth::default(),
            sweep_at: None,
            going_away: false,
            client_left: false,
            said: Said::Nothing,
            is_aborted: false,
            scratch: BytesMut::with_capacity(SCRATCH),
            farewell: None,
        }
    }

    /// The side of this end.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// The number of streams that are open or not yet forgotten.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len() - 1
    }

    /// The exclusive upper bound of stream indices ([`StreamKey::index`]).
    #[must_use]
    pub fn stream_slots(&self) -> usize {
        self.streams.capacity()
    }

    /// The counters of the stream with this index. A caller that iterates over all indices in
    /// several steps sees each stream that exists throughout exactly once.
    #[must_use]
    pub fn stream(&self, index: usize) -> Option<StreamCounts> {
        let stream = self.streams.get(index).filter(|stream| stream.id != StreamId::CONTROL)?;
        Some(StreamCounts {
            id: stream.id,
            is_ours: stream.id.opener() == Some(self.side),
            received: stream.recv.received().since(Offset::ZERO),
            sent: stream.send.written().since(Offset::ZERO),
            retained: stream.send.outstanding(),
        })
    }

    /// Payload bytes kept for replay, counted over all streams.
    #[must_use]
    pub fn retained(&self) -> u64 {
        self.streams.iter().map(|(_, stream)| stream.send.outstanding()).sum()
    }

    /// The minimum round-trip time measured on the active carrier.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        self.carriers.active().and_then(|carrier| carrier.liveness.round_trip())
    }

    /// Whether frames can be sent: there is an active carrier that has resumed.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.carriers.active().is_some_and(carrier::Carrier::is_live)
    }

    /// Whether a lane of this stream is ahead of the first lane of its carrier. This holds for all
    /// streams of the peer above some id.
    #[must_use]
    pub fn is_early(&self, number: CarrierNumber, stream: StreamId) -> bool {
        let is_live = self.carriers.get(number).is_none_or(carrier::Carrier::is_live);
        !is_live || !self.was_opened(stream)
    }

    /// Whether the link has an active carrier that is not silent.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.carriers.active().is_some_and(|carrier| !carrier.liveness.is_silent())
    }

    /// The carrier on which frames are sent.
    #[must_use]
    pub fn active_carrier(&self) -> Option<CarrierNumber> {
        self.carriers.active().map(|carrier| carrier.number)
    }

    /// Whether `poll_event`, `poll_room` or `poll_spent` returns something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.events.is_empty() || !self.room.is_empty() || self.store.has_spent()
    }

    /// The next event; see also [`Link::handle_input`].
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns a stream whose [`Link::room`] was 0 and is now positive.
    pub fn poll_room(&mut self) -> Option<StreamKey> {
        self.room.pop()
    }

    /// Returns a large frame that is no longer needed. Its memory can be used for the next read.
    pub fn poll_spent(&mut self) -> Option<Bytes> {
        self.store.poll_spent()
    }

    /// The unsent bytes that the kernel should hold for a carrier: about one millisecond of its
    /// rate.
    #[must_use]
    pub fn send_limit(&self) -> usize {
        self.rate.frame_limit()
    }

    /// The time at which [`Link::handle_timeout`] must be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silence = self.carriers.poll_timeout(&self.config);
        [self.sweep_at, silence, self.flows.poll_timeout()].into_iter().flatten().min()
    }

    /// Asks the peer for a sign of life on the active carrier, because its path may have changed.
    pub fn ask(&mut self) {
        self.carriers.ask();
    }

    /// Whether bytes arrived on the active carrier after `time`.
    #[must_use]
    pub fn has_heard_since(&self, time: Instant) -> bool {
        self.carriers.active().is_some_and(|carrier| carrier.liveness.heard() > time)
    }

    /// Gives up the active carrier in favour of its standby, after [`Event::Unanswered`]. Without a
    /// standby nothing happens.
    pub fn give_up(&mut self, now: Instant, number: CarrierNumber) {
        self.carriers.give_up(now, number, &mut self.events);
    }

    /// Handles the time `now`: queues small credits, probes silent carriers, reports dead carriers.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep();
        }
        self.flows.handle_timeout(now);
        self.carriers.handle_timeout(now, &self.config, &mut self.events);
        if self.carriers.active().is_some_and(|carrier| carrier.liveness.is_quiet()) {
            self.rest();
        }
    }

    /// Frees memory that was kept for reuse.
    fn rest(&mut self) {
        self.store.settle(&*self.budget);
        self.flows.rest();
        self.flows.account(&*self.budget);
        self.unswept.shrink_to_fit();
        self.room.shrink_to_fit();
        self.events.shrink_to_fit();
        self.schedule.shrink_to_fit();
    }

    /// Queues CREDITs for consumption that was not announced.
    fn sweep(&mut self) {
        self.sweep_at = None;
        while let Some(member) = self.unswept.pop() {
            let key = member.key;
            let Some(stream) = member.stream(&mut self.streams) else { continue };
            if stream.recv.owe_credit() {
                self.schedule.signals.push(key, stream);
            }
        }
    }

    fn implicit_key(&self, id: StreamId) -> Option<StreamKey> {
        self.ids.find(id).map(|index| StreamKey { index, id })
    }

    /// Whether the id was ever opened; frames for a forgotten stream are normal.
    fn was_opened(&self, id: StreamId) -> bool {
        match id.opener() {
            None => true,
            Some(side) if side == self.side => self.next_id.is_none_or(|next| id < next),
            Some(_) => id <= self.highest,
        }
    }

    /// Forgets the stream if both sides have finished it.
    fn try_forget(&mut self, key: StreamKey) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        if !stream.is_done() || stream.has_signal() {
            return;
        }
        self.forget(key);
        self.say_done();
    }

    fn forget(&mut self, key: StreamKey) {
        let Some(stream) = lookup(&mut self.streams, key) else { return };
        stream.settle(&*self.budget, &mut self.moving);
        self.events.push_back(Event::Closed { key });
        self.ids.remove(key.id);
        self.streams.remove(key.index);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for (_, stream) in &mut self.streams {
            stream.settle(&*self.budget, &mut self.moving);
        }
        self.store.settle(&*self.budget);
        self.flows.settle(&*self.budget);
    }
}

/// Looks up the stream of a key, if it is not forgotten. A free function, so that a caller may hold
/// the stream and other fields of the link at once.
fn lookup(streams: &mut Slab<Stream>, key: StreamKey) -> Option<&mut Stream> {
    streams.get_mut(key.index).filter(|stream| stream.id == key.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Open, Target, Unlimited};

    /// All frames that are queued.
    fn sent(link: &mut Link, now: Instant) -> Vec<u8> {
        let mut out = VecDeque::new();
        link.poll_transmit(now, CarrierNumber(1), &mut out);
        out.into_iter().flatten().collect()
    }

    #[test]
    fn a_link_that_owes_an_answer_is_silent_until_it_is_heard() {
        let start = crate::testing::epoch();
        let mut now = start;
        let [mut link, mut peer] = [Side::Server, Side::Client].map(|side| {
            let mut link = Link::new(side, LinkConfig::default(), Rc::new(Unlimited), now);
            link.attach(now, CarrierNumber(1), Attach::New);
            link
        });
        let open = Open {
            target: Target::Service("x".into()),
            visitor: None,
            priority: Priority::Normal,
            fields: None,
        };
        link.open(&open);
        sent(&mut link, start);
        while link.poll_event() != Some(Event::Silent) {
            now = link.poll_timeout().unwrap();
            link.handle_timeout(now);
        }
        // The round trip is unknown.
        assert_eq!(now - start, Duration::from_millis(1020));
        let mut input = BytesMut::from(&sent(&mut peer, start)[..]);
        let heard = std::iter::from_fn(|| {
            link.handle_input(now, CarrierNumber(1), &mut input)
                .unwrap()
                .or_else(|| link.poll_event())
        });
        assert_eq!(heard.collect::<Vec<_>>(), [Event::Heard]);
    }

    #[test]
    fn pages_that_arrive_end_a_silence() {
        let start = crate::testing::epoch();
        let mut now = start;
        let [mut link, mut peer] = [Side::Server, Side::Client].map(|side| {
            let mut link = Link::new(side, LinkConfig::default(), Rc::new(Unlimited), now);
            link.attach(now, CarrierNumber(1), Attach::New);
            link
        });
        let open = Open {
            target: Target::Service("x".into()),
            visitor: None,
            priority: Priority::Normal,
            fields: None,
        };
        link.open(&open);
        let mut input = BytesMut::from(&sent(&mut link, start)[..]);
        let opened = peer.handle_input(now, CarrierNumber(1), &mut input).unwrap();
        let Some(Event::Opened { key, .. }) = opened else { panic!("{opened:?}") };
        peer.send(key, &mut BytesMut::zeroed(crate::HEAD_ROOM + 100));
        let mut input = BytesMut::from(&sent(&mut peer, start)[..]);
        // The header has arrived, and the payload has not.
        input.truncate(input.len() - 100);
        assert_eq!(link.handle_input(now, CarrierNumber(1), &mut input).unwrap(), None);
        let expected = link.expected(CarrierNumber(1)).expect("a payload comes next");
        assert_eq!(expected.1, 100);
        link.open(&open);
        sent(&mut link, start);
        while link.poll_event() != Some(Event::Silent) {
            now = link.poll_timeout().unwrap();
            link.handle_timeout(now);
        }
        link.moved(now, CarrierNumber(1), 100);
        assert_eq!(link.poll_event(), Some(Event::Heard));
    }

    #[test]
    fn a_link_opens_its_last_id_and_retires() {
        let open = Open {
            target: Target::Service("x".into()),
            visitor: None,
            priority: Priority::Normal,
            fields: None,
        };
        for (side, last) in [(Side::Client, (1 << 30) - 1), (Side::Server, 1 << 30)] {
            let now = crate::testing::epoch();
            let [mut link, mut peer] = [side, side.peer()].map(|side| {
                let mut link = Link::new(side, LinkConfig::default(), Rc::new(Unlimited), now);
                link.attach(now, CarrierNumber(1), Attach::New);
                link
            });
            link.next_id = Some(StreamId::new(last - 2));
            for id in [last - 2, last] {
                assert!(!link.is_going_away());
                assert_eq!(link.open(&open).map(|key| key.id().raw()), Some(id));
            }
            assert!(link.is_going_away() && link.open(&open).is_none());
            assert_eq!(
                link.poll_event(),
                Some(Event::GoingAway(GoAwayReason::Retire)),
                "the driver is told"
            );
            // A client sends GOAWAY when it has another link, a server requests that link.
            if side == Side::Client {
                link.go_away();
            }
            // GOAWAY follows the OPENs. An OPEN that crosses it is still accepted.
            let crossing = peer.open(&open).expect("it has not heard yet").id();
            let mut input = BytesMut::from(&sent(&mut peer, now)[..]);
            let event = link.handle_input(now, CarrierNumber(1), &mut input);
            assert!(matches!(event, Ok(Some(Event::Opened { key, .. })) if key.id() == crossing));
            let mut input = BytesMut::from(&sent(&mut link, now)[..]);
            let mut news = Vec::new();
            while let Some(event) = peer.handle_input(now, CarrierNumber(1), &mut input).unwrap() {
                news.push(event);
            }
            let [
                Event::Opened { .. },
                Event::Opened { .. },
                Event::GoingAway(GoAwayReason::Retire),
            ] = news[..]
            else {
                panic!("{news:?}");
            };
            assert_eq!(peer.open(&open).is_none(), side == Side::Client);
        }
    }
}
