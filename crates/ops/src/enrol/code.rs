//! The code: text that a user carries from the server to the new client.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

/// The prefix of each code. It distinguishes a code from a token, and contains the version of the
/// format.
const PREFIX: &str = "enroll1.";

/// The words of the fourth line. An older client compares the whole line with the first word, so it
/// ignores a line with further words. Then it tries the authorities of its system before the pin.
const SELF_SIGNED: &str = "self-signed";
const RENEW: &str = "renew";
const PROXIED: &str = "proxied";

/// The start of a word with the certificate name for a URL: `sni:0=tunnel.example.com` for the
/// first URL.
const SNI: &str = "sni:";

/// The start of the optional lines with the rights of the client.
const MAY: &str = "may ";
const REACH: &str = "reach ";

/// The longest line with rights, in bytes, that a code includes. The lines are only informative,
/// and must not make a code longer than [`MAX`].
const RIGHTS_MAX: usize = 1024;

/// The longest text, in bytes, that is read as a code. A longer text is the wrong file.
const MAX: usize = 8192;

/// The data that a new client needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    pub name: String,
    /// The one-time secret.
    pub secret: String,
    /// The pin of the server's certificate.
    pub pin: Option<String>,
    /// Whether the server generated its certificate itself, so that no authority vouches for it.
    pub self_signed: bool,
    /// Whether the code only renews the token of an enrolled client. An older client, which does
    /// not know this word, writes a new file as for any other code.
    pub renew: bool,
    /// Whether TLS of the `wss://` URLs ends at a reverse proxy, so that the pin does not apply to
    /// them. An older client tries the authorities of its system as well as the pin.
    pub proxied: bool,
    /// The rights as text, if the code includes them: ports and names that the client may publish
    /// (`may`), and targets on the server's side that it may reach (`reach`). Only the server
    /// enforces them.
    pub may: Option<String>,
    pub reach: Option<String>,
    /// URLs of the server, the preferred URL first.
    pub urls: Vec<String>,
    /// For URLs with a different host, the names that are sent in the TLS handshake and that the
    /// certificates contain. An older client verifies the host.
    pub names: BTreeMap<String, String>,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({})", self.name)
    }
}

/// A code with all data that a program needs (`tunnel enroll --json`). Field names are an
/// interface: fields are added, and none is removed.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct ShownCode {
    /// The name of the client.
    pub name: String,
    /// The code, for `tunnel client --enroll CODE`.
    pub code: String,
    /// The validity of the code, in seconds.
    pub valid_seconds: u64,
    /// Whether the code only renews the token of an enrolled client.
    pub renew: bool,
    /// The URLs that the client dials, the preferred URL first.
    pub servers: Vec<String>,
    /// The pin of the server's certificate; absent without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// The ports and names that the client may publish, as text; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_publish: Option<String>,
    /// The targets on the server's side that the client may reach, as text; absent if there are
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_reach: Option<String>,
}

impl std::fmt::Debug for ShownCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ShownCode({})", self.name)
    }
}

impl Code {
    /// The code for a program.
    pub fn shown(self) -> ShownCode {
        ShownCode {
            code: self.text(),
            name: self.name,
            valid_seconds: super::GOOD_FOR.as_secs(),
            renew: self.renew,
            servers: self.urls,
            pin: self.pin,
            may_publish: self.may,
            may_reach: self.reach,
        }
    }

    /// The command line for the other machine.
    pub fn command(&self) -> String {
        format!("tunnel client --enroll {}", self.text())
    }

    /// The code as text, in characters that need no quotes in a shell.
    pub fn text(&self) -> String {
        let pin = self.pin.as_deref().unwrap_or_default();
        let words = [(SELF_SIGNED, self.self_signed), (RENEW, self.renew), (PROXIED, self.proxied)];
        let words = words.iter().filter(|(_, is)| *is).map(|(word, _)| (*word).to_owned());
        let name = |(nth, url)| Some(format!("{SNI}{nth}={}", self.names.get(url)?));
        let words: Vec<_> = words.chain(self.urls.iter().enumerate().filter_map(name)).collect();
        let words = words.join(" ");
        let rights = [(MAY, &self.may), (REACH, &self.reach)].map(|(key, text)| {
            text.as_ref().filter(|text| text.len() <= RIGHTS_MAX).map(|text| format!("{key}{text}"))
        });
        let mut lines = vec![self.name.as_str(), &self.secret, pin, &words];
        // Written before the URLs, which a code must have: so a truncated code is damaged, and
        // never a code without rights.
        lines.extend(rights.iter().flatten().map(String::as_str));
        lines.extend(self.urls.iter().map(String::as_str));
        // The final line end shows that the code is complete.
        let text: String = lines.iter().flat_map(|line| [*line, "\n"]).collect();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
    }

    /// Reads a code. The caller checks the values.
    ///
    /// # Errors
    /// A readable line: the text is not a code, or the code is damaged.
    pub fn read(text: &str) -> Result<Self, String> {
        let not_one = || "this is no code of `tunnel enroll`".to_owned();
        let text = text.trim();
        let coded = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX).ok_or_else(not_one)?;
        let damaged = || "the code is damaged; copy the whole of it".to_owned();
        let bytes = URL_SAFE_NO_PAD.decode(coded).map_err(|_| damaged())?;
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let mut lines = text.strip_suffix('\n').ok_or_else(damaged)?.split('\n').map(str::to_owned);
        let mut next = || lines.next().ok_or_else(damaged);
        let (name, secret, pin, words) = (next()?, next()?, next()?, next()?);
        let has = |word: &str| words.split(' ').any(|found| found == word);
        let (self_signed, renew, proxied) = (has(SELF_SIGNED), has(RENEW), has(PROXIED));
        let mut urls: Vec<_> = lines.collect();
        let mut right = |key: &str| {
            let text = urls.first()?.strip_prefix(key)?.to_owned();
            urls.remove(0);
            Some(text)
        };
        let (may, reach) = (right(MAY), right(REACH));
        if urls.is_empty() {
            return Err(damaged());
        }
        let pin = (!pin.is_empty()).then_some(pin);
        let named = |word: &str| {
            let (nth, name) = word.strip_prefix(SNI)?.split_once('=')?;
            Some((urls.get(nth.parse::<usize>().ok()?)?.clone(), name.to_owned()))
        };
        let names = words.split(' ').filter_map(named).collect();
        Ok(Self { name, secret, pin, self_signed, renew, proxied, may, reach, urls, names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_goes_there_and_back_and_a_part_of_one_is_told() {
        let code = Code {
            name: "home".into(),
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs".into(),
            pin: None,
            self_signed: false,
            renew: false,
            proxied: false,
            may: None,
            reach: None,
            urls: vec!["tls://[2001:db8::1]:7000".into()],
            names: BTreeMap::new(),
        };
        for (pin, may, reach) in [
            (None, None, None),
            (Some("sha256:AAAA"), None, Some("10.0.0.0/8:*")),
            (None, Some("10000-10999, 22"), None),
            (Some("sha256:AAAA"), Some("10000-10999"), Some("a:1, unix:/a")),
        ] {
            let [pin, may, reach] = [pin, may, reach].map(|text| text.map(str::to_owned));
            let renew = may.is_none();
            let code = Code {
                self_signed: pin.is_some(),
                renew,
                proxied: !renew,
                names: pin.iter().map(|_| (code.urls[0].clone(), "a.example".into())).collect(),
                pin,
                may,
                reach,
                ..code.clone()
            };
            let text = code.text();
            assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{text}");
            assert_eq!(Code::read(&format!(" {text}\n")), Ok(code));
            for length in PREFIX.len()..text.len() {
                assert!(Code::read(&text[..length]).is_err(), "{length}");
            }
        }
        let long = Code { may: Some("1,".repeat(RIGHTS_MAX)), ..code.clone() };
        assert_eq!(
            Code::read(&long.text()),
            Ok(code.clone()),
            "rights that are too long are left out"
        );
        assert!(!format!("{code:?}").contains(&code.secret));
        for wrong in ["", "enroll1", "enroll2.AAAA", &code.secret, &"enroll1.".repeat(2000)] {
            assert!(Code::read(wrong).unwrap_err().contains("no code"), "{wrong}");
        }
    }
}
