//! A response from bytes (RFC 9112 sections 4 and 6.3). The stream carries one response, so further
//! bytes are dropped.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use httparse::{EMPTY_HEADER, Header, Status};

/// The largest head of a response.
const HEAD_MAX: usize = 128 << 10;

/// The most fields of a response.
const FIELDS: usize = 200;

/// The longest chunk size line.
const LINE_MAX: usize = 256;

/// The largest size of trailers, which are discarded, in bytes.
const TRAILERS_MAX: usize = 16 << 10;

/// The start of a response (RFC 9112 section 4).
const START: &[u8] = b"HTTP/1.";

/// A malformed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response of the service is no HTTP")]
pub(crate) struct BadResponse;

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// `200 OK`, then one field per line.
    Head(Bytes),
    Body(Bytes),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Length(u64),
    /// The bytes of a chunk that are still to come, including its line end.
    Chunk(u64),
    ChunkEnd,
    Size,
    /// The number of bytes that trailers may still have.
    Trailers(usize),
    /// The body ends with the stream.
    Rest,
    Over,
}

/// A response as far as it has arrived.
#[derive(Debug)]
pub(crate) struct Response {
    state: State,
    input: BytesMut,
    /// The number of bytes that were searched for the end of the header or of a line: otherwise a
    /// service that sends single bytes would cause a search of all of them for each byte.
    looked: usize,
    /// The request was HEAD, whose response has no body.
    is_head: bool,
}

impl Response {
    pub(crate) fn to(method: &str) -> Self {
        let (state, input, is_head) = (State::Head, BytesMut::new(), method == "HEAD");
        Self { state, input, looked: 0, is_head }
    }

    /// Whether the whole response has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.state != State::Over {
            self.input.extend_from_slice(bytes);
        }
    }

    /// The stream has ended: returns the last part, if the response is complete.
    pub(crate) fn finish(&mut self) -> Result<Option<Piece>, BadResponse> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Over => Ok(None),
            State::Rest => Ok(Some(Piece::End)),
            State::Head
            | State::Length(_)
            | State::Chunk(_)
            | State::ChunkEnd
            | State::Size
            | State::Trailers(_) => Err(BadResponse),
        }
    }

    /// The next part of the received bytes.
    pub(crate) fn poll(&mut self) -> Result<Option<Piece>, BadResponse> {
        loop {
            match self.state {
                State::Head => {
                    let Some(head) = self.head()? else { return Ok(None) };
                    return Ok(Some(Piece::Head(head)));
                }
                State::Length(0) => return Ok(Some(self.end())),
                State::Length(left) => {
                    return Ok(self.body(left, State::Length));
                }
                State::Rest => return Ok(self.body(u64::MAX, |_| State::Rest)),
                State::Chunk(0) => self.state = State::ChunkEnd,
                State::Chunk(left) => {
                    return Ok(self.body(left, State::Chunk));
                }
                State::ChunkEnd => {
                    let Some(line) = self.line(LINE_MAX)? else { return Ok(None) };
                    if !line.is_empty() {
                        return Err(BadResponse);
                    }
                    self.state = State::Size;
                }
                State::Size => {
                    let Some(line) = self.line(LINE_MAX)? else { return Ok(None) };
                    let size = size(&line).ok_or(BadResponse)?;
                    let trailers = State::Trailers(TRAILERS_MAX);
                    self.state = if size == 0 { trailers } else { State::Chunk(size) };
                }
                State::Trailers(left) => {
                    let Some(line) = self.line(left)? else { return Ok(None) };
                    if line.is_empty() {
                        return Ok(Some(self.end()));
                    }
                    self.state = State::Trailers(left.saturating_sub(line.len()));
                }
                State::Over => {
                    self.input.clear();
                    return Ok(None);
                }
            }
        }
    }

    fn end(&mut self) -> Piece {
        self.state = State::Over;
        self.input.clear();
        Piece::End
    }

    fn body(&mut self, left: u64, after: impl Fn(u64) -> State) -> Option<Piece> {
        let there = u64::try_from(self.input.len()).unwrap_or(u64::MAX);
        let size = usize::try_from(left.min(there)).unwrap_or(usize::MAX);
        if size == 0 {
            return None;
        }
        self.state = after(left.saturating_sub(left.min(there)));
        Some(Piece::Body(self.input.split_to(size).freeze()))
    }

    /// A line of at most `max` bytes, without its end, which is CRLF.
    fn line(&mut self, max: usize) -> Result<Option<Bytes>, BadResponse> {
        let new = self.input.iter().skip(self.looked);
        let Some(end) = new.clone().position(|byte| *byte == b'\n') else {
            self.looked = self.input.len();
            return if self.looked > max { Err(BadResponse) } else { Ok(None) };
        };
        let end = self.looked + end;
        self.looked = 0;
        let mut line = self.input.split_to(end + 1);
        line.truncate(end);
        if line.last() == Some(&b'\r') {
            line.truncate(end - 1);
        }
        if line.len() > max { Err(BadResponse) } else { Ok(Some(line.freeze())) }
    }

    /// Whether an empty line has arrived, which completes the header.
    fn has_empty_line(&mut self) -> bool {
        // The empty line may have begun in the bytes that were already searched.
        let new = self.input.get(self.looked.saturating_sub(3)..).unwrap_or_default();
        let has = new.windows(2).any(|two| two == b"\n\n")
            || new.windows(3).any(|three| three == b"\n\r\n");
        self.looked = self.input.len();
        has
    }

    /// Whether the input can become a response.
    fn begins_well(&self) -> bool {
        let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
        let begin = self.input.iter().position(|byte| !is_end(byte)).unwrap_or(self.input.len());
        let text = self.input.get(begin..).unwrap_or_default();
        let common = text.len().min(START.len());
        text[..common] == START[..common]
    }

    /// The header of the response, once it is complete. Interim responses are skipped.
    fn head(&mut self) -> Result<Option<Bytes>, BadResponse> {
        loop {
            if !self.begins_well() {
                return Err(BadResponse);
            }
            if !self.has_empty_line() {
                return if self.input.len() > HEAD_MAX { Err(BadResponse) } else { Ok(None) };
            }
            let mut fields = [EMPTY_HEADER; FIELDS];
            let mut response = httparse::Response::new(&mut fields);
            let length = match response.parse(&self.input) {
                Ok(Status::Complete(length)) => length,
                Ok(Status::Partial) if self.input.len() <= HEAD_MAX => return Ok(None),
                Ok(Status::Partial) | Err(_) => return Err(BadResponse),
            };
            let status = response.code.unwrap_or_default();
            if status == 101 {
                return Err(BadResponse);
            }
            if (100..200).contains(&status) {
                self.input.advance(length);
                self.looked = 0;
                continue;
            }
            // RFC 9110 section 15: a number out of range counts as an error of the server. Browsers
            // cannot construct a response with it.
            let status = if (200..=599).contains(&status) { status } else { 500 };
            let mut head = BytesMut::new();
            let reason = response.reason.unwrap_or_default();
            head.put_slice(format!("{status} {reason}").as_bytes());
            for Header { name, value } in &*response.headers {
                head.put_slice(format!("\n{name}:").as_bytes());
                head.put_slice(value);
            }
            let framing = framing(response.version, response.headers)?;
            // A browser cannot construct a response with status 205 and a body.
            let is_empty = self.is_head || matches!(status, 204 | 205 | 304);
            self.state = if is_empty { State::Length(0) } else { framing };
            self.input.advance(length);
            self.looked = 0;
            return Ok(Some(head.freeze()));
        }
    }
}

/// How the body ends. A message whose end is ambiguous is refused (RFC 9112 section 6.3).
fn framing(version: Option<u8>, fields: &[Header<'_>]) -> Result<State, BadResponse> {
    let mut lengths = values(fields, "content-length");
    let mut codings = values(fields, "transfer-encoding");
    if let Some(coding) = codings.next() {
        let is_chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
        let is_only = codings.next().is_none() && lengths.next().is_none();
        return if is_chunked && is_only && version == Some(1) {
            Ok(State::Size)
        } else {
            Err(BadResponse)
        };
    }
    let Some(length) = lengths.next().map(|value| value.trim_ascii()) else {
        return Ok(State::Rest);
    };
    let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
    if !is_number || lengths.any(|other| other.trim_ascii() != length) {
        return Err(BadResponse);
    }
    let number = str::from_utf8(length).ok().and_then(|text| text.parse::<u64>().ok());
    number.map(State::Length).ok_or(BadResponse)
}

fn values<'a>(fields: &'a [Header<'a>], wanted: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let is = move |field: &&Header<'_>| field.name.eq_ignore_ascii_case(wanted);
    fields.iter().filter(is).map(|field| field.value)
}

/// The size in a chunk size line.
fn size(line: &[u8]) -> Option<u64> {
    let text = str::from_utf8(line.get(..line.len().min(LINE_MAX))?).ok()?;
    let digits = text.split(';').next()?.trim();
    let is_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Head, body and whether the response is whole, when it arrives in pieces of `step` bytes.
    fn read(
        method: &str,
        bytes: &[u8],
        step: usize,
    ) -> Result<(String, Vec<u8>, bool), BadResponse> {
        let mut response = Response::to(method);
        let (mut head, mut body, mut ended) = (String::new(), Vec::new(), false);
        let mut take = |piece| match piece {
            Piece::Head(bytes) => head = String::from_utf8_lossy(&bytes).into_owned(),
            Piece::Body(bytes) => body.extend_from_slice(&bytes),
            Piece::End => ended = true,
        };
        for piece in bytes.chunks(step) {
            response.push(piece);
            while let Some(piece) = response.poll()? {
                take(piece);
            }
        }
        if let Some(piece) = response.finish()? {
            take(piece);
        }
        Ok((head, body, ended))
    }

    #[test]
    fn bodies_end_where_their_framing_says_in_pieces_of_any_size() {
        let length = &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\nhellorest"[..];
        let chunked = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: \
                        Chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: a\r\n\r\nrest";
        let rest = b"HTTP/1.0 200\r\n\r\nhello";
        for step in 1..40 {
            for text in [length, chunked, rest] {
                let (head, body, ended) = read("GET", text, step).unwrap();
                assert!(head.starts_with("200"), "{head}");
                assert_eq!((&body[..], ended), (&b"hello"[..], true), "{step}");
            }
        }
        let (head, ..) = read("GET", length, 1000).unwrap();
        assert_eq!(head, "200 OK\nContent-Length:5\nA:b");
    }

    #[test]
    fn a_response_without_a_body_ends_with_its_head() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(read("HEAD", text, 7).unwrap().1.len(), 0);
        for status in ["204 No Content", "205 Reset Content", "304 Not Modified"] {
            let text = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n");
            assert!(read("GET", text.as_bytes(), 7).unwrap().2);
        }
    }

    #[test]
    fn a_status_that_no_browser_takes_is_an_error_of_the_server() {
        for status in [0, 99, 600, 999] {
            let text = format!("HTTP/1.1 {status:03} Odd\r\nContent-Length: 2\r\n\r\nhi");
            let (head, body, ended) = read("GET", text.as_bytes(), 7).unwrap();
            assert!(head.starts_with("500 Odd"), "{head}");
            assert_eq!((&body[..], ended), (&b"hi"[..], true));
        }
    }

    #[test]
    fn what_is_cut_off_or_makes_no_sense_is_no_response() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\nContent-Le",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloo\r\n0\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert_eq!(read("GET", text.as_bytes(), 3), Err(BadResponse), "{text}");
        }
    }

    #[test]
    fn another_protocol_is_known_by_its_first_bytes() {
        // The far end would wait for an answer to its greeting.
        let mut response = Response::to("GET");
        response.push(b"SSH");
        assert_eq!(response.poll(), Err(BadResponse));
        response = Response::to("GET");
        response.push(b"\r\nHTT");
        assert_eq!(response.poll(), Ok(None));
    }

    #[test]
    fn lines_and_trailers_without_an_end_are_no_response() {
        let start = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for rest in ["1".repeat(300), format!("0\r\n{}", "A: b\r\n".repeat(5000))] {
            let text = format!("{start}{rest}");
            assert_eq!(read("GET", text.as_bytes(), 7), Err(BadResponse), "{rest:.20}");
        }
        let head = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(HEAD_MAX));
        assert_eq!(read("GET", head.as_bytes(), 100), Err(BadResponse));
    }

    #[test]
    fn each_byte_of_a_head_is_looked_at_once() {
        let mut response = Response::to("GET");
        let text = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(1000));
        let mut looked = 0;
        for byte in text.as_bytes() {
            response.push(&[*byte]);
            let before = response.looked;
            if response.poll().unwrap().is_some() {
                return assert_eq!(looked, text.len() - 1);
            }
            looked += response.looked - before;
        }
        panic!("no head");
    }
}
