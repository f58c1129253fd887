//! Filters the datagrams that reach the library. ICE checks are accepted from a peer that knows our
//! password, and all other datagrams from an address that has sent such a check: the library would
//! let a check change its role before it verifies the password, stores each address that sends a
//! check, and accepts DTLS from every address that the peer names.
//!
//! The source address of a peer's check may be forged. So the gate also knows which addresses have
//! answered our checks, whose transaction ids are random: checks to all other addresses obey the
//! pace of the peer ([`crate::pace`]).

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use punch::stun::{is_check_for, is_request, is_stun};
use punch::{Pace, Turn};

use crate::candidate::Admission;
use crate::error::SignalError;
use crate::opening::FirstHops;
use crate::settings::WebrtcSettings;

/// The maximum number of addresses of a peer. A peer has a few, and one more with each rebinding of
/// its NAT.
const ADDRESSES: usize = 32;

/// The ICE characters (RFC 8839 section 5.4), six bits each.
const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The maximum number of unanswered checks. The pace allows 20 checks per second.
const ASKED: usize = 128;

/// The first bytes of a success response (RFC 8489 section 5).
const SUCCESS: [u8; 2] = [1, 1];

/// The number of characters of a username fragment and a password: 48 and 144 bits. RFC 8445
/// section 5.3 requires 24 and 128.
const UFRAG: usize = 8;
const PASSWORD: usize = 24;

/// The gate of all sockets of a connection.
pub(crate) struct Gate {
    ufrag: String,
    password: String,
    admission: Admission,
    /// Addresses from which a check with our password arrived.
    proven: Mutex<Vec<SocketAddr>>,
    asked: Mutex<Asked>,
    opening: Mutex<FirstHops>,
    /// STUN servers of the settings, which may be queried at any time.
    servers: Vec<SocketAddr>,
    pace: Arc<Mutex<Pace>>,
    /// The DTLS handshake is done.
    is_connected: AtomicBool,
}

/// The checks to addresses that have not answered.
#[derive(Default)]
struct Asked {
    /// The latest checks, each with its transaction id.
    waiting: VecDeque<(SocketAddr, [u8; 12])>,
    answered: Vec<SocketAddr>,
}

impl Gate {
    /// A gate with a username fragment and a password that no other connection has.
    pub(crate) fn new(settings: &WebrtcSettings) -> Result<Self, SignalError> {
        let mut bytes = [0; UFRAG + PASSWORD];
        aws_lc_rs::rand::fill(&mut bytes).map_err(SignalError::local)?;
        let text: String =
            bytes.iter().map(|byte| char::from(CHARACTERS[usize::from(byte & 63)])).collect();
        let (ufrag, password) = text.split_at(UFRAG);
        let (ufrag, password) = (ufrag.to_owned(), password.to_owned());
        let (proven, asked, opening, is_connected) = Default::default();
        let (admission, pace) = (settings.admission, Arc::clone(&settings.pace));
        let servers = settings.stun.iter().map(|server| canonical(*server)).collect();
        Ok(Self { ufrag, password, admission, proven, asked, opening, servers, pace, is_connected })
    }

    /// The username fragment and the password of this end.
    pub(crate) fn credentials(&self) -> (String, String) {
        (self.ufrag.clone(), self.password.clone())
    }

    /// Records that the handshake is done: the peer has the certificate that its text names.
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

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the address has answered a check of this connection.
    pub(crate) fn has_answered(&self, address: SocketAddr) -> bool {
        self.asked().answered.contains(&canonical(address))
    }

    /// Decides whether a check may be sent to an address that has not answered.
    pub(crate) fn ask(&self, to: SocketAddr, check: &[u8], now: Instant) -> Turn {
        let to = canonical(to);
        if self.servers.contains(&to) {
            return Turn::Now;
        }
        let turn = self.pace().ask(now, to.ip());
        if turn == Turn::Now
            && let Some(number) = number(check)
        {
            let waiting = &mut self.asked().waiting;
            if waiting.len() >= ASKED {
                waiting.pop_front();
            }
            waiting.push_back((to, number));
        }
        turn
    }

    /// Sets the addresses of the peer to which the first checks open our own NAT.
    pub(crate) fn opens(&self, addresses: impl Iterator<Item = SocketAddr>) {
        *self.opening() = FirstHops::of(addresses);
    }

    fn opening(&self) -> MutexGuard<'_, FirstHops> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hop limit of a check that is sent now; `None`: the default.
    pub(crate) fn hops(&self, to: SocketAddr, now: Instant) -> Option<u8> {
        let to = canonical(to);
        if self.is_proven(to) { None } else { self.opening().hops(now, to) }
    }

    /// Records the answer to a check.
    fn note_answer(&self, from: SocketAddr, datagram: &[u8], now: Instant) {
        let Some(number) = number(datagram).filter(|_| datagram.starts_with(&SUCCESS)) else {
            return;
        };
        let mut asked = self.asked();
        if asked.waiting.contains(&(from, number)) && asked.answered.len() < ADDRESSES {
            asked.waiting.retain(|(to, _)| *to != from);
            asked.answered.push(from);
            drop(asked);
            self.pace().answered(now, from.ip());
        }
    }

    /// Whether a datagram reaches the library. STUN responses do: the library knows its requests,
    /// and STUN servers have no password.
    pub(crate) fn takes(&self, from: SocketAddr, datagram: &[u8]) -> bool {
        if !is_stun(datagram) {
            return self.is_proven(from);
        }
        if is_request(datagram) {
            return self.takes_check(canonical(from), datagram);
        }
        if !self.is_connected() {
            let now = tokio::time::Instant::now().into_std();
            self.note_answer(canonical(from), datagram, now);
        }
        true
    }

    fn takes_check(&self, from: SocketAddr, datagram: &[u8]) -> bool {
        // The answer and our own checks are sent to this address.
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

/// The transaction id of a STUN message.
fn number(message: &[u8]) -> Option<[u8; 12]> {
    message.get(8..20)?.try_into().ok()
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
        Gate::new(&WebrtcSettings::default()).unwrap()
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
    fn checks_live_for_few_hops_until_the_peer_has_spoken() {
        let (gate, now) = (gate(), Instant::now());
        gate.opens([address(1)].into_iter());
        assert!(gate.hops(address(1), now).is_some() && gate.hops(address(2), now).is_none());
        assert!(gate.takes(address(1), &check(&gate, &gate.password)));
        assert_eq!(gate.hops(address(1), now), None);
    }

    #[test]
    fn an_answer_reaches_the_library_and_proves_nothing() {
        let gate = gate();
        let mut answer = check(&gate, &gate.password);
        answer[0] = 1;
        assert!(gate.takes(address(1), &answer));
        assert!(!gate.is_proven(address(1)));
    }

    /// The peer may send a check in the name of any address.
    #[test]
    fn an_address_is_free_once_it_has_answered_and_not_because_of_a_check_from_there() {
        let (gate, now) = (gate(), Instant::now());
        let [victim, peer] = [1, 2].map(address);
        assert!(gate.takes(victim, &check(&gate, &gate.password)) && gate.is_proven(victim));
        assert!(!gate.has_answered(victim));
        let ours = check(&gate, "any");
        assert_eq!(gate.ask(peer, &ours, now), Turn::Now);
        let mut answer = ours;
        answer[..2].copy_from_slice(&SUCCESS);
        // An answer counts for the address that was asked, with the number of the check.
        gate.takes(victim, &answer);
        let mut other = answer.clone();
        other[8] ^= 1;
        gate.takes(peer, &other);
        assert!(!gate.has_answered(victim) && !gate.has_answered(peer));
        gate.takes(peer, &answer);
        assert!(gate.has_answered(peer) && !gate.has_answered(victim));
    }

    #[test]
    fn connections_of_one_peer_share_a_pace_and_servers_of_the_settings_have_none() {
        let server = SocketAddr::from(([198, 51, 100, 9], 3478));
        let settings = WebrtcSettings { stun: vec![server], ..WebrtcSettings::default() };
        let gates = [(); 4].map(|()| Gate::new(&settings).unwrap());
        let (now, check) = (Instant::now(), [0; 20]);
        let asked = |gate: &Gate, port| gate.ask(address(port), &check, now) == Turn::Now;
        let left = gates.iter().flat_map(|gate| (1..100).map(move |port| asked(gate, port)));
        assert_eq!(left.filter(|left| *left).count(), 4, "ports of one address");
        assert!((0..100).all(|_| gates[0].ask(server, &check, now) == Turn::Now));
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
