//! JSON with lines. The existing JSON parsers report no positions, and the YAML parser refuses
//! tabs.

use crate::Problem;
use crate::tree::{DEPTH_MAX, Entry, Kind, Node};

pub(super) fn read(file: &str, text: &str) -> Result<Node, Problem> {
    let mut reader = Reader { file, bytes: text.as_bytes(), text, at: 0, line: 1 };
    let node = reader.value(0)?;
    reader.blank();
    if reader.at < reader.bytes.len() {
        return Err(reader.bad("text behind the end of the JSON value"));
    }
    Ok(node)
}

struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    line: usize,
}

impl Reader<'_> {
    fn bad(&self, why: &str) -> Problem {
        Problem::at(self.file, self.line, format!("this is no JSON: {why}"))
    }

    fn blank(&mut self) {
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => self.line += 1,
                b' ' | b'\t' | b'\r' => {}
                _ => return,
            }
            self.at += 1;
        }
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        self.blank();
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        if is {
            self.at += 1;
        }
        is
    }

    fn value(&mut self, depth: usize) -> Result<Node, Problem> {
        if depth > DEPTH_MAX {
            return Err(self.bad("nested too deeply"));
        }
        let first = self.peek();
        let line = self.line;
        let kind = match first {
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Kind::Text(self.string()?),
            Some(_) => match self.word() {
                "null" => Kind::Nothing,
                word if is_plain(word) => Kind::Text(word.to_owned()),
                _ => return Err(self.bad("a value is missing or is none of JSON")),
            },
            None => return Err(self.bad("a value is missing")),
        };
        Ok(Node::new(line, kind))
    }

    fn map(&mut self, depth: usize) -> Result<Kind, Problem> {
        self.at += 1;
        let mut entries = Vec::new();
        while !self.take(b'}') {
            if !entries.is_empty() && !self.take(b',') {
                return Err(self.bad("a comma or `}` is missing"));
            }
            if self.peek() != Some(b'"') {
                return Err(self.bad("a key in quotes is missing"));
            }
            let line = self.line;
            let key = self.string()?;
            if !self.take(b':') {
                return Err(self.bad("the colon behind a key is missing"));
            }
            entries.push(Entry { key, line, node: self.value(depth + 1)? });
        }
        Ok(Kind::Map(entries))
    }

    fn list(&mut self, depth: usize) -> Result<Kind, Problem> {
        self.at += 1;
        let mut items = Vec::new();
        while !self.take(b']') {
            if !items.is_empty() && !self.take(b',') {
                return Err(self.bad("a comma or `]` is missing"));
            }
            items.push(self.value(depth + 1)?);
        }
        Ok(Kind::List(items))
    }

    fn word(&mut self) -> &str {
        let begin = self.at;
        let belongs = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'+' | b'.');
        while self.bytes.get(self.at).is_some_and(belongs) {
            self.at += 1;
        }
        &self.text[begin..self.at]
    }

    fn string(&mut self) -> Result<String, Problem> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let Some(c) = rest.chars().next() else {
                return Err(self.bad("a text has no end"));
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\n' => return Err(self.bad("a text has no end in its line")),
                '\\' => out.push(self.escaped()?),
                c => out.push(c),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, Problem> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        Ok(match byte {
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'u') => {
                let digits = self.text.get(self.at..self.at + 4);
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                self.at += 4;
                // Unpaired surrogates become the replacement character.
                let code = code.ok_or_else(|| self.bad("`\\u` needs four hex digits"))?;
                char::from_u32(code).unwrap_or('\u{fffd}')
            }
            _ => return Err(self.bad("an unknown escape in a text")),
        })
    }
}

fn is_plain(word: &str) -> bool {
    let number = word.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    matches!(word, "true" | "false") || (!word.is_empty() && number)
}
