//! Explains a text that is not YAML. The parser reports the place where its grammar ends, which is
//! often a line after the mistake, in the words of the YAML specification. This module looks for
//! the mistakes that people make, at the reported place and in the lines above it.
//!
//! A message repeats no value of the file, because a value may be a secret.

use std::rc::Rc;

use crate::problem::shown;
use crate::yaml::{Node, Unread};
use crate::{Problem, keys, yaml};

/// A mistake in a text, with its position from 1.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) line: usize,
    pub(crate) column: usize,
    pub(crate) message: String,
    pub(crate) hint: String,
}

/// The number of lines above the reported line, without blank lines and comments, in which the
/// mistake may be.
const ABOVE: usize = 3;

/// The hint where the cause is unknown.
const COMPARE: &str = "compare this line and the line above with the output of `tunnel generate \
                       config server` or `tunnel generate config client`";

/// The hint for a value that begins with a character of the grammar.
const QUOTE: &str = "put the value in quotes";

/// Parses one document; an empty text is an empty map.
pub(crate) fn parse(file: &str, text: &str) -> Result<Rc<Node>, Problem> {
    yaml::read(text).map_err(|why| {
        let Mistake { line, column, message, hint } = match why {
            Unread::Grammar { line, column, info } => explain(text, line, column, &info),
            Unread::Refused { line, column, refusal: (message, hint) } => {
                Mistake { line, column, message: message.to_owned(), hint: hint.to_owned() }
            }
        };
        let (file, key_path, message) = (file.to_owned(), String::new(), shown(&message));
        Problem { file, line, column, key_path, message, hint: Some(hint) }
    })
}

/// Explains the error `info` of the parser at `line` and `column`.
fn explain(text: &str, line: usize, column: usize, info: &str) -> Mistake {
    let at = |message: &str, hint: &str| Mistake {
        line,
        column,
        message: message.to_owned(),
        hint: hint.to_owned(),
    };
    let lines = lines(text);
    let near = near(&lines, line);
    let open = open_at(text, line, column);
    let grammar = GRAMMAR.iter().find(|(part, ..)| info.contains(part));
    let found = near.iter().find_map(|line| indentation(line));
    found
        .or_else(|| lines.first().and_then(|line| other_format(line)))
        .or_else(|| grammar.map(|(_, message, hint)| at(message, hint)))
        .or_else(|| near.iter().find_map(|line| brackets(line)))
        .or_else(|| near.iter().filter(|_| open.is_none()).find_map(|line| pair(line)))
        .or_else(|| open.map(|open| unclosed(&open, line, column)))
        .or_else(|| levels(&lines, line))
        .or_else(|| two_values(&lines, line, column))
        .or_else(|| near.iter().filter(|_| no_key(info)).find_map(|line| no_colon(line)))
        .unwrap_or_else(|| at(&format!("not YAML: {info}"), COMPARE))
}

/// Explains a document that is one value: `listen = tls://a`, or a word.
pub(crate) fn no_map(text: &str) -> Option<Mistake> {
    lines(text).iter().find_map(pair)
}

/// Parser errors that name the mistake at its place: a part of the error, a message, and the
/// remedy.
const GRAMMAR: &[(&str, &str, &str)] = &[
    ("byte order mark", "a byte order mark (U+FEFF) inside of the text", "remove the character"),
    ("unprintable", "a control character", "remove the character, or write it as \"\\x00\""),
    ("escape", "an unknown escape: in \"…\" a backslash begins an escape", "use '…'"),
    ("unknown anchor", "`*` refers to an anchor, and no `&` sets this anchor above", QUOTE),
    ("anchor or alias", "a value that begins with `*` or `&` needs quotes", QUOTE),
    ("unexpected character: `@'", "a value cannot begin with `@`", QUOTE),
    ("unexpected character: ``'", "a value cannot begin with a backquote", QUOTE),
    ("unexpected character: `%'", "a value cannot begin with `%`", QUOTE),
    ("valid YAML whitespace", "a colon without a blank behind it", "write one blank, and no tab"),
    (
        "misplaced bracket",
        "a closing bracket without an opening bracket",
        "remove the bracket, or put the value in quotes",
    ),
    (
        "trailing content after",
        "more text after the closing quote",
        "add the comma before it, remove it, or write '…' around a value that contains \"",
    ),
    (
        "quoted scalar",
        "the quote that opens here is not closed in this line",
        "add the closing quote",
    ),
    ("tag", "a value that begins with `!` needs quotes", QUOTE),
];

struct Line<'a> {
    /// From 1.
    number: usize,
    /// The columns before the text.
    indent: usize,
    /// Whether the text is an item of a list. `column` is then the column after the dash.
    is_item: bool,
    /// The column of `body` from 1.
    column: usize,
    /// The indentation as written.
    blank: &'a str,
    /// The text without indentation, dash and comment.
    body: &'a str,
}

/// The lines with text.
fn lines(text: &str) -> Vec<Line<'_>> {
    let numbered = text.trim_start_matches('\u{feff}').lines().enumerate();
    numbered.filter_map(|(n, text)| Line::of(n + 1, text)).collect()
}

impl<'a> Line<'a> {
    fn of(number: usize, text: &'a str) -> Option<Self> {
        let mut body = text.trim_start();
        let blank = &text[..text.len() - body.len()];
        let indent = blank.chars().count();
        let is_item = body.starts_with("- ");
        while let Some(rest) = body.strip_prefix("- ") {
            body = rest.trim_start();
        }
        let column = 1 + text[..text.len() - body.len()].chars().count();
        let end = if body.starts_with('#') { 0 } else { body.find(" #").unwrap_or(body.len()) };
        let body = body[..end].trim_end();
        (!body.is_empty()).then_some(Self { number, indent, is_item, column, blank, body })
    }

    fn mistake(&self, column: usize, message: &str, hint: &str) -> Mistake {
        Mistake { line: self.number, column, message: message.to_owned(), hint: hint.to_owned() }
    }

    /// Whether the line has a key with its value.
    fn is_pair(&self) -> bool {
        [": ", ":\t"].iter().any(|colon| self.body.contains(colon))
            && !self.body.starts_with(['"', '\'', '{', '['])
    }
}

/// The reported line and the lines above it, the nearest line first.
fn near<'a, 'b>(lines: &'b [Line<'a>], line: usize) -> Vec<&'b Line<'a>> {
    lines.iter().rev().filter(|other| other.number <= line).take(ABOVE).collect()
}

/// Indentation by characters other than blanks.
fn indentation(line: &&Line<'_>) -> Option<Mistake> {
    let (column, odd) = line.blank.chars().enumerate().find(|(_, c)| *c != ' ')?;
    let what = if odd == '\t' { "a tab" } else { "a character that looks like a blank" };
    let message = format!("{what} in the indentation");
    Some(line.mistake(column + 1, &message, "indent with blanks alone"))
}

/// The first line of a file in a format other than YAML, or of a YAML directive.
fn other_format(line: &Line<'_>) -> Option<Mistake> {
    let section = line.body.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if section.is_some_and(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')) {
        let hint = "YAML has no sections: write `key:`, and the keys below it behind two blanks";
        return Some(line.mistake(line.column, "a section of an INI or TOML file", hint));
    }
    let directive = "a line that begins with `%` is a directive of YAML";
    line.body.starts_with('%').then(|| line.mistake(line.column, directive, "remove the line"))
}

/// An IPv6 address whose brackets YAML reads as a list.
fn brackets(line: &&Line<'_>) -> Option<Mistake> {
    let value = line.body.find(": [").map_or(0, |start| start + 2);
    let rest = line.body.get(value..)?;
    let plain = !line.body.contains(['"', '\'']);
    let is_address = rest.starts_with('[')
        && rest.split_once("]:").is_some_and(|(address, _)| {
            address.bytes().skip(1).all(|b| b.is_ascii_hexdigit() || b":.".contains(&b))
        });
    let in_list = rest.contains("://[") && rest.starts_with(['[', '{']);
    let start = if in_list { rest.find("://[")? + 3 } else { 0 };
    if !plain || !(is_address || in_list) {
        return None;
    }
    let column = line.column + line.body.get(..value + start)?.chars().count();
    Some(line.mistake(
        column,
        "the brackets of an IPv6 address are a list of YAML here",
        "put the address in quotes: \"tls://[::]:7000\"",
    ))
}

/// A line that should be `key: value`: the colon or the blank after it is missing, or `=` is
/// written instead.
fn pair(line: &Line<'_>) -> Option<Mistake> {
    let end = line.body.find(|c: char| !c.is_ascii_lowercase() && !matches!(c, '_' | '0'..='9'));
    let (word, rest) = line.body.split_at(end.unwrap_or(line.body.len()));
    let column = line.column + word.chars().count();
    let is_key =
        keys::any(|map| map.later.contains(&word) || map.rows.iter().any(|row| row.key == word));
    let value = rest.trim_start();
    match rest.chars().next() {
        _ if word.is_empty() => None,
        _ if value.starts_with('=') && !line.is_pair() => {
            let word = if is_key { word } else { "key" };
            let hint = format!("write `{word}: …`");
            Some(line.mistake(column, "`=` in the place of a colon", &hint))
        }
        _ if !is_key || line.is_pair() => None,
        Some(':') if rest.len() > 1 && !rest.starts_with("://") && !rest.starts_with(":\t") => {
            let hint = format!("write `{word}: …`");
            let message = format!("no blank behind the colon of `{word}`");
            Some(line.mistake(column + 1, &message, &hint))
        }
        None | Some(' ' | ';' | ',') => {
            let (message, hint) = (format!("no colon behind `{word}`"), format!("write `{word}:`"));
            Some(line.mistake(column, &message, &hint))
        }
        Some(_) => None,
    }
}

/// An opening bracket.
struct Open {
    line: usize,
    column: usize,
    bracket: char,
    /// Whether the text closes the bracket later.
    closes: bool,
}

/// The innermost bracket that is open at a position.
fn open_at(text: &str, line: usize, column: usize) -> Option<Open> {
    let mut stack: Vec<(usize, usize, char)> = Vec::new();
    let mut found: Option<(usize, (usize, usize, char))> = None;
    let (mut at, mut quote, mut before) = ((1, 1), None, ' ');
    let mut is_comment = false;
    let mut closes = false;
    for c in text.chars() {
        if found.is_none() && at >= (line, column) {
            found = Some((stack.len(), *stack.last()?));
        }
        let begins = before.is_whitespace() || "[{,:(".contains(before);
        match (quote, c) {
            _ if c == '\n' => is_comment = false,
            _ if is_comment => {}
            (None, '#') if before.is_whitespace() => is_comment = true,
            (None, '"' | '\'') if begins => quote = Some(c),
            (Some(open), c) if c == open && before != '\\' => quote = None,
            // Inside a plain value outside brackets, a bracket belongs to the value.
            (None, '[' | '{') if begins || !stack.is_empty() => stack.push((at.0, at.1, c)),
            (None, ']' | '}') => {
                stack.pop();
                closes |= found.is_some_and(|(depth, _)| stack.len() < depth);
            }
            _ => {}
        }
        at = if c == '\n' { (at.0 + 1, 1) } else { (at.0, at.1 + 1) };
        before = c;
    }
    let (_, (line, column, bracket)) = match found {
        Some(found) => found,
        None => (stack.len(), *stack.last()?),
    };
    Some(Open { line, column, bracket, closes })
}

fn unclosed(open: &Open, line: usize, column: usize) -> Mistake {
    let close = if open.bracket == '[' { ']' } else { '}' };
    if open.closes {
        return Mistake {
            line,
            column,
            message: "not a part of the list or map in brackets that is open here".to_owned(),
            hint: "is a comma missing before it, or is the colon before it without a blank?".into(),
        };
    }
    Mistake {
        line: open.line,
        column: open.column,
        message: format!("the `{}` that opens here is not closed", open.bracket),
        hint: format!("add `{close}` at the end of its values"),
    }
}

/// A line whose indentation or dash does not fit the lines above.
fn levels(lines: &[Line<'_>], line: usize) -> Option<Mistake> {
    // A value without a key is reported after the last line.
    let n = lines.iter().rposition(|other| other.number <= line)?;
    let (above, it) = (lines[..n].last()?, &lines[n]);
    let column_of_keys = |line: &Line<'_>| if line.is_item { line.column } else { line.indent + 1 };
    let (mine, theirs) = (column_of_keys(it), column_of_keys(above));
    let same = |other: &&Line<'_>| other.indent == it.indent;
    if it.is_item && lines[..n].iter().any(|l| same(&l) && !l.is_item) && above.is_pair() {
        let hint = "the items of a list stand below a key without a value: `key:`";
        return Some(it.mistake(it.indent + 1, "an item of a list in the place of a key", hint));
    }
    if it.is_item
        && it.indent > 0
        && lines[..n].iter().any(|l| l.is_item)
        && !lines[..n].iter().any(|l| same(&l))
    {
        let item = lines[..n].iter().rev().find(|l| l.is_item)?;
        let hint = format!("begin the dash in column {}, as line {}", item.indent + 1, item.number);
        return Some(it.mistake(it.indent + 1, "the indentation fits no line above", &hint));
    }
    if !it.is_item && !it.is_pair() && !it.body.ends_with(':') && above.is_item {
        let hint = "an item of a list begins with `- `, in the column of the other items";
        return Some(it.mistake(it.indent + 1, "neither a key nor an item of a list", hint));
    }
    if mine > theirs && above.is_pair() {
        let hint = format!("begin the line in column {theirs}, as line {}", above.number);
        let message = "the line is indented below a key that has a value already";
        return Some(it.mistake(it.indent + 1, message, &hint));
    }
    if it.indent < above.indent || mine < theirs {
        let mut columns: Vec<_> =
            lines[..n].iter().map(column_of_keys).filter(|c| *c <= theirs).collect();
        columns.sort_unstable();
        columns.dedup();
        let columns: Vec<_> = columns.iter().map(ToString::to_string).collect();
        let hint = format!("keys of one map begin in one column: {}", columns.join(" or "));
        return Some(it.mistake(it.indent + 1, "the indentation fits no line above", &hint));
    }
    None
}

/// Whether the parser found a value where it expected a key.
fn no_key(info: &str) -> bool {
    info.contains("simple key expect")
}

/// A line that has no colon and is no item of a list.
fn no_colon(line: &Line<'_>) -> Option<Mistake> {
    let has_none = !line.is_item && !line.body.contains(':');
    has_none.then(|| line.mistake(line.column, "a line without a key", "write `key: value`"))
}

/// Two values in one line: `name: home: a`.
fn two_values(lines: &[Line<'_>], line: usize, column: usize) -> Option<Mistake> {
    let line = lines.iter().find(|other| other.number == line)?;
    let is_second = line.body.matches(':').count() > 1;
    let message = "a second colon with a blank behind it";
    is_second.then(|| line.mistake(column, message, "put a value that contains `: ` in quotes"))
}
