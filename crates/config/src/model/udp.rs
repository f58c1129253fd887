//! Values of the transports over UDP, `quic` and `kcp`: sizes of packets and of socket buffers.

use crate::values::ranged;
use std::ops::RangeInclusive;

use crate::{BadValue, Size};

/// Smallest UDP payload that every path must carry, in bytes (RFC 9000 section 14). KCP starts with
/// the same size.
///
/// The default of `mtu` is 16,336: the largest UDP payload that MTU discovery tries, in bytes, if
/// the route permits it. It exceeds the frames of every network, and on loopback it is the size
/// with the least cost. If the rest of the path permits less than the route, a few probes find the
/// limit (RFC 8899).
const MTU_MIN: u16 = 1200;

/// Permitted size of a UDP buffer, in bytes. A smaller buffer holds fewer than about 50 packets. A
/// larger buffer is kernel memory that no budget counts. The default, 4 MiB, holds 30 ms of packets
/// at 1 Gbit/s while the reading worker is busy.
const BUFFER: RangeInclusive<Size> = Size::from_bytes(64 << 10)..=Size::from_bytes(64 << 20);

/// Parses `mtu`, in bytes, at most `max`.
pub(crate) fn mtu(text: &str, max: u16) -> Result<u16, BadValue> {
    let bytes = digits(text).filter(|n| (MTU_MIN..=max).contains(n));
    bytes.ok_or_else(|| {
        BadValue::new(format!("`{text}` is not a number of bytes in a UDP packet"))
            .hint(format!("{MTU_MIN} to {max}; {MTU_MIN} tries nothing larger"))
    })
}

/// Parses the size of a socket buffer.
pub(crate) fn buffer(text: &str) -> Result<Size, BadValue> {
    ranged(text, BUFFER)
}

/// A number of digits only, without a sign.
pub(crate) fn digits(text: &str) -> Option<u16> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}
