//! `webrtc://` passes the conformance suite of all transports.

use crate::setup;

use testkit::conformance::{Fixture, check};
use transport::{Dialer, Listener};

#[derive(Debug)]
struct Webrtc;

impl Fixture for Webrtc {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        let (listener, dialer) = setup::pair(&setup::settings());
        (Box::new(listener), Box::new(dialer))
    }

    fn shakes_hands(&self) -> bool {
        true
    }
}

#[test]
fn webrtc_conforms() {
    check(&Webrtc);
}
