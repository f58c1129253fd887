//! The signals that two clients exchange over their link to find a direct path. They are opaque to
//! the link.
//!
//! ```text
//! version (1)  round (4)  kind (1)
//! kind 0, an offer:
//!   flags (1): bits 0-1 UDP, 2-3 mapping, 4-5 filtering, as numbered below; bit 6: more will come
//!   length (1) ufrag   length (1) password
//!   count (1), each: kind (1)  family (1): 4 or 6  address (4 or 16)  port (2)  priority (4)
//!   count (1), each: steps (1), see below; versions before it have none of this
//! kind 1, a refusal:
//!   reason (1)
//! kind 2, an offer of WebRTC, and kind 3, its answer:
//!   a session description, up to the end of the signal
//! ```
//!
//! Numbers are big-endian. Bytes after the last field are ignored, for later versions. Each offer
//! of a round has all candidates that its sender knows, so a later offer replaces an earlier one. A
//! session description is complete, and its round has only one.
//!
//! The steps of an offer are the steps by which its sender has opened its own NAT towards each
//! candidate of the receiver, in the order of the receiver's last offer: 0 to 4, and 4 if there is
//! nothing to open.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::{Candidate, Filtering, Kind, Mapping, Nat, Udp};

const VERSION: u8 = 1;
const OFFER: u8 = 0;
const DECLINE: u8 = 1;
const DESCRIPTION_OFFER: u8 = 2;
const DESCRIPTION_ANSWER: u8 = 3;

/// Maximum number of candidates of one end.
pub const CANDIDATES: usize = 16;

/// Maximum length of a signal about a direct path over QUIC that this version encodes, in bytes.
pub const SIGNAL_BYTES: usize =
    7 + 1 + UFRAG_MOST + 1 + PASSWORD_MOST + 1 + CANDIDATES * 24 + 1 + CANDIDATES;

/// Maximum length of a session description, in bytes: a control message has room for 4,096 bytes.
/// Browsers need about 1,000 and 100 for each candidate.
pub const DESCRIPTION_BYTES: usize = 4_000;

/// Lengths of a ufrag and of a password, in characters (the minimum is from RFC 8839 section 5.4;
/// longer ones are useless).
const UFRAG_LEAST: usize = 4;
const UFRAG_MOST: usize = 32;
const PASSWORD_LEAST: usize = 22;
const PASSWORD_MOST: usize = 64;

/// The credentials of one end, by which its checks prove that the peer has received its signals.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Identifies the end in a check.
    pub ufrag: String,
    /// The key of the checks.
    pub password: String,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("ufrag", &self.ufrag).finish_non_exhaustive()
    }
}

/// A signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signal {
    /// The number of the attempt, which the visitor chooses. An end ignores signals of an older
    /// attempt.
    pub round: u32,
    /// The content of the signal.
    pub body: Body,
}

/// The content of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The candidates of the sender.
    Offer(Offer),
    /// The sender makes no attempt.
    Decline(Decline),
    /// A session description of WebRTC (RFC 8866).
    Description(Described, String),
}

/// The kind of a session description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Described {
    /// An offer, which begins a connection.
    Offer,
    /// The answer to an offer.
    Answer,
}

/// An offer of the sender's candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The credentials of the checks to which the sender responds.
    pub credentials: Credentials,
    /// All candidates that the sender knows so far, at most [`CANDIDATES`].
    pub candidates: Vec<Candidate>,
    /// The NAT behaviour that the sender has detected.
    pub nat: Nat,
    /// Whether more candidates may follow.
    pub more: bool,
    /// The steps by which the sender has opened its NAT towards the candidates of the receiver;
    /// `None`: the version of the sender opens none.
    pub opened: Option<Vec<u8>>,
}

/// Why an end makes no attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decline {
    /// The configuration of the sender permits only relayed paths.
    Relay,
    /// The sender has no socket or no address for an attempt.
    Unable,
    /// The sender was built without WebRTC.
    Without,
    /// The visitor makes requests more often than the sender permits. Earlier versions decode it as
    /// [`Decline::Other`].
    Often,
    /// A reason of a later version.
    Other(u8),
}

/// A signal that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SignalError {
    /// The signal ends within a field.
    #[error("a signal ends too early")]
    Short,
    /// An unknown version or kind.
    #[error("a signal of a newer version")]
    Newer,
    /// A ufrag or a password that is too short, too long or has an invalid character.
    #[error("a signal with malformed credentials")]
    Credentials,
    /// More candidates than an end may have.
    #[error("a signal with {0} candidates; {CANDIDATES} are allowed")]
    Candidates(u8),
    /// A malformed candidate.
    #[error("a signal with a malformed candidate")]
    Candidate,
    /// A session description that is too long, or is not text.
    #[error("a session description that is no text of at most {DESCRIPTION_BYTES} bytes")]
    Description,
}

impl Signal {
    /// Encodes the signal: at most [`SIGNAL_BYTES`], or a session description and 6 bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.round.to_be_bytes());
        match &self.body {
            Body::Offer(offer) => offer.encode(&mut out),
            Body::Decline(why) => out.extend([DECLINE, why.number()]),
            Body::Description(kind, text) => {
                out.push(match kind {
                    Described::Offer => DESCRIPTION_OFFER,
                    Described::Answer => DESCRIPTION_ANSWER,
                });
                out.extend(text.as_bytes());
            }
        }
        out
    }

    /// Decodes a signal.
    ///
    /// # Errors
    /// The bytes are not a signal that this version supports.
    pub fn decode(bytes: &[u8]) -> Result<Self, SignalError> {
        let mut rest = Rest(bytes);
        if rest.byte()? != VERSION {
            return Err(SignalError::Newer);
        }
        let round = rest.number()?;
        let body = match rest.byte()? {
            OFFER => Body::Offer(Offer::decode(&mut rest)?),
            DECLINE => Body::Decline(Decline::of(rest.byte()?)),
            DESCRIPTION_OFFER => Body::Description(Described::Offer, description(rest.0)?),
            DESCRIPTION_ANSWER => Body::Description(Described::Answer, description(rest.0)?),
            _ => return Err(SignalError::Newer),
        };
        Ok(Self { round, body })
    }
}

impl Offer {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(OFFER);
        out.push(flags(self.nat) | u8::from(self.more) << 6);
        for text in [&self.credentials.ufrag, &self.credentials.password] {
            out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
            out.extend(text.as_bytes());
        }
        let announced = &self.candidates[..self.candidates.len().min(CANDIDATES)];
        out.push(u8::try_from(announced.len()).unwrap_or(u8::MAX));
        for candidate in announced {
            out.push(number_of(candidate.kind));
            match candidate.address.ip() {
                IpAddr::V4(ip) => {
                    out.push(4);
                    out.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    out.push(6);
                    out.extend(ip.octets());
                }
            }
            out.extend(candidate.address.port().to_be_bytes());
            out.extend(candidate.priority.to_be_bytes());
        }
        if let Some(opened) = &self.opened {
            let announced = &opened[..opened.len().min(CANDIDATES)];
            out.push(u8::try_from(announced.len()).unwrap_or(u8::MAX));
            out.extend(announced);
        }
    }

    fn decode(rest: &mut Rest<'_>) -> Result<Self, SignalError> {
        let flags = rest.byte()?;
        let ufrag = rest.text(UFRAG_LEAST..=UFRAG_MOST)?;
        let password = rest.text(PASSWORD_LEAST..=PASSWORD_MOST)?;
        let count = rest.byte()?;
        if usize::from(count) > CANDIDATES {
            return Err(SignalError::Candidates(count));
        }
        let candidates = (0..count).map(|_| candidate(rest)).collect::<Result<_, _>>()?;
        let opened = if rest.0.is_empty() { None } else { Some(opened(rest)?) };
        let credentials = Credentials { ufrag, password };
        Ok(Self { credentials, candidates, nat: nat_of(flags), more: flags & 0x40 != 0, opened })
    }
}

fn description(bytes: &[u8]) -> Result<String, SignalError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= DESCRIPTION_BYTES);
    text.map(str::to_owned).ok_or(SignalError::Description)
}

fn opened(rest: &mut Rest<'_>) -> Result<Vec<u8>, SignalError> {
    let count = rest.byte()?;
    if usize::from(count) > CANDIDATES {
        return Err(SignalError::Candidates(count));
    }
    Ok(rest.take(count.into())?.to_vec())
}

fn candidate(rest: &mut Rest<'_>) -> Result<Candidate, SignalError> {
    let kind = match rest.byte()? {
        0 => Kind::Host,
        1 => Kind::Mapped,
        2 => Kind::Reflexive,
        _ => return Err(SignalError::Candidate),
    };
    let ip: IpAddr = match rest.byte()? {
        4 => Ipv4Addr::from(rest.array::<4>()?).into(),
        6 => Ipv6Addr::from(rest.array::<16>()?).into(),
        _ => return Err(SignalError::Candidate),
    };
    let port = u16::from_be_bytes(rest.array()?);
    let priority = rest.number()?;
    if !(1..1 << 31).contains(&priority) {
        return Err(SignalError::Candidate);
    }
    Ok(Candidate { kind, address: SocketAddr::new(ip, port), priority })
}

const fn number_of(kind: Kind) -> u8 {
    match kind {
        Kind::Host => 0,
        Kind::Mapped => 1,
        // Discovered addresses are already known to the peer.
        Kind::Reflexive | Kind::Discovered => 2,
    }
}

fn flags(nat: Nat) -> u8 {
    let udp = match nat.udp {
        Udp::Unknown => 0,
        Udp::Passes => 1,
        Udp::Blocked => 2,
    };
    let mapping = match nat.mapping {
        Mapping::Unknown => 0,
        Mapping::None => 1,
        Mapping::Same => 2,
        Mapping::PerDestination => 3,
    };
    let filtering = match nat.filtering {
        Filtering::Unknown => 0,
        Filtering::Open => 1,
        Filtering::AddressAndPort => 2,
    };
    udp | mapping << 2 | filtering << 4
}

fn nat_of(flags: u8) -> Nat {
    Nat {
        udp: match flags & 3 {
            1 => Udp::Passes,
            2 => Udp::Blocked,
            _ => Udp::Unknown,
        },
        mapping: match flags >> 2 & 3 {
            1 => Mapping::None,
            2 => Mapping::Same,
            3 => Mapping::PerDestination,
            _ => Mapping::Unknown,
        },
        filtering: match flags >> 4 & 3 {
            1 => Filtering::Open,
            2 => Filtering::AddressAndPort,
            _ => Filtering::Unknown,
        },
    }
}

impl Decline {
    const fn number(self) -> u8 {
        match self {
            Self::Relay => 0,
            Self::Unable => 1,
            Self::Without => 3,
            Self::Often => 2,
            Self::Other(number) => number,
        }
    }

    const fn of(number: u8) -> Self {
        match number {
            0 => Self::Relay,
            1 => Self::Unable,
            3 => Self::Without,
            2 => Self::Often,
            other => Self::Other(other),
        }
    }
}

/// The bytes that are not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take(&mut self, length: usize) -> Result<&[u8], SignalError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(SignalError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, SignalError> {
        Ok(self.array::<1>()?[0])
    }

    fn number(&mut self) -> Result<u32, SignalError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SignalError> {
        self.take(N)?.try_into().map_err(|_| SignalError::Short)
    }

    /// Reads text of ICE characters (RFC 8839 section 5.4: letters, digits, `+` and `/`).
    fn text(&mut self, lengths: std::ops::RangeInclusive<usize>) -> Result<String, SignalError> {
        let length = usize::from(self.byte()?);
        if !lengths.contains(&length) {
            return Err(SignalError::Credentials);
        }
        let text = self.take(length)?;
        let is_of_ice = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
        if !text.iter().all(is_of_ice) {
            return Err(SignalError::Credentials);
        }
        Ok(text.iter().copied().map(char::from).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(candidates: usize) -> Signal {
        let candidates = (0..candidates).map(|index| {
            let text = if index % 2 == 0 { "192.0.2.1:4711" } else { "[2001:db8::1]:4711" };
            let kind = [Kind::Host, Kind::Mapped, Kind::Reflexive][index % 3];
            Candidate::new(kind, text.parse().unwrap(), index)
        });
        let offer = Offer {
            credentials: Credentials { ufrag: "abcd+/12".into(), password: "x".repeat(24) },
            candidates: candidates.collect(),
            nat: Nat {
                udp: Udp::Passes,
                mapping: Mapping::PerDestination,
                filtering: Filtering::AddressAndPort,
            },
            more: true,
            opened: Some(vec![4, 0, 2]),
        };
        Signal { round: 7, body: Body::Offer(offer) }
    }

    #[test]
    fn what_is_written_is_read() {
        for candidates in [0, 1, 3, CANDIDATES] {
            let bytes = offer(candidates).encode();
            assert!(bytes.len() <= SIGNAL_BYTES);
            assert_eq!(Signal::decode(&bytes), Ok(offer(candidates)));
            let later = [&bytes[..], b"more"].concat();
            assert_eq!(Signal::decode(&later), Ok(offer(candidates)), "later fields are ignored");
            // An offer of a version that opens no NAT ends before the steps.
            let older = bytes.len() - 4;
            for end in (0..bytes.len()).filter(|end| *end != older) {
                assert!(Signal::decode(&bytes[..end]).is_err(), "cut at {end}");
            }
            let Ok(Signal { body: Body::Offer(announced), .. }) = Signal::decode(&bytes[..older])
            else {
                panic!("an offer without steps")
            };
            assert_eq!((announced.opened, announced.candidates.len()), (None, candidates));
        }
        for (why, number) in [
            (Decline::Relay, 0),
            (Decline::Unable, 1),
            (Decline::Often, 2),
            (Decline::Without, 3),
            (Decline::Other(9), 9),
        ] {
            let signal = Signal { round: u32::MAX, body: Body::Decline(why) };
            assert_eq!(signal.encode().last(), Some(&number));
            assert_eq!(Signal::decode(&signal.encode()), Ok(signal));
        }
    }

    #[test]
    fn a_session_description_is_the_rest_of_its_signal() {
        for kind in [Described::Offer, Described::Answer] {
            let text = "v".repeat(DESCRIPTION_BYTES);
            let signal = Signal { round: 3, body: Body::Description(kind, text) };
            let bytes = signal.encode();
            assert_eq!(bytes.len(), 6 + DESCRIPTION_BYTES);
            assert_eq!(Signal::decode(&bytes), Ok(signal));
            let (longer, broken) = ([&bytes[..], b"v"].concat(), [&bytes[..6], b"\xff"].concat());
            assert_eq!(Signal::decode(&longer), Err(SignalError::Description));
            assert_eq!(Signal::decode(&broken), Err(SignalError::Description));
        }
    }

    #[test]
    fn more_candidates_than_sixteen_are_refused() {
        let mut bytes = offer(CANDIDATES).encode();
        let at = 5 + 1 + 1 + 9 + 25;
        assert_eq!(usize::from(bytes[at]), CANDIDATES);
        bytes[at] += 1;
        bytes.extend([0, 4, 192, 0, 2, 1, 1, 1, 0, 0, 0, 1]);
        assert_eq!(Signal::decode(&bytes), Err(SignalError::Candidates(17)));
        let mut bytes = offer(CANDIDATES).encode();
        let at = bytes.len() - 4;
        bytes[at] = 17;
        bytes.extend([0; 17]);
        assert_eq!(Signal::decode(&bytes), Err(SignalError::Candidates(17)));
    }

    #[test]
    fn credentials_that_could_be_guessed_or_break_a_text_are_refused() {
        for (ufrag, password) in [
            ("abc", "x".repeat(24)),
            ("abcd", "x".repeat(21)),
            ("abcd", "x".repeat(65)),
            ("ab:d", "x".repeat(24)),
            ("ab\nd", "x".repeat(24)),
        ] {
            let mut signal = offer(1);
            if let Body::Offer(offer) = &mut signal.body {
                offer.credentials = Credentials { ufrag: ufrag.into(), password };
            }
            assert_eq!(Signal::decode(&signal.encode()), Err(SignalError::Credentials), "{ufrag}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        assert!(!format!("{:?}", offer(1)).contains("xxx"));
    }
}
