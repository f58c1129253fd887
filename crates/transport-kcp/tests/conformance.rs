//! `kcp://` passes the conformance suite of all transports. The cases that the suite runs only over
//! TCP sockets (silent peers, garbage, dropped handshakes) are in `handshake.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use setup::Setup;
use testkit::conformance::{Fixture, check};
use transport::{Dialer, Listener};
use transport_kcp::{Control, KcpSettings, Protection};

#[derive(Debug)]
struct Kcp(Setup);

impl Fixture for Kcp {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        (Box::new(self.0.listener()), Box::new(self.0.dialer()))
    }

    fn shakes_hands(&self) -> bool {
        true
    }
}

#[test]
fn kcp_conforms() {
    check(&Kcp(Setup::new()));
}

#[test]
fn kcp_with_the_smallest_packets_conforms() {
    check(&Kcp(Setup::with(KcpSettings { mtu: 1_200, ..KcpSettings::default() })));
}

#[test]
fn kcp_as_users_of_kcptun_set_it_conforms() {
    let settings = KcpSettings {
        control: Control::Open,
        protection: Protection::Fixed { data: 10, parity: 3 },
        send_window: 1_024,
        receive_window: 1_024,
        ..KcpSettings::default()
    };
    check(&Kcp(Setup::with(settings)));
}
