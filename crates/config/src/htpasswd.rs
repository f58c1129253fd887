//! Users of `basic_auth` with hashes of their passwords: in a configuration, and in a file in the
//! format of Apache's htpasswd.

use std::path::Path;

use proto::{HASHES_MAX, HashError, HttpOptionError, HttpOptions, PasswordHash};

use crate::model::UserFile;
use crate::{BadValue, ClientConfig};

/// The hint for an unusable hash.
const MAKE_HASH: &str =
    "make one with `tunnel generate password USER`, or with `htpasswd -nB USER`";

/// Reads a file of users, one line `user:hash` for each user. Blank lines and lines that begin with
/// `#` are ignored, as is a third field of a line.
///
/// # Errors
/// A line is malformed, or there is no user. No message contains a hash.
pub fn htpasswd(text: &str) -> Result<Vec<String>, BadValue> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let mut pairs: Vec<String> = Vec::new();
    for (nth, line) in lines {
        let mut fields = line.splitn(3, ':');
        let (user, hash) = (fields.next().unwrap_or_default(), fields.next());
        let at = |bad: BadValue| BadValue {
            message: format!("line {}: {}", nth + 1, bad.message),
            ..bad
        };
        let Some(hash) = hash else {
            return Err(at(BadValue::new("no colon between user and hash").hint(MAKE_HASH)));
        };
        let pair = format!("{user}:{hash}");
        check(&pair).map_err(at)?;
        if pairs.iter().any(|other| other.split_once(':').is_some_and(|(other, _)| other == user)) {
            return Err(
                at(BadValue::new("the user has a line already").hint("remove one of them")),
            );
        }
        if pairs.len() == HASHES_MAX {
            return Err(at(BadValue::new(format!("more than {HASHES_MAX} users"))));
        }
        pairs.push(pair);
    }
    if pairs.is_empty() {
        return Err(BadValue::new("no user, so that nobody could visit").hint(MAKE_HASH));
    }
    Ok(pairs)
}

impl ClientConfig {
    /// The configuration with the current users of its files. `read` returns the text of a file.
    ///
    /// # Errors
    /// A file cannot be read or is malformed, or there are too many users.
    pub fn with_users(
        mut self,
        read: &dyn Fn(&Path) -> Result<String, String>,
    ) -> Result<Self, BadValue> {
        for service in &mut self.services {
            let Some(UserFile { path, inline }) = &service.user_file else { continue };
            let at = |bad: BadValue| {
                let message = format!("{}: {}", path.display(), bad.message);
                BadValue { message, ..bad }
            };
            let text = read(path).map_err(|why| at(BadValue::new(why)))?;
            let hashes = &mut service.terms.http.hashes;
            hashes.truncate(*inline);
            hashes.extend(htpasswd(&text).map_err(at)?);
            service.terms.http.check().map_err(|why| at(BadValue::new(why.to_string())))?;
        }
        self.check_sizes()?;
        Ok(self)
    }
}

/// Whether the second part of a pair `user:password` looks like a hash.
#[must_use]
pub fn is_hashed(pair: &str) -> bool {
    pair.split_once(':').is_some_and(|(_, password)| PasswordHash::is_meant(password))
}

/// Checks that the password of a pair `user:password` is not empty.
pub(crate) fn check_password(pair: &str) -> Result<(), BadValue> {
    match pair.split_once(':') {
        Some((_, "")) => {
            let bad =
                BadValue::new("an empty password, so that whoever knows the user could visit");
            Err(bad.hint("is a variable empty? for example \"ann:${APP_PASSWORD}\""))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks a pair `user:hash`.
pub(crate) fn check(pair: &str) -> Result<(), BadValue> {
    match HttpOptions::check_hashed(pair) {
        Ok(_) => Ok(()),
        Err(why @ HttpOptionError::Hash(HashError::Cost)) => {
            let hint = "make one with a lower cost: `tunnel generate password USER`, or `htpasswd -nB -C 10 USER`";
            Err(BadValue::new(why.to_string()).hint(hint))
        }
        Err(why) => Err(BadValue::new(why.to_string()).hint(MAKE_HASH)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";

    #[test]
    fn lines_are_users_and_comments_are_not() {
        let text = format!("# people\r\n\r\nann:{HASH}\r\n  bob:{HASH}:Bob \n#eve:{HASH}\n");
        assert_eq!(htpasswd(&text), Ok(vec![format!("ann:{HASH}"), format!("bob:{HASH}")]));
    }

    #[test]
    fn a_bad_file_is_told_by_its_line_and_shows_no_hash() {
        let many: String = (0..=HASHES_MAX).map(|n| format!("u{n}:{HASH}\n")).collect();
        for (text, why) in [
            ("", "no user"),
            ("# nobody\n", "no user"),
            ("\nann\n", "line 2: no colon"),
            ("ann:$apr1$q7Xb2LmZ$0aKc9RtYv4WnPs8DfGh3J\n", "line 1: the kind of this hash"),
            ("ann:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n", "line 1: the kind of this hash"),
            ("ann:plain\n", "line 1: the kind of this hash"),
            (&format!(":{HASH}\n"), "line 1: basic_auth"),
            (&format!("ann:{HASH}\nann:{HASH}"), "line 2: the user has a line already"),
            (&format!("ann:{}", HASH.replace("05", "13")), "line 1: a check of the hash"),
            (&many, "line 257: more than 256 users"),
        ] {
            let bad = htpasswd(text).unwrap_err();
            assert!(bad.message.starts_with(why), "{text}: {}", bad.message);
            assert!(!bad.message.contains("W6ph5") && !bad.message.contains("q7Xb2"), "{bad:?}");
        }
    }
}
