//! `quic://` passes the conformance suite of all transports. The cases that the suite runs only
//! over TCP sockets (silent peers, garbage, dropped handshakes) are in `handshake.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use setup::Setup;
use testkit::conformance::{Fixture, check};
use transport::{Dialer, Listener};
use transport_quic::{Congestion, QuicSettings};

#[derive(Debug)]
struct Quic(Setup);

impl Fixture for Quic {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        (Box::new(self.0.listener()), Box::new(self.0.dialer()))
    }

    fn shakes_hands(&self) -> bool {
        true
    }
}

#[test]
fn quic_conforms() {
    check(&Quic(Setup::new()));
}

#[test]
fn quic_with_bbr_and_the_smallest_packets_conforms() {
    let settings =
        QuicSettings { loopback: Congestion::Bbr, mtu: 1_200, ..QuicSettings::default() };
    check(&Quic(Setup::with(settings)));
}

#[test]
fn quic_with_the_largest_packets_conforms() {
    check(&Quic(Setup::with(QuicSettings { mtu: 65_527, ..QuicSettings::default() })));
}
