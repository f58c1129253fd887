//! Bytes that the server keeps in the engine for all nodes: who may log in, certificates, answers
//! to challenges, codes. The rules of a cluster do not read them.

use std::time::Duration;

use bytes::Bytes;

use crate::engine::Revision;
use crate::keys::BlobPlace;

/// The most bytes of a blob. A certificate with its chain and its sealed key has 2.5 to 8 KB.
pub const BLOB_BYTES: usize = 32 * 1024;

/// What every value begins with: the version of the record.
const VERSION: &[u8] = b"1 ";

/// What the server wants done with a blob.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlobWish {
    /// Where the blob is.
    pub place: BlobPlace,
    /// What is to be done.
    pub act: BlobAct,
}

impl BlobWish {
    /// Reads a blob.
    #[must_use]
    pub const fn get(place: BlobPlace) -> Self {
        Self { place, act: BlobAct::Get }
    }

    /// Writes a blob, which stays until it is deleted.
    #[must_use]
    pub const fn put(place: BlobPlace, value: Bytes, expected: BlobExpected) -> Self {
        Self { place, act: BlobAct::Put { value, expected, keep: None } }
    }

    /// Deletes a blob.
    #[must_use]
    pub const fn delete(place: BlobPlace, expected: BlobExpected) -> Self {
        Self { place, act: BlobAct::Delete { expected } }
    }
}

/// What is to be done with a blob.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BlobAct {
    /// Reads it.
    Get,
    /// Writes it.
    Put {
        /// Its bytes.
        value: Bytes,
        /// What must be there.
        expected: BlobExpected,
        /// The time after which the engine deletes it; `None`: it stays until it is deleted.
        keep: Option<Duration>,
    },
    /// Deletes it. Of several nodes that delete the same blob, one is answered with
    /// [`BlobOutcome::Deleted`].
    Delete {
        /// What must be there. [`BlobExpected::Absent`] deletes nothing.
        expected: BlobExpected,
    },
}

/// What must be there before a blob is written or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlobExpected {
    /// Anything or nothing.
    Any,
    /// Nothing.
    Absent,
    /// The blob that was written by this change.
    At(Revision),
}

/// A blob that was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blob {
    /// The change that wrote it.
    pub revision: Revision,
    /// Its bytes.
    pub value: Bytes,
}

/// What has become of a wish.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BlobOutcome {
    /// The blob, or that there is none.
    Found(Option<Blob>),
    /// The blob was written by this change.
    Written(Revision),
    /// The blob was deleted.
    Deleted,
    /// Something else is there than was expected: a blob that was written by this change, or none.
    Refused(Option<Revision>),
    /// The blob is larger than [`BLOB_BYTES`], or the text of its place is too long or empty.
    TooLong,
    /// The engine does not answer, or this node is no member, or too many wishes wait.
    Away {
        /// The write may have been carried out, or may be carried out later while this node is a
        /// member: whoever needs to know reads.
        may_be_done: bool,
    },
}

/// The value of a blob in the engine.
pub(crate) fn encode(value: &Bytes) -> Bytes {
    [VERSION, value].concat().into()
}

/// The blob in a value; `None` for a version that this program does not read.
#[must_use]
pub fn decode(value: &Bytes) -> Option<Bytes> {
    value.starts_with(VERSION).then(|| value.slice(VERSION.len()..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_reads_back_and_another_version_does_not() {
        for value in ["", "{}", "1 2"] {
            let value = Bytes::from_static(value.as_bytes());
            assert_eq!(decode(&encode(&value)), Some(value));
        }
        for other in ["", "1", "2 {}", "{}"] {
            assert_eq!(decode(&Bytes::from_static(other.as_bytes())), None);
        }
    }
}
