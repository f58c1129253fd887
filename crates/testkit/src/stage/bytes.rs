//! Endless bytes whose value depends on their offset. A check finds a lost, duplicated or swapped
//! byte at its offset, without keeping a copy of the data.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

const BLOCK: usize = 64 << 10;

/// The result of a failed check of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// A connection failed or ended too early.
    Broken(String),
    /// The bytes differ from the sent bytes, or no byte arrived before the socket's timeout.
    Wrong(String),
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Broken(text) | Self::Wrong(text)) = self;
        f.write_str(text)
    }
}

/// The outcome of a read or write of a whole piece of data.
///
/// # Errors
///
/// The kind of the error, as a [`Complaint`].
pub fn whole(outcome: io::Result<()>) -> Result<(), Complaint> {
    outcome.map_err(|e| {
        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
            Complaint::Wrong("nothing moved for as long as there was patience".to_owned())
        } else {
            Complaint::Broken(e.to_string())
        }
    })
}

/// Adds the place and the offset to an error.
fn at(place: &str, offset: u64, outcome: io::Result<()>) -> Result<(), Complaint> {
    whole(outcome).map_err(|complaint| match complaint {
        Complaint::Broken(why) => Complaint::Broken(format!("{place} {offset}: {why}")),
        Complaint::Wrong(why) => Complaint::Wrong(format!("{place} {offset}: {why}")),
    })
}

/// The eight bytes at `word * 8` (the finalizer of splitmix64).
const fn word(index: u64) -> [u8; 8] {
    let mut z = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// The bytes from `offset`, a multiple of 8.
fn fill(block: &mut [u8], offset: u64) {
    for (index, bytes) in (offset / 8..).zip(block.chunks_mut(8)) {
        bytes.copy_from_slice(&word(index)[..bytes.len()]);
    }
}

/// The index of the first byte that differs. The function is not generic, so that the optimised
/// crate has its code: compiled into a debug test program, the loop is slower than the tunnel.
fn difference(got: &[u8], wanted: &[u8]) -> Option<usize> {
    if got == wanted {
        return None;
    }
    got.iter().zip(wanted).position(|(a, b)| a != b)
}

/// The same bytes, for streams without a fixed length: piece by piece.
#[derive(Debug, Default)]
pub struct Pattern {
    offset: u64,
}

impl Pattern {
    /// The number of bytes so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Writes the next `size` bytes, a multiple of 8.
    ///
    /// # Errors
    /// The offset where writing failed, and the reason.
    pub fn send(&mut self, mut to: impl Write, size: u64) -> Result<(), Complaint> {
        let mut block = vec![0; usize::try_from(size).unwrap()];
        fill(&mut block, self.offset);
        at("writing at", self.offset, to.write_all(&block))?;
        self.offset += size;
        Ok(())
    }

    /// Reads and compares the next `size` bytes, a multiple of 8. `false`: the stream ended cleanly
    /// before the first of them.
    ///
    /// # Errors
    /// The offset where reading failed, or the offset of the first byte that differs.
    pub fn expect(&mut self, mut from: impl Read, size: u64) -> Result<bool, Complaint> {
        let size = usize::try_from(size).unwrap();
        let (mut block, mut wanted) = (vec![0; size], vec![0; size]);
        match from.read(&mut block[..1]) {
            Ok(0) => return Ok(false),
            outcome => at("reading at", self.offset, outcome.map(drop))?,
        }
        at("reading the block at", self.offset, from.read_exact(&mut block[1..]))?;
        fill(&mut wanted, self.offset);
        if let Some(index) = difference(&block, &wanted) {
            return Err(Complaint::Wrong(format!("byte {} differs", self.offset + index as u64)));
        }
        self.offset += size as u64;
        Ok(true)
    }
}

/// Writes the first `total` bytes.
pub fn send(to: impl Write, total: u64) {
    try_send(to, total).unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// Reads the first `total` bytes and compares them with the expected bytes.
pub fn expect(from: impl Read, total: u64) {
    try_expect(from, total).unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// Checks that the peer closed cleanly and sent no more bytes.
pub fn expect_end(from: impl Read) {
    try_expect_end(from).unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// As [`send`], but returns a failure instead of a panic.
///
/// # Errors
///
/// The offset where writing failed, and the reason.
pub fn try_send(mut to: impl Write, total: u64) -> Result<(), Complaint> {
    let (mut block, mut offset) = (vec![0; BLOCK], 0);
    while offset < total {
        let size = BLOCK.min(usize::try_from(total - offset).unwrap());
        fill(&mut block[..size], offset);
        at("writing at", offset, to.write_all(&block[..size]))?;
        offset += size as u64;
    }
    Ok(())
}

/// As [`expect`], but returns a failure instead of a panic.
///
/// # Errors
///
/// The offset where reading failed, or the offset of the first byte that differs.
pub fn try_expect(mut from: impl Read, total: u64) -> Result<(), Complaint> {
    let (mut block, mut wanted, mut offset) = (vec![0; BLOCK], vec![0; BLOCK], 0);
    while offset < total {
        let size = BLOCK.min(usize::try_from(total - offset).unwrap());
        at("reading the block at", offset, from.read_exact(&mut block[..size]))?;
        fill(&mut wanted[..size], offset);
        if let Some(index) = difference(&block[..size], &wanted[..size]) {
            return Err(Complaint::Wrong(format!("byte {} differs", offset + index as u64)));
        }
        offset += size as u64;
    }
    Ok(())
}

/// As [`expect_end`], but returns a failure instead of a panic.
///
/// # Errors
///
/// Stray bytes, or an end that is not clean.
pub fn try_expect_end(mut from: impl Read) -> Result<(), Complaint> {
    match from.read(&mut [0; 16]) {
        Ok(0) => Ok(()),
        Ok(n) => Err(Complaint::Wrong(format!("{n} stray bytes"))),
        Err(e) => whole(Err(e)),
    }
}

/// Checks that a visitor is not served: the visitor is reset, perhaps before `connect` returns.
pub fn expect_refused(visitor: io::Result<impl Read>) {
    match visitor {
        Ok(visitor) => expect_reset(visitor),
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}"),
    }
}

/// Checks that the peer aborted; a clean end would hide that bytes are missing.
pub fn expect_reset(mut from: impl Read) {
    let mut scratch = vec![0; BLOCK];
    loop {
        match from.read(&mut scratch) {
            Ok(0) => panic!("a clean end where a reset was due"),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return,
            Err(e) => panic!("a reset was due: {e}"),
        }
    }
}
