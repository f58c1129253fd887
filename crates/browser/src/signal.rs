//! The messages of the two clients about a data channel, over the inner link (`docs/webrtc.md`,
//! "Over a peer link"): version, round, kind, and the rest. Only the messages that a page sends and
//! receives are here; the crate `punch` has all of them, and an ICE agent, which in a page is the
//! browser's task.

use sha2::{Digest, Sha256};

const VERSION: u8 = 1;
const DECLINE: u8 = 1;
const OFFER: u8 = 2;
const ANSWER: u8 = 3;

/// The largest size of a session description, in bytes.
const DESCRIPTION_MAX: usize = 4000;

/// Reasons that are permanent for the link: the other client wants relayed paths, or was built
/// without WebRTC.
const LASTING: [u8; 2] = [0, 3];

/// The messages of the other client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Answer(String),
    /// It makes no attempt; whether this also applies to later attempts.
    Decline(bool),
}

/// An offer as a signal. `None`: the text is too long.
pub(crate) fn offer(round: u32, text: &str) -> Option<Vec<u8>> {
    let head = [&[VERSION][..], &round.to_be_bytes(), &[OFFER]].concat();
    (text.len() <= DESCRIPTION_MAX).then(|| [&head, text.as_bytes()].concat())
}

/// Reads a signal of this round. Signals of other rounds and of later versions are ignored.
pub(crate) fn read(bytes: &[u8], round: u32) -> Option<Said> {
    let (&[version, a, b, c, d, kind], rest) = bytes.split_first_chunk()?;
    if version != VERSION || u32::from_be_bytes([a, b, c, d]) != round {
        return None;
    }
    match kind {
        ANSWER if rest.len() <= DESCRIPTION_MAX => {
            str::from_utf8(rest).ok().map(|text| Said::Answer(text.to_owned()))
        }
        DECLINE => rest.first().map(|why| Said::Decline(LASTING.contains(why))),
        _ => None,
    }
}

/// The SHA-256 of the certificate that a session description names.
pub(crate) fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let is_it = |line: &str| {
        let (hash, digits) = line.strip_prefix("a=fingerprint:")?.trim().split_once(' ')?;
        hash.eq_ignore_ascii_case("sha-256").then(|| digits.to_owned())
    };
    let digits = text.lines().find_map(is_it)?;
    let mut bytes = digits.split(':').map(|two| u8::from_str_radix(two, 16).ok());
    let mut all = [0; 32];
    for byte in &mut all {
        *byte = bytes.next()??;
    }
    bytes.next().is_none().then_some(all)
}

/// The value that binds the greeting to the channel, in place of the TLS exporter.
pub(crate) fn binding(offerer: &[u8; 32], answerer: &[u8; 32]) -> [u8; 32] {
    Sha256::new().chain_update(offerer).chain_update(answerer).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_those_of_the_other_client() {
        let signal = |body| punch::Signal { round: 7, body }.encode();
        let text = "v=0\r\n".to_owned();
        let theirs = punch::Body::Description(punch::Described::Offer, text.clone());
        assert_eq!(offer(7, &text), Some(signal(theirs)));
        assert_eq!(offer(7, &"v".repeat(4001)), None);
        let theirs = signal(punch::Body::Description(punch::Described::Answer, text.clone()));
        assert_eq!(read(&theirs, 7), Some(Said::Answer(text)));
        assert_eq!(read(&theirs, 8), None);
        assert_eq!(read(&theirs[..5], 7), None);
        for (why, lasts) in [
            (punch::Decline::Relay, true),
            (punch::Decline::Without, true),
            (punch::Decline::Unable, false),
            (punch::Decline::Often, false),
        ] {
            assert_eq!(read(&signal(punch::Body::Decline(why)), 7), Some(Said::Decline(lasts)));
        }
    }

    #[test]
    fn a_fingerprint_has_32_bytes() {
        let digits = vec!["0A"; 32].join(":");
        let text = |line: &str| format!("v=0\r\na=fingerprint:sha-1 00:11\r\n{line}\r\n");
        assert_eq!(fingerprint(&text(&format!("a=fingerprint:SHA-256 {digits}"))), Some([10; 32]));
        for bad in [format!("{digits}:00"), digits[3..].to_owned(), digits.replace('A', "x")] {
            assert_eq!(fingerprint(&text(&format!("a=fingerprint:sha-256 {bad}"))), None);
        }
    }
}
