//! The options of a service in the form that a request needs: parsed once, at publishing.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::header::{
    self, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, InvalidHeaderName, InvalidHeaderValue,
};
use proto::{Compress, FieldEdits, HttpOptions};
use subtle::{Choice, ConstantTimeEq as _};

/// The longest pair `user:password` in bytes. All comparisons have this width.
const LONGEST_PAIR: usize = 256;

/// The checked options of one service.
#[derive(Clone, Default)]
pub struct Rules {
    pairs: Vec<Padded>,
    host: Option<HeaderValue>,
    pub(crate) request: Edits,
    pub(crate) response: Edits,
    pub(crate) forwarded: bool,
    path: Option<Box<str>>,
    pub(crate) compress: Compress,
}

/// The values are secrets.
impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules")
            .field("path", &self.path)
            .field("forwarded", &self.forwarded)
            .finish_non_exhaustive()
    }
}

/// An option that no request could follow.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRule {
    /// A text is no name of a field.
    #[error("{0:?} is no name of an HTTP field")]
    Name(String, #[source] InvalidHeaderName),
    /// A text is no value of a field. The value may be a secret.
    #[error("the value for the HTTP field {0:?} contains a character that no field may contain")]
    Value(String, #[source] InvalidHeaderValue),
    /// The proxy itself writes the field.
    #[error("the HTTP field {0:?} cannot be set or removed: it belongs to the connection")]
    Reserved(String),
    /// A pair of user and password is not usable.
    #[error(
        "a pair of basic_auth has no colon between user and password, or is longer than {} bytes",
        LONGEST_PAIR
    )]
    Pair,
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
            host: match &options.host_rewrite {
                Some(host) => Some(value("host", host)?),
                None => None,
            },
            request: Edits::new(&options.request)?,
            response: Edits::new(&options.response)?,
            forwarded: options.forwarded,
            path: options.path.as_deref().map(Box::from),
            compress: options.compress,
        })
    }

    /// The prefix of the paths that the service takes.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The value of `Host` for the target, if it is not that of the visitor.
    pub(crate) const fn host(&self) -> Option<&HeaderValue> {
        self.host.as_ref()
    }

    /// Whether the password of a request is that of the service, and not that of the target.
    pub(crate) const fn have_password(&self) -> bool {
        !self.pairs.is_empty()
    }

    /// Checks the password of a request.
    pub(crate) fn admit(&self, fields: &HeaderMap) -> Admission {
        if self.pairs.is_empty() {
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
        // No early end: the time tells neither which pair was compared nor how far.
        let mut found = Choice::from(0);
        for pair in &self.pairs {
            found |= pair.equals(&given);
        }
        if bool::from(found) { Admission::Admitted } else { Admission::Wrong }
    }
}

/// The outcome of the check of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    Missing,
    Wrong,
}

/// The pair in a field `Authorization: Basic …`.
fn credentials(value: &[u8]) -> Option<Padded> {
    let (scheme, token) = value.split_at_checked("Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let mut decoded = [0; LONGEST_PAIR + 2];
    let length = STANDARD.decode_slice(token.trim_ascii(), &mut decoded).ok()?;
    Padded::new(&decoded[..length])
}

/// A text whose comparison takes the same time whatever its length.
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

    fn equals(&self, other: &Self) -> Choice {
        self.length.ct_eq(&other.length) & self.bytes.ct_eq(&other.bytes)
    }
}

/// Changes of the fields of one direction.
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

/// A field that a service may change: not a field that frames a message or routes it.
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

    fn admit(pairs: &[&str], value: &str) -> Admission {
        let basic_auth = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        let rules = Rules::new(&HttpOptions { basic_auth, ..HttpOptions::default() }).unwrap();
        let mut fields = HeaderMap::new();
        fields.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        rules.admit(&fields)
    }

    fn basic(pair: &str) -> String {
        format!("Basic {}", STANDARD.encode(pair))
    }

    #[test]
    fn each_pair_admits_and_nothing_else() {
        let pairs = ["anna:one", "bert:two:three"];
        for pair in pairs {
            assert_eq!(admit(&pairs, &basic(pair)), Admission::Admitted);
        }
        assert_eq!(
            admit(&pairs, &basic("anna:one").replace("Basic", "bASIC")),
            Admission::Admitted
        );
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
            assert_eq!(admit(&pairs, &wrong), Admission::Wrong, "{wrong}");
        }
    }

    #[test]
    fn two_passwords_are_wrong_and_none_is_missing() {
        let rules = Rules::new(&HttpOptions {
            basic_auth: vec!["anna:one".into()],
            ..HttpOptions::default()
        })
        .unwrap();
        let mut fields = HeaderMap::new();
        assert_eq!(rules.admit(&fields), Admission::Missing);
        for _ in 0..2 {
            fields.append(AUTHORIZATION, HeaderValue::from_str(&basic("anna:one")).unwrap());
        }
        assert_eq!(rules.admit(&fields), Admission::Wrong);
        assert_eq!(Rules::default().admit(&fields), Admission::Admitted);
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
