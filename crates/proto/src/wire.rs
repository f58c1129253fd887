//! Big-endian fields and TLVs: a bounded reader over bytes that have arrived, and the two writers
//! that `BufMut` lacks. The reader only returns slices of its input, so no length that a peer
//! claims causes an allocation.
//!
//! A TLV is `kind u8 | length u24 | value`; greeting and control messages have the same header.

use bytes::{BufMut, BytesMut};

/// Bytes in front of the value of a TLV or the body of a message.
pub(crate) const TLV_HEAD: usize = 4;

/// Why bytes cannot be read as a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("a field ends too early")]
    Truncated,
    #[error("there are bytes behind the last field")]
    Trailing,
    #[error("a text is not UTF-8")]
    Text,
    #[error("a text is longer than allowed")]
    TextLength,
    #[error("a text has a control character")]
    Control,
}

/// The kind and the body length in a message or TLV header; `None` until the header is complete.
pub(crate) fn head(bytes: &[u8]) -> Option<(u8, usize)> {
    let (&[kind, a, b, c], _) = bytes.split_first_chunk::<TLV_HEAD>()?;
    Some((kind, usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c)))
}

/// Reads fields from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The remaining bytes.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// The remaining bytes, as text of at most `max` bytes without control characters.
    pub(crate) fn text(self, max: usize) -> Result<&'a str, WireError> {
        if self.rest.len() > max {
            return Err(WireError::TextLength);
        }
        text(self.rest)
    }

    /// The next TLV; `None` at the end.
    pub(crate) fn tlv(&mut self) -> Result<Option<(u8, Self)>, WireError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (kind, length) = head(self.rest).ok_or(WireError::Truncated)?;
        self.take(TLV_HEAD)?;
        Ok(Some((kind, Self::new(self.take(length)?))))
    }

    /// Skips the TLVs of a newer peer that may follow the known fields.
    pub(crate) fn skip_tlvs(mut self) -> Result<(), WireError> {
        while self.tlv()?.is_some() {}
        Ok(())
    }

    /// Fails if bytes remain.
    pub(crate) const fn finish(self) -> Result<(), WireError> {
        if self.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}

/// Bytes of a peer as text without control characters; see [`crate::text`].
pub(crate) fn text(bytes: &[u8]) -> Result<&str, WireError> {
    let text = std::str::from_utf8(bytes).map_err(|_| WireError::Text)?;
    if text.contains(crate::text::is_forbidden) { Err(WireError::Control) } else { Ok(text) }
}

/// Appends a TLV or message whose value `write` appends. The value stays below 16 MiB: a writer
/// that exceeds its own, far lower bound refuses the whole message afterwards.
pub(crate) fn put_tlv(out: &mut BytesMut, kind: u8, write: impl FnOnce(&mut BytesMut)) {
    let start = out.len();
    out.put_u8(kind);
    out.put_uint(0, 3);
    write(out);
    let length = out.len() - start - TLV_HEAD;
    debug_assert!(length < 1 << 24, "a value of {length} bytes has no length field");
    let length = length.to_be_bytes();
    out[start + 1..start + TLV_HEAD].copy_from_slice(&length[length.len() - 3..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tlv_reads_back_and_nests() {
        let mut out = BytesMut::new();
        put_tlv(&mut out, 7, |out| {
            out.put_u16(0x1234);
            put_tlv(out, 9, |out| out.put_slice(b"in"));
        });
        assert_eq!(&out[..], b"\x07\0\0\x08\x12\x34\x09\0\0\x02in");
        let mut reader = Reader::new(&out);
        let (kind, mut value) = reader.tlv().unwrap().unwrap();
        assert_eq!((kind, value.u16()), (7, Ok(0x1234)));
        let (kind, inner) = value.tlv().unwrap().unwrap();
        assert_eq!((kind, inner.text(2)), (9, Ok("in")));
        assert_eq!(value.finish(), Ok(()));
        assert!(reader.tlv().unwrap().is_none());
    }

    #[test]
    fn a_length_beyond_the_input_is_an_error_at_every_cut() {
        let whole = b"\x07\0\0\x03abc";
        for cut in 1..whole.len() {
            assert_eq!(Reader::new(&whole[..cut]).tlv().map(|_| ()), Err(WireError::Truncated));
        }
        assert_eq!(Reader::new(b"abc").text(2), Err(WireError::TextLength));
        assert_eq!(Reader::new(b"\xff").text(2), Err(WireError::Text));
        assert_eq!(Reader::new(b"a").finish(), Err(WireError::Trailing));
    }
}
