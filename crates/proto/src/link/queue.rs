//! Queues of streams. A stream is in at most one queue of each kind, and stores in which kinds it
//! is.
//!
//! A queue holds keys. A key outlives its stream, so a key whose stream is forgotten is skipped
//! when it is popped.

use std::collections::VecDeque;
use std::marker::PhantomData;

use slab::Slab;

use super::{StreamKey, lookup};
use crate::stream::{Membership, Stream};

/// The purpose of a queue.
pub(super) trait Purpose {
    /// The mark of the members of the queue.
    const MARK: Membership;
}

/// The stream has frames or a FIN to send.
#[derive(Debug)]
pub(super) enum Payload {}

/// The stream has a CREDIT, RESET or STOP to send.
#[derive(Debug)]
pub(super) enum Signal {}

/// The stream has consumption that the next sweep announces to the peer.
#[derive(Debug)]
pub(super) enum Sweep {}

/// The RESUME that the peer sends lists the stream.
#[derive(Debug)]
pub(super) enum Listed {}

impl Purpose for Payload {
    const MARK: Membership = Membership::PAYLOAD;
}

impl Purpose for Signal {
    const MARK: Membership = Membership::SIGNAL;
}

impl Purpose for Sweep {
    const MARK: Membership = Membership::SWEEP;
}

impl Purpose for Listed {
    const MARK: Membership = Membership::LISTED;
}

/// Whether the stream is in a queue of this purpose.
pub(super) fn stands_in<P: Purpose>(stream: &Stream) -> bool {
    stream.queues.contains(P::MARK)
}

/// Streams in the order in which they were pushed.
#[derive(Debug)]
pub(super) struct Queue<P> {
    keys: VecDeque<StreamKey>,
    purpose: PhantomData<P>,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Self { keys: VecDeque::new(), purpose: PhantomData }
    }
}

impl<P: Purpose> Queue<P> {
    /// Appends the stream, unless it is already in a queue of this purpose.
    pub(super) fn push(&mut self, key: StreamKey, stream: &mut Stream) {
        if stream.queues.insert(P::MARK) {
            self.keys.push_back(key);
        }
    }

    /// Removes the first member.
    pub(super) fn pop(&mut self) -> Option<Popped<P>> {
        self.keys.pop_front().map(|key| Popped { key, purpose: PhantomData })
    }

    /// Removes all members.
    pub(super) fn clear(&mut self, streams: &mut Slab<Stream>) {
        while let Some(member) = self.pop() {
            member.stream(streams);
        }
    }

    /// The number of members, including forgotten streams.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.keys.shrink_to_fit();
    }
}

/// A stream that was removed from a queue.
#[must_use]
pub(super) struct Popped<P> {
    pub(super) key: StreamKey,
    purpose: PhantomData<P>,
}

impl<P: Purpose> Popped<P> {
    /// The stream, which may be queued again from now on. `None`: it is forgotten.
    pub(super) fn stream(self, streams: &mut Slab<Stream>) -> Option<&mut Stream> {
        let stream = lookup(streams, self.key)?;
        stream.queues.remove(P::MARK);
        Some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Priority, StreamId};

    fn streams(count: usize) -> (Slab<Stream>, Vec<StreamKey>) {
        let mut streams = Slab::new();
        let keys = (0..count).map(|n| {
            let id = StreamId::new(u32::try_from(n).unwrap());
            let index = streams.insert(Stream::new(id, Priority::Normal, 0));
            StreamKey { index, id }
        });
        let keys = keys.collect();
        (streams, keys)
    }

    #[test]
    fn a_stream_stands_once_in_each_kind_of_queue() {
        let (mut streams, keys) = streams(2);
        let (mut ready, mut swept) = (Queue::<Payload>::default(), Queue::<Sweep>::default());
        for key in [keys[0], keys[1], keys[0]] {
            let stream = lookup(&mut streams, key).unwrap();
            ready.push(key, stream);
            swept.push(key, stream);
        }
        assert_eq!((ready.len(), swept.len()), (2, 2));
        let first = ready.pop().unwrap();
        assert_eq!(first.key, keys[0]);
        let stream = first.stream(&mut streams).unwrap();
        assert!(!stands_in::<Payload>(stream) && stands_in::<Sweep>(stream));
        ready.push(keys[0], stream);
        let order = [ready.pop(), ready.pop()].map(|member| member.unwrap().key);
        assert_eq!(order, [keys[1], keys[0]], "it went to the end");
    }

    #[test]
    fn a_forgotten_stream_is_skipped_and_its_place_is_another_streams() {
        let (mut streams, keys) = streams(1);
        let mut ready = Queue::<Payload>::default();
        ready.push(keys[0], lookup(&mut streams, keys[0]).unwrap());
        streams.remove(keys[0].index);
        let id = StreamId::new(7);
        let other = StreamKey { index: streams.insert(Stream::new(id, Priority::Normal, 0)), id };
        assert_eq!(other.index, keys[0].index);
        ready.push(other, lookup(&mut streams, other).unwrap());
        assert!(ready.pop().unwrap().stream(&mut streams).is_none());
        ready.clear(&mut streams);
        assert!(ready.is_empty() && !stands_in::<Payload>(lookup(&mut streams, other).unwrap()));
    }
}
