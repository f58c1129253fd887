//! What a problem may repeat of the file. A secret reaches the wrong place by a slip (no blank after
//! `token:`, a variable in the wrong line), and problems end in logs and bug reports.

use std::path::Path;

use proto::greeting::Token;

use crate::BadValue;
use crate::yaml::{Kind, Node};

/// A key as it may be shown: its leading word, as `token:q7Xb` and `token=q7Xb` are one key each,
/// and nothing of what could be a token itself.
pub(super) fn key(key: &str) -> String {
    let end = key.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
    match key.split_at(end.unwrap_or(key.len())) {
        (word, _) if Token::new(word).is_ok() => "…".into(),
        (word, "") => word.to_owned(),
        (word, _) => format!("{word}…"),
    }
}

/// `${NAME}` without a value; what is not written like a variable may be the secret itself.
pub(super) fn not_set(name: &str) -> BadValue {
    let like_a_variable =
        name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if name.is_empty() || !like_a_variable || Token::new(name).is_ok() {
        return BadValue::new("the environment variable is not set")
            .hint("`${NAME}` stands for the variable NAME, `$${` for `${`");
    }
    BadValue::new(format!("environment variable {name} is not set"))
}

/// Quotes the text of the file in place of what its variables stand for.
pub(super) fn unexpanded(bad: BadValue, node: &Node) -> BadValue {
    let Kind::Scalar { text: raw, .. } = &node.kind else { return bad };
    if !raw.contains("${") {
        return bad;
    }
    // All from the first to the last quote: the value may hold quotes itself.
    let message = match (bad.message.split_once('`'), bad.message.rsplit_once('`')) {
        (Some((before, _)), Some((_, after))) => format!("{before}`{raw}`{after}"),
        _ => bad.message,
    };
    BadValue { message, hint: bad.hint }
}

/// ` PATH` where the text is written like a path, else nothing: it may be the token.
pub(super) fn file(text: &str) -> String {
    let path = Path::new(text);
    if path.is_absolute() || path.extension().is_some() {
        format!(" {text}")
    } else {
        String::new()
    }
}
