//! The first checks of received datagrams: a datagram that is not sealed, or too short, is dropped
//! and counted.

use super::Seal;
use crate::wire::Content;

/// Opens the datagrams of one socket or session, and counts those that are dropped.
#[derive(Debug)]
pub struct Opener<S> {
    seal: S,
    counters: Counters,
}

/// The counters of an [`Opener`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that were opened and have a content.
    pub opened: u64,
    /// Datagrams that were not sealed with this key.
    pub refused: u64,
    /// Datagrams that were sealed, but are shorter than any content, or have a wrong length.
    pub malformed: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let Self { opened, refused, malformed } = other;
        self.opened += opened;
        self.refused += refused;
        self.malformed += malformed;
    }
}

impl<S: Seal> Opener<S> {
    /// An opener with counters of zero.
    pub const fn new(seal: S) -> Self {
        Self { seal, counters: Counters { opened: 0, refused: 0, malformed: 0 } }
    }

    /// The envelope.
    pub const fn seal(&self) -> &S {
        &self.seal
    }

    /// The counters.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Opens a datagram in place, and returns its content. `None` if it is dropped.
    ///
    /// A session with FEC accepts segments without the head of a shard, and the reverse, as kcp-go
    /// does: each datagram states its kind.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Option<Content<'a>> {
        let Ok(plaintext) = self.seal.open(datagram) else {
            self.counters.refused += 1;
            return None;
        };
        let content = datagram.get(plaintext).and_then(Content::of);
        match content {
            Some(_) => self.counters.opened += 1,
            None => self.counters.malformed += 1,
        }
        content
    }
}
