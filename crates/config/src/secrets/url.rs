//! Secrets in URLs: user names with passwords, and parameters of a query.

use std::borrow::Cow;

/// Words in the name of a header field whose value is a credential.
pub(super) const SECRET_WORDS: &[&str] = &[
    "auth",
    "cookie",
    "credential",
    "jwt",
    "key",
    "pass",
    "secret",
    "session",
    "signature",
    "token",
];

/// The user name and the password in a URL, or else the value of a query parameter whose name
/// suggests a credential.
#[must_use]
pub fn in_url(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len());
    if let Some((user, _)) = rest[..end].rsplit_once('@') {
        // `unix://@name` is a socket.
        return Some(user).filter(|user| !user.is_empty());
    }
    in_query(rest)
}

/// The first value of a query that is a secret.
pub(super) fn in_query(path: &str) -> Option<&str> {
    query_secrets(path).next()
}

/// The values of a query that are secrets.
pub(super) fn query_secrets(path: &str) -> impl Iterator<Item = &str> {
    let query = path.split_once('?').map(|(_, query)| query);
    query.into_iter().flat_map(|query| query.split('&').filter_map(secret_of_pair))
}

/// The value of `name=value`, if the name suggests a credential.
fn secret_of_pair(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=')?;
    let name = name.to_ascii_lowercase();
    let is_secret = SECRET_WORDS.iter().any(|word| name.contains(word)) || name == "sig";
    Some(value).filter(|value| is_secret && !value.is_empty())
}

/// The path of a URL without the secret values of its query.
pub(crate) fn without_query_secrets(path: &str) -> Cow<'_, str> {
    if in_query(path).is_none() {
        return path.into();
    }
    let Some((path, query)) = path.split_once('?') else { return path.into() };
    let shown = query.split('&').map(|pair| match secret_of_pair(pair) {
        Some(value) => format!("{}…", pair.strip_suffix(value).unwrap_or_default()),
        None => pair.to_owned(),
    });
    format!("{path}?{}", shown.collect::<Vec<_>>().join("&")).into()
}

/// A text without user names and passwords before hosts, for messages. A message may repeat a part
/// of a URL without its scheme.
#[must_use]
pub fn without_userinfo(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || matches!(c, '`' | '"' | '\'' | ',');
    text.split_inclusive(ends)
        .map(|word| {
            let (scheme, rest) = match word.split_once("://") {
                Some((scheme, rest)) => (&word[..scheme.len() + 3], rest),
                None => ("", word),
            };
            match rest.rfind('@') {
                // `unix:@name` and `/@me` are not user names.
                Some(at) if at > 0 && !rest[..at].ends_with([':', '/']) => {
                    format!("{scheme}…{}", &rest[at..])
                }
                Some(_) | None => word.to_owned(),
            }
        })
        .collect()
}
