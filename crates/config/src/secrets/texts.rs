//! The secrets in the text of a configuration, and the code that removes them from every text that
//! leaves the daemon.
//!
//! The text itself is shown with its secrets cut out (`edit::masked`). Other texts, such as a
//! problem, a warning or a comment, may repeat a secret anywhere, so they are searched for secrets.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound::{Included, Unbounded};

use super::url::{SECRET_WORDS, in_url, query_secrets};
use super::{Holds, SECRET_MIN, WORD_MAX, held_by, is_random, is_secret_field};
use crate::Secret;
use crate::mistakes::parse;
use crate::secrecy::{is_scrambled, may_be_secret};
use crate::secret::SECRET;
use crate::yaml::{Kind, Node};

/// The secrets in the texts of configurations.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The values that hold a secret, as written in the file.
    values: BTreeSet<Text>,
    /// The secrets to search for in other texts, by their first bytes, so that a search takes
    /// linear time.
    searched: BTreeMap<Begin, BTreeSet<Text>>,
}

/// The first bytes of a secret to search for.
type Begin = [u8; SECRET_MIN];

/// A secret that can be ordered.
#[derive(Clone, PartialEq, Eq)]
struct Text(Secret);

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        self.0.reveal().as_bytes()
    }
}

impl PartialOrd for Text {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.reveal().cmp(other.0.reveal())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("number", &self.values.len()).finish_non_exhaustive()
    }
}

impl Secrets {
    /// The secrets of a text, with the values of their variables. In a text that is not YAML no
    /// secrets can be recognised.
    pub fn of_text(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Self {
        parse("", text).map(|root| Self::of(&root, env)).unwrap_or_default()
    }

    pub(crate) fn of(root: &Node, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut found = Found::default();
        found.node(root);
        let mut all = Self::default();
        for value in found.secret.iter().filter(|value| *value != SECRET) {
            all.values.insert(Text(Secret::new(value.as_str())));
            let filled_in = expanded(value, env);
            for text in [Some(value.as_str()), filled_in.as_deref()].into_iter().flatten() {
                for piece in pieces(text) {
                    // A short word that is visible elsewhere in the file is not hidden in other
                    // texts: the gap would reveal that the word is also a secret.
                    if piece.len() >= WORD_MAX || !found.seen.contains(piece) {
                        all.search(piece);
                    }
                }
            }
        }
        all
    }

    /// Adds a secret to search for.
    pub fn search(&mut self, secret: &str) {
        if let Some(begin) = secret.as_bytes().first_chunk::<SECRET_MIN>() {
            self.searched.entry(*begin).or_default().insert(Text(Secret::new(secret)));
        }
    }

    /// Adds the secrets of another text.
    pub fn join(&mut self, other: &Self) {
        self.values.extend(other.values.iter().cloned());
        for (begin, secrets) in &other.searched {
            self.searched.entry(*begin).or_default().extend(secrets.iter().cloned());
        }
    }

    /// The secrets that do not occur in a text. The author of the text knows its words, and must
    /// not learn from a gap that one of them is a secret.
    #[must_use]
    pub fn unknown_to(&self, text: &str) -> Self {
        let mut left = self.clone();
        for (at, begin) in text.as_bytes().windows(SECRET_MIN).enumerate() {
            if let Ok(begin) = Begin::try_from(begin)
                && let Some(secrets) = left.searched.get_mut(&begin)
            {
                let rest = &text.as_bytes()[at..];
                secrets.retain(|secret| !rest.starts_with(secret.0.reveal().as_bytes()));
            }
        }
        left
    }

    /// Whether this is the whole value of a key that holds a secret.
    pub(crate) fn has_value(&self, value: &str) -> bool {
        !value.is_empty() && self.values.contains(&Text(Secret::new(value)))
    }

    /// The text with each secret replaced by [`SECRET`]. A short secret must be a word of its own.
    #[must_use]
    pub fn hidden(&self, text: &str) -> String {
        self.hidden_from(text, SECRET_MIN)
    }

    /// As [`Self::hidden`], but without the short secrets, which may be parts of keys.
    pub(crate) fn hidden_if_long(&self, text: &str) -> String {
        self.hidden_from(text, WORD_MAX)
    }

    /// Whether a text contains a secret other than short words.
    pub(crate) fn are_in(&self, text: &str) -> bool {
        (0..text.len()).any(|at| self.found(text, at).is_some_and(|found| found >= WORD_MAX))
    }

    fn hidden_from(&self, text: &str, least: usize) -> String {
        let (mut out, mut end, mut at) = (String::with_capacity(text.len()), 0, 0);
        while at < text.len() {
            if text.as_bytes()[at..].starts_with(SECRET.as_bytes()) {
                // Skips text that is already hidden.
                at += SECRET.len();
            } else if let Some(found) = self.found(text, at).filter(|found| *found >= least) {
                out.push_str(&text[end..at]);
                out.push_str(SECRET);
                at += found;
                end = at;
            } else {
                at += 1;
            }
        }
        out.push_str(&text[end..]);
        out
    }

    /// The length of the longest secret at a position of a text.
    fn found(&self, text: &str, at: usize) -> Option<usize> {
        let rest = &text.as_bytes()[at..];
        let secrets = self.searched.get(rest.first_chunk::<SECRET_MIN>()?)?;
        let is_apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
        let is_word = |length: usize| {
            length >= WORD_MAX
                || is_apart(text[..at].chars().next_back())
                    && is_apart(text[at + length..].chars().next())
        };
        // The secrets with which the text begins do not sort after the text, in the order of their
        // bytes, and begin with what the text has in common with the last of these. So a file whose
        // secrets begin alike is searched in linear time as well.
        let mut most = rest;
        loop {
            let last = secrets.range::<[u8], _>((Unbounded, Included(most))).next_back()?;
            let last: &[u8] = last.borrow();
            if rest.starts_with(last) && is_word(last.len()) {
                return Some(last.len());
            }
            let common = last.iter().zip(rest).take_while(|(one, other)| one == other).count();
            most = rest.get(..common.min(last.len() - 1))?;
        }
    }
}

/// The values of a tree.
#[derive(Default)]
struct Found {
    secret: Vec<String>,
    /// Words of visible keys and values.
    seen: BTreeSet<String>,
}

impl Found {
    fn see(&mut self, text: &str) {
        let words = text.split(|c: char| !c.is_alphanumeric());
        let words = words.filter(|word| (SECRET_MIN..WORD_MAX).contains(&word.len()));
        self.seen.extend(words.map(str::to_owned));
    }

    fn node(&mut self, node: &Node) {
        match &node.kind {
            Kind::Scalar { text, .. } if in_url(text).is_some() => self.secret.push(text.clone()),
            Kind::Scalar { text, .. } => self.see(text),
            Kind::List(items) => items.iter().for_each(|item| self.node(item)),
            Kind::Map(entries) => {
                for entry in entries {
                    self.see(&entry.key);
                    self.entry(&entry.key, &entry.value);
                }
            }
        }
    }

    fn entry(&mut self, key: &str, value: &Node) {
        match held_by(key) {
            Some(Holds::Token | Holds::Passwords) => self.all(value, &|_| true),
            Some(Holds::Fields) => self.fields(value),
            Some(Holds::TokenFile) => self.all(value, &may_be_secret),
            Some(Holds::Nothing | Holds::Url | Holds::KeyFile) => self.node(value),
            // An unknown key, such as the misspelt `tokne`.
            None => {
                let key = key.to_ascii_lowercase();
                let is_named = SECRET_WORDS.iter().any(|word| key.contains(word));
                self.all(value, &|text| is_named || in_url(text).is_some() || looks_random(text));
            }
        }
    }

    fn fields(&mut self, value: &Node) {
        let Kind::Map(entries) = &value.kind else { return self.all(value, &|_| true) };
        for entry in entries {
            match (entry.key.as_str(), &entry.value.kind) {
                ("set", Kind::Map(_)) => self.fields(&entry.value),
                ("remove", Kind::List(_)) => self.all(&entry.value, &looks_random),
                (name, _) => self.all(&entry.value, &|value| is_secret_field(name, value)),
            }
        }
    }

    /// The values of a part of the tree; `is_secret` classifies each.
    fn all(&mut self, node: &Node, is_secret: &dyn Fn(&str) -> bool) {
        match &node.kind {
            Kind::Scalar { .. } if node.is_null() => {}
            Kind::Scalar { text, .. } if is_secret(text) => self.secret.push(text.clone()),
            Kind::Scalar { text, .. } => self.see(text),
            Kind::List(items) => items.iter().for_each(|item| self.all(item, is_secret)),
            Kind::Map(entries) => {
                entries.iter().for_each(|entry| self.all(&entry.value, is_secret));
            }
        }
    }
}

/// Whether any word of a text looks random.
pub(crate) fn looks_random(text: &str) -> bool {
    let is_of_token = |c: char| c.is_ascii_alphanumeric() || "+_-".contains(c);
    text.split(|c| !is_of_token(c)).any(is_random_word)
}

/// Whether a word looks random, possibly without digits.
pub(crate) fn is_random_word(word: &str) -> bool {
    is_random(word) || word.split(|c: char| !c.is_ascii_alphanumeric()).any(is_scrambled)
}

/// The parts of a value that are secrets by themselves: the value, its lines and long words, the
/// password after a user name, and the secrets in a URL.
fn pieces(value: &str) -> Vec<&str> {
    let value = value.trim();
    let mut all = vec![value];
    all.extend(value.split_once(':').map(|(_, password)| password.trim()));
    all.extend(value.lines().map(str::trim).filter(|line| line.len() >= WORD_MAX));
    if !value.contains("://") {
        all.extend(value.split_whitespace().filter(|word| word.len() >= WORD_MAX));
    }
    if let Some(secret) = in_url(value) {
        all.push(secret);
        all.extend(secret.split_once(':').map(|(_, password)| password));
    }
    all.extend(query_secrets(value));
    all
}

/// The value with its variables expanded, if it has any; variables without a value are left
/// unchanged.
fn expanded(value: &str, env: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (mut out, mut rest) = (String::new(), value);
    while let Some(start) = rest.find("${") {
        let (before, after) = rest.split_at(start);
        let Some((name, tail)) = after[2..].split_once('}') else { break };
        out.push_str(before);
        match env(name).filter(|_| !before.ends_with('$')) {
            Some(found) => out.push_str(&found),
            None => out.push_str(&after[..after.len() - tail.len()]),
        }
        rest = tail;
    }
    out.push_str(rest);
    (out != value).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Secrets {
        let env = |name: &str| (name == "PASSWORD").then(|| "horse-battery".to_owned());
        Secrets::of_text(text, &env)
    }

    #[test]
    fn every_form_of_a_secret_is_hidden_in_other_texts() {
        let secrets = of(
            "servers: wss://me:swordfish@a.example/t?access_token=q1w2e3r4&sig=zz99zz\n\
                          token: q7Xb2LmZ0aKc9RtYv4WnPs\n\
                          services:\n\
                          - { name: s, target: 80, basic_auth: [\"ann:hunter2\", \"bob:${PASSWORD}\"],\n\
                          \x20   headers: { set: { Authorization: Bearer abcdefgh, X-Frame-Options: SAMEORIGIN } } }\n",
        );
        for secret in [
            "swordfish",
            "q1w2e3r4",
            "zz99zz",
            "q7Xb2LmZ0aKc9RtYv4WnPs",
            "hunter2",
            "horse-battery",
            "abcdefgh",
        ] {
            let said = secrets.hidden(&format!("it is `{secret}`, {secret}."));
            assert_eq!(said, format!("it is `{SECRET}`, {SECRET}."), "{secret}");
        }
        for said in ["hunter23 is another word", "SAMEORIGIN", "service s", "(secret)"] {
            assert_eq!(secrets.hidden(said), said);
        }
    }

    #[test]
    fn secrets_that_begin_alike_are_told_apart() {
        let mut secrets = Secrets::default();
        for secret in ["token-1", "token-12-long", "token-12", "token-2"] {
            secrets.search(secret);
        }
        for (text, hidden) in [
            ("token-12-long", "(secret)"),
            ("token-12-lo", "(secret)-lo"),
            ("token-1", "(secret)"),
            ("token-13", "token-13"),
            ("token-1.", "(secret)."),
            ("token-3", "token-3"),
            ("token-2 token-12", "(secret) (secret)"),
        ] {
            assert_eq!(secrets.hidden(text), hidden, "{text}");
        }
    }

    #[test]
    fn a_short_secret_that_everybody_sees_tells_nothing() {
        let secrets = of("name: demo-1\nservices: [{ name: s, basic_auth: \"ann:demo\" }]\n");
        assert_eq!(secrets.hidden("client demo"), "client demo");
    }

    #[test]
    fn what_the_reader_has_written_is_not_hidden() {
        let secrets =
            of("token: q7Xb2LmZ0aKc9RtYv4WnPs\nservices: [{ basic_auth: \"a:hunter2\" }]\n");
        let left = secrets.unknown_to("is it hunter2 or hunter3");
        assert_eq!(left.hidden("hunter2 q7Xb2LmZ0aKc9RtYv4WnPs"), format!("hunter2 {SECRET}"));
    }

    #[test]
    fn a_random_word_needs_no_digits() {
        for word in ["q7Xb2LmZ0aKc9RtYv4WnPs", "qTXbhLmZoaKcnRtYvfWnPs", "qTXbhLmZ_oaKcnRtY-vfWnPs"]
        {
            assert!(is_random_word(word), "{word}");
        }
        for word in ["configuration", "no-such-thing-at-all", "IPv6", "OpenWrt", "NetworkManager"] {
            assert!(!is_random_word(word), "{word}");
        }
    }
}
