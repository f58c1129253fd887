//! Endless bytes whose value depends on their offset: a lost, doubled or swapped byte is found
//! where it happens, without keeping a copy.

use std::io::{ErrorKind, Read, Write};

const BLOCK: usize = 64 << 10;

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

/// Writes the first `total` bytes.
pub fn send(to: impl Write, total: u64) {
    try_send(to, total).unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// Reads the first `total` bytes and compares.
pub fn expect(from: impl Read, total: u64) {
    try_expect(from, total).unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// The peer closed cleanly and sent nothing more.
pub fn expect_end(from: impl Read) {
    try_expect_end(from).unwrap_or_else(|complaint| panic!("{complaint}"));
}

/// As [`send`], for whom a failure is no panic.
///
/// # Errors
///
/// Where writing failed, and why.
pub fn try_send(mut to: impl Write, total: u64) -> Result<(), String> {
    let (mut block, mut offset) = (vec![0; BLOCK], 0);
    while offset < total {
        let size = BLOCK.min(usize::try_from(total - offset).unwrap());
        fill(&mut block[..size], offset);
        to.write_all(&block[..size]).map_err(|e| format!("writing at {offset}: {e}"))?;
        offset += size as u64;
    }
    Ok(())
}

/// As [`expect`], for whom a failure is no panic.
///
/// # Errors
///
/// Where reading failed, or the first byte that differs.
pub fn try_expect(mut from: impl Read, total: u64) -> Result<(), String> {
    let (mut block, mut wanted, mut offset) = (vec![0; BLOCK], vec![0; BLOCK], 0);
    while offset < total {
        let size = BLOCK.min(usize::try_from(total - offset).unwrap());
        from.read_exact(&mut block[..size])
            .map_err(|e| format!("reading the block at {offset} of {total}: {e}"))?;
        fill(&mut wanted[..size], offset);
        let good = block[..size].iter().zip(&wanted).take_while(|(a, b)| a == b).count();
        if good < size {
            return Err(format!("byte {} differs", offset + good as u64));
        }
        offset += size as u64;
    }
    Ok(())
}

/// As [`expect_end`], for whom a failure is no panic.
///
/// # Errors
///
/// Stray bytes, or an end that is not clean.
pub fn try_expect_end(mut from: impl Read) -> Result<(), String> {
    match from.read(&mut [0; 16]) {
        Ok(0) => Ok(()),
        Ok(n) => Err(format!("{n} stray bytes")),
        Err(e) => Err(format!("a clean end was due: {e}")),
    }
}

/// The peer aborted; a clean end would hide that bytes are missing.
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
