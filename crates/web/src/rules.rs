//! The options of a service in the form that requests need: parsed once, when the service is
//! published.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::header::{
    self, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, InvalidHeaderName, InvalidHeaderValue,
};
use proto::{Compress, FieldEdits, HashError, HttpOptions, PasswordHash, Redirect, TargetProtocol};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use crate::Candidate;

/// The maximum length of a pair `user:password`, in bytes. All comparisons have this width.
const LONGEST_PAIR: usize = 256;

/// The checked options of one service.
#[derive(Clone, Default)]
pub struct Rules {
    pairs: Vec<Padded>,
    hashed: Vec<Hashed>,
    /// Chooses the hash that is checked for a user that does not exist.
    chooser: RandomState,
    host: Option<HeaderValue>,
    pub(crate) request: Edits,
    pub(crate) response: Edits,
    pub(crate) forwarded: bool,
    pub(crate) target: TargetProtocol,
    /// The ports of the targets, which a target may use as ports of the site.
    pub(crate) ports: Box<[u16]>,
    path: Option<Box<str>>,
    /// The replacement of `path`.
    pub(crate) stripped: Option<Box<str>>,
    /// The address to which a service without a target redirects its visitors.
    pub(crate) redirect: Option<Redirect>,
    /// `Strict-Transport-Security` in responses to visitors over TLS.
    pub(crate) hsts: Option<HeaderValue>,
    /// Whether CORS preflights need no password.
    pub(crate) preflight: bool,
    pub(crate) compress: Compress,
}

/// Omits the values, which are secrets.
impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules")
            .field("path", &self.path)
            .field("forwarded", &self.forwarded)
            .finish_non_exhaustive()
    }
}

/// An option that cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRule {
    /// A text is not a field name.
    #[error("{0:?} is no name of an HTTP field")]
    Name(String, #[source] InvalidHeaderName),
    /// A text is not a field value. The value may be a secret.
    #[error("the value for the HTTP field {0:?} contains a character that no field may contain")]
    Value(String, #[source] InvalidHeaderValue),
    /// The proxy itself sets the field.
    #[error("the HTTP field {0:?} cannot be set or removed: it belongs to the connection")]
    Reserved(String),
    /// A pair of user and password is not usable.
    #[error(
        "a pair of basic_auth has no colon between user and password, or is longer than {} bytes",
        LONGEST_PAIR
    )]
    Pair,
    /// The hash of a password is not usable.
    #[error(transparent)]
    Hash(HashError),
}

impl Rules {
    /// Checks and prepares options.
    ///
    /// # Errors
    ///
    /// If a field is malformed or reserved, or a pair of user and password is not usable.
    pub fn new(options: &HttpOptions) -> Result<Self, InvalidRule> {
        Ok(Self {
            pairs: options
                .basic_auth
                .iter()
                .map(|pair| Padded::pair(pair))
                .collect::<Result<_, _>>()?,
            hashed: options
                .hashes
                .iter()
                .map(|pair| Hashed::new(pair))
                .collect::<Result<_, _>>()?,
            chooser: RandomState::new(),
            host: match &options.host_rewrite {
                Some(host) => Some(value("host", host)?),
                None => None,
            },
            request: Edits::new(&options.request)?,
            response: Edits::new(&options.response)?,
            forwarded: options.forwarded,
            target: options.target,
            ports: options.ports.as_slice().into(),
            path: options.path.as_deref().map(Box::from),
            stripped: options.strip_prefix.as_deref().map(Box::from),
            redirect: options.redirect.clone(),
            hsts: match options.hsts {
                Some(seconds) => {
                    let text = format!("max-age={seconds}");
                    Some(value("strict-transport-security", &text)?)
                }
                None => None,
            },
            preflight: options.preflight_pass,
            compress: options.compress,
        })
    }

    /// The path prefix of the service.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The value of `Host` for the target, if it differs from the visitor's.
    pub(crate) const fn host(&self) -> Option<&HeaderValue> {
        self.host.as_ref()
    }

    /// Whether the service itself requires a password, so that the password of a request is not for
    /// the target.
    pub(crate) const fn have_password(&self) -> bool {
        !self.pairs.is_empty() || !self.hashed.is_empty()
    }

    /// Checks the password of a request.
    pub(crate) fn admit(&self, fields: &HeaderMap) -> Admission {
        if !self.have_password() {
            return Admission::Admitted;
        }
        let mut values = fields.get_all(AUTHORIZATION).into_iter();
        let given = match (values.next(), values.next()) {
            (None, _) => return Admission::Missing,
            (Some(value), None) => value,
            (Some(_), Some(_)) => return Admission::Wrong,
        };
        let Some(given) = credentials(given.as_bytes()) else {
            return Admission::Wrong;
        };
        // An accidentally empty password, in a pair or a hash, must admit nobody. Only the input of
        // the visitor decides this, so the timing reveals nothing about the pairs.
        if !given.has_password() {
            return Admission::Wrong;
        }
        // No early exit: the timing reveals neither which pair matched nor how far.
        let mut found = Choice::from(0);
        for pair in &self.pairs {
            found |= pair.equals(&given);
        }
        if bool::from(found) {
            return Admission::Admitted;
        }
        self.candidate(&given).map_or(Admission::Wrong, Admission::Hashed)
    }

    /// The password with the hash of its user. A user that does not exist gets the hash of another
    /// user, always the same, so that neither the duration of a check nor its variation reveals
    /// which users exist.
    fn candidate(&self, given: &Padded) -> Option<Candidate> {
        let pair = given.text();
        let user = pair.split(|byte| *byte == b':').next()?;
        let name = Padded::new(user)?;
        let most = u64::try_from(self.hashed.len()).ok().filter(|most| *most > 0)?;
        let someone = usize::try_from(self.chooser.hash_one(user) % most).ok()?;
        let (mut nth, mut is_known) = (someone as u64, Choice::from(0));
        for (at, hashed) in self.hashed.iter().enumerate() {
            let is_this = hashed.user.equals(&name);
            nth.conditional_assign(&(at as u64), is_this);
            is_known |= is_this;
        }
        let hashed = self.hashed.get(usize::try_from(nth).ok()?)?;
        Some(Candidate::new(&hashed.hash, is_known.into(), pair))
    }
}

/// The outcome of a password check.
#[derive(Debug)]
pub(crate) enum Admission {
    Admitted,
    Missing,
    Wrong,
    /// The password must be checked against a hash.
    Hashed(Candidate),
}

/// A user with the hash of the password.
#[derive(Clone)]
struct Hashed {
    user: Padded,
    hash: Arc<PasswordHash>,
}

impl Hashed {
    fn new(pair: &str) -> Result<Self, InvalidRule> {
        let (user, hash) = pair.split_once(':').ok_or(InvalidRule::Pair)?;
        let user = Padded::new(user.as_bytes()).ok_or(InvalidRule::Pair)?;
        Ok(Self { user, hash: Arc::new(PasswordHash::parse(hash).map_err(InvalidRule::Hash)?) })
    }
}

/// The pair in an `Authorization: Basic …` field.
fn credentials(value: &[u8]) -> Option<Padded> {
    let (scheme, token) = value.split_at_checked("Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let mut decoded = [0; LONGEST_PAIR + 2];
    let length = STANDARD.decode_slice(token.trim_ascii(), &mut decoded).ok()?;
    Padded::new(&decoded[..length])
}

/// A text that is compared in constant time, whatever its length.
#[derive(Clone)]
struct Padded {
    length: u64,
    bytes: [u8; LONGEST_PAIR],
}

impl Padded {
    fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_PAIR];
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { length: text.len() as u64, bytes })
    }

    fn pair(text: &str) -> Result<Self, InvalidRule> {
        if !text.contains(':') {
            return Err(InvalidRule::Pair);
        }
        Self::new(text.as_bytes()).ok_or(InvalidRule::Pair)
    }

    fn text(&self) -> &[u8] {
        let length = usize::try_from(self.length).unwrap_or(LONGEST_PAIR);
        &self.bytes[..length.min(LONGEST_PAIR)]
    }

    /// Whether a pair has a non-empty password.
    fn has_password(&self) -> bool {
        let mut parts = self.text().splitn(2, |byte| *byte == b':');
        parts.nth(1).is_some_and(|password| !password.is_empty())
    }

    fn equals(&self, other: &Self) -> Choice {
        self.length.ct_eq(&other.length) & self.bytes.ct_eq(&other.bytes)
    }
}

/// The changes to the fields of one direction.
#[derive(Clone, Default)]
pub(crate) struct Edits {
    set: Vec<(HeaderName, HeaderValue)>,
    remove: Vec<HeaderName>,
}

impl Edits {
    fn new(edits: &FieldEdits) -> Result<Self, InvalidRule> {
        let set = edits.set.iter().map(|(name, text)| {
            let field = editable(name)?;
            Ok((field, value(name, text)?))
        });
        Ok(Self {
            set: set.collect::<Result<_, _>>()?,
            remove: edits.remove.iter().map(|name| editable(name)).collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn apply(&self, fields: &mut HeaderMap) {
        for name in &self.remove {
            fields.remove(name);
        }
        for (name, value) in &self.set {
            fields.insert(name, value.clone());
        }
    }
}

fn value(name: &str, text: &str) -> Result<HeaderValue, InvalidRule> {
    HeaderValue::from_str(text).map_err(|error| InvalidRule::Value(name.to_owned(), error))
}

/// The name of a field that a service may change: one that neither frames nor routes a message.
fn editable(name: &str) -> Result<HeaderName, InvalidRule> {
    let field = HeaderName::from_bytes(name.as_bytes())
        .map_err(|error| InvalidRule::Name(name.to_owned(), error))?;
    let reserved = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    if reserved.contains(&field) || field == "keep-alive" {
        return Err(InvalidRule::Reserved(name.to_owned()));
    }
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Admitted`, `Missing`, `Wrong`, or the outcome of a hash check.
    #[derive(Debug, PartialEq)]
    enum Outcome {
        Admitted,
        Missing,
        Wrong,
        Hashed(bool),
    }

    impl From<Admission> for Outcome {
        fn from(admission: Admission) -> Self {
            match admission {
                Admission::Admitted => Self::Admitted,
                Admission::Missing => Self::Missing,
                Admission::Wrong => Self::Wrong,
                Admission::Hashed(candidate) => Self::Hashed(candidate.is_right()),
            }
        }
    }

    fn admit(pairs: &[&str], value: &str) -> Outcome {
        let basic_auth = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        let rules = Rules::new(&HttpOptions { basic_auth, ..HttpOptions::default() }).unwrap();
        let mut fields = HeaderMap::new();
        fields.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        rules.admit(&fields).into()
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    #[test]
    fn each_pair_admits_and_nothing_else() {
        let pairs = ["anna:one", "bert:two:three"];
        for pair in pairs {
            assert_eq!(admit(&pairs, &basic(pair)), Outcome::Admitted);
        }
        assert_eq!(admit(&pairs, &basic("anna:one").replace("Basic", "bASIC")), Outcome::Admitted);
        for wrong in [
            basic("anna:two"),
            basic("anna:on"),
            basic("anna:one\0"),
            basic(""),
            basic(&"a".repeat(300)),
            "Basic %%%".into(),
            "Bearer x".into(),
            "Basic".into(),
            STANDARD.encode("anna:one"),
        ] {
            assert_eq!(admit(&pairs, &wrong), Outcome::Wrong, "{wrong}");
        }
    }

    #[test]
    fn a_hash_admits_its_user_alone_and_costs_the_same_for_nobody() {
        // `U*U` and the empty password, of OpenWall's test vectors.
        let hashes = [
            "ann:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW",
            "bob:$2b$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy",
        ];
        let hashes = hashes.map(str::to_owned).to_vec();
        let basic_auth = vec!["eve:plain".to_owned()];
        let options = HttpOptions { basic_auth, hashes, ..HttpOptions::default() };
        let rules = Rules::new(&options).unwrap();
        assert!(rules.have_password());
        let admit = |pair: &str| {
            let mut fields = HeaderMap::new();
            fields.insert(AUTHORIZATION, HeaderValue::from_str(&basic(pair)).unwrap());
            Outcome::from(rules.admit(&fields))
        };
        assert_eq!(admit("eve:plain"), Outcome::Admitted);
        for (pair, is_right) in
            [("ann:U*U", true), ("bob:U*U", false), ("eve:U*U", false), ("an:U*U", false)]
        {
            assert_eq!(admit(pair), Outcome::Hashed(is_right), "{pair}");
        }
        // The hash of the empty password admits nobody.
        for pair in ["bob:", "bob", "ann:", "eve:", "ann", ""] {
            assert_eq!(admit(pair), Outcome::Wrong, "{pair}");
        }
        let bad = HttpOptions { hashes: vec!["ann:{SHA}x".into()], ..HttpOptions::default() };
        assert!(matches!(Rules::new(&bad), Err(InvalidRule::Hash(HashError::Kind))));
    }

    #[test]
    fn two_passwords_are_wrong_and_none_is_missing() {
        let rules = Rules::new(&HttpOptions {
            basic_auth: vec!["anna:one".into()],
            ..HttpOptions::default()
        })
        .unwrap();
        let mut fields = HeaderMap::new();
        assert_eq!(Outcome::from(rules.admit(&fields)), Outcome::Missing);
        for _ in 0..2 {
            fields.append(AUTHORIZATION, HeaderValue::from_str(&basic("anna:one")).unwrap());
        }
        assert_eq!(Outcome::from(rules.admit(&fields)), Outcome::Wrong);
        assert_eq!(Outcome::from(Rules::default().admit(&fields)), Outcome::Admitted);
    }

    #[test]
    fn options_that_no_request_could_follow_are_refused() {
        let edit = |name: &str, value: &str| {
            Rules::new(&HttpOptions {
                request: FieldEdits { set: vec![(name.into(), value.into())], remove: vec![] },
                ..HttpOptions::default()
            })
        };
        assert!(edit("X-Name", "value").is_ok());
        assert!(matches!(edit("X Name", "v"), Err(InvalidRule::Name(..))));
        assert!(matches!(edit("X-Name", "a\r\nb"), Err(InvalidRule::Value(..))));
        for name in ["Content-Length", "Transfer-Encoding", "connection", "Keep-Alive", "Host"] {
            assert!(matches!(edit(name, "1"), Err(InvalidRule::Reserved(_))), "{name}");
        }
        for pair in ["anna", &format!("anna:{}", "x".repeat(300))] {
            let basic_auth = vec![pair.to_owned()];
            let rules = Rules::new(&HttpOptions { basic_auth, ..HttpOptions::default() });
            assert!(matches!(rules, Err(InvalidRule::Pair)), "{pair}");
        }
    }
}
