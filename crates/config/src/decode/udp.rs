//! Values of the transports over UDP, `quic` and `kcp`: sizes of packets and of socket buffers.

use super::Section;
use crate::{BadValue, Size};

/// Default of `mtu`: the largest UDP payload that MTU discovery tries, in bytes, if the route
/// permits it. It exceeds the frames of every network, and on loopback it is the size with the
/// least cost. If the rest of the path permits less than the route, a few probes find the limit
/// (RFC 8899).
pub(super) const MTU: u16 = 16_336;

/// Smallest UDP payload that every path must carry, in bytes (RFC 9000 section 14). KCP starts with
/// the same size.
const MTU_MIN: u16 = 1200;

/// Default size of a UDP buffer, in bytes: it holds 30 ms of packets at 1 Gbit/s while the reading
/// worker is busy.
const BUFFER: u64 = 4 << 20;

/// Permitted size of a UDP buffer, in bytes. A smaller buffer holds fewer than about 50 packets. A
/// larger buffer is kernel memory that no budget counts.
const BUFFER_RANGE: (u64, u64) = (64 << 10, 64 << 20);

/// Decodes `mtu`, in bytes, at most `max`.
pub(super) fn mtu(s: Option<&Section<'_>>, max: u16) -> u16 {
    let read = |text: &str| {
        let bytes = digits(text).filter(|n| (MTU_MIN..=max).contains(n));
        bytes.ok_or_else(|| {
            BadValue::new(format!("`{text}` is not a number of bytes in a UDP packet"))
                .hint(format!("{MTU_MIN} to {max}; {MTU_MIN} tries nothing larger"))
        })
    };
    s.and_then(|s| s.value("mtu", read)).unwrap_or(MTU)
}

/// Decodes the size of a socket buffer.
pub(super) fn buffer(s: Option<&Section<'_>>, key: &str) -> Size {
    let read = |text: &str| {
        let size: Size = text.parse()?;
        let (min, max) = BUFFER_RANGE;
        if !(min..=max).contains(&size.bytes()) {
            return Err(BadValue::new(format!("`{text}` is out of range")).hint("64KiB to 64MiB"));
        }
        Ok(size)
    };
    s.and_then(|s| s.value(key, read)).unwrap_or(Size::from_bytes(BUFFER))
}

/// A number of digits only, without a sign.
pub(super) fn digits(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}
