//! Which datagrams reach the library. Checks of ICE are taken from a peer that knows our password, and
//! everything else from an address that has made such a check: the library would let a check change
//! its role before it looks at the password, keeps each address that makes one, and takes DTLS from
//! every address that the peer names.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use punch::stun::{is_check_for, is_request, is_stun};

use crate::candidate::Admission;
use crate::error::SignalError;

/// Addresses of a peer. It has a few, and one more with each move of its NAT.
const ADDRESSES: usize = 32;

/// The characters of ICE (RFC 8839 section 5.4), six bits each.
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Characters of a name and a password: 48 and 144 bits. RFC 8445 section 5.3 demands 24 and 128.
const UFRAG: usize = 8;
const PASSWORD: usize = 24;

/// The gate of all sockets of a connection.
pub(crate) struct Gate {
    ufrag: String,
    password: String,
    admission: Admission,
    /// Addresses from which a check came with our password.
    proven: Mutex<Vec<SocketAddr>>,
    /// The handshake of DTLS is done.
    is_connected: AtomicBool,
}

impl Gate {
    /// A gate with a name and a password that no other connection has.
    pub(crate) fn new(admission: Admission) -> Result<Self, SignalError> {
        let mut bytes = [0; UFRAG + PASSWORD];
        aws_lc_rs::rand::fill(&mut bytes).map_err(SignalError::local)?;
        let text: String =
            bytes.iter().map(|byte| char::from(CHARACTERS[usize::from(byte & 63)])).collect();
        let (ufrag, password) = text.split_at(UFRAG);
        let (ufrag, password) = (ufrag.to_owned(), password.to_owned());
        let (proven, is_connected) = Default::default();
        Ok(Self { ufrag, password, admission, proven, is_connected })
    }

    /// The name and the password of this end.
    pub(crate) fn credentials(&self) -> (String, String) {
        (self.ufrag.clone(), self.password.clone())
    }

    /// The handshake is done: the peer has the certificate that its text names.
    pub(crate) fn connected(&self) {
        self.is_connected.store(true, Ordering::Relaxed);
    }

    /// Whether the handshake is done.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    fn proven(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the peer at this address has proved that it knows our password.
    pub(crate) fn is_proven(&self, address: SocketAddr) -> bool {
        self.proven().contains(&canonical(address))
    }

    /// Whether a datagram reaches the library. Answers of STUN do: the library knows what it asked,
    /// and STUN servers have no password.
    pub(crate) fn takes(&self, from: SocketAddr, datagram: &[u8]) -> bool {
        if !is_stun(datagram) {
            return self.is_proven(from);
        }
        !is_request(datagram) || self.takes_check(canonical(from), datagram)
    }

    fn takes_check(&self, from: SocketAddr, datagram: &[u8]) -> bool {
        // The answer and our own checks go there.
        if self.admission.refuses(from) || !is_check_for(datagram, &self.ufrag, &self.password) {
            return false;
        }
        let mut proven = self.proven();
        let is_known = proven.contains(&from);
        if !is_known && proven.len() < ADDRESSES {
            proven.push(from);
            return true;
        }
        is_known
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl fmt::Debug for Gate {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("ufrag", &self.ufrag).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "../tests/setup/stun.rs"]
mod stun;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A check for this gate, with a password.
    pub(crate) fn check(gate: &Gate, password: &str) -> Vec<u8> {
        stun::check(&format!("{}:peer", gate.ufrag), password)
    }

    fn gate() -> Gate {
        Gate::new(Admission::default()).unwrap()
    }

    fn address(port: usize) -> SocketAddr {
        SocketAddr::from(([198, 51, 100, 7], u16::try_from(port).unwrap()))
    }

    /// The begin of a record of DTLS.
    const RECORD: [u8; 3] = [22, 0xfe, 0xfd];

    #[test]
    fn the_right_password_opens_the_gate_for_its_address_alone() {
        let gate = gate();
        let (from, other) = (address(1), address(2));
        assert!(!gate.takes(from, &RECORD));
        assert!(!gate.takes(from, &check(&gate, "wrong")));
        assert!(!gate.takes(from, &RECORD));
        assert!(gate.takes(from, &check(&gate, &gate.password)));
        assert!(gate.takes(from, &RECORD) && gate.is_proven(from));
        assert!(!gate.takes(other, &RECORD) && !gate.is_proven(other));
        let mapped = "[::ffff:198.51.100.7]:1".parse().unwrap();
        assert!(gate.takes(mapped, &RECORD), "the same address on a socket of IPv6");
    }

    #[test]
    fn an_answer_reaches_the_library_and_proves_nothing() {
        let gate = gate();
        let mut answer = check(&gate, &gate.password);
        answer[0] = 1;
        assert!(gate.takes(address(1), &answer));
        assert!(!gate.is_proven(address(1)));
    }

    #[test]
    fn a_peer_that_shows_ever_new_addresses_is_bounded() {
        let gate = gate();
        let check = check(&gate, &gate.password);
        let taken = (1..1_000).filter(|port| gate.takes(address(*port), &check)).count();
        assert_eq!(taken, ADDRESSES);
        assert!(gate.takes(address(1), &check), "an address that is known");
    }

    #[test]
    fn an_address_that_a_stranger_must_not_name_makes_no_check() {
        let gate = gate();
        let check = check(&gate, &gate.password);
        for from in ["127.0.0.1:9", "169.254.169.254:80", "224.0.0.251:5353", "[fd00:ec2::254]:80"]
        {
            assert!(!gate.takes(from.parse().unwrap(), &check), "{from}");
        }
        // A peer in a private network that knows the password is there.
        assert!(gate.takes("10.0.0.7:9".parse().unwrap(), &check));
    }

    #[test]
    fn each_connection_has_its_own_password() {
        let [one, other] = [gate(), gate()].map(|gate| gate.credentials());
        assert!(one.0 != other.0 && one.1 != other.1);
        assert_eq!((one.0.len(), one.1.len()), (UFRAG, PASSWORD));
    }
}
