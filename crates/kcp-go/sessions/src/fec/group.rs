//! The received shards of a group. A decoder keeps them until there are enough.

/// Shards in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Shards {
    /// Bodies, one after the other. The buffer grows with received bytes, never with announced
    /// bytes, and keeps its capacity for the next group.
    bytes: Vec<u8>,
    held: Vec<Held>,
    /// A bit for each position.
    present: [u64; 4],
    longest: usize,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    position: u8,
    length: usize,
}

impl Shards {
    /// Forgets all shards.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.held.clear();
        self.present = [0; 4];
        self.longest = 0;
    }

    /// Keeps a shard unless a shard with the same position is present. Returns whether it was kept.
    pub(super) fn insert(&mut self, position: u8, body: &[u8]) -> bool {
        let (word, bit) = (usize::from(position / 64), 1 << (position % 64));
        if self.present[word] & bit != 0 {
            return false;
        }
        self.present[word] |= bit;
        self.bytes.extend_from_slice(body);
        self.held.push(Held { position, length: body.len() });
        self.longest = self.longest.max(body.len());
        true
    }

    /// The number of shards.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// The length of the longest body.
    pub(super) const fn longest(&self) -> usize {
        self.longest
    }

    /// Whether a shard with this position is present.
    pub(super) fn has(&self, position: u8) -> bool {
        self.present[usize::from(position / 64)] & 1 << (position % 64) != 0
    }

    /// The positions, in the order of [`bodies`](Self::bodies).
    pub(super) fn positions(&self) -> impl Iterator<Item = u8> {
        self.held.iter().map(|held| held.position)
    }

    /// The bodies, in the order of their arrival.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.held.iter().scan(&self.bytes[..], |rest, held| {
            let (body, behind) = rest.split_at_checked(held.length)?;
            *rest = behind;
            Some(body)
        })
    }
}
