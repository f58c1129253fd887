//! Determines why a stream is blocked, for measurements. Not used on the data path.

use super::{Link, StreamKey};
use crate::offset::{length, memory};

/// What blocks a stream that has bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The credit is exhausted, or the replay limit is reached.
    Credit {
        /// Bytes in flight.
        outstanding: usize,
    },
    /// At least one frame waits for the carrier.
    Carrier,
    /// The memory budget is exhausted.
    Memory,
}

impl Link {
    /// The reason why a stream cannot send, if it cannot.
    #[must_use]
    pub fn stall(&mut self, key: StreamKey) -> Option<Stall> {
        if self.room(key) > 0 {
            return None;
        }
        let limit = self.frame_limit(key);
        let stream = super::lookup(&mut self.streams, key)?;
        let outstanding = stream.send.outstanding();
        // A backlog of the carrier comes first: more credit would only lengthen it.
        Some(if stream.send.unsent() >= length(limit) || stream.send.is_full() {
            Stall::Carrier
        } else if stream.send.credit() == 0 || outstanding >= self.config.replay_per_stream {
            Stall::Credit { outstanding: memory(outstanding) }
        } else {
            Stall::Memory
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;
    use crate::{
        Attach, CarrierNumber, HEAD_ROOM, LinkConfig, Open, Priority, Side, Target, Unlimited,
    };

    #[test]
    fn a_sender_stalls_for_want_of_credit_or_of_a_carrier_that_takes() {
        let now = crate::testing::epoch();
        let mut link = Link::new(Side::Client, LinkConfig::default(), Rc::new(Unlimited), now);
        link.attach(now, CarrierNumber(1), Attach::New);
        let target = Target::Service("x".into());
        let key = link
            .open(&Open { target, visitor: None, priority: Priority::Normal, fields: None })
            .unwrap();
        assert_eq!(link.stall(key), None);
        // The 16 KiB that need no credit from the peer.
        let mut taken = VecDeque::new();
        for size in [10 << 10, 6 << 10] {
            let mut frame = bytes::BytesMut::zeroed(HEAD_ROOM + size);
            link.send(key, &mut frame);
        }
        assert_eq!(link.stall(key), Some(Stall::Credit { outstanding: 16 << 10 }));
        while link.poll_transmit(now, CarrierNumber(1), &mut taken) > 0 {}
        assert_eq!(link.stall(key), Some(Stall::Credit { outstanding: 16 << 10 }));
        // With credit, and a blocked carrier.
        let mut credit = bytes::BytesMut::new();
        let frame = crate::frame::Credit {
            limit: crate::offset::Offset::new(8 << 20),
            consumed: crate::offset::Offset::new(16 << 10),
            ack_end: false,
        };
        crate::frame::encode_credit(&mut credit, key.id(), frame);
        assert!(link.handle_input(now, CarrierNumber(1), &mut credit).unwrap().is_none());
        while link.room(key) > 0 {
            let mut frame = bytes::BytesMut::zeroed(HEAD_ROOM + link.room(key));
            link.send(key, &mut frame);
        }
        assert_eq!(link.stall(key), Some(Stall::Carrier));
        while link.poll_transmit(now, CarrierNumber(1), &mut taken) > 0 {}
        assert_eq!(link.stall(key), None);
    }
}
