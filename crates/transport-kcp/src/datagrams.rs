//! The datagrams of a carrier. They share packets, congestion control and parity with the lane, and
//! are sent before its bytes.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use kcp::own::Unsent;
use transport::{Carried, Datagrams};

use crate::error::End;
use crate::shared::Shared;

/// The largest number of bytes of datagrams queued for sending.
const DATAGRAMS: usize = 256 << 10;

/// The datagrams of a carrier, the same on both ends.
pub(crate) struct KcpDatagrams(pub(crate) Arc<Shared>);

impl Datagrams for KcpDatagrams {
    fn limit(&self) -> usize {
        self.0.lock().session().map_or(0, |session| session.datagram_limit())
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        datagrams: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        if let Some(end) = state.end() {
            return Poll::Ready(Err(end.error()));
        }
        let Some(session) = state.session() else { return Poll::Ready(Err(End::Local.error())) };
        let mut taken = 0;
        while let Some(next) = datagrams.pop_front() {
            // The path's MTU has shrunk: the datagram is lost, as on any path.
            match session.send_datagram(next) {
                Ok(()) | Err(Unsent::TooLong(_)) => {}
                Err(Unsent::Full(next)) => {
                    datagrams.push_front(next);
                    break;
                }
            }
            taken += 1;
        }
        if taken == 0 && !datagrams.is_empty() {
            state.waiting.datagram_writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.0.touch(state);
        Poll::Ready(Ok(taken))
    }

    fn carried(&self) -> Carried {
        let mut state = self.0.lock();
        let Some(session) = state.session() else { return Carried::default() };
        Carried {
            packets: session.counters().packet_bytes_out,
            waiting: DATAGRAMS.saturating_sub(session.datagram_room()) as u64,
        }
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let mut state = self.0.lock();
        if let Some(datagram) = state.session().and_then(|session| session.read_datagram()) {
            return Poll::Ready(Ok(datagram));
        }
        if let Some(end) = state.end() {
            return Poll::Ready(Err(end.error()));
        }
        state.waiting.datagram_reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl fmt::Debug for KcpDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KcpDatagrams(..)")
    }
}
