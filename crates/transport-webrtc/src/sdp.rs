//! Session descriptions (RFC 8866, RFC 8829) of connections with data channels only.
//!
//! The text of a peer is parsed into the few values that a connection needs, and a new text is made
//! from these values. So the library sees no line that an unauthenticated peer wrote, and the peer
//! sees no line of the library.

use std::fmt::Write as _;

use crate::candidate::{Candidate, write_lines};
use crate::error::SignalError;

/// The maximum length of a text, in bytes. Browsers write 1 to 3 KiB.
pub const MAX_DESCRIPTION: usize = 16 << 10;

/// The maximum number of candidates that are parsed, before the rules about addresses.
const MAX_LINES: usize = 64;

/// The maximum length of a message that this end accepts and the minimum limit of a peer, in bytes:
/// all implementations send and receive such messages.
pub(crate) const MAX_MESSAGE: usize = 16 << 10;

/// Which end begins the DTLS handshake (RFC 5763 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    Active,
    Passive,
    /// The answer decides.
    Either,
}

impl Setup {
    const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
            Self::Either => "actpass",
        }
    }
}

/// The content of a session description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) user: String,
    pub(crate) password: String,
    /// SHA-256 of the certificate.
    pub(crate) fingerprint: [u8; 32],
    pub(crate) setup: Setup,
    pub(crate) mid: String,
    pub(crate) sctp_port: u16,
    pub(crate) candidates: Vec<Candidate>,
}

const fn refuse<T>(reason: &'static str) -> Result<T, SignalError> {
    Err(SignalError::Description(reason))
}

impl Description {
    /// Parses the text of a peer.
    pub(crate) fn read(text: &str) -> Result<Self, SignalError> {
        if text.len() > MAX_DESCRIPTION {
            return refuse("it is longer than 16 KiB");
        }
        let mut found = Found::default();
        for line in text.lines() {
            found.line(line.trim_end())?;
        }
        found.description()
    }

    /// Writes the text of an offer or an answer.
    pub(crate) fn write(&self) -> String {
        let Self { user, password, fingerprint, setup, mid, sctp_port, candidates } = self;
        // RFC 8829 section 5.2.1: a unique number of 63 bits.
        let [a, b, c, d, e, f, g, h, ..] = *fingerprint;
        let session = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        let digits: Vec<_> = fingerprint.iter().map(|byte| format!("{byte:02X}")).collect();
        let mut text = String::new();
        // Writing into a String does not fail.
        let _ = write!(
            text,
            "v=0\r\no=- {session} 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
             a=group:BUNDLE {mid}\r\n\
             m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\n\
             a=ice-ufrag:{user}\r\na=ice-pwd:{password}\r\n\
             a=fingerprint:sha-256 {}\r\na=setup:{}\r\na=mid:{mid}\r\na=sendrecv\r\n\
             a=sctp-port:{sctp_port}\r\na=max-message-size:{MAX_MESSAGE}\r\n",
            digits.join(":"),
            setup.name(),
        );
        write_lines(candidates, &mut text);
        text.push_str("a=end-of-candidates\r\n");
        text
    }
}

/// The values that were parsed so far.
#[derive(Debug, Default)]
struct Found {
    is_begun: bool,
    has_media: bool,
    user: Option<String>,
    password: Option<String>,
    fingerprint: Option<[u8; 32]>,
    setup: Option<Setup>,
    mid: Option<String>,
    sctp_port: Option<u16>,
    lines: usize,
    candidates: Vec<Candidate>,
}

impl Found {
    fn line(&mut self, line: &str) -> Result<(), SignalError> {
        if !self.is_begun {
            self.is_begun = true;
            return if line == "v=0" { Ok(()) } else { refuse("it does not begin with v=0") };
        }
        if let Some(media) = line.strip_prefix("m=") {
            return self.media(media);
        }
        let Some(attribute) = line.strip_prefix("a=") else { return Ok(()) };
        let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
        match name {
            "ice-ufrag" => self.user = Some(credential(value, 4)?),
            "ice-pwd" => self.password = Some(credential(value, 22)?),
            "fingerprint" => self.fingerprint(value)?,
            "setup" => {
                self.setup = Some(match value {
                    "active" => Setup::Active,
                    "passive" => Setup::Passive,
                    "actpass" => Setup::Either,
                    _ => return refuse("a=setup has an unknown value"),
                });
            }
            "mid" => self.mid = Some(mid(value)?),
            "sctp-port" => match value.parse() {
                Ok(port) => self.sctp_port = Some(port),
                Err(_) => return refuse("a=sctp-port is no port"),
            },
            "max-message-size" => match value.parse::<usize>() {
                // 0: as long as the peer's memory allows (RFC 8841 section 6.1).
                Ok(size) if size == 0 || size >= MAX_MESSAGE => {}
                _ => return refuse("a=max-message-size is less than 16384"),
            },
            "candidate" if self.lines < MAX_LINES => {
                self.lines += 1;
                self.candidates.extend(Candidate::read(attribute));
            }
            _ => {}
        }
        Ok(())
    }

    fn media(&mut self, media: &str) -> Result<(), SignalError> {
        let mut words = media.split_ascii_whitespace();
        let (kind, _port) = (words.next(), words.next());
        let (protocol, format) = (words.next(), words.next());
        if kind != Some("application") || format != Some("webrtc-datachannel") {
            return refuse("it asks for more than data channels");
        }
        if !protocol.is_some_and(|protocol| protocol.ends_with("/DTLS/SCTP")) {
            return refuse("its protocol is not DTLS/SCTP");
        }
        if self.has_media {
            return refuse("it has more than one media section");
        }
        self.has_media = true;
        Ok(())
    }

    /// A peer may send several hashes of its certificate.
    fn fingerprint(&mut self, value: &str) -> Result<(), SignalError> {
        let Some((hash, digits)) = value.split_once(' ') else {
            return refuse("a=fingerprint has no value");
        };
        if !hash.eq_ignore_ascii_case("sha-256") {
            return Ok(());
        }
        let mut fingerprint = [0; 32];
        let mut bytes = digits.trim().split(':');
        for byte in &mut fingerprint {
            let digits = bytes.next().filter(|digits| digits.len() == 2);
            let digits = digits.filter(|digits| digits.bytes().all(|c| c.is_ascii_hexdigit()));
            match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(value) => *byte = value,
                None => return refuse("a=fingerprint is no SHA-256"),
            }
        }
        if bytes.next().is_some() {
            return refuse("a=fingerprint is no SHA-256");
        }
        if self.fingerprint.is_some_and(|other| other != fingerprint) {
            return refuse("it names two certificates");
        }
        self.fingerprint = Some(fingerprint);
        Ok(())
    }

    fn description(self) -> Result<Description, SignalError> {
        if !self.has_media {
            return refuse("it has no m=application line");
        }
        let Some(user) = self.user else { return refuse("a=ice-ufrag is missing") };
        let Some(password) = self.password else { return refuse("a=ice-pwd is missing") };
        let Some(fingerprint) = self.fingerprint else {
            return refuse("a=fingerprint with sha-256 is missing");
        };
        Ok(Description {
            user,
            password,
            fingerprint,
            // The default of RFC 4145 does not apply: RFC 8842 requires the attribute.
            setup: match self.setup {
                Some(setup) => setup,
                None => return refuse("a=setup is missing"),
            },
            mid: self.mid.unwrap_or_else(|| "0".to_owned()),
            sctp_port: self.sctp_port.unwrap_or(5_000),
            candidates: self.candidates,
        })
    }
}

/// An ICE username fragment or password (RFC 8839 section 5.4).
fn credential(value: &str, least: usize) -> Result<String, SignalError> {
    let is_ice = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    if (least..=256).contains(&value.len()) && value.chars().all(is_ice) {
        return Ok(value.to_owned());
    }
    refuse("a=ice-ufrag or a=ice-pwd is too short, too long or has other characters")
}

/// A name of a media section: a token of RFC 8866.
fn mid(value: &str) -> Result<String, SignalError> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`{|}~".contains(c);
    if (1..=16).contains(&value.len()) && value.chars().all(is_token) {
        return Ok(value.to_owned());
    }
    refuse("a=mid is no token of 1 to 16 characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Chromium 156 writes it.
    const CHROMIUM: &str = "v=0\r\no=- 1719264139123126347 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
        a=group:BUNDLE 0\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n\
        m=application 51472 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 198.51.100.7\r\n\
        a=candidate:1 1 udp 2113937151 198.51.100.7 51472 typ host generation 0 network-cost 999\r\n\
        a=candidate:2 1 udp 2113937151 0d4f5a2b-66c7-49d3-8c9f-1a2b3c4d5e6f.local 51473 typ host\r\n\
        a=ice-ufrag:wxyZ\r\na=ice-pwd:abcdefghijklmnopqrstuvwx\r\na=ice-options:trickle\r\n\
        a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:10:11:12:13:14:15:16:\
        17:18:19:1A:1B:1C:1D:1E:1F\r\na=setup:actpass\r\na=mid:0\r\na=sctp-port:5000\r\n\
        a=max-message-size:262144\r\n";

    fn refused(text: &str) -> String {
        Description::read(text).unwrap_err().to_string()
    }

    #[test]
    fn a_description_is_read_and_written() {
        let description = Description::read(CHROMIUM).unwrap();
        assert_eq!(description.user, "wxyZ");
        assert_eq!(description.fingerprint[..3], [0, 1, 2]);
        assert_eq!(description.setup, Setup::Either);
        assert_eq!(description.candidates.len(), 1, "names of mDNS are not looked up");
        let written = description.write();
        assert!(written.contains("\r\na=max-message-size:16384\r\n"), "{written}");
        assert!(!written.contains("network-cost"), "{written}");
        assert_eq!(Description::read(&written).unwrap(), description);
    }

    #[test]
    fn a_description_that_is_none_is_refused_in_words() {
        let without = |part: &str| {
            assert!(CHROMIUM.contains(part), "{part}");
            refused(&CHROMIUM.replace(part, "a=x"))
        };
        assert!(refused("").contains("m=application"));
        assert!(refused("hello").contains("v=0"));
        assert!(refused(&"v".repeat(MAX_DESCRIPTION + 1)).contains("16 KiB"));
        assert!(without("a=ice-ufrag:wxyZ").contains("a=ice-ufrag is missing"));
        assert!(without("a=ice-pwd:abcdefghijklmnopqrstuvwx").contains("a=ice-pwd is missing"));
        assert!(without("a=setup:actpass").contains("a=setup is missing"));
        assert!(without("a=fingerprint:sha-256 ").contains("a=fingerprint"));
        for (what, instead, reason) in [
            ("a=ice-pwd:abcdefghijklmnopqrstuvwx", "a=ice-pwd:short", "too short"),
            ("a=ice-ufrag:wxyZ", "a=ice-ufrag:w xZ", "other characters"),
            ("sha-256 00", "sha-256 0g", "no SHA-256"),
            ("1E:1F", "1E:1F:20", "no SHA-256"),
            ("sha-256 ", "sha-1 ", "sha-256 is missing"),
            ("max-message-size:262144", "max-message-size:1000", "max-message-size"),
            ("a=mid:0", "a=mid:0 1", "a=mid"),
            ("a=setup:actpass", "a=setup:holdconn", "a=setup"),
            ("DTLS/SCTP webrtc", "RTP/SAVPF webrtc", "DTLS/SCTP"),
            ("a=mid:0", "m=audio 9 UDP/TLS/RTP/SAVPF 111", "more than data channels"),
        ] {
            let text = CHROMIUM.replace(what, instead);
            assert!(refused(&text).contains(reason), "{instead}: {}", refused(&text));
        }
        let twice = format!("{CHROMIUM}m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n");
        assert!(refused(&twice).contains("more than one"));
    }

    #[test]
    fn of_many_candidates_a_bounded_number_is_read() {
        let line = "a=candidate:1 1 udp 7 198.51.100.7 5000 typ host\r\n";
        let text = format!("{CHROMIUM}{}", line.repeat(200));
        assert_eq!(Description::read(&text).unwrap().candidates.len(), MAX_LINES - 1);
    }
}
