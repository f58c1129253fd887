//! Lanes of single streams, and datagrams, of a multiplexing transport. With a lane per stream and
//! direction, a lost packet stalls only one stream.
//!
//! Every transport has the first lane ([`crate::Lane`]). These lanes exist in addition to it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use proto::Priority;

/// Opens and accepts lanes. One task polls [`Lanes::poll_accept`]; another task of the same thread
/// opens lanes.
///
/// When the connection fails, every method and every lane fails. Dropping [`Lanes`] or the first
/// lane ends all lanes.
pub trait Lanes: Send + fmt::Debug {
    /// Opens a lane to which only this end writes. Lanes send in the order of their priorities,
    /// after the first lane. `None` means that the peer allows no more lanes now. This is no error:
    /// the caller uses the first lane instead.
    fn open(&mut self, priority: Priority) -> io::Result<Option<Box<dyn SendLane>>>;

    /// Accepts the next lane of the peer. Cancel-safe.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn RecvLane>>>;

    /// Called when the peer is authenticated: up to `bytes` unread bytes may wait on all lanes
    /// together. Before this call the transport accepts only the bytes that a greeting needs.
    fn authenticated(&mut self, bytes: u64);

    /// Changes the number of unread bytes that may wait. A lower number takes effect as the peer
    /// uses its granted credit.
    fn limit_unread(&mut self, bytes: u64);

    /// Reports the number of streams that are expected to use a lane. The peer may open a lane for
    /// each of them, and as many lanes for additional streams. Without a report the peer may open a
    /// few hundred lanes.
    fn allow(&mut self, streams: usize);
}

/// The writing end of a lane. Dropping it before [`SendLane::finish`] aborts the lane: undelivered
/// bytes are lost, and the peer sees the abort.
pub trait SendLane: Send + fmt::Debug {
    /// Takes bytes from the front of `frames`, as [`crate::Lane::poll_write`] does. The error is
    /// [`io::ErrorKind::BrokenPipe`] when the peer no longer reads this lane, any other kind when
    /// the connection has failed.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>>;

    /// Ends the lane. The transport still delivers the accepted bytes, even if the lane is dropped.
    fn finish(&mut self);
}

/// The reading end of a lane. Dropping it before its end requests the peer to stop sending.
pub trait RecvLane: Send + fmt::Debug {
    /// Appends received bytes to `buf`, at most its spare capacity, which must not be zero. `Ok(0)`
    /// is the end. An abort by the peer is [`io::ErrorKind::BrokenPipe`]; any other error means
    /// that the connection has failed.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>>;
}

/// The bytes that a connection has sent since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of all packets of datagrams and lanes, including headers.
    pub packets: u64,
    /// Bytes of datagrams that the transport has accepted and not sent yet.
    pub waiting: u64,
}

/// Datagrams: messages that arrive whole or not at all, in any order.
pub trait Datagrams: Send + fmt::Debug {
    /// The size in bytes of the longest datagram that the path supports now. 0 if the peer accepts
    /// no datagrams.
    fn limit(&self) -> usize;

    /// Takes datagrams from the front of `datagrams` while the transport has room for them, and
    /// returns their number. Pending: there is no room for the first datagram; the task of `cx` is
    /// woken when there is. The first datagram must be the same in the next call. No accepted
    /// datagram is dropped here, except that a datagram longer than [`Datagrams::limit`] is taken
    /// and dropped. An error means that the connection has failed.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        datagrams: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>>;

    /// The bytes that the connection has sent so far.
    fn carried(&self) -> Carried;

    /// Receives the next datagram. A bounded number of datagrams is queued; the oldest are dropped.
    /// Cancel-safe.
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>>;
}
