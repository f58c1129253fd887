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

/// The URL of a code for several servers, whose lines after it are the codes of the servers. An
/// older client reads it as the address of a server, and its error has this text. It sends the code
/// to nobody.
const SEVERAL: &str = "this-code-needs-a-newer-tunnel://several-servers";

/// The secret of a code for several servers, which is none. An older client checks its strength
/// before it reads the address.
const NO_SECRET: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// Between codes that a person joins by hand. It is no character of a code.
const JOINT: char = '+';

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
    /// The codes of further servers for the same client. Each code is sent to its own server alone.
    pub others: Vec<Self>,
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
    /// The URLs that the client dials, the preferred URL first; of all servers of the code.
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
            valid_seconds: super::GOOD_FOR.as_secs(),
            renew: self.renew,
            servers: self.each().flat_map(|code| &code.urls).cloned().collect(),
            name: self.name,
            pin: self.pin,
            may_publish: self.may,
            may_reach: self.reach,
        }
    }

    /// The command line for the other machine.
    pub fn command(&self) -> String {
        format!("tunnel client --enroll {}", self.text())
    }

    /// Adds the codes of further servers.
    ///
    /// # Errors
    /// A readable line: the codes do not belong together, or are too long together.
    pub fn join(&mut self, others: Vec<Self>) -> Result<(), String> {
        for mut other in others {
            let more = std::mem::take(&mut other.others);
            self.add(other)?;
            more.into_iter().try_for_each(|one| self.add(one))?;
        }
        let length = self.text().len();
        if length > MAX {
            return Err(format!("codes of {length} bytes together; at most {MAX} are read"));
        }
        Ok(())
    }

    fn add(&mut self, other: Self) -> Result<(), String> {
        if self.renew || other.renew {
            return Err("a code of --renew goes with no other code".to_owned());
        }
        if other.name != self.name {
            return Err(format!("codes of clients `{}` and `{}`", self.name, other.name));
        }
        let all = || std::iter::once(&*self).chain(&self.others);
        let twice = other.urls.iter().find(|url| all().any(|known| known.urls.contains(url)));
        if let Some(url) = twice {
            return Err(format!("two codes of the server at {url}"));
        }
        self.others.push(other);
        Ok(())
    }

    /// The code of each server.
    pub fn each(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// The code as text, in characters that need no quotes in a shell.
    pub fn text(&self) -> String {
        if self.others.is_empty() {
            return self.own_text();
        }
        let codes: Vec<_> = self.each().map(Self::own_text).collect();
        let lines = [self.name.as_str(), NO_SECRET, "", "", SEVERAL].into_iter();
        coded(lines.chain(codes.iter().map(String::as_str)))
    }

    /// The code of this server alone.
    fn own_text(&self) -> String {
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
        coded(lines.into_iter())
    }

    /// Reads a code: of one server, of several, or codes of several servers with `+` between them.
    /// The caller checks the values.
    ///
    /// # Errors
    /// A readable line: the text is not a code, or the code is damaged.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut codes = text.trim().split(JOINT).map(Self::read_joined);
        let mut first = codes.next().unwrap_or_else(|| Self::read_joined(""))?;
        let others = codes.collect::<Result<Vec<_>, _>>()?;
        first.join(others)?;
        Ok(first)
    }

    /// Reads a code of one server or of several.
    fn read_joined(text: &str) -> Result<Self, String> {
        let code = Self::read_own(text)?;
        let Some((_, codes)) = code.urls.split_first().filter(|(first, _)| *first == SEVERAL)
        else {
            return Ok(code);
        };
        let mut codes = codes.iter().map(|text| Self::read_own(text));
        let mut first = codes.next().ok_or("the code is damaged; copy the whole of it")??;
        let others = codes.collect::<Result<Vec<_>, _>>()?;
        first.join(others)?;
        Ok(first)
    }

    /// Reads a code without looking at its URLs.
    fn read_own(text: &str) -> Result<Self, String> {
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
        let others = Vec::new();
        Ok(Self { name, secret, pin, self_signed, renew, proxied, may, reach, urls, names, others })
    }
}

/// Lines as a code. The final line end shows that the code is complete.
fn coded<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, url: &str) -> Code {
        Code {
            name: name.into(),
            secret: format!("{}-secret", url.len()),
            pin: Some("sha256:AAAA".into()),
            self_signed: true,
            renew: false,
            proxied: false,
            may: Some("10000-10999".into()),
            reach: None,
            urls: vec![url.into()],
            names: BTreeMap::new(),
            others: Vec::new(),
        }
    }

    #[test]
    fn codes_of_several_servers_are_one_code_and_an_older_client_names_what_it_needs() {
        let [fra, nyc] = [of("home", "tls://fra:7000"), of("home", "tls://nyc.example:7000")];
        let mut both = fra.clone();
        both.join(vec![nyc.clone()]).unwrap();
        let text = both.text();
        assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{text}");
        assert_eq!(Code::read(&text), Ok(both.clone()));
        assert_eq!(
            both.each().map(|code| &code.urls[0]).collect::<Vec<_>>(),
            ["tls://fra:7000", "tls://nyc.example:7000"]
        );
        for length in PREFIX.len()..text.len() {
            assert!(Code::read(&text[..length]).is_err(), "{length}");
        }
        // By hand, also with a further code behind a joined code.
        let by_hand = format!("{}+{}", fra.text(), nyc.text());
        assert_eq!(Code::read(&by_hand), Ok(both.clone()));
        let third = of("home", "quic://ams:1");
        let three = Code::read(&format!("{text}+{}", third.text())).unwrap();
        assert_eq!(three.others, [nyc, third]);
        // An older client reads one code without its secrets, whose address it cannot dial.
        let older = Code::read_own(&text).unwrap();
        assert_eq!(older.urls[0], SEVERAL);
        assert!(!older.secret.contains("secret") && older.pin.is_none());
    }

    #[test]
    fn codes_that_do_not_belong_together_are_refused() {
        let fra = of("home", "tls://fra:7000");
        let refused = |other: Code| fra.clone().join(vec![other]).unwrap_err();
        let why = refused(of("office", "tls://nyc:7000"));
        assert_eq!(why, "codes of clients `home` and `office`");
        assert_eq!(refused(fra.clone()), "two codes of the server at tls://fra:7000");
        let renewal = Code { renew: true, ..of("home", "tls://nyc:7000") };
        assert!(refused(renewal).contains("--renew"));
        let many = (0..64).map(|n| of("home", &format!("tls://nyc-{n}.example.com:7000")));
        let why = fra.clone().join(many.collect()).unwrap_err();
        assert!(why.contains("at most 8192"), "{why}");
    }

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
            others: Vec::new(),
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
