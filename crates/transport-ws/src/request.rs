//! The request of the opening handshake, as a client makes it.

use std::fmt;

/// Header fields that only the handshake itself sets.
const OURS: &[&str] = &[
    "upgrade",
    "connection",
    "content-length",
    "transfer-encoding",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
    "sec-websocket-extensions",
];

/// A header field cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadField {
    /// The name is no token of RFC 9110 section 5.6.2.
    #[error("`{0}` is not the name of an HTTP header field")]
    Name(String),
    /// The value contains a control character, which would end the line or the head.
    #[error("the value of `{0}` has a character that HTTP does not allow")]
    Value(String),
    /// The handshake itself sets this field.
    #[error("`{0}` is set by the WebSocket handshake")]
    Ours(String),
}

/// The request of the opening handshake.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    path: String,
    fields: Vec<(String, String)>,
}

impl Request {
    /// Makes a request for `path` of `host`. `path` has a leading slash and may have a query.
    /// `host` includes the port, unless it is the default port of the scheme. `extra` are further
    /// header fields; a `Host` or `User-Agent` among them replaces ours.
    pub fn new(path: &str, host: &str, extra: &[(String, String)]) -> Result<Self, BadField> {
        let mut fields = vec![
            ("Host".to_owned(), host.to_owned()),
            ("User-Agent".to_owned(), "tunnel".to_owned()),
        ];
        for (name, value) in extra {
            check(name, value)?;
            let same = fields.iter_mut().take(2).find(|(ours, _)| ours.eq_ignore_ascii_case(name));
            match same {
                Some((_, ours)) => value.clone_into(ours),
                None => fields.push((name.clone(), value.clone())),
            }
        }
        Ok(Self { path: path.to_owned(), fields })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The header fields, `Host` first.
    #[must_use]
    pub fn fields(&self) -> &[(String, String)] {
        &self.fields
    }
}

impl fmt::Debug for Request {
    /// Prints the names without the values, because a value may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.fields.iter().map(|(name, _)| name).collect::<Vec<_>>();
        f.debug_struct("Request").field("path", &self.path).field("fields", &names).finish()
    }
}

fn check(name: &str, value: &str) -> Result<(), BadField> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(BadField::Name(name.to_owned()));
    }
    if OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
        return Err(BadField::Ours(name.to_owned()));
    }
    if value.chars().any(char::is_control) {
        return Err(BadField::Value(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(extra: &[(&str, &str)]) -> Result<Request, BadField> {
        let extra: Vec<_> = extra.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        Request::new("/t", "a.example", &extra)
    }

    #[test]
    fn extra_fields_come_behind_ours_or_in_their_place() {
        let request =
            request(&[("X-Key", "1"), ("host", "b.example"), ("User-Agent", "curl/8")]).unwrap();
        let fields: Vec<_> = request.fields().iter().map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!(fields, ["Host: b.example", "User-Agent: curl/8", "X-Key: 1"]);
        let shown = format!("{request:?}");
        assert!(shown.contains("X-Key") && !shown.contains("b.example"), "{shown}");
    }

    #[test]
    fn no_field_breaks_the_head() {
        let name = |text: &str| text.to_owned();
        assert_eq!(request(&[("a b", "1")]), Err(BadField::Name(name("a b"))));
        assert_eq!(request(&[("", "1")]), Err(BadField::Name(name(""))));
        assert_eq!(request(&[("a", "1\r\nb: 2")]), Err(BadField::Value(name("a"))));
        assert_eq!(request(&[("UPGRADE", "x")]), Err(BadField::Ours(name("UPGRADE"))));
    }
}
