//! Two link state machines, joined by memory. A driver and its sockets would add one copy of each
//! byte out of a pooled buffer and one copy into the reader's buffer.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use net::pool;
use proto::{
    Attach, CarrierNumber, Event, HEAD_ROOM, Link, LinkConfig, Open, Priority, Side, StreamKey,
    Target, Unlimited,
};

/// The carrier between the two links.
const CARRIER: CarrierNumber = CarrierNumber(1);

/// The virtual time of one operation: the time of a few requests on a busy link.
const STEP: Duration = Duration::from_micros(10);

/// The server's and the client's end of a live link, and the bytes in flight between them.
#[derive(Debug)]
pub struct Links {
    now: Instant,
    server: End,
    client: End,
}

/// One end, with its counts of received bytes and closed streams.
#[derive(Debug)]
pub struct End {
    link: Link,
    out: VecDeque<Bytes>,
    input: BytesMut,
    /// Streams that the other end opened.
    opened: VecDeque<StreamKey>,
    /// Payload bytes that arrived.
    pub received: u64,
    /// Streams that both ends have forgotten.
    pub closed: u64,
}

impl End {
    fn new(side: Side, now: Instant) -> Self {
        let mut link = Link::new(side, LinkConfig::default(), Rc::new(Unlimited), now);
        link.attach(now, CARRIER, Attach::New);
        Self {
            link,
            out: VecDeque::new(),
            input: BytesMut::new(),
            opened: VecDeque::new(),
            received: 0,
            closed: 0,
        }
    }

    /// Reads the arrived bytes, consumes every byte at once, and ends each stream that the other
    /// end ended.
    fn read(&mut self, now: Instant) {
        while let Ok(Some(event)) = self.link.handle_input(now, CARRIER, &mut self.input) {
            self.take(now, event);
        }
        while let Some(event) = self.link.poll_event() {
            self.take(now, event);
        }
        while let Some(frame) = self.link.poll_spent() {
            pool::recycle(frame);
        }
        while self.link.poll_room().is_some() {}
    }

    fn take(&mut self, now: Instant, event: Event) {
        match event {
            Event::Opened { key, .. } => self.opened.push_back(key),
            Event::Data { key, bytes } => {
                self.received += bytes.len() as u64;
                self.link.consume(now, key, bytes.len());
            }
            Event::Finished { key } => self.link.finish(key),
            Event::Closed { .. } => self.closed += 1,
            Event::Reset { .. }
            | Event::Stopped { .. }
            | Event::FlowOpened { .. }
            | Event::Datagram { .. }
            | Event::FlowClosed { .. }
            | Event::Control(_)
            | Event::Resumed
            | Event::ProbeNextPath
            | Event::Silent
            | Event::Heard
            | Event::Doubted(_)
            | Event::Unanswered(_)
            | Event::TookOver(_)
            | Event::CarrierDead(_)
            | Event::GoingAway(_)
            | Event::Expired => {}
        }
    }

    fn handle_time(&mut self, now: Instant) {
        if self.link.poll_timeout().is_some_and(|at| at <= now) {
            self.link.handle_timeout(now);
        }
    }
}

impl Default for Links {
    fn default() -> Self {
        let now = Instant::now();
        Self { now, server: End::new(Side::Server, now), client: End::new(Side::Client, now) }
    }
}

impl Links {
    /// Opens a stream at the server. Returns its keys at both ends.
    ///
    /// # Panics
    /// When the link refuses to open a stream.
    pub fn open(&mut self) -> (StreamKey, StreamKey) {
        let open = Open {
            target: Target::Service("web".into()),
            visitor: Some(([192, 0, 2, 1], 50_000).into()),
            priority: Priority::Normal,
            fields: None,
        };
        let server = self.server.link.open(&open).expect("ids and memory are left");
        self.settle();
        let client = self.client.opened.pop_front().expect("a settled link has told of its OPEN");
        (server, client)
    }

    /// The server's end.
    #[must_use]
    pub const fn server(&self) -> &End {
        &self.server
    }

    /// The client's end.
    #[must_use]
    pub const fn client(&self) -> &End {
        &self.client
    }

    /// Queues a payload as the pump does: the payload is in a pooled buffer of at least `capacity`
    /// bytes, behind space for the head. Returns false when the stream has no room for the payload.
    #[must_use]
    pub fn send(&mut self, side: Side, key: StreamKey, payload: &[u8], capacity: usize) -> bool {
        let end = self.end(side);
        if end.link.room(key) < payload.len() {
            return false;
        }
        let mut buffer = pool::take(capacity.max(HEAD_ROOM + payload.len()));
        buffer.resize(HEAD_ROOM, 0);
        buffer.extend_from_slice(payload);
        end.link.send(key, &mut buffer);
        pool::give(buffer);
        true
    }

    /// Ends the stream in this direction; the other end ends its direction in reply.
    pub fn finish(&mut self, side: Side, key: StreamKey) {
        self.end(side).link.finish(key);
    }

    /// Moves all pending frames in both directions and lets time pass.
    pub fn settle(&mut self) {
        self.now += STEP;
        self.server.handle_time(self.now);
        self.client.handle_time(self.now);
        while carry(self.now, &mut self.server, &mut self.client)
            | carry(self.now, &mut self.client, &mut self.server)
        {}
    }

    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Server => &mut self.server,
            Side::Client => &mut self.client,
        }
    }
}

/// Moves one batch of frames. Returns false when there was none.
fn carry(now: Instant, from: &mut End, to: &mut End) -> bool {
    if from.link.poll_transmit(now, CARRIER, &mut from.out) == 0 {
        return false;
    }
    for frame in from.out.drain(..) {
        to.input.extend_from_slice(&frame);
    }
    to.read(now);
    // Read the sender's events that need no input, such as the room that the batch made.
    from.read(now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cross_and_streams_close() {
        let mut links = Links::default();
        let (server, client) = links.open();
        for size in [1, 4096, 60_000] {
            let payload = vec![7; size];
            assert!(links.send(Side::Server, server, &payload, 64 << 10));
            links.settle();
            assert!(links.send(Side::Client, client, &payload, 64 << 10));
            links.settle();
        }
        assert_eq!((links.server().received, links.client().received), (64_097, 64_097));
        links.finish(Side::Server, server);
        links.settle();
        assert_eq!((links.server().closed, links.client().closed), (1, 1));
    }
}
