//! The part of HTTP/1.1 (RFC 9112) that tests of a tunnel need: keep-alive, lengths, chunks.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Digest, Ended, Pattern};

/// The maximum length of a line of a request, and the maximum number of lines.
const LINE_MAX: u64 = 8 << 10;
const LINES_MAX: usize = 100;

/// The payload of a chunk, in bytes. The number is not a divisor of a buffer size, so that chunks
/// straddle buffers.
const CHUNK: u64 = 10_007;

struct Request {
    path: String,
    length: u64,
    close: bool,
}

pub(super) async fn serve(socket: TcpStream) -> Ended {
    let mut socket = BufReader::new(socket);
    let mut received = Digest::default();
    let outcome = async {
        while let Some(request) = head(&mut socket, &mut received).await? {
            let posted = body(&mut socket, request.length, &mut received).await?;
            answer(socket.get_mut(), &request, posted).await?;
            if request.close {
                break;
            }
        }
        socket.get_mut().shutdown().await
    };
    let outcome: io::Result<()> = outcome.await;
    Ended { received, clean: outcome.is_ok() }
}

async fn head(
    socket: &mut BufReader<TcpStream>,
    received: &mut Digest,
) -> io::Result<Option<Request>> {
    let mut request: Option<Request> = None;
    for _ in 0..LINES_MAX {
        let mut line = String::new();
        if (&mut *socket).take(LINE_MAX).read_line(&mut line).await? == 0 {
            return if request.is_none() {
                Ok(None)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        received.update(line.as_bytes());
        let line = line.trim_end();
        match &mut request {
            None => {
                let path = line.split(' ').nth(1).ok_or(io::ErrorKind::InvalidData)?;
                request = Some(Request { path: path.to_owned(), length: 0, close: false });
            }
            Some(_) if line.is_empty() => return Ok(request),
            Some(request) => {
                let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
                let value = value.trim();
                if name.eq_ignore_ascii_case("content-length") {
                    request.length = value.parse().map_err(|_| io::ErrorKind::InvalidData)?;
                } else if name.eq_ignore_ascii_case("connection") {
                    request.close = value.eq_ignore_ascii_case("close");
                }
            }
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

async fn body(
    socket: &mut BufReader<TcpStream>,
    length: u64,
    received: &mut Digest,
) -> io::Result<u64> {
    let mut body = socket.take(length);
    let mut buffer = vec![0; 16 << 10];
    let mut posted = 0;
    while posted < length {
        let n = body.read(&mut buffer).await?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.update(&buffer[..n]);
        posted += n as u64;
    }
    Ok(posted)
}

async fn answer(socket: &mut TcpStream, request: &Request, posted: u64) -> io::Result<()> {
    let number = |prefix| request.path.strip_prefix(prefix).and_then(|n: &str| n.parse().ok());
    if let Some(length) = number("/bytes/") {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes()).await?;
        super::behaviour::send(socket, length).await
    } else if let Some(length) = number("/chunked/") {
        socket.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await?;
        chunks(socket, length).await
    } else {
        let text = if posted > 0 { format!("{posted}\n") } else { "ok\n".to_owned() };
        let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        socket.write_all(whole.as_bytes()).await
    }
}

async fn chunks(socket: &mut TcpStream, length: u64) -> io::Result<()> {
    let pattern = Pattern;
    let mut sent = 0;
    while sent < length {
        let data = pattern.at(sent, CHUNK.min(length - sent));
        socket.write_all(format!("{:x}\r\n", data.len()).as_bytes()).await?;
        socket.write_all(data).await?;
        socket.write_all(b"\r\n").await?;
        sent += data.len() as u64;
    }
    socket.write_all(b"0\r\n\r\n").await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use crate::origins::Origin;

    #[test]
    fn two_requests_on_one_connection_get_their_answers_in_order() {
        let origin = Origin::http().unwrap();
        let mut socket = TcpStream::connect(origin.address()).unwrap();
        socket
            .write_all(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
                  GET /chunked/5 HTTP/1.1\r\nConnection: close\r\n\r\n",
            )
            .unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("Content-Length: 2\r\n\r\n3\n"), "{answer}");
        assert!(answer.contains("chunked\r\n\r\n5\r\n") && answer.ends_with("\r\n0\r\n\r\n"));
    }
}
