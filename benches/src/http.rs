//! The part of HTTP/1.1 (RFC 9112) that a client needs to request the same small document from one
//! server again and again.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest head of an answer. The heads of measured servers have a few hundred bytes.
const HEAD_MAX: usize = 4 << 10;

/// The complete request; every request is the same.
#[must_use]
pub fn get(target: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes()
}

/// The fields of an answer's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Bytes of the head, the empty line included.
    pub length: usize,
    /// Bytes of the body.
    pub body: u64,
    /// Whether the server closes after the answer.
    pub closes: bool,
}

impl Head {
    /// Parses the head at the start of `bytes`. `Ok(None)`: the head is incomplete.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if bytes.len() >= HEAD_MAX { Err(Malformed("a long head")) } else { Ok(None) };
        };
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| Malformed("not UTF-8"))?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 "));
        let status = status.and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
        let status = status.ok_or(Malformed("no status line of HTTP/1.1"))?;
        let (mut body, mut closes) = (None, false);
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(Malformed("a field without colon"))?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                body = Some(value.parse().map_err(|_| Malformed("no length"))?);
            } else if name.eq_ignore_ascii_case("connection") {
                closes = value.eq_ignore_ascii_case("close");
            }
        }
        // Chunked bodies are not supported: reading them would cost this load program more than the
        // server.
        let body = body.ok_or(Malformed("an answer without Content-Length"))?;
        Ok(Some(Self { status, length: end + 4, body, closes }))
    }
}

/// An answer that is not HTTP, or that this client does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("HTTP: {0}")]
pub struct Malformed(&'static str);

/// One connection that sends requests.
#[derive(Debug)]
pub struct Asker {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// Length of the last answer that was parsed, head and body. An answer with the same length and
    /// the same first line needs no parsing: a `Connection: close` would change the length.
    usual: usize,
}

impl Asker {
    /// An asker on a new connection.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: vec![0; HEAD_MAX].into_boxed_slice(), usual: 0 }
    }

    /// Sends one request and reads the answer to its end. `false`: the server closes the connection
    /// now. A status other than 200 is an error of the kind `InvalidData`.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<bool> {
        self.stream.write_all(request).await?;
        let mut have = 0;
        loop {
            match self.stream.read(&mut self.buffer[have..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => have += n,
            }
            let bytes = &self.buffer[..have];
            if have == self.usual && bytes.starts_with(b"HTTP/1.1 200 ") {
                return Ok(true);
            }
            let wrong = |malformed| io::Error::new(io::ErrorKind::InvalidData, malformed);
            let Some(head) = Head::parse(bytes).map_err(wrong)? else { continue };
            if head.status != 200 {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("status {}", head.status),
                ));
            }
            self.read_body(head.body, have - head.length).await?;
            self.usual = if head.closes { 0 } else { head.length + head.body as usize };
            return Ok(!head.closes);
        }
    }

    /// Reads and drops the body; `have` bytes of it are already in the buffer.
    async fn read_body(&mut self, body: u64, have: usize) -> io::Result<()> {
        let too_much = || io::Error::new(io::ErrorKind::InvalidData, "bytes behind the answer");
        let mut left = body.checked_sub(have as u64).ok_or_else(too_much)?;
        while left > 0 {
            let n = self.stream.read(&mut self.buffer).await?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left = left.checked_sub(n as u64).ok_or_else(too_much)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let text = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH: 3\r\n\r\nok\n";
        let head = Head { status: 200, length: text.len() - 3, body: 3, closes: false };
        assert_eq!(Head::parse(text), Ok(Some(head)));
        for cut in 0..head.length {
            assert_eq!(Head::parse(&text[..cut]), Ok(None), "{cut}");
        }
        let closing = b"HTTP/1.1 404 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let head = Head::parse(closing).unwrap().unwrap();
        assert!(head.closes && head.status == 404);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for text in [
            &b"HTTP/1.0 200 OK\r\n\r\n"[..],
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 2\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nno field\r\n\r\n",
            &[b'a'; HEAD_MAX],
        ] {
            assert!(Head::parse(text).is_err(), "{:?}", String::from_utf8_lossy(text));
        }
    }
}
