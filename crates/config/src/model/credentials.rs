//! What proves a name, and fields of HTTP whose values may prove one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use proto::greeting::{StoredCredential, TokenError};

use crate::key_table::KeyTable;
use crate::section::{Item, Reading, Section};
use crate::yaml::Kind;
use crate::{BadValue, Secret, secrecy, values};

/// A token and the file that it was read from, so that the caller can check the permissions of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub secret: Secret,
    /// The path of the `token_file` as written; `None` if the token came from another source.
    pub file: Option<PathBuf>,
}

/// A certificate chain and its key: PEM files, with paths as written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, KeyTable)]
#[keys(rows)]
pub struct KeyPair {
    /// The file of the certificate chain that is presented to visitors.
    #[key("path", required, holds = KeyFile)]
    pub cert: PathBuf,
    /// The file of the private key of the certificate.
    #[key("path", required, holds = KeyFile)]
    pub key: PathBuf,
}

/// A header field of HTTP. The value may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name as written in the file.
    pub name: String,
    /// The value after the colon.
    pub value: Secret,
}

/// The hint for a refused token.
pub(crate) const MAKE_TOKEN: &str = "make one with `tunnel generate token`";

/// The hint for a missing token if only a token is possible.
pub(crate) const TOKEN_WANTED: &str =
    "make one with `tunnel generate token`, or name a file with `token_file:`";

/// The largest length of a token of another program, in bytes. Most programs accept 8 KiB of
/// fields.
const BEARER_MAX: usize = 4 << 10;

/// The permitted forms of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Only the token itself, which a client needs to log in.
    Plain,
    /// The token or its hash, where the token is only compared.
    OrHashed,
    /// A token of another program, which is sent in a field of HTTP.
    Bearer,
}

/// Decodes `token` or `token_file`, with at most `most` tokens. `without` is the hint for a missing
/// token; `None` makes the token optional.
pub(crate) fn tokens(
    s: &Section<'_>,
    most: usize,
    kept: Kept,
    without: Option<&str>,
) -> Vec<Token> {
    tokens_of(s, ["token", "token_file"], most, kept, without)
}

/// Decodes the tokens of these two keys: the token itself, and its file.
pub(crate) fn tokens_of(
    s: &Section<'_>,
    [inline, file]: [&str; 2],
    most: usize,
    kept: Kept,
    without: Option<&str>,
) -> Vec<Token> {
    let (key, item) = match (s.key(inline), s.key(file)) {
        (Some(_), Some(_)) => {
            let bad = BadValue::new(format!("{inline} and {file} together"));
            s.bad(file, bad.hint("keep one of them"));
            return Vec::new();
        }
        (Some(item), None) => (inline, item),
        (None, Some(item)) => (file, item),
        (None, None) => {
            if let Some(hint) = without {
                s.missing(inline, hint);
            }
            return Vec::new();
        }
    };
    let items = s.cx.one_or_list(&item);
    if items.is_empty() || items.len() > most {
        let wanted = if most == 1 { "exactly one" } else { "one or two (old and new)" };
        s.bad(key, BadValue::new(format!("{} tokens, {wanted} wanted", items.len())));
    }
    items.iter().take(most).filter_map(|item| token(s, item, key == file, kept)).collect()
}

fn token(s: &Section<'_>, item: &Item, from_file: bool, kept: Kept) -> Option<Token> {
    s.cx.value(item, |text| {
        if !from_file {
            return Ok(Token { secret: check(text, kept)?, file: None });
        }
        let read = s.cx.read(Path::new(text), Reading::SECRET);
        let read = read.map_err(|why| secrecy::unreadable(text, &why))?;
        let secret = check(read.reveal().trim(), kept)?;
        Ok(Token { secret, file: Some(PathBuf::from(text)) })
    })
}

/// Checks a token by the greeting's rules. No message contains the text.
fn check(text: &str, kept: Kept) -> Result<Secret, BadValue> {
    let refused = |why: TokenError| match why.to_string().split_once("; ") {
        Some((why, hint)) => BadValue::new(why).hint(hint),
        None => BadValue::new(why.to_string()).hint(MAKE_TOKEN),
    };
    match kept {
        Kept::Plain => drop(proto::greeting::Token::new(text).map_err(refused)?),
        Kept::OrHashed => drop(StoredCredential::of(text).map_err(refused)?),
        Kept::Bearer => bearer(text)?,
    }
    Ok(Secret::new(text))
}

/// Checks that a text can be the token of `Authorization: Bearer`. RFC 6750 section 2.1 permits
/// fewer characters than some programs use.
fn bearer(text: &str) -> Result<(), BadValue> {
    let is_short = (1..=BEARER_MAX).contains(&text.len());
    if is_short && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let bad = BadValue::new("the token cannot be sent in a field of HTTP");
    Err(bad.hint(format!("1 to {BEARER_MAX} visible characters of ASCII, without blanks")))
}

/// Decodes `cert` and `key`, which must be given together.
pub(crate) fn key_pair(s: &Section<'_>) -> Option<KeyPair> {
    match (values::path(s, "cert"), values::path(s, "key")) {
        (Some(cert), Some(key)) => Some(KeyPair { cert, key }),
        (Some(_), None) if !s.has("key") => {
            let bad = BadValue::new("a certificate without its key");
            s.bad("cert", bad.hint("add `key:` or `--key`"));
            None
        }
        (None, Some(_)) if !s.has("cert") => {
            let bad = BadValue::new("a key without its certificate");
            s.bad("key", bad.hint("add `cert:` or `--cert`"));
            None
        }
        _ => None,
    }
}

/// Decodes `headers`: a map of names to values.
pub(crate) fn fields(s: &Section<'_>, key: &str) -> Vec<Field> {
    let Some(item) = s.key(key) else { return Vec::new() };
    let Kind::Map(entries) = &item.node.kind else {
        let _: Option<()> = s.cx.wrong_type(&item, "a map of names to values", "something else");
        return Vec::new();
    };
    let mut seen = BTreeSet::new();
    let mut fields = Vec::new();
    for entry in entries {
        let name = entry.key.clone();
        let path = format!("{}.{}", item.path, secrecy::key(&name));
        if !seen.insert(name.to_ascii_lowercase()) {
            let bad = BadValue::new("the field is given twice").hint("remove one of them");
            s.cx.problem(entry.at, &path, bad);
            continue;
        }
        let item = Item { node: Rc::clone(&entry.value), path };
        if let Some(value) = s.cx.text(&item) {
            fields.push(Field { name, value: Secret::new(value) });
        }
    }
    fields
}
