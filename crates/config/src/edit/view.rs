//! The text of a file without its secrets, the way back, and the difference between two texts.
//!
//! Each shown line keeps the line of the file behind it. A changed text is compared with the shown
//! lines: an unchanged line gets the line of the file, so `(secret)` in an unchanged line keeps its
//! secret, and `(secret)` in any other line is refused. A secret is restored only under its former
//! key path: an unchanged line may now be below another key, or inside a text of several lines.
//!
//! A difference does not reveal whether a guessed secret is right: a line of a new text with a
//! secret always counts as changed.

use std::hash::Hash;

use similar::{Algorithm, DiffTag, capture_diff_slices};

use super::former::check_filled_in;
use super::redact::show;
use super::spans::{Node, Shape, read};
use super::value::Value;
use crate::Problem;
use crate::mistakes::parse;
use crate::secret::SECRET;
use crate::secrets::{Secrets, is_random_word, looks_random};

/// The largest number of lines of both texts, between their common start and end, for which the
/// shortest difference is computed, which takes quadratic time in the worst case. In longer texts,
/// all lines count as different.
const COMPARED_MAX: usize = 20_000;

/// A shown line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// The shown text.
    pub shown: String,
    /// The text in the file: several lines where a secret spans several lines.
    real: String,
}

/// One line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The line of both texts, by their indexes.
    Same(usize, usize),
    /// A line of the text before only.
    Removed(usize),
    /// A line of the text after only.
    Added(usize),
}

/// The lines of a text without its secrets. `None`: the text is YAML whose values cannot be located
/// safely.
///
/// # Errors
/// The text is not YAML.
pub fn masked(file: &str, text: &str) -> Result<Option<Vec<Line>>, Problem> {
    let value = show(file, text)?;
    let mut hidden = Vec::new();
    let is_empty = match &value {
        Value::Null => true,
        Value::Map(entries) => entries.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => false,
    };
    if !is_empty {
        let Some(root) = read(text) else { return Ok(None) };
        if find(&value, &root, text, &mut hidden).is_none() {
            return Ok(None);
        }
    }
    hidden.sort_unstable();
    Ok(Some(cut(text, &hidden, &Secrets::of_text(text, &|_| None))))
}

/// Collects the positions of hidden values. `None`: the value does not match the text.
fn find(value: &Value, node: &Node, text: &str, hidden: &mut Vec<(usize, usize)>) -> Option<()> {
    match (value, &node.shape) {
        // The value belongs to the anchor, and was examined there, under the anchor's own key.
        // Under this key the value may be a secret.
        (_, Shape::Alias) => return None,
        (Value::Text(word), _) if word == SECRET => {
            let is_literal = text.get(node.start..node.end)?.trim_matches(['"', '\'']) == SECRET;
            if !is_literal {
                hidden.push((node.start, node.end));
            }
        }
        (Value::List(values), Shape::List { items, .. }) if values.len() == items.len() => {
            for (value, item) in values.iter().zip(items) {
                find(value, &item.value, text, hidden)?;
            }
        }
        (Value::Map(values), Shape::Map { entries, .. }) if values.len() == entries.len() => {
            for ((key, value), entry) in values.iter().zip(entries) {
                // A key that may be a secret is shown truncated.
                if key.contains('…') {
                    return None;
                }
                find(value, &entry.value, text, hidden)?;
            }
        }
        (Value::List(_) | Value::Map(_), _) => return None,
        (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_), _) => {}
    }
    Some(())
}

/// Splits a text into lines. Hidden values, and possible secrets in comments, are shown as
/// [`SECRET`].
fn cut(text: &str, hidden: &[(usize, usize)], secrets: &Secrets) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut line, mut at) = (Line { shown: String::new(), real: String::new() }, 0);
    // A secret that occurs elsewhere, such as in an anchor, must not be shown there.
    let shown = |line: &str| comment(&secrets.hidden_if_long(line), secrets);
    let mut plain = |piece: &str, line: &mut Line| {
        for part in piece.split_inclusive('\n') {
            line.real.push_str(part);
            line.shown.push_str(part.trim_end_matches(['\n', '\r']));
            if part.ends_with('\n') {
                let shown = shown(&std::mem::take(&mut line.shown));
                lines.push(Line { shown, real: std::mem::take(&mut line.real) });
            }
        }
    };
    for &(start, end) in hidden {
        let (Some(before), Some(secret)) = (text.get(at..start), text.get(start..end)) else {
            continue;
        };
        plain(before, &mut line);
        // The end of the last line of a block belongs to the line.
        let secret = secret.trim_end();
        line.shown.push_str(&format!("\"{SECRET}\""));
        line.real.push_str(secret);
        at = start + secret.len();
    }
    plain(text.get(at..).unwrap_or_default(), &mut line);
    if !line.real.is_empty() {
        lines.push(Line { shown: shown(&line.shown), real: line.real });
    }
    lines
}

/// Words of a comment that a password may follow.
const PASSWORDS: &[&str] =
    &["password", "passwort", "passwd", "passphrase", "pwd", "pw", "basic_auth"];

/// Words of a comment that a secret may follow, if a colon or an equals sign is between them.
const TOKENS: &[&str] = &["token", "secret", "credential", "api_key", "apikey", "authorization"];

/// Hides possible secrets in the comment of a line: secrets of the file, words that look random,
/// and everything after a word that announces a secret.
fn comment(line: &str, secrets: &Secrets) -> String {
    let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let Some(at) = line.match_indices('#').map(|(at, _)| at).find(begins) else {
        return line.to_owned();
    };
    let (before, rest) = line.split_at(at);
    let rest = secrets.hidden(rest);
    let (mut out, mut rest) = (before.to_owned(), rest.as_str());
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+/=_-.".contains(c);
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, others) = rest.split_at(end);
        let (word, more) = word.split_once('=').map_or((word, ""), |(word, more)| (word, more));
        let behind = others.trim_start_matches(['"', '\'', ' ']);
        let has_value = !more.is_empty() || behind.starts_with([':', '=']);
        let named = |names: &[&str]| {
            let word = word.to_ascii_lowercase();
            let is_file = word.ends_with("_file");
            !is_file
                && names.iter().any(|name| word == *name || word.trim_end_matches('s') == *name)
        };
        let is_followed = !more.is_empty() || behind.chars().any(char::is_alphanumeric);
        if is_followed && (named(PASSWORDS) || has_value && named(TOKENS)) {
            let value = others.find(|c: char| c.is_alphanumeric()).unwrap_or(0);
            let gap = &others[..others.find(SECRET).map_or(value, |hidden| hidden.min(value))];
            out.push_str(word);
            out.push_str(if more.is_empty() { gap } else { "=" });
            out.push_str(SECRET);
            return out;
        }
        let whole = &rest[..end];
        out.push_str(if looks_random(whole) || is_random_word(whole) { SECRET } else { whole });
        let end = others.find(is_word).unwrap_or(others.len());
        let (gap, others) = others.split_at(end);
        out.push_str(gap);
        rest = others;
    }
    out
}

/// A new text in which the hidden secrets are restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The text.
    pub text: String,
    /// Its lines. A line with a secret that came with the new text equals no previous line. `None`:
    /// the values of the new text cannot be located safely.
    pub lines: Option<Vec<Line>>,
}

/// The number of a line, from 1, that has [`SECRET`] where the former text had no such secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown(pub usize);

/// Restores the secrets of the text `before` in a text that was edited in its shown form. A new
/// text that is not YAML is returned unchanged.
///
/// # Errors
/// [`SECRET`] is in a line that is none of the shown lines, or under a key path other than the
/// secret's.
pub fn restored(file: &str, before: &str, text: &str) -> Result<Restored, Unknown> {
    let Ok(typed) = parse(file, text) else {
        return Ok(Restored { text: text.to_owned(), lines: None });
    };
    let new = masked(file, text).ok().flatten();
    if !text.contains(SECRET) {
        let lines = new.map(|lines| lines.into_iter().map(another).collect());
        return Ok(Restored { text: text.to_owned(), lines });
    }
    let nth = |text: &str| text.lines().position(|line| line.contains(SECRET)).map_or(1, |n| n + 1);
    let Some(new) = new else { return Err(Unknown(nth(text))) };
    let old = masked(file, before).ok().flatten().unwrap_or_default();
    let shown = |lines: &[Line]| lines.iter().map(|line| line.shown.clone()).collect::<Vec<_>>();
    // A line that received a secret with the new text is none of the shown lines.
    let keys = |lines: &[Line]| {
        let key =
            |line: &Line| if line.is_as_shown() { line.shown.clone() } else { OTHER.to_string() };
        lines.iter().map(key).collect::<Vec<_>>()
    };
    let (mut out, mut lines, mut number) = (String::with_capacity(text.len()), Vec::new(), 1);
    for step in difference(&shown(&old), &keys(&new)) {
        let line = match step {
            Step::Removed(_) => continue,
            Step::Same(at, _) => old[at].clone(),
            Step::Added(at) if new[at].real.contains(SECRET) => return Err(Unknown(number)),
            Step::Added(at) => another(new[at].clone()),
        };
        let (Step::Same(_, at) | Step::Added(at) | Step::Removed(at)) = step;
        number += new[at].real.matches('\n').count();
        // A last line without a line break may now be followed by another line.
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(line.real_text());
        lines.push(line);
    }
    let before = parse(file, before).ok();
    let real = parse(file, &out).ok();
    let (Some(before), Some(real)) = (before, real) else { return Err(Unknown(nth(text))) };
    check_filled_in(&typed, &real, &before).map_err(Unknown)?;
    Ok(Restored { text: out, lines: Some(lines) })
}

/// Marks a line with a secret that came with a new text.
const OTHER: char = '\0';

/// A line of a new text. If it has a secret, it equals no previous line.
fn another(mut line: Line) -> Line {
    if !line.is_as_shown() {
        line.real.push(OTHER);
    }
    line
}

impl Line {
    /// Whether the line equals its shown form.
    fn is_as_shown(&self) -> bool {
        self.real.trim_end_matches(['\n', '\r']) == self.shown
    }

    fn real_text(&self) -> &str {
        self.real.trim_end_matches(OTHER)
    }
}

/// The difference between two texts, line by line. A line whose secret changed counts as changed.
pub fn compared(before: &[Line], after: &[Line]) -> Vec<Step> {
    difference(before, after)
}

/// The top-level keys whose values differ, in the order of their names. Empty if a text is not a
/// map.
pub fn changed_keys(file: &str, before: &str, after: &str) -> Vec<String> {
    let read = |text| match super::read(file, text) {
        Ok(Value::Map(entries)) => Some(entries),
        Ok(_) | Err(_) => None,
    };
    let (Some(before), Some(after)) = (read(before), read(after)) else { return Vec::new() };
    let of = |entries: &[(String, Value)], key: &str| {
        entries.iter().find(|(own, _)| own == key).map(|(_, value)| value.clone())
    };
    let mut keys: Vec<_> = before.iter().chain(&after).map(|(key, _)| key.clone()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| of(&before, key) != of(&after, key));
    keys
}

/// The shortest difference.
fn difference<T: Hash + Ord>(before: &[T], after: &[T]) -> Vec<Step> {
    let head = before.iter().zip(after).take_while(|(a, b)| a == b).count();
    let most = before.len().min(after.len()) - head;
    let ends = before.iter().rev().zip(after.iter().rev());
    let tail = ends.take(most).take_while(|(a, b)| a == b).count();
    let (old_end, new_end) = (before.len() - tail, after.len() - tail);
    let (olds, news) = (&before[head..old_end], &after[head..new_end]);
    let mut steps: Vec<Step> = (0..head).map(|n| Step::Same(n, n)).collect();
    let removed = |n: usize| Step::Removed(head + n);
    let added = |n: usize| Step::Added(head + n);
    if olds.len() + news.len() > COMPARED_MAX {
        steps.extend((0..olds.len()).map(removed).chain((0..news.len()).map(added)));
    } else {
        for operation in capture_diff_slices(Algorithm::Myers, olds, news) {
            let (tag, old, new) = operation.as_tag_tuple();
            if tag == DiffTag::Equal {
                steps.extend(old.zip(new).map(|(a, b)| Step::Same(head + a, head + b)));
            } else {
                steps.extend(old.map(removed).chain(new.map(added)));
            }
        }
    }
    steps.extend((0..tail).map(|n| Step::Same(old_end + n, new_end + n)));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
listen: tls://[::]:7000 # token q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi was here
clients:
  - name: a
    token: q7Xb2LmZ0aKc9RtYv4WnPs
  - { name: b, token: [\"Zr5Tn8Qw1Ey6Ui3Op0Asdf\", w7Xb2LmZ0aKc9RtYv4WnPs] }
auth:
  http:
    url: https://a.example/
    headers:
      X-Key: |
        two
        lines
workers: 2
";

    fn text(lines: &[Line]) -> String {
        lines.iter().map(|line| format!("{}\n", line.shown)).collect()
    }

    #[test]
    fn a_text_is_shown_without_its_secrets_and_comes_back_as_it_was() {
        let lines = masked("s.yaml", TEXT).unwrap().unwrap();
        let shown = text(&lines);
        for secret in ["q7Xb", "Zr5T", "w7Xb", "two"] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(shown.contains("    token: \"(secret)\"\n"), "{shown}");
        assert!(shown.contains("      X-Key: \"(secret)\"\nworkers: 2\n"), "{shown}");
        let back = |text: &str| restored("s.yaml", TEXT, text).map(|restored| restored.text);
        assert_eq!(back(&shown).as_deref(), Ok(TEXT));
        assert_eq!(restored("s.yaml", TEXT, &shown).unwrap().lines.unwrap(), lines);
        let changed = shown.replace("workers: 2", "workers: 3");
        assert_eq!(back(&changed), Ok(TEXT.replace("workers: 2", "workers: 3")));
        let cut = &shown[shown.find("auth:").unwrap()..];
        assert_eq!(back(cut).as_deref(), Ok(&TEXT[TEXT.find("auth:").unwrap()..]));
    }

    #[test]
    fn a_secret_that_nobody_wrote_is_refused_with_its_line() {
        let shown = text(&masked("s.yaml", TEXT).unwrap().unwrap());
        let more = shown.replace("auth:", "  - { name: c, token: \"(secret)\" }\nauth:");
        assert_eq!(restored("s.yaml", TEXT, &more), Err(Unknown(6)));
        let moved = shown.replace("    token: \"(secret)\"\n", "");
        assert!(restored("s.yaml", TEXT, &format!("{moved}token: \"(secret)\"\n")).is_err());
    }

    #[test]
    fn a_secret_comes_back_under_its_own_key_path_alone() {
        let text = "# pw: swordfish\nadmin:\n  listen: 127.0.0.1:1\n  token: q7Xb2LmZ0aKc9RtYv4WnPs\n\
                    clients:\n  - name: a\n    token: Zr5Tn8Qw1Ey6Ui3Op0Asdf\n  - name: b\n    token: w7Xb2LmZ0aKc9RtYv4WnPs\n\
                    proxy: \"http://me:pw12345678@p:1\"\n";
        for stolen in [
            // An unchanged line in a text of several lines, and below another key.
            "listen: tcp://127.0.0.1:1\ncontrol: |\n  token: \"(secret)\"\n",
            "tls:\n  token: \"(secret)\"\n",
            "admin:\n  token: \"(secret)\"\nclients:\n  - name: b\n    token: \"(secret)\"\n  - name: c\n    token: \"(secret)\"\n",
            "clients:\n  - name: c\n    token: \"(secret)\"\n",
            // The client has another name, whose token is not this one.
            "admin:\n  listen: 127.0.0.1:1\nclients:\n  - name: b\n    token: \"(secret)\"\n  - name: a\n    token: \"(secret)\"\n",
            "servers: [ {\nproxy: \"(secret)\"\n} ]\n",
            "control: |\n # pw: (secret)\n",
            "control: \"x\n# pw: (secret)\n\"\n",
            "control: >\n  proxy: \"(secret)\"\n",
            "admin: { token: &x \"(secret)\" }\nname: *x\n",
            "admin:\n  ? token: \"(secret)\"\n",
        ] {
            if let Ok(back) = restored("c.yaml", text, stolen) {
                let shown = masked("c.yaml", &back.text).ok().flatten();
                let shown = shown.map(|lines| self::text(&lines)).unwrap_or_default();
                for secret in ["q7Xb", "Zr5T", "w7Xb", "pw123", "swordfish"] {
                    assert!(!shown.contains(secret), "{stolen}: {shown}");
                }
                assert_eq!(back.text, stolen, "nothing was filled in");
            }
        }
        let swapped = "clients:\n  - name: b\n    token: \"(secret)\"\n";
        let back = restored("c.yaml", text, swapped).map(|back| back.text);
        assert_eq!(back, Ok(swapped.replace("\"(secret)\"", "w7Xb2LmZ0aKc9RtYv4WnPs")));
    }

    #[test]
    fn what_a_comment_tells_is_hidden_as_well() {
        let shown = |comment: &str| {
            let file = format!("name: a {comment}\nservices:\n  - basic_auth: \"ann:swordfish\"\n");
            let text = text(&masked("c.yaml", &file).unwrap().unwrap());
            text.lines().next().unwrap_or_default().trim_start_matches("name: a ").to_owned()
        };
        for (comment, seen) in [
            ("# it was swordfish, once", "# it was (secret), once"),
            ("# password hunter2", "# password (secret)"),
            ("# the password of ann is hunter2", "# the password (secret)"),
            ("# basic_auth: \"bob:tiger\"", "# basic_auth: \"(secret)"),
            ("# token: abc", "# token: (secret)"),
            ("# TOKEN=abc", "# TOKEN=(secret)"),
            ("# qTXbhLmZoaKcnRtYvfWnPs", "# (secret)"),
            ("# the token is in home.token", "# the token is in home.token"),
            ("# token_file: home.token", "# token_file: home.token"),
            (
                "# see https://docs.example.com/configuration",
                "# see https://docs.example.com/configuration",
            ),
        ] {
            assert_eq!(shown(comment), seen, "{comment}");
        }
    }

    #[test]
    fn a_right_guess_of_a_secret_is_another_line_as_a_wrong_guess_is() {
        let before = "name: a # pw swordfish\nservices:\n  - basic_auth: \"ann:swordfish\"\n";
        let old = masked("c.yaml", before).unwrap().unwrap();
        let steps = |guess: &str| {
            let text =
                format!("name: a # is it {guess}\nservices:\n  - basic_auth: \"ann:{guess}\"\n");
            let lines = restored("c.yaml", before, &text).unwrap().lines.unwrap();
            let shown: Vec<_> =
                lines.iter().map(|line| line.shown.replace(guess, "GUESS")).collect();
            (compared(&old, &lines), shown)
        };
        assert_eq!(steps("swordfish"), steps("goldfishes"));
    }

    #[test]
    fn a_secret_in_a_second_place_is_hidden_there_and_a_text_with_an_alias_is_not_shown() {
        let twice = "token: q7Xb2LmZ0aKc9RtYv4WnPs\nname: q7Xb2LmZ0aKc9RtYv4WnPs\n";
        let shown = text(&masked("c.yaml", twice).unwrap().unwrap());
        assert_eq!(shown, "token: \"(secret)\"\nname: \"(secret)\"\n");
        let alias = "name: &x q7Xb2LmZ0aKc9RtYv4WnPs\ntoken: *x\n";
        assert_eq!(masked("c.yaml", alias).unwrap(), None);
        assert_eq!(masked("c.yaml", "").unwrap(), Some(Vec::new()));
        assert!(masked("c.yaml", "[").is_err());
    }

    /// The length of the longest common subsequence, computed in another way.
    fn common(a: &[u8], b: &[u8]) -> usize {
        let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let longest = rows[i][j + 1].max(rows[i + 1][j]);
                rows[i + 1][j + 1] = if x == y { rows[i][j] + 1 } else { longest };
            }
        }
        rows[a.len()][b.len()]
    }

    #[test]
    fn a_difference_makes_one_text_of_the_other_and_is_the_shortest() {
        let mut random = 1_u32;
        let mut next = |most: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % most
        };
        for _ in 0..2_000 {
            let mut text =
                || -> Vec<u8> { (0..next(14)).map(|_| u8::try_from(next(4)).unwrap()).collect() };
            let (a, b) = (text(), text());
            let steps = difference(&a, &b);
            let (mut old, mut new, mut same) = (Vec::new(), Vec::new(), 0);
            for step in &steps {
                match *step {
                    Step::Same(x, y) => {
                        assert_eq!(a[x], b[y]);
                        old.push(x);
                        new.push(y);
                        same += 1;
                    }
                    Step::Removed(x) => old.push(x),
                    Step::Added(y) => new.push(y),
                }
            }
            assert_eq!(old, (0..a.len()).collect::<Vec<_>>(), "{a:?} {b:?} {steps:?}");
            assert_eq!(new, (0..b.len()).collect::<Vec<_>>(), "{a:?} {b:?} {steps:?}");
            assert_eq!(same, common(&a, &b), "{a:?} {b:?} {steps:?}");
        }
    }

    #[test]
    fn a_difference_of_everything_costs_bounded_work() {
        let (a, b): (Vec<_>, Vec<_>) = ((0..20_000).collect(), (50_000..70_000).collect());
        let steps = difference(&a, &b);
        assert_eq!(steps.len(), 40_000);
        assert!(steps.iter().all(|step| !matches!(step, Step::Same(..))));
    }
}
