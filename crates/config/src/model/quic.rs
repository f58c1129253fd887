//! `quic`: settings of this side's QUIC connections and UDP sockets.

use crate::Size;
use crate::key_table::KeyTable;
use crate::model::udp::{buffer, mtu};
use crate::words::words;

/// Largest UDP payload, in bytes: 65,535 minus the 8 bytes of the UDP header (RFC 9000 section
/// 18.2).
const MTU_MAX: u16 = 65_527;

/// Settings of this side's QUIC connections and UDP sockets. The sockets live as long as the
/// process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, KeyTable)]
#[keys(compare = "quic")]
pub struct Quic {
    /// The congestion control of the data that this end sends over QUIC.
    #[key("`bbr`, `cubic`", default = "bbr", note = "how this end sends", reconnect)]
    pub congestion: Congestion,
    /// The largest UDP payload that MTU discovery tries over QUIC, in bytes.
    ///
    /// 1200 disables MTU discovery.
    #[key("number, 1200-65527", default = "16336", reconnect, read = |text| mtu(text, MTU_MAX))]
    pub mtu: u16,
    /// The receive buffer of each UDP socket of QUIC; the system may grant less.
    #[key("size, 64KiB-64MiB", default = "4MiB", restart, read = buffer)]
    pub receive_buffer: Size,
    /// The send buffer of each UDP socket of QUIC; the system may grant less.
    #[key("size, 64KiB-64MiB", default = "4MiB", restart, read = buffer)]
    pub send_buffer: Size,
}

words! {
    /// Congestion control of `quic.congestion`.
    pub enum Congestion: "congestion control" {
        /// BBR: follows a model of the path, so loss alone does not slow it down.
        #[default]
        Bbr = "bbr",
        /// CUBIC: reacts to loss (RFC 9438).
        Cubic = "cubic",
    }
}
