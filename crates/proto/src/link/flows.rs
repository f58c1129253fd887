//! Flows of a link: commands of the application, and received messages and datagrams. The flows
//! themselves are in `flow/`.
//!
//! FlowOpen and FlowClose are sent on the control stream, so RESUME covers them: both ends agree on
//! the open flows after the loss of a carrier, and only datagrams are lost.

use crate::Instant;

use bytes::Bytes;

use super::{Event, Link};
use crate::control::{ControlMessage, FlowClose, FlowOpen};
use crate::flow::{Arrival, FlowCounts, FlowDrops, FlowKey, Reach};
use crate::offset::Offset;
use crate::stream::Stream;
use crate::{CarrierNumber, FlowId, Open, ResetCode, StreamId, Violation, ViolationCode};

impl Link {
    /// Whether the peer supports flows.
    #[must_use]
    pub const fn has_flows(&self) -> bool {
        self.flows.are_on()
    }

    /// The number of open flows.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.flows.len()
    }

    /// The exclusive upper bound of flow indices ([`FlowKey::index`]).
    #[must_use]
    pub fn flow_slots(&self) -> usize {
        self.flows.slots()
    }

    /// The counters of the flow with this index; see [`Self::stream`].
    #[must_use]
    pub fn flow(&self, index: usize) -> Option<FlowCounts> {
        self.flows.counts(index)
    }

    /// Received datagrams that were dropped here.
    #[must_use]
    pub const fn flow_drops(&self) -> FlowDrops {
        self.flows.drops()
    }

    /// Opens a flow. Its datagrams follow the FlowOpen. `None` if the link opens no more flows, if
    /// the maximum number is open, if the window of the control stream is full, or if the target's
    /// name is too long.
    pub fn open_flow(&mut self, open: &Open) -> Option<FlowKey> {
        if self.is_going_away() || self.flows.is_full() {
            return None;
        }
        let flow = self.flows.next_id()?;
        let message = ControlMessage::FlowOpen(FlowOpen { flow, open: open.clone() });
        if !self.send_control(&message.encode().ok()?) {
            return None;
        }
        let begins = self.control().map_or(Offset::ZERO, |stream| stream.send.written());
        let key = self.flows.open(flow, open.priority, begins);
        if self.flows.next_id().is_none() {
            self.ids_used_up();
        }
        Some(key)
    }

    /// Closes a flow at both ends. Its queued datagrams are dropped.
    pub fn close_flow(&mut self, key: FlowKey, code: ResetCode) {
        if self.flows.remove(key) {
            self.say_closed(key.id, code);
            self.events.push_back(Event::FlowClosed { key, code, by_peer: false });
            self.say_done();
        }
    }

    /// Queues datagrams. Returns the number of dropped datagrams of the flow: old ones in the
    /// queue, or some of `payloads`.
    #[must_use]
    pub fn send_datagrams<'a>(
        &mut self,
        now: Instant,
        key: FlowKey,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) -> usize {
        let is_live = self.is_live();
        let dropped = self.flows.push(now, key, payloads, is_live);
        self.flows.account(&*self.budget);
        dropped
    }

    /// Handles a FlowOpen of the control stream. The driver decodes the message and passes it on.
    ///
    /// # Errors
    /// The peer broke the rules, as for [`Link::handle_input`].
    pub fn handle_flow_open(&mut self, message: FlowOpen) -> Result<(), Violation> {
        let FlowOpen { flow, open } = message;
        if !self.flows.are_on() {
            return Err(Violation::link(ViolationCode::UnknownKind));
        }
        if !self.flows.admits(flow) {
            return Err(Violation::link(ViolationCode::BadStream));
        }
        self.acknowledge_read();
        let obstacle = if self.going_away {
            Some(ResetCode::Shutdown)
        } else if self.flows.is_full() {
            Some(ResetCode::Limit)
        } else {
            None
        };
        if let Some(code) = obstacle {
            self.flows.refuse(flow);
            self.say_closed(flow, code);
            return Ok(());
        }
        let key = self.flows.accept(flow, open.priority);
        self.events.push_back(Event::FlowOpened { key, open });
        for payload in self.flows.early.take(flow) {
            if let Arrival::Whole(key, bytes) = self.flows.receive(flow, payload) {
                self.events.push_back(Event::Datagram { key, bytes });
            }
        }
        Ok(())
    }

    /// As [`Link::handle_flow_open`], for the end of a flow. Both ends may close a flow at the same
    /// time.
    pub fn handle_flow_close(&mut self, message: FlowClose) {
        let FlowClose { flow, code } = message;
        let Some(key) = self.flows.find(flow) else { return };
        if self.flows.remove(key) {
            self.events.push_back(Event::FlowClosed { key, code, by_peer: true });
            self.say_done();
        }
    }

    /// Handles a native datagram of a carrier.
    ///
    /// # Errors
    /// The peer broke the rules, as for [`Link::handle_input`].
    pub fn handle_packet(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        packet: Bytes,
    ) -> Result<Option<Event>, Violation> {
        let Some(carrier) = self.carriers.find(number) else { return Ok(None) };
        carrier.received(now, &mut self.events);
        if !self.flows.are_on() {
            return Err(Violation::link(ViolationCode::UnknownKind));
        }
        let arrival = self.flows.receive_packet(now, packet);
        Self::arrived(arrival)
    }

    /// Records that the carrier has native datagrams, so that no frame on it carries a datagram.
    pub fn takes_packets(&mut self, number: CarrierNumber) {
        if let Some(carrier) = self.carriers.find(number) {
            carrier.takes_packets = true;
        }
    }

    /// Whether [`Link::poll_packets`] has datagrams for this carrier.
    #[must_use]
    pub fn has_packets(&self, number: CarrierNumber) -> bool {
        let carrier = self.carriers.get(number);
        carrier.is_some_and(super::carrier::Carrier::is_live) && !self.flows.queues.is_empty()
    }

    /// Whether any stream has bytes that are queued or in flight. Searches the streams until one is
    /// found.
    #[must_use]
    pub fn has_payload_under_way(&self) -> bool {
        let mut streams = self.streams.iter().filter(|(_, stream)| stream.id != StreamId::CONTROL);
        streams.any(|(_, stream)| stream.send.outstanding() > 0)
    }

    /// Appends datagrams of at most `limit` bytes each for a carrier, until their sum reaches
    /// `most` bytes. Returns the sum.
    pub fn poll_packets(
        &mut self,
        now: Instant,
        number: CarrierNumber,
        (limit, most): (usize, usize),
        out: &mut impl Extend<Bytes>,
    ) -> usize {
        if !self.has_packets(number) {
            return 0;
        }
        let reach = self.flow_reach(false);
        let mut bytes = 0;
        while bytes < most
            && let Some(length) = self.flows.pop_packets(reach, limit, out)
        {
            bytes += length;
        }
        if bytes > 0
            && let Some(carrier) = self.carriers.find(number)
        {
            carrier.liveness.sent(now);
        }
        self.flows.account(&*self.budget);
        bytes
    }

    /// Handles a complete DATAGRAM frame.
    pub(super) fn handle_datagram(
        &mut self,
        id: StreamId,
        payload: Bytes,
    ) -> Result<Option<Event>, Violation> {
        Self::arrived(self.flows.receive(FlowId::new(id.raw()), payload))
    }

    fn arrived(arrival: Arrival) -> Result<Option<Event>, Violation> {
        match arrival {
            Arrival::Whole(key, bytes) => Ok(Some(Event::Datagram { key, bytes })),
            Arrival::Nothing => Ok(None),
            Arrival::Impossible => Err(Violation::link(ViolationCode::BadStream)),
        }
    }

    /// Sends FlowClose. If the window of the control stream is full, the peer's own idle timeout
    /// closes the flow there.
    fn say_closed(&mut self, flow: FlowId, code: ResetCode) {
        if let Ok(message) = ControlMessage::FlowClose(FlowClose { flow, code }).encode() {
            let _ = self.send_control(&message);
        }
    }

    /// Acknowledges at once that the peer's FlowOpen was read: datagrams beyond the first few wait
    /// for the acknowledgement.
    fn acknowledge_read(&mut self) {
        let Some(key) = self.implicit_key(StreamId::CONTROL) else { return };
        let Some(stream) = super::lookup(&mut self.streams, key) else { return };
        stream.recv.owe_credit();
        self.schedule.signals.push(key, stream);
    }

    fn control(&self) -> Option<&Stream> {
        self.implicit_key(StreamId::CONTROL).and_then(|key| self.streams.get(key.index))
    }

    /// Whether control messages are queued.
    pub(super) fn has_unsent_control(&self) -> bool {
        self.control().is_some_and(|stream| stream.send.unsent() > 0)
    }

    /// The progress of the control stream.
    pub(super) fn flow_reach(&self, in_order: bool) -> Reach {
        let (sent, read) = self.control().map_or((Offset::ZERO, Offset::ZERO), |stream| {
            (stream.send.sent(), stream.send.consumed())
        });
        Reach { sent, read, in_order }
    }
}
