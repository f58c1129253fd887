//! Auto-tune: the receiver finds the sender's ratio from the order of data and parity.

use super::Ratio;
use crate::compat::wire::ShardId;

/// The samples that are kept, as in kcp-go: two more than the longest group has shards.
const SAMPLES: usize = 258;

/// A group is tuned to fewer shards than this; one less than a group may have.
const LONGEST_GROUP: usize = 256;

/// The ids that came last, each with its kind, and what they say about the ratio.
#[derive(Clone, Debug, Default)]
pub struct Tuner {
    /// A ring, once it is full.
    samples: Vec<(ShardId, bool)>,
    oldest: usize,
    sorted: Vec<(ShardId, bool)>,
}

impl Tuner {
    /// Notes a shard that came.
    pub fn sample(&mut self, id: ShardId, is_data: bool) {
        if self.samples.len() < SAMPLES {
            self.samples.push((id, is_data));
            return;
        }
        if let Some(sample) = self.samples.get_mut(self.oldest) {
            *sample = (id, is_data);
        }
        self.oldest = (self.oldest + 1) % SAMPLES;
    }

    /// Forgets all samples.
    pub(super) fn restart(&mut self) {
        self.samples.clear();
        self.oldest = 0;
    }

    /// The shards of data and of parity in a group, each `None` where the samples do not show a
    /// whole run of them between two of the others, from the oldest id on and without a hole.
    pub fn periods(&mut self) -> (Option<usize>, Option<usize>) {
        self.sorted.clear();
        self.sorted.extend_from_slice(&self.samples);
        if let Some(&(base, _)) = self.sorted.first() {
            self.sorted.sort_unstable_by_key(|(id, _)| id.0.wrapping_sub(base.0).cast_signed());
        }
        (self.period(true), self.period(false))
    }

    /// The ratio of the sender, where the samples show it.
    pub(super) fn ratio(&mut self) -> Option<Ratio> {
        let (data, parity) = self.periods();
        let (data, parity) = (data?, parity?);
        if data + parity < LONGEST_GROUP { Ratio::new(data, parity) } else { None }
    }

    /// The length of the first whole run of one kind.
    fn period(&self, of_data: bool) -> Option<usize> {
        let mut begin = None;
        for (n, pair) in self.sorted.windows(2).enumerate() {
            let [(before, was_data), (id, is_data)] = *pair else { return None };
            if id.0 != before.0.wrapping_add(1) {
                return None;
            }
            match begin {
                None if was_data != of_data && is_data == of_data => begin = Some(n),
                Some(begin) if was_data == of_data && is_data != of_data => return Some(n - begin),
                _ => {}
            }
        }
        None
    }
}
