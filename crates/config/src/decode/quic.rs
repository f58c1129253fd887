//! `quic`: settings of this side's QUIC connections and UDP sockets.

use super::keys::QUIC;
use super::{Section, unknown};
use crate::model::{Congestion, Quic};
use crate::{BadValue, Size};

/// Default of `quic.mtu`: the largest UDP payload that MTU discovery tries, in bytes, if the route
/// permits it. It exceeds the frames of every network, and on loopback it is the size with the
/// least cost. If the rest of the path permits less than the route, a few probes find the limit
/// (RFC 8899).
const MTU: u16 = 16_336;

/// Smallest UDP payload with which QUIC works, in bytes (RFC 9000 section 14).
const MTU_MIN: u16 = 1200;

/// Largest UDP payload, in bytes: 65,535 minus the 8 bytes of the UDP header (RFC 9000 section
/// 18.2).
const MTU_MAX: u16 = 65_527;

/// Default size of a UDP buffer, in bytes: 30 ms at 1 Gbit/s, while the worker that reads is busy.
const BUFFER: u64 = 4 << 20;

/// Permitted size of a UDP buffer, in bytes. A smaller buffer holds fewer than about 50 packets. A
/// larger buffer is kernel memory that no budget counts.
const BUFFER_RANGE: (u64, u64) = (64 << 10, 64 << 20);

pub(super) fn quic(s: &Section<'_>) -> Quic {
    let s = s.section("quic", &QUIC);
    let s = s.as_ref();
    let buffer = |key| {
        let given = s.and_then(|s| s.value(key, buffer));
        given.unwrap_or(Size::from_bytes(BUFFER))
    };
    Quic {
        congestion: s.and_then(|s| s.value("congestion", congestion)).unwrap_or_default(),
        mtu: s.and_then(|s| s.value("mtu", mtu)).unwrap_or(MTU),
        receive_buffer: buffer("receive_buffer"),
        send_buffer: buffer("send_buffer"),
    }
}

fn congestion(text: &str) -> Result<Congestion, BadValue> {
    let all = [Congestion::Bbr, Congestion::Cubic];
    let found = all.into_iter().find(|congestion| congestion.name() == text);
    found.ok_or_else(|| unknown(&format!("congestion control `{text}`"), text, &["bbr", "cubic"]))
}

fn mtu(text: &str) -> Result<u16, BadValue> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let bytes = text.parse().ok().filter(|n| digits && (MTU_MIN..=MTU_MAX).contains(n));
    bytes.ok_or_else(|| {
        BadValue::new(format!("`{text}` is not a number of bytes in a UDP packet"))
            .hint(format!("{MTU_MIN} to {MTU_MAX}; {MTU_MIN} tries nothing larger"))
    })
}

fn buffer(text: &str) -> Result<Size, BadValue> {
    let size: Size = text.parse()?;
    let (min, max) = BUFFER_RANGE;
    if !(min..=max).contains(&size.bytes()) {
        return Err(BadValue::new(format!("`{text}` is out of range")).hint("64KiB to 64MiB"));
    }
    Ok(size)
}
