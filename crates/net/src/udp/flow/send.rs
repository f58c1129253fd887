//! One system call for a batch or a datagram, and the meaning of errors.

use std::cell::Cell;
use std::io;

use quinn_udp::Transmit;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::batch::{Batch, CALL};
use super::options::Calls;
use super::{Loss, Route, Tally};
use crate::dscp;

/// The number of batches that are sent without segmentation after the kernel refused it. Then
/// segmentation is retried, because the path may have changed.
const PAUSE: u32 = 1_024;

thread_local! {
    /// The buffer for the concatenated segments of a call; `None` while it is in use.
    static JOINED: Cell<Option<Vec<u8>>> = const { Cell::new(None) };
}

/// The socket is full, and the rest of the batch stays queued.
#[derive(Debug)]
pub(super) struct Full;

/// The sending side of one socket.
#[derive(Debug)]
pub(super) struct Sender<'a> {
    pub(super) calls: &'a Calls,
    pub(super) socket: &'a UdpSocket,
    pub(super) is_connected: bool,
    /// The number of batches that must not use segmentation.
    pub(super) pause: &'a Cell<u32>,
}

impl Sender<'_> {
    /// Sends a batch and counts its datagrams. Datagrams that were sent or lost are removed from
    /// the batch.
    pub(super) fn send(&self, batch: &mut Batch, tally: &impl Tally) -> Result<(), Full> {
        let count = batch.datagrams.len();
        if count < 2 || !self.calls.has_segments || self.is_paused() {
            return self.one_by_one(batch, tally).map(drop);
        }
        match self.call(tally, || self.together(batch)) {
            Ok(bytes) => tally.sent(count, bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(Full),
            Err(error) if is_refusal(&error) => {
                // The error may also concern the address. Then the single datagrams fail as well.
                if self.one_by_one(batch, tally)? > 0 {
                    self.pause.set(PAUSE);
                }
                return Ok(());
            }
            Err(error) => tally.lost(Loss::of(&error), count),
        }
        batch.forget(count);
        Ok(())
    }

    fn is_paused(&self) -> bool {
        let left = self.pause.get();
        self.pause.set(left.saturating_sub(1));
        left > 0
    }

    /// Sends with one call per datagram. Returns how many were sent.
    fn one_by_one(&self, batch: &mut Batch, tally: &impl Tally) -> Result<usize, Full> {
        let (mut sent, mut done) = (0, 0);
        let mut outcome = Ok(());
        for datagram in &batch.datagrams {
            match self.call(tally, || self.alone(batch.route, datagram)) {
                Ok(bytes) => {
                    tally.sent(1, bytes);
                    sent += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    outcome = Err(Full);
                    break;
                }
                Err(error) => tally.lost(Loss::of(&error), 1),
            }
            done += 1;
        }
        batch.forget(done);
        outcome.map(|()| sent)
    }

    /// Sends all datagrams of a batch with one call.
    fn together(&self, batch: &Batch) -> io::Result<usize> {
        let mut joined = JOINED.take().unwrap_or_else(|| Vec::with_capacity(CALL));
        joined.clear();
        batch.datagrams.iter().for_each(|datagram| joined.extend_from_slice(datagram));
        let transmit = transmit(batch.route, &joined, Some(batch.segment()));
        let sent = dscp::send(&self.calls.state, self.socket, &transmit, batch.route.dscp);
        let bytes = joined.len();
        JOINED.set(Some(joined));
        sent.map(|()| bytes)
    }

    fn alone(&self, route: Route, datagram: &[u8]) -> io::Result<usize> {
        if self.is_connected {
            // Without an address the kernel uses the cached route of the socket.
            return rustix::net::send(self.socket, datagram, rustix::net::SendFlags::NOSIGNAL)
                .map_err(io::Error::from);
        }
        let transmit = transmit(route, datagram, None);
        let sent = dscp::send(&self.calls.state, self.socket, &transmit, route.dscp);
        sent.map(|()| datagram.len())
    }

    /// Makes a call. A connected socket first returns the ICMP error of an earlier datagram, and
    /// sends nothing; the call is then retried.
    fn call(
        &self,
        tally: &impl Tally,
        mut attempt: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let first = self.ready(&mut attempt);
        match first {
            Err(error) if self.is_connected && tells_of_earlier(&error) => {
                tally.lost(Loss::of(&error), 1);
                self.ready(&mut attempt)
            }
            outcome => outcome,
        }
    }

    /// Makes a call and lets the runtime know if the socket is full.
    fn ready(&self, attempt: &mut impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let mut was_called = false;
        let outcome = self.socket.try_io(Interest::WRITABLE, || {
            was_called = true;
            attempt()
        });
        match outcome {
            // The runtime does not know the readiness of a new socket yet, so the socket is tried
            // directly.
            Err(_) if !was_called => attempt(),
            outcome => outcome,
        }
    }
}

const fn transmit(route: Route, contents: &[u8], segment_size: Option<usize>) -> Transmit<'_> {
    Transmit { destination: route.peer, ecn: None, contents, segment_size, src_ip: route.local }
}

/// Whether the kernel may have refused segmentation: segments above the path MTU (EINVAL, EMSGSIZE
/// since Linux 6.14), a device without checksum offload, or IPsec (EIO).
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::OPNOTSUPP)
    )
}

/// Whether the error of a connected socket may concern an earlier datagram (udp(7), "Error
/// handling").
pub(super) fn tells_of_earlier(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNREFUSED
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::NOPROTOOPT
                | Errno::ACCESS
                | Errno::PROTO
        )
    )
}

impl Loss {
    /// The kind of loss for a system error.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::MSGSIZE) => Self::TooBig,
            Some(Errno::PERM | Errno::ACCESS) => Self::Denied,
            Some(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Self::Full,
            Some(
                Errno::CONNREFUSED
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::NETDOWN
                | Errno::NONET
                | Errno::NOPROTOOPT
                | Errno::ADDRNOTAVAIL
                | Errno::INVAL,
            ) => Self::Unreachable,
            None if error.kind() == io::ErrorKind::WouldBlock => Self::Full,
            Some(_) | None => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_their_reasons() {
        for (errno, loss) in [
            (Errno::MSGSIZE, Loss::TooBig),
            (Errno::CONNREFUSED, Loss::Unreachable),
            (Errno::NETUNREACH, Loss::Unreachable),
            (Errno::PERM, Loss::Denied),
            (Errno::NOBUFS, Loss::Full),
            (Errno::BADF, Loss::Failed),
        ] {
            assert_eq!(Loss::of(&errno.into()), loss, "{errno}");
        }
    }
}
