//! What a carrier can do whose transport multiplexes by itself: a lane per stream and direction, so
//! that a lost packet stalls one stream only, and datagrams.
//!
//! The first lane ([`crate::Lane`]) is there on every transport. What follows here is beside it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use proto::Priority;

/// Opens and accepts lanes. One task polls [`Lanes::poll_accept`]; lanes are opened by another of
/// the same thread.
///
/// When the connection dies every method and every lane fails; the lanes die with [`Lanes`] and the
/// first lane, whichever is dropped first.
pub trait Lanes: Send + fmt::Debug {
    /// A fresh lane on which only this end writes. Its bytes leave in the order of the classes,
    /// those of the first lane before all. `None`: the peer allows no further lane now, which is no
    /// error; the first lane carries what there is to say.
    fn open(&mut self, priority: Priority) -> io::Result<Option<Box<dyn SendLane>>>;

    /// The next lane that the peer opened. Cancel-safe.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn RecvLane>>>;

    /// The peer is known now: up to `bytes` of it may wait unread on all lanes together. Before, the
    /// transport takes what a greeting needs.
    fn welcome(&mut self, bytes: u64);

    /// From now on so many may wait unread. What was promised holds: fewer only as the peer uses it up.
    fn limit_unread(&mut self, bytes: u64);

    /// So many streams are open: the peer may open a lane for each, and as many for those that come. Where
    /// nobody says so, it may open some hundred.
    fn allow(&mut self, streams: usize);
}

/// The writing end of a lane. Dropped before [`SendLane::finish`], what the peer has not got yet is
/// given up: it learns that the lane was aborted.
pub trait SendLane: Send + fmt::Debug {
    /// Takes bytes from the front of `frames`, as [`crate::Lane::poll_write`] does. An error is of
    /// this lane: either the connection is dead, or the peer reads it no more
    /// ([`io::ErrorKind::BrokenPipe`]).
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>>;

    /// Nothing follows what was taken. The transport delivers that, also when the lane is dropped.
    fn finish(&mut self);
}

/// The reading end of a lane. Dropped before its end, the peer is told to send no more.
pub trait RecvLane: Send + fmt::Debug {
    /// Appends what has arrived to `buf`, at most its spare capacity, which the caller makes
    /// non-zero. `Ok(0)` is the end; an abort by the peer is [`io::ErrorKind::BrokenPipe`], every
    /// other error the death of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>>;
}

/// Messages that arrive whole or not at all, in any order.
pub trait Datagrams: Send + fmt::Debug {
    /// The longest that fits now, bytes; follows the path. 0 where the peer takes none.
    fn limit(&self) -> usize;

    /// Sends one. When too many wait the oldest is dropped. An error of kind
    /// [`io::ErrorKind::InvalidInput`] is of this datagram, which is longer than
    /// [`Datagrams::limit`]; any other is the death of the connection.
    fn send(&mut self, datagram: Bytes) -> io::Result<()>;

    /// The next one that arrived. A bounded number waits, the newest are kept. Cancel-safe.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>>;
}
