//! Text in the columns of a terminal: an East Asian wide character takes two columns, a combining
//! character none.

use std::cmp::Ordering;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Marks the missing part of a shortened text. It takes one column.
const CUT: char = '…';

/// The width of a text in columns.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The part of a text that is kept when the text is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// The beginning.
    Start,
    /// Beginning and end: an address ends in its port.
    Ends,
}

/// The text, shortened to at most `room` columns.
pub(super) fn cut(text: &str, room: usize, keep: Keep) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let end = if keep == Keep::Ends { kept / 2 } else { 0 };
    let start = prefix(text.chars(), kept - end);
    let mut end: Vec<char> = prefix(text.chars().rev(), end).chars().collect();
    end.reverse();
    let mark = if room == 0 { None } else { Some(CUT) };
    start.chars().chain(mark).chain(end).collect()
}

/// The first characters, in at most `room` columns.
fn prefix(text: impl Iterator<Item = char>, room: usize) -> String {
    let mut left = room;
    let fits = |c: &char| {
        let enough = left.checked_sub(c.width().unwrap_or(0));
        left = enough.unwrap_or(0);
        enough.is_some()
    };
    text.take_while(fits).collect()
}

/// The text in lines of at most `room` columns, wrapped at blanks. A longer word is not split, nor
/// is text between backticks: a command must be copied unchanged.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words(text) {
        if line.is_empty() {
            line.push_str(word);
        } else if width(&line) + 1 + width(word) <= room {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(std::mem::replace(&mut line, word.to_owned()));
        }
    }
    lines.push(line);
    lines
}

/// The words of a text; text between backticks counts as one word.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let is_end = move |c: char| {
        quoted ^= c == '`';
        c == ' ' && !quoted
    };
    text.split(is_end)
}

/// The natural order of names: runs of digits are compared as numbers, so `web-9` comes before
/// `web-10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a_left, mut b_left) = (a, b);
    loop {
        let (x, y) = match (a_left.chars().next(), b_left.chars().next()) {
            (Some(x), Some(y)) => (x, y),
            // Texts such as `1` and `01` are equal up to this point.
            (x, y) => return x.cmp(&y).then_with(|| a.cmp(b)),
        };
        let order = if x.is_ascii_digit() && y.is_ascii_digit() {
            let ((x, rest), (y, other)) = (number(a_left), number(b_left));
            (a_left, b_left) = (rest, other);
            // Without leading zeros, the longer number is larger.
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            (a_left, b_left) = (&a_left[x.len_utf8()..], &b_left[y.len_utf8()..]);
            x.cmp(&y)
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The digits at the beginning, without leading zeros, and the rest.
fn number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (digits.trim_start_matches('0'), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_text_fits_whatever_its_characters_take() {
        for text in
            ["tcp://192.0.2.7:10022", "日本語のとても長い名前です", "e\u{301}e\u{301}e\u{301}e"]
        {
            for room in 0..30 {
                for keep in [Keep::Start, Keep::Ends] {
                    let cut = cut(text, room, keep);
                    assert!(width(&cut) <= room, "{cut} in {room}");
                    assert_eq!(cut == text, width(text) <= room);
                }
            }
        }
        assert_eq!(cut("tcp://192.0.2.7:10022", 12, Keep::Ends), "tcp://…10022");
        assert_eq!(cut("tcp://192.0.2.7:10022", 12, Keep::Start), "tcp://192.0…");
        assert_eq!(cut("日本語", 4, Keep::Start), "日…");
    }

    #[test]
    fn lines_break_at_blanks_and_never_in_a_command() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("日本 日本", 8), ["日本", "日本"]);
        assert_eq!(
            wrap("try `tunnel allow a --tcp 22` now", 8),
            ["try", "`tunnel allow a --tcp 22`", "now"]
        );
        assert_eq!(wrap("a-long-word b", 4), ["a-long-word", "b"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn numbers_in_names_count() {
        let mut names = ["web-10", "web-9", "web", "3/u1", "3/17", "a01", "a1", "10", "9"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["3/17", "3/u1", "9", "10", "a01", "a1", "web", "web-9", "web-10"]);
    }
}
