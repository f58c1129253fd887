//! `quic`: settings of this side's QUIC connections and UDP sockets.

use super::udp::{buffer, mtu};
use super::{Section, unknown};
use crate::BadValue;
use crate::keys::QUIC;
use crate::model::{Congestion, Quic};

/// Largest UDP payload, in bytes: 65,535 minus the 8 bytes of the UDP header (RFC 9000 section
/// 18.2).
const MTU_MAX: u16 = 65_527;

pub(super) fn quic(s: &Section<'_>) -> Quic {
    let s = s.section("quic", &QUIC);
    let s = s.as_ref();
    Quic {
        congestion: s.and_then(|s| s.value("congestion", congestion)).unwrap_or_default(),
        mtu: mtu(s, MTU_MAX),
        receive_buffer: buffer(s, "receive_buffer"),
        send_buffer: buffer(s, "send_buffer"),
    }
}

fn congestion(text: &str) -> Result<Congestion, BadValue> {
    let all = [Congestion::Bbr, Congestion::Cubic];
    let found = all.into_iter().find(|congestion| congestion.name() == text);
    found.ok_or_else(|| unknown(&format!("congestion control `{text}`"), text, &["bbr", "cubic"]))
}
