//! Harnesses of the fuzz targets; `tests/corpus.rs` replays the corpora through them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::signal::Body;
use crate::stun;
use crate::{CANDIDATES, DESCRIPTION_BYTES, SIGNAL_BYTES, Signal};

/// Each decoded signal must survive encoding and decoding, and is bounded.
pub fn signal(input: &[u8]) {
    let Ok(signal) = Signal::decode(input) else { return };
    let most = match &signal.body {
        Body::Offer(offer) => {
            assert!(offer.candidates.len() <= CANDIDATES);
            SIGNAL_BYTES
        }
        Body::Decline(_) => SIGNAL_BYTES,
        Body::Description(..) => 6 + DESCRIPTION_BYTES,
    };
    let bytes = signal.encode();
    assert!(bytes.len() <= most && bytes.len() <= input.len());
    assert_eq!(Signal::decode(&bytes), Ok(signal));
}

/// A response matches its request, is small, and is not a request.
pub fn stun(input: &[u8]) {
    let _ = stun::answered(input);
    for from in [
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 4711)),
        SocketAddr::from((Ipv6Addr::from(0x2001_0db8_0000_0000_0000_0000_0000_0001), 4711)),
    ] {
        let Some(answer) = stun::answer(input, from) else { continue };
        let bytes = answer.bytes();
        assert!(bytes.len() <= stun::ANSWER && bytes.len() <= input.len() + 24);
        let (id, seen) = stun::answered(bytes).expect("our own answer");
        assert!(seen == from && input[8..20] == id);
        assert!(stun::answer(bytes, from).is_none());
    }
}

/// Whatever a router responds, requests are sent only to the router.
pub fn router(input: &[u8]) {
    crate::mapper::fuzz::router(input);
}
