//! The datagrams of `load udp`. All numbers are big endian.
//!
//! ```text
//!   0  "load"        16  flow, 4 bytes
//!   4  kind, 1 byte  20  number, 8 bytes
//!   5  zeros         28  kind `Answer`: the counts, 8 bytes each; else filling
//!   8  run, 8 bytes
//! ```

use super::counter::Counts;

/// The size of a head.
pub const HEAD: usize = 28;

/// The size of an answer.
const ANSWER: usize = HEAD + 5 * 8;

/// The least payload: an answer is as large as the smallest question, so that the origin does not
/// send more than it gets.
pub const LEAST: usize = ANSWER;

const MAGIC: [u8; 4] = *b"load";

/// What a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is counted.
    Data,
    /// Asks for the counts of a run. The number tells questions apart.
    Question,
    /// The counts of a run, with the number of the question.
    Answer,
}

/// The head of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the datagram is for.
    pub kind: Kind,
    /// The run: a number that no other run has.
    pub run: u64,
    /// The socket of the run, from 0 on.
    pub flow: u32,
    /// For data: how many datagrams of the flow were sent before.
    pub number: u64,
}

impl Head {
    /// The head of a received datagram; `None`: it is none of ours, or was damaged.
    #[must_use]
    pub fn read(datagram: &[u8]) -> Option<Self> {
        let rest = datagram.strip_prefix(&MAGIC)?;
        let (kind, rest) = rest.split_first_chunk::<4>()?;
        let kind = match kind {
            [0, 0, 0, 0] => Kind::Data,
            [1, 0, 0, 0] => Kind::Question,
            [2, 0, 0, 0] => Kind::Answer,
            _ => return None,
        };
        let (run, rest) = rest.split_first_chunk()?;
        let (flow, rest) = rest.split_first_chunk()?;
        let number = rest.first_chunk()?;
        Some(Self {
            kind,
            run: u64::from_be_bytes(*run),
            flow: u32::from_be_bytes(*flow),
            number: u64::from_be_bytes(*number),
        })
    }

    /// Writes the head at the begin of a datagram of at least [`HEAD`] bytes.
    pub fn write(&self, datagram: &mut [u8]) {
        let Some(head) = datagram.first_chunk_mut::<HEAD>() else { return };
        let kind = match self.kind {
            Kind::Data => 0,
            Kind::Question => 1,
            Kind::Answer => 2,
        };
        head[..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&[kind, 0, 0, 0]);
        head[8..16].copy_from_slice(&self.run.to_be_bytes());
        head[16..20].copy_from_slice(&self.flow.to_be_bytes());
        head[20..].copy_from_slice(&self.number.to_be_bytes());
    }

    /// A question of [`LEAST`] bytes.
    #[must_use]
    pub fn question(run: u64, number: u64) -> Vec<u8> {
        let mut datagram = vec![0; LEAST];
        Self { kind: Kind::Question, run, flow: 0, number }.write(&mut datagram);
        datagram
    }

    /// The answer to this question.
    #[must_use]
    pub fn answer(&self, counts: &Counts) -> Vec<u8> {
        let mut datagram = vec![0; ANSWER];
        Self { kind: Kind::Answer, ..*self }.write(&mut datagram);
        let Counts { received, bytes, reordered, wrong, nanos } = *counts;
        for (field, value) in
            datagram[HEAD..].chunks_mut(8).zip([received, bytes, reordered, wrong, nanos])
        {
            field.copy_from_slice(&value.to_be_bytes());
        }
        datagram
    }
}

/// The counts of an answer.
#[must_use]
pub fn counts(answer: &[u8]) -> Option<Counts> {
    let (fields, _) = answer.get(HEAD..)?.as_chunks::<8>();
    let [received, bytes, reordered, wrong, nanos] = *fields.first_chunk::<5>()?;
    Some(Counts {
        received: u64::from_be_bytes(received),
        bytes: u64::from_be_bytes(bytes),
        reordered: u64::from_be_bytes(reordered),
        wrong: u64::from_be_bytes(wrong),
        nanos: u64::from_be_bytes(nanos),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let question = Head::question(u64::MAX - 1, 7);
        let head = Head::read(&question).unwrap();
        assert_eq!((head.kind, head.run, head.number), (Kind::Question, u64::MAX - 1, 7));
        let reported = Counts { received: 1, bytes: 2, reordered: 3, wrong: 4, nanos: 5 };
        let answer = head.answer(&reported);
        assert_eq!(Head::read(&answer).unwrap(), Head { kind: Kind::Answer, ..head });
        assert_eq!(counts(&answer).unwrap(), reported);
        assert!(answer.len() <= question.len());
    }

    #[test]
    fn what_is_damaged_or_foreign_is_no_head() {
        let good = Head::question(1, 2);
        assert!(Head::read(&good[..HEAD - 1]).is_none());
        for at in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 0x80;
            assert!(Head::read(&bad).is_none(), "{at}");
        }
        assert!(Head::read(b"").is_none());
        assert!(counts(&good[..ANSWER - 1]).is_none());
    }
}
