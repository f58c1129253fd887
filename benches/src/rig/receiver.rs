//! A link's end that receives DATA, without other work.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use bytes::{BufMut as _, Bytes, BytesMut};
use proto::{
    Attach, CarrierNumber, Event, HEAD_ROOM, Head, Kind, Link, LinkConfig, Open, Priority, Side,
    StreamId, Target, Unlimited,
};

const CARRIER: CarrierNumber = CarrierNumber(1);

/// Far more than the bytes of a run, so that no CREDIT is needed.
const WINDOW: u64 = 1 << 50;

/// The link, and the offset of its only stream.
#[derive(Debug)]
pub struct Receiver {
    link: Link,
    now: Instant,
    id: StreamId,
    offset: u64,
}

impl Default for Receiver {
    /// # Panics
    /// When the link does not accept the stream that is opened to it.
    fn default() -> Self {
        let now = Instant::now();
        let config =
            LinkConfig { window_initial: WINDOW, window_max: WINDOW, ..LinkConfig::default() };
        let [mut sender, mut link] = [Side::Server, Side::Client].map(|side| {
            let mut link = Link::new(side, config, Rc::new(Unlimited), now);
            link.attach(now, CARRIER, Attach::New);
            link
        });
        let target = Target::Service("web".into());
        let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
        let id = sender.open(&open).expect("a new link has ids").id();
        let mut frames = VecDeque::new();
        sender.poll_transmit(now, CARRIER, &mut frames);
        let mut input: BytesMut = frames.into_iter().flatten().collect();
        let event = link.handle_input(now, CARRIER, &mut input);
        assert!(matches!(event, Ok(Some(Event::Opened { .. }))), "{event:?}");
        Self { link, now, id, offset: 0 }
    }
}

impl Receiver {
    /// The length of a DATA frame with `payload` bytes.
    #[must_use]
    pub const fn frame_length(payload: usize) -> usize {
        HEAD_ROOM + payload
    }

    /// Appends the next DATA frame of the stream.
    pub fn next_frame(&mut self, payload: usize, buffer: &mut BytesMut) {
        buffer.put_slice(&Head::new(Kind::Data, 0, payload + 4, self.id).encode());
        // The frame carries the low half of the offset.
        buffer.put_u32((self.offset & 0xffff_ffff) as u32);
        buffer.put_bytes(7, payload);
        self.offset += payload as u64;
    }

    /// Handles a frame from its bytes to the event and its consumption.
    ///
    /// # Panics
    /// When the buffer holds no DATA.
    pub fn receive(&mut self, buffer: &mut BytesMut) -> Bytes {
        let event = self.link.handle_input(self.now, CARRIER, buffer);
        let Ok(Some(Event::Data { key, bytes })) = event else { panic!("{event:?}") };
        self.link.consume(self.now, key, bytes.len());
        bytes
    }
}
