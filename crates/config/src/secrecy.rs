//! Decides which parts of the file a problem may repeat. A typing error can put a secret in the
//! wrong place (no blank after `token:`, a variable in the wrong line), and problems end up in logs
//! and bug reports.

use std::path::Path;

use proto::greeting::Token;

use crate::BadValue;
use crate::yaml::{Kind, Node};

/// The part of a key that may be shown: its leading word, because YAML reads `token:q7Xb` and
/// `token=q7Xb` each as one key. A text that could itself be a token is hidden.
pub(crate) fn key(key: &str) -> String {
    let end = key.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
    let (word, rest) = key.split_at(end.unwrap_or(key.len()));
    // The word may be a part of a Base64 token, which contains `/` or `+`. The keys of the model
    // are lower case, so only words with other characters are checked.
    let plain = word.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-'));
    match (word, rest) {
        _ if Token::new(word).is_ok() || !plain && Token::new(key).is_ok() => "…".into(),
        (word, "") => word.to_owned(),
        (word, _) => format!("{word}…"),
    }
}

/// The error for a `${NAME}` without a value. The name is shown only if it looks like a variable
/// name, because otherwise it may be the secret itself.
pub(crate) fn not_set(name: &str) -> BadValue {
    let like_a_variable =
        name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    if name.is_empty() || !like_a_variable || Token::new(name).is_ok() {
        return BadValue::new("the environment variable is not set")
            .hint("`${NAME}` stands for the variable NAME, `$${` for `${`");
    }
    let bad = BadValue::new(format!("environment variable {name} is not set"));
    if ["CREDENTIALS_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"].contains(&name) {
        return bad.hint(format!(
            "systemd sets it for a unit; by hand: {name}=FOLDER tunnel check --config FILE"
        ));
    }
    bad.hint("set it in the environment of the program")
}

/// Replaces the expanded value in a message by the original text of the file, so that values of
/// variables are not shown.
pub(crate) fn unexpanded(bad: BadValue, node: &Node) -> BadValue {
    let Kind::Scalar { text, .. } = &node.kind else { return bad };
    let raw = match &node.written {
        Some(written) => written,
        None if text.contains("${") => text,
        None => return bad,
    };
    // Everything from the first to the last quote is replaced, because the value may contain
    // quotes.
    let message = match (bad.message.split_once('`'), bad.message.rsplit_once('`')) {
        (Some((before, _)), Some((_, after))) => format!("{before}`{raw}`{after}"),
        _ => bad.message,
    };
    BadValue { message, hint: bad.hint }
}

/// The error for a file that cannot be read. The text may be a token under the wrong key, or the
/// value of a variable, so it is shown only if it looks like a path and no word of it looks like a
/// secret.
pub(crate) fn unreadable(text: &str, why: &str) -> BadValue {
    if may_be_secret(text) {
        return BadValue::new(format!("cannot read the file: {why}"))
            .hint("it is not named here, for it may be a token: that one belongs under `token`");
    }
    let bad = BadValue::new(format!("cannot read the file {text}: {why}"));
    if Path::new(text).is_absolute() {
        bad
    } else {
        bad.hint("a path in a file is relative to that file")
    }
}

/// Whether the text that should be a path may be a secret.
pub(crate) fn may_be_secret(text: &str) -> bool {
    let path = Path::new(text);
    let like_a_path = path.is_absolute() || path.extension().is_some();
    !like_a_path || text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_scrambled)
}

/// Whether a word looks like a secret: it is longer than words in file names, or changes more often
/// between capitals, small letters and digits. For a harmless path that looks like a secret, the
/// only cost is that the message does not name it.
pub(crate) fn is_scrambled(word: &str) -> bool {
    let kind = |b: &u8| (b.is_ascii_uppercase(), b.is_ascii_digit());
    let runs = word.as_bytes().chunk_by(|a, b| kind(a) == kind(b)).count();
    word.len() >= 24 || word.len() >= 8 && runs * 3 > word.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_its_word_and_no_piece_of_a_token() {
        for (written, said) in [
            ("listen", "listen"),
            ("logLevel", "logLevel"),
            ("token:q7Xb2LmZ0aKc9RtYv4WnPs", "token…"),
            ("token=q7Xb2LmZ0a/Kc9RtYv4WnPs", "token…"),
            ("q7Xb2LmZ0aKc9RtYv4WnPs", "…"),
            ("q7Xb2LmZ0a/Kc9RtYv4WnPs=", "…"),
            ("a b", "a…"),
            ("", ""),
        ] {
            assert_eq!(key(written), said);
        }
    }

    #[test]
    fn a_file_is_shown_where_it_is_written_like_one() {
        let said = |text: &str| unreadable(text, "gone").message;
        for path in ["/etc/tunnel/home", "home.token", "/run/credentials/home-2026-11-21/token01"] {
            assert_eq!(said(path), format!("cannot read the file {path}: gone"));
        }
        for token in [
            "q7Xb2LmZ0aKc9RtYv4WnPs",
            // Base64 has `/`, and other signs are allowed.
            "/q7Xb2LmZ0aKc9RtYv4WnPs",
            "q7Xb2LmZ0a/Kc9RtYv4WnPs=",
            "q7Xb2LmZ0aK.c9RtYv4WnPs",
            "/home/me/q7Xb2LmZ0aKc9RtYv4WnPs",
            "3f9a1c0be47d2586.c1d07e52ab8f4936",
            "a.thequickbrownfoxjumpsoverthelazydog",
        ] {
            assert_eq!(said(token), "cannot read the file: gone");
        }
    }
}
