//! Auto-tune: the receiver detects the sender's ratio by the order of data and parity.

use super::Ratio;
use crate::wire::ShardId;

/// The number of kept samples, as in kcp-go: two more than the shards of the longest group.
const SAMPLES: usize = 258;

/// Only groups with fewer shards than this number are detected.
const LONGEST_GROUP: usize = 256;

/// The latest ids with their kinds, and the ratio that they show.
#[derive(Clone, Debug, Default)]
pub struct Tuner {
    /// A ring, once it is full.
    samples: Vec<(ShardId, bool)>,
    oldest: usize,
    sorted: Vec<(ShardId, bool)>,
}

impl Tuner {
    /// Records a received shard.
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

    /// The numbers of data shards and of parity shards in a group. A number is `None` if the
    /// samples, from the oldest id on and without a hole, do not show a whole run of the kind
    /// between two shards of the other kind.
    pub fn periods(&mut self) -> (Option<usize>, Option<usize>) {
        self.sorted.clear();
        self.sorted.extend_from_slice(&self.samples);
        if let Some(&(base, _)) = self.sorted.first() {
            self.sorted.sort_unstable_by_key(|(id, _)| id.0.wrapping_sub(base.0).cast_signed());
        }
        (self.period(true), self.period(false))
    }

    /// The ratio of the sender if the samples show it.
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
