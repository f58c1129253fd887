//! Rewrites a doubtful response head in a form with a single meaning, as far as RFC 9112 lets a
//! proxy write it. Old and careless servers send such heads, and every browser accepts them.
//!
//! | doubt | what is written | section |
//! |---|---|---|
//! | `Content-Length` beside `chunked` | `chunked` alone | 6.3 |
//! | `chunked` more than once | once | 6.1 |
//! | equal values of `Content-Length` | one | 6.3 |
//! | a tab around these values | a space | 5 |
//! | white space before a colon | none | 5.1 |
//! | a field on several lines | one line | 5.2 |
//!
//! A reader of the rewritten head cannot find a different end of the body than this crate. Even so,
//! no response follows on a shared connection: the rewritten head says `Connection: close`, because
//! a service with one doubtful boundary may have others.

use crate::answer::ANSWER_FIELDS;
use crate::framing::number;
use crate::lines::{has_control, is_token, tokens};

/// A field: the name, and the value without line ends.
type Field<'h> = (&'h [u8], Vec<u8>);

/// Writes the complete head `head`, each of whose lines ends in CRLF, in a form with a single
/// meaning. `closes`: no further response follows. `None`: only the service knows the meaning.
#[cold]
pub(crate) fn mend(head: &[u8], closes: bool) -> Option<Vec<u8>> {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r"));
    let status_line = lines.next()??;
    let mut fields: Vec<Field<'_>> = Vec::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if has_control(line) {
            return None;
        }
        if let [b' ' | b'\t', ..] = line {
            let (_, value) = fields.last_mut()?;
            value.push(b' ');
            value.extend_from_slice(line.trim_ascii());
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = line[..colon].trim_ascii_end();
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return None;
        }
        fields.push((name, line[colon + 1..].trim_ascii().to_vec()));
        if fields.len() > ANSWER_FIELDS {
            return None;
        }
    }
    write(status_line, &fields, closes)
}

fn write(status_line: &[u8], fields: &[Field<'_>], closes: bool) -> Option<Vec<u8>> {
    let values = |name: &'static str| {
        let is_it = move |field: &&Field<'_>| field.0.eq_ignore_ascii_case(name.as_bytes());
        fields.iter().filter(is_it).map(|(_, value)| &**value)
    };
    let mut codings = values("transfer-encoding").flat_map(tokens);
    let is_chunked = values("transfer-encoding").next().is_some();
    if !codings.all(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
        return None;
    }
    let mut lengths = values("content-length").flat_map(tokens);
    let length = lengths.next();
    if !lengths.all(|other| Some(other) == length) {
        return None;
    }
    let length = match length {
        Some(text) => Some(number(text)?),
        None => None,
    };
    // An interim response ends neither the message nor the connection.
    let closes = closes && !matches!(status_line.get(9), Some(b'1'));
    let mut text = [status_line, b"\r\n"].concat();
    let mut add = |name: &[u8], value: &[u8]| {
        text.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
    };
    for (name, value) in fields {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        if is("transfer-encoding") || is("content-length") {
            continue;
        }
        if closes && is("connection") {
            let is_kept = |token: &&[u8]| {
                !token.eq_ignore_ascii_case(b"keep-alive") && !token.eq_ignore_ascii_case(b"close")
            };
            let kept: Vec<_> = tokens(value).filter(is_kept).collect();
            if !kept.is_empty() {
                add(name, &kept.join(&b", "[..]));
            }
        } else {
            add(name, value);
        }
    }
    if is_chunked {
        add(b"Transfer-Encoding", b"chunked");
    } else if let Some(length) = length {
        add(b"Content-Length", length.to_string().as_bytes());
    }
    if closes {
        add(b"Connection", b"close");
    }
    text.extend_from_slice(b"\r\n");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(fields: &str) -> Option<String> {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        mend(head.as_bytes(), true).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_head_is_written_with_the_one_meaning_that_the_rfc_gives() {
        for (fields, wanted) in [
            ("X-Old : y\r\nContent-Length\t: 2", "X-Old: y\r\nContent-Length: 2"),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked"),
            (
                "Transfer-Encoding: chunked\r\nX: y\r\ntransfer-encoding:CHUNKED",
                "X: y\r\nTransfer-Encoding: chunked",
            ),
            ("Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked"),
            ("Content-Length: 5, 5\r\nContent-Length: 5", "Content-Length: 5"),
            ("Content-Length:\t5\t", "Content-Length: 5"),
            ("X: a\r\n  b\r\n\tc \r\nContent-Length: 0", "X: a b c\r\nContent-Length: 0"),
            ("X : y\r\nConnection: Keep-Alive, x-own, close", "X: y\r\nConnection: x-own"),
        ] {
            let wanted = format!("HTTP/1.1 200 OK\r\n{wanted}\r\nConnection: close\r\n\r\n");
            assert_eq!(mended(fields).as_deref(), Some(&*wanted), "{fields}");
        }
        let kept = "Connection: keep-alive\r\nContent-Length : 2\r\n\r\n";
        let head = [b"HTTP/1.1 200 OK\r\n", kept.as_bytes()].concat();
        let wanted = [b"HTTP/1.1 200 OK\r\n", kept.replace(" :", ":").as_bytes()].concat();
        assert_eq!(mend(&head, false), Some(wanted));
        let interim = b"HTTP/1.1 103 Early Hints\r\nLink : </x>\r\n\r\n";
        let wanted = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
        assert_eq!(mend(interim, true).as_deref(), Some(&wanted[..]));
    }

    #[test]
    fn a_head_that_only_the_service_understands_is_not_written() {
        for fields in [
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: +5",
            "Content-Length: 5\r\nContent-Length:",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked,",
            "Transfer-Encoding: chunked\r\n identity",
            " X: y",
            "X y : z",
            " : y",
            "X",
            "X: a\0b",
            "X : a\rContent-Length: 2",
        ] {
            assert_eq!(mended(fields), None, "{fields}");
        }
        assert_eq!(mend(b"HTTP/1.1 200 OK\r\nX : y\n\r\n", true), None);
    }
}
