//! The text of a file without its secrets, the way back, and the difference of two texts.
//!
//! Each line that is shown keeps what really stands there. A changed text is compared with the shown
//! lines: a line that is the same gets what stands there, so `(secret)` in an unchanged line keeps
//! its secret, and `(secret)` in any other line is refused.

use std::collections::HashMap;
use std::hash::Hash;

use similar::{Algorithm, DiffTag, capture_diff_slices};

use super::redact::{SECRET, show};
use super::spans::{Node, Shape, read};
use super::value::Value;
use crate::Problem;
use crate::secrets::is_random;

/// Most lines of both texts between their common begin and end in which the shortest difference is
/// found, which takes up to the square of it in time. Of more lines, all are different.
const COMPARED_MAX: usize = 20_000;

/// A line that is shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// What is shown.
    pub shown: String,
    /// What stands in the file: with a secret of several lines, several lines.
    real: String,
}

/// A line of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The line of both texts, by their indexes.
    Same(usize, usize),
    /// A line that only the text before has.
    Removed(usize),
    /// A line that only the text after has.
    Added(usize),
}

/// The lines of a text without its secrets. `None`: the text is YAML that cannot be taken apart
/// safely, or a secret stands in a second place as well.
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
    let lines = cut(text, &hidden);
    // A secret that stands elsewhere, such as in a comment, must not be shown there.
    let secrets = hidden.iter().filter_map(|&(start, end)| text.get(start..end));
    let secrets = secrets.map(|secret| secret.trim_matches(['"', '\'', ' ', '\n']));
    let secrets = Searched::of(secrets.filter(|secret| !secret.contains('\n')));
    let leaks = lines.iter().any(|line| secrets.occur_in(&line.shown));
    Ok((!leaks).then_some(lines))
}

/// The shortest secret that is searched for, bytes: a shorter one is part of other words.
const SEARCHED_MIN: usize = 8;

/// Secrets by their first bytes. A text is searched for all of them in a single pass, because a file
/// has as many secrets as lines.
struct Searched<'t>(HashMap<&'t [u8], Vec<&'t [u8]>>);

impl<'t> Searched<'t> {
    /// The secrets that are long enough.
    fn of(secrets: impl Iterator<Item = &'t str>) -> Self {
        let mut by_begin: HashMap<&[u8], Vec<&[u8]>> = HashMap::new();
        for secret in secrets {
            if let Some((begin, rest)) = secret.as_bytes().split_at_checked(SEARCHED_MIN) {
                let same = by_begin.entry(begin).or_default();
                if !same.contains(&rest) {
                    same.push(rest);
                }
            }
        }
        Self(by_begin)
    }

    fn occur_in(&self, text: &str) -> bool {
        let text = text.as_bytes();
        !self.0.is_empty()
            && text.windows(SEARCHED_MIN).enumerate().any(|(at, begin)| {
                let rest = text.get(at + SEARCHED_MIN..).unwrap_or_default();
                self.0.get(begin).is_some_and(|all| all.iter().any(|one| rest.starts_with(one)))
            })
    }
}

/// Collects the places of hidden values. `None`: value and text do not fit.
fn find(value: &Value, node: &Node, text: &str, hidden: &mut Vec<(usize, usize)>) -> Option<()> {
    match (value, &node.shape) {
        // The anchor has the value, and was looked at there, under its own key. Under this key the
        // value may be a secret.
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
                // A key that may be a secret is shown cut.
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

/// Cuts a text into lines. A hidden place, and a word of a comment that may be a secret, is shown as
/// [`SECRET`].
fn cut(text: &str, hidden: &[(usize, usize)]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let (mut line, mut at) = (Line { shown: String::new(), real: String::new() }, 0);
    let mut plain = |piece: &str, line: &mut Line| {
        for part in piece.split_inclusive('\n') {
            line.real.push_str(part);
            line.shown.push_str(part.trim_end_matches(['\n', '\r']));
            if part.ends_with('\n') {
                let shown = comment(&std::mem::take(&mut line.shown));
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
        lines.push(Line { shown: comment(&line.shown), real: line.real });
    }
    lines
}

/// Hides words of a comment that may be secrets.
fn comment(line: &str) -> String {
    let begins = |at: &usize| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let Some(at) = line.match_indices('#').map(|(at, _)| at).find(begins) else {
        return line.to_owned();
    };
    let (before, mut rest) = line.split_at(at);
    let mut out = before.to_owned();
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+/=_-.".contains(c);
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, others) = rest.split_at(end);
        out.push_str(if is_random(word) { SECRET } else { word });
        let end = others.find(is_word).unwrap_or(others.len());
        let (gap, others) = others.split_at(end);
        out.push_str(gap);
        rest = others;
    }
    out
}

/// Puts the secrets back into a text that was changed as it is shown.
///
/// # Errors
/// The number of a line, from 1, that has [`SECRET`] and is none of the shown lines.
pub fn restored(lines: &[Line], text: &str) -> Result<String, usize> {
    let new: Vec<&str> = text.split_inclusive('\n').collect();
    let shown = |line: &&str| line.trim_end_matches(['\n', '\r']).to_owned();
    let before: Vec<_> = lines.iter().map(|line| line.shown.clone()).collect();
    let after: Vec<_> = new.iter().map(shown).collect();
    let mut out = String::with_capacity(text.len());
    for step in difference(&before, &after) {
        match step {
            Step::Removed(_) => {}
            Step::Same(old, _) => {
                // A last line without an end may have another behind it now.
                if !out.is_empty() && !out.ends_with('\n') {
                    out.push('\n');
                }
                out.push_str(&lines[old].real);
            }
            Step::Added(at) if after[at].contains(SECRET) => return Err(at + 1),
            Step::Added(at) => {
                if !out.is_empty() && !out.ends_with('\n') {
                    out.push('\n');
                }
                out.push_str(new[at]);
            }
        }
    }
    Ok(out)
}

/// The difference of two texts, line by line. A line whose secret differs is another line.
pub fn compared(before: &[Line], after: &[Line]) -> Vec<Step> {
    difference(before, after)
}

/// The top-level keys whose values differ, in the order of their names. Empty where a text is no map.
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
        assert_eq!(restored(&lines, &shown).as_deref(), Ok(TEXT));
        let changed = shown.replace("workers: 2", "workers: 3").replace("name: a", "name: c");
        let wanted = TEXT.replace("workers: 2", "workers: 3").replace("name: a", "name: c");
        assert_eq!(restored(&lines, &changed), Ok(wanted));
    }

    #[test]
    fn a_secret_that_nobody_wrote_is_refused_with_its_line() {
        let lines = masked("s.yaml", TEXT).unwrap().unwrap();
        let shown = text(&lines);
        let more = shown.replace("auth:", "  - { name: c, token: \"(secret)\" }\nauth:");
        assert_eq!(restored(&lines, &more), Err(6));
        let moved = shown.replace("    token: \"(secret)\"\n", "");
        assert!(restored(&lines, &format!("{moved}    token: \"(secret)\"\n")).is_err());
    }

    #[test]
    fn a_text_is_not_shown_where_a_secret_stands_twice_or_behind_an_alias() {
        for hidden in [
            "token: q7Xb2LmZ0aKc9RtYv4WnPs\nname: q7Xb2LmZ0aKc9RtYv4WnPs\n",
            "name: &x q7Xb2LmZ0aKc9RtYv4WnPs\ntoken: *x\n",
        ] {
            assert_eq!(masked("c.yaml", hidden).unwrap(), None, "{hidden}");
        }
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

    #[test]
    fn secrets_are_found_wherever_they_stand_and_whatever_they_have_in_common() {
        let all = ["secretary-1", "secretary-22", "secretary", "short", "z"];
        let searched = Searched::of(all.into_iter());
        for text in ["secretary-1", "x secretary-22 y", "#secretary", "ä secretary-1ß"] {
            assert!(searched.occur_in(text), "{text}");
        }
        for text in ["", "secretar", "short", "SECRETARY-1", "z z z"] {
            assert!(!searched.occur_in(text), "{text}");
        }
        assert!(!Searched::of(std::iter::empty()).occur_in("anything at all"));
    }
}
