//! Reads bytes from the front, and the variable-length integers of RFC 9000 section 16.

use super::Malformed;

/// The unread rest of a content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// An integer of 1, 2 or 4 bytes. Longer integers do not occur.
    pub(super) fn integer(&mut self) -> Result<u32, Malformed> {
        let first = self.byte()?;
        let high = u32::from(first & 0x3f);
        match first >> 6 {
            0 => Ok(high),
            1 => Ok(high << 8 | u32::from(self.byte()?)),
            2 => {
                let [a, b, c] = self.array()?;
                Ok(high << 24 | u32::from_be_bytes([0, a, b, c]))
            }
            _ => Err(Malformed),
        }
    }
}

/// The largest integer that [`put_integer`] can encode.
pub(super) const INTEGER_MAX: u32 = (1 << 30) - 1;

/// Appends an integer. A larger integer than [`INTEGER_MAX`] is written as [`INTEGER_MAX`].
pub(super) fn put_integer(value: u32, to: &mut Vec<u8>) {
    let [_, _, high, low] = value.to_be_bytes();
    match value {
        0..0x40 => to.push(low),
        0x40..0x4000 => to.extend([0x40 | high, low]),
        _ => to.extend((value.min(INTEGER_MAX) | 0x8000_0000).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_read_as_it_was_written() {
        for value in [0, 1, 63, 64, 300, 16_383, 16_384, INTEGER_MAX] {
            let mut bytes = Vec::new();
            put_integer(value, &mut bytes);
            let mut reader = Reader(&bytes);
            assert_eq!(reader.integer(), Ok(value));
            assert!(reader.0.is_empty());
            assert_eq!(Reader(&bytes[..bytes.len() - 1]).integer(), Err(Malformed));
        }
        assert_eq!(Reader(&[0xff; 8]).integer(), Err(Malformed));
    }
}
