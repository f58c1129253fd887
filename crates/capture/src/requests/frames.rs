//! Counts the messages of a WebSocket (RFC 6455 section 5.2) by its frame headers. No payload is
//! read or kept.

/// The maximum length of a frame header: two bytes, a length of eight bytes, and a mask of four.
const HEAD: usize = 14;

/// One direction of a WebSocket.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The part of a header that has arrived.
    head: [u8; HEAD],
    have: usize,
    /// The remaining bytes of the payload.
    left: u64,
}

impl Frames {
    /// The number of messages whose last frame begins in these bytes. Control frames do not count
    /// as messages.
    pub(super) fn pass(&mut self, mut bytes: &[u8]) -> u64 {
        let mut messages = 0;
        while let Some(&byte) = bytes.first() {
            if self.left > 0 {
                let skipped = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= skipped as u64;
                bytes = bytes.get(skipped..).unwrap_or_default();
                continue;
            }
            if let Some(place) = self.head.get_mut(self.have) {
                *place = byte;
            }
            self.have += 1;
            bytes = bytes.get(1..).unwrap_or_default();
            if let Some(length) = self.length() {
                let (is_last, opcode) = (self.head[0] & 0x80 != 0, self.head[0] & 0x0f);
                messages += u64::from(is_last && opcode < 8);
                (self.left, self.have) = (length, 0);
            }
        }
        messages
    }

    /// The length of the payload, once the header is complete.
    fn length(&self) -> Option<u64> {
        if self.have < 2 {
            return None;
        }
        let (short, mask) = (self.head[1] & 0x7f, if self.head[1] & 0x80 == 0 { 0 } else { 4 });
        let more = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if self.have < 2 + more + mask {
            return None;
        }
        let length = self.head.iter().skip(2).take(more);
        let length = length.fold(0, |all, byte| all << 8 | u64::from(*byte));
        Some(if more == 0 { u64::from(short) } else { length })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame with a mask, as visitors send it, or without one.
    fn frame(is_last: bool, opcode: u8, masked: bool, length: usize) -> Vec<u8> {
        let mut bytes = vec![u8::from(is_last) << 7 | opcode];
        let mask = u8::from(masked) << 7;
        match length {
            0..126 => bytes.push(mask | u8::try_from(length).unwrap()),
            126..65_536 => {
                bytes.push(mask | 126);
                bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            _ => {
                bytes.push(mask | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(masked.then_some([0x81; 4]).into_iter().flatten());
        bytes.extend(std::iter::repeat_n(0x81, length));
        bytes
    }

    proptest! {
        #[test]
        fn any_split_counts_the_same_messages(
            frames in prop::collection::vec(
                (any::<bool>(), prop::sample::select(vec![0u8, 1, 2, 8, 9, 10]), any::<bool>(),
                    prop::sample::select(vec![0usize, 1, 125, 126, 200, 65_535, 65_536])), 0..6),
            sizes in prop::collection::vec(1usize..5000, 1..40),
        ) {
            let wanted = frames.iter().filter(|(last, opcode, ..)| *last && *opcode < 8).count();
            let bytes: Vec<u8> = frames.iter().flat_map(|f| frame(f.0, f.1, f.2, f.3)).collect();
            let (mut counted, mut one, mut rest) = (0, Frames::default(), &bytes[..]);
            for size in sizes.iter().cycle() {
                let (piece, behind) = rest.split_at((*size).min(rest.len()));
                counted += one.pass(piece);
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(counted, wanted as u64);
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut one = Frames::default();
            one.pass(&bytes);
            one.pass(&bytes);
        }
    }
}
