//! Detects files that are text in UTF-8, for the `charset` of their type.
//!
//! `Content-Type` takes precedence over `<meta charset>` (the Encoding standard, section 6), so a
//! wrong `charset` garbles a page in another encoding. Without `charset` the page itself declares
//! it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The maximum number of bytes of a file that are examined. A page is rarely longer; of a longer
/// page this part decides.
const LOOKED: usize = 1 << 20;

/// The size of one read, in bytes.
const PIECE: usize = 16 << 10;

/// Whether a name has the extension of a text file.
pub(super) fn is_text(name: &str) -> bool {
    mime_guess::from_path(name).first_raw().is_some_and(|kind| kind.starts_with("text/"))
}

/// Whether a file is UTF-8. False if it cannot be read.
pub(super) fn is_utf8(file: &File) -> bool {
    look(|piece, at| file.read_at(piece, at)).unwrap_or(false)
}

/// A file longer than [`LOOKED`] must have a character beyond ASCII in this part: otherwise the
/// remainder may be in any encoding.
fn look(read: impl Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<bool> {
    let (mut piece, mut filled, mut at, mut is_ascii) = (vec![0; PIECE], 0, 0_usize, true);
    loop {
        let space = piece.get_mut(filled..).unwrap_or_default();
        let count = match read(space, at as u64) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        (filled, at) = (filled + count, at + count);
        let bytes = piece.get(..filled).unwrap_or_default();
        if bytes.iter().any(|byte| matches!(*byte, 0 | ESCAPE)) {
            return Ok(false);
        }
        is_ascii &= bytes.is_ascii();
        let valid = match std::str::from_utf8(bytes) {
            Ok(text) => text.len(),
            // A character may continue in the next piece.
            Err(error) if error.error_len().is_none() && count > 0 => error.valid_up_to(),
            Err(_) => return Ok(false),
        };
        if count == 0 {
            return Ok(true);
        }
        if at >= LOOKED {
            return Ok(!is_ascii);
        }
        piece.copy_within(valid..filled, 0);
        filled -= valid;
    }
}

/// The byte that begins escape sequences of ISO-2022-JP and related encodings, which otherwise look
/// like ASCII.
const ESCAPE: u8 = 0x1b;

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `most` bytes at a time.
    fn of(bytes: &[u8], most: usize) -> bool {
        let read = |piece: &mut [u8], at: u64| {
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let count = rest.len().min(piece.len()).min(most);
            piece[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        };
        look(read).unwrap()
    }

    #[test]
    fn utf8_is_known_whatever_the_pieces() {
        let text = "ab \u{e4} \u{4f60}\u{597d} \u{1f600}".repeat(3);
        for most in 1..12 {
            assert!(of(text.as_bytes(), most), "{most}");
        }
        assert!(of(b"", 1) && of(b"plain", 9));
        let long = "\u{4f60}".repeat(PIECE);
        assert!(of(long.as_bytes(), usize::MAX));
    }

    #[test]
    fn other_encodings_are_not_utf8() {
        for (bytes, name) in [
            (&b"<meta charset=gbk>\xc4\xe3\xba\xc3"[..], "GBK"),
            (b"\xff\xfea\0b\0", "UTF-16 with a mark"),
            (b"a\0b\0", "UTF-16"),
            (b"\x1b$B$3\x1b(B", "ISO-2022-JP"),
            (b"ab\xe4", "a character that is cut"),
        ] {
            for most in 1..6 {
                assert!(!of(bytes, most), "{name}");
            }
        }
    }

    #[test]
    fn a_long_file_in_ascii_may_be_in_any_encoding() {
        let mut long = vec![b'a'; LOOKED + PIECE];
        assert!(!of(&long, usize::MAX));
        long.splice(0..0, "\u{e4}".bytes());
        assert!(of(&long, usize::MAX));
        long.truncate(LOOKED / 2);
        assert!(of(&long, usize::MAX));
    }
}
