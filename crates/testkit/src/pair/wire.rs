//! A carrier between the two ends: a pipe each way and what each end has not decoded yet.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::BytesMut;
use proto::{CarrierNumber, Side};

use super::{End, place};
use crate::netem::{Conditions, Pipe};

#[derive(Debug)]
pub(super) struct Wire {
    pub(super) number: CarrierNumber,
    /// By the end that writes.
    pub(super) pipes: [Pipe; 2],
    /// By the end that reads.
    inbox: [BytesMut; 2],
    /// The end has closed it.
    pub(super) left: [bool; 2],
}

impl Wire {
    pub(super) fn new(number: CarrierNumber, conditions: Conditions, seed: u64) -> Self {
        Self {
            number,
            pipes: [Pipe::new(conditions, seed), Pipe::new(conditions, !seed)],
            inbox: [BytesMut::new(), BytesMut::new()],
            left: [false; 2],
        }
    }

    pub(super) fn silence(&mut self) {
        self.pipes.iter_mut().for_each(Pipe::silence);
    }

    pub(super) fn is_cut(&self) -> bool {
        self.pipes.iter().any(Pipe::is_cut)
    }

    /// Writes frames while the socket's buffer takes them.
    pub(super) fn fill(&mut self, now: Instant, side: Side, end: &mut End) {
        let pipe = &mut self.pipes[place(side)];
        let mut batch = VecDeque::new();
        while end.link.has_output(self.number)
            && pipe.writable_at(now, end.link.send_limit()) <= now
        {
            if end.link.poll_transmit(now, self.number, &mut batch) == 0 {
                return;
            }
            for frame in batch.drain(..) {
                pipe.write(now, frame);
            }
            end.collect(now);
            end.turn(now);
        }
    }

    /// One read of `to`. False when nothing has arrived.
    pub(super) fn read(&mut self, now: Instant, to: Side, end: &mut End) -> bool {
        let here = place(to);
        let Some(piece) = self.pipes[1 - here].read(now) else { return false };
        self.inbox[here].extend_from_slice(&piece);
        end.receive(now, self.number, &mut self.inbox[here]);
        true
    }
}
