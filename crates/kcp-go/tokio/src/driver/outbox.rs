//! Datagrams of one session on their way into the socket, gathered into runs of equal length.

use std::net::SocketAddr;

use crate::socket::Run;

/// The most bytes of a run: what one message of the system may hold.
const LONGEST: usize = 60_000;

/// The most datagrams that a session may put in before another one has its turn.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
    /// Lengths of the datagrams in `bytes`.
    lengths: Vec<usize>,
    /// Datagrams and bytes that have left.
    gone: (usize, usize),
}

impl Outbox {
    /// Begins anew for a session.
    pub(super) fn begin(&mut self, to: SocketAddr) {
        self.clear();
        self.to = Some(to);
    }

    pub(super) fn clear(&mut self) {
        self.to = None;
        self.bytes.clear();
        self.lengths.clear();
        self.gone = (0, 0);
    }

    pub(super) fn is_full(&self) -> bool {
        self.lengths.len() >= MOST
    }

    /// Where the next datagram is appended. [`push`](Self::push) follows.
    pub(super) const fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// A datagram of `length` bytes was appended.
    pub(super) fn push(&mut self, length: usize) {
        self.lengths.push(length);
    }

    /// The next datagrams of equal length, at most `most`; the last may be shorter.
    pub(super) fn run(&self, most: usize) -> Option<(Run<'_>, usize)> {
        let (gone, at) = self.gone;
        let lengths = self.lengths.get(gone..)?;
        let segment = *lengths.first()?;
        let (mut count, mut end) = (0, at);
        for length in lengths.iter().take(most.max(1)) {
            if *length > segment || (count > 0 && end + length - at > LONGEST) {
                break;
            }
            count += 1;
            end += length;
            if *length < segment {
                break;
            }
        }
        Some((Run { to: self.to?, bytes: self.bytes.get(at..end)?, segment }, count))
    }

    /// The first `count` datagrams, of `bytes` together, have left.
    pub(super) const fn sent(&mut self, count: usize, bytes: usize) {
        self.gone.0 += count;
        self.gone.1 += bytes;
    }

    pub(super) const fn to(&self) -> Option<SocketAddr> {
        self.to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(lengths: &[usize], most: usize) -> Vec<(usize, usize)> {
        let mut outbox = Outbox::default();
        outbox.begin(SocketAddr::from(([127, 0, 0, 1], 1)));
        for length in lengths {
            outbox.buffer().extend(std::iter::repeat_n(0, *length));
            outbox.push(*length);
        }
        let mut runs = Vec::new();
        while let Some((run, count)) = outbox.run(most) {
            let bytes = run.bytes.len();
            assert_eq!(run.datagrams().count(), count);
            runs.push((run.segment, bytes));
            outbox.sent(count, bytes);
        }
        runs
    }

    #[test]
    fn datagrams_of_equal_length_leave_together_and_a_shorter_one_ends_a_run() {
        assert_eq!(
            runs(&[9, 9, 9, 4, 9, 9, 12, 12], 64),
            [(9, 31), (9, 18), (12, 24)],
            "a longer one begins the next"
        );
        assert_eq!(runs(&[9; 5], 2), [(9, 18), (9, 18), (9, 9)]);
        assert_eq!(runs(&[9; 3], 1), [(9, 9); 3]);
        assert_eq!(runs(&[1_400; 64], 64), [(1_400, 58_800), (1_400, 30_800)]);
        assert_eq!(runs(&[70_000], 64), [(70_000, 70_000)]);
    }
}
