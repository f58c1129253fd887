//! Datagrams on their way into the socket, gathered into runs of equal length to one address.

use std::task::{Context, Poll};

use crate::socket::{CALL, Origin, Run, Socket};

/// The largest number of queued datagrams, and of their bytes. A connection puts in what one call
/// takes; then another connection has its turn.
const MOST: usize = 64;
const BYTES: usize = CALL;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Datagram {
    to: Origin,
    length: usize,
    is_ect: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    /// The datagrams in `bytes`.
    datagrams: Vec<Datagram>,
    /// The number of sent datagrams and bytes.
    gone: (usize, usize),
    /// The number of runs that the system refused since the start.
    refused: u64,
}

impl Outbox {
    /// Whether nothing is queued.
    pub(crate) const fn is_empty(&self) -> bool {
        self.gone.0 == self.datagrams.len()
    }

    /// Whether the next datagram, of at most `longest` bytes, must wait for a turn.
    pub(crate) const fn is_full(&self, longest: usize) -> bool {
        self.datagrams.len() >= MOST || self.bytes.len() + longest > BYTES
    }

    /// Where the next datagram is appended. [`push`](Self::push) follows.
    pub(crate) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Marks the bytes appended since the last call as a datagram of `length` bytes, which routers
    /// may mark if `is_ect` is true.
    pub(crate) fn push(&mut self, to: Origin, length: usize, is_ect: bool) {
        self.datagrams.push(Datagram { to, length, is_ect });
    }

    /// Sends everything that is queued. `Ready`: nothing is queued any more. Refused datagrams
    /// count as lost on the path: routes and devices come and go, and packets are retransmitted.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>, socket: &Socket) -> Poll<()> {
        while let Some((run, count)) = self.run(socket.longest_run()) {
            let (bytes, peer) = (run.bytes.len(), run.to.peer);
            match socket.poll_send(cx, &run) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => {
                    self.refused += 1;
                    tracing::trace!(%error, refused = self.refused, "datagrams are not sent");
                    net::udp::unsent(peer, &error);
                }
            }
            self.gone.0 += count;
            self.gone.1 += bytes;
        }
        self.bytes.clear();
        self.datagrams.clear();
        self.gone = (0, 0);
        Poll::Ready(())
    }

    /// The next datagrams of equal length to one address, at most `most`; the last may be shorter.
    fn run(&self, most: usize) -> Option<(Run<'_>, usize)> {
        let (gone, at) = self.gone;
        let datagrams = self.datagrams.get(gone..)?;
        let Datagram { to, length: segment, is_ect } = *datagrams.first()?;
        let (mut count, mut end) = (0, at);
        for next in datagrams.iter().take(most.max(1)) {
            let length = next.length;
            let is_alike = next.to == to && next.is_ect == is_ect && length <= segment;
            if !is_alike || (count > 0 && end + length - at > CALL) {
                break;
            }
            count += 1;
            end += length;
            if length < segment {
                break;
            }
        }
        Some((Run { to, bytes: self.bytes.get(at..end)?, segment, is_ect }, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(port: u16) -> Origin {
        Origin { peer: ([127, 0, 0, 1], port).into(), local: None }
    }

    /// Length of the datagrams, bytes and address of each run.
    fn runs(datagrams: &[(u16, usize)], most: usize) -> Vec<(usize, usize, u16)> {
        let mut outbox = Outbox::default();
        for (port, length) in datagrams {
            outbox.buffer().extend(std::iter::repeat_n(0, *length));
            outbox.push(to(*port), *length, true);
        }
        let mut runs = Vec::new();
        while let Some((run, count)) = outbox.run(most) {
            let bytes = run.bytes.len();
            runs.push((run.segment, bytes, run.to.peer.port()));
            outbox.gone.0 += count;
            outbox.gone.1 += bytes;
        }
        assert!(outbox.is_empty());
        runs
    }

    #[test]
    fn datagrams_of_equal_length_to_one_address_leave_together() {
        let one = |lengths: &[usize]| lengths.iter().map(|it| (1, *it)).collect::<Vec<_>>();
        let lengths = one(&[9, 9, 9, 4, 9, 9, 12, 12]);
        assert_eq!(runs(&lengths, 64), [(9, 31, 1), (9, 18, 1), (12, 24, 1)]);
        assert_eq!(runs(&one(&[9; 5]), 2), [(9, 18, 1), (9, 18, 1), (9, 9, 1)]);
        assert_eq!(runs(&[(1, 9), (1, 9), (2, 9), (1, 9)], 64).len(), 3, "an address each");
        let long = runs(&one(&[16_336; 5]), 64);
        assert_eq!(long, [(16_336, 4 * 16_336 + 16_336 - 16_336, 1), (16_336, 16_336, 1)]);
    }
}
