//! The small web server of the demo: the parts of HTTP/1.1 (RFC 9112) that browsers, curl and wrk
//! need. `/` is a page, and `/bytes/N` streams N bytes. All memory that a visitor can make it use
//! is bounded.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::body;

/// Most visitors at a time. Other visitors wait in the accept queue.
const VISITORS: usize = 1024;

/// Longest request head, in bytes. The head of a browser's request has about 1 KiB.
const MAX_HEAD: usize = 8 << 10;

/// Most header fields of a request.
const MAX_HEADERS: usize = 100;

/// Longest wait for the next request, and longest wait for a visitor that reads nothing.
const IDLE: Duration = Duration::from_secs(60);

const PAGE: &str = include_str!("page.html");

/// Serves until dropped.
pub(crate) async fn serve(listener: TcpListener) {
    let places = Arc::new(Semaphore::new(VISITORS));
    let mut visitors = JoinSet::new();
    loop {
        // The semaphore is never closed, so the result is always `Ok`.
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                visitors.spawn(async move {
                    let _place = place;
                    // An early disconnect of a visitor is not worth a log line.
                    drop(converse(stream).await);
                });
            }
            Err(e) => {
                // The usual cause is a full descriptor table; a descriptor becomes free again.
                tracing::warn!(error = %e, "demo origin");
                sleep(Duration::from_millis(100)).await;
            }
        }
        while visitors.try_join_next().is_some() {}
    }
}

async fn converse(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    loop {
        let Some(length) = timeout(IDLE, read_head(&mut stream, &mut buffer)).await?? else {
            return Ok(());
        };
        let request = parse(&buffer[..length]);
        buffer.drain(..length);
        let keep = request.keep;
        respond(&mut stream, request).await?;
        if !keep {
            return stream.shutdown().await;
        }
    }
}

/// Reads until the buffer holds a whole head, and returns its length in bytes. `None` at the end of
/// the stream.
async fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            return Ok(Some(end + 4));
        }
        if buffer.len() >= MAX_HEAD {
            // The parser reports it as a bad request.
            return Ok(Some(buffer.len()));
        }
        let mut chunk = [0; 2048];
        match stream.read(&mut chunk).await? {
            0 => return Ok(None),
            n => buffer.extend_from_slice(&chunk[..n]),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    answer: Answer,
    /// Whether the answer has no body (HEAD).
    head_only: bool,
    /// Whether the connection stays open.
    keep: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Page,
    Bytes(u64),
    NotFound,
    NotAllowed,
    Bad,
}

const BAD: Request = Request { answer: Answer::Bad, head_only: false, keep: false };

fn parse(head: &[u8]) -> Request {
    let Some(text) = head.strip_suffix(b"\r\n\r\n").and_then(|h| std::str::from_utf8(h).ok())
    else {
        return BAD;
    };
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return BAD;
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return BAD;
    }
    let mut keep = version == "HTTP/1.1";
    for (count, line) in lines.enumerate() {
        let Some((name, value)) = line.split_once(':').filter(|_| count < MAX_HEADERS) else {
            return BAD;
        };
        let value = value.trim();
        if name.eq_ignore_ascii_case("connection") {
            if value.eq_ignore_ascii_case("close") {
                keep = false;
            } else if value.eq_ignore_ascii_case("keep-alive") {
                keep = true;
            }
        }
        // The origin does not read bodies, and must not take a body for the next request.
        let body = name.eq_ignore_ascii_case("content-length") && value != "0";
        if body || name.eq_ignore_ascii_case("transfer-encoding") {
            return Request { answer: Answer::NotAllowed, head_only: false, keep: false };
        }
    }
    let path = target.split('?').next().unwrap_or_default();
    let answer = match (method, path, path.strip_prefix("/bytes/").map(str::parse)) {
        ("GET" | "HEAD", "/", _) => Answer::Page,
        ("GET" | "HEAD", _, Some(Ok(n))) => Answer::Bytes(n),
        ("GET" | "HEAD", _, _) => Answer::NotFound,
        _ => Answer::NotAllowed,
    };
    Request { answer, head_only: method == "HEAD", keep }
}

async fn respond(stream: &mut TcpStream, request: Request) -> io::Result<()> {
    let (status, kind, length, text) = match request.answer {
        Answer::Page => ("200 OK", "text/html; charset=utf-8", PAGE.len() as u64, PAGE),
        Answer::Bytes(n) => ("200 OK", "application/octet-stream", n, ""),
        Answer::NotFound => ("404 Not Found", "text/plain", 10, "not found\n"),
        Answer::NotAllowed => ("405 Method Not Allowed", "text/plain", 9, "GET only\n"),
        Answer::Bad => ("400 Bad Request", "text/plain", 12, "bad request\n"),
    };
    let connection = if request.keep { "keep-alive" } else { "close" };
    let allow = if request.answer == Answer::NotAllowed { "Allow: GET, HEAD\r\n" } else { "" };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         {allow}Connection: {connection}\r\n\r\n"
    );
    if !request.head_only {
        answer.push_str(text);
    }
    write(stream, answer.as_bytes()).await?;
    if let Answer::Bytes(n) = request.answer
        && !request.head_only
    {
        let mut sent = 0;
        while sent < n {
            let piece = body::piece(sent, n - sent);
            write(stream, piece).await?;
            sent += piece.len() as u64;
        }
    }
    Ok(())
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    timeout(IDLE, stream.write_all(bytes)).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        parse(text.as_bytes())
    }

    #[test]
    fn requests_are_understood_or_refused() {
        let get = |path: &str| request(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).answer;
        assert_eq!(get("/"), Answer::Page);
        assert_eq!(get("/?q=1"), Answer::Page);
        assert_eq!(get("/bytes/18446744073709551615"), Answer::Bytes(u64::MAX));
        assert_eq!(get("/bytes/18446744073709551616"), Answer::NotFound);
        assert_eq!(get("/bytes/-1"), Answer::NotFound);
        assert_eq!(get("/../etc/passwd"), Answer::NotFound);
        assert_eq!(request("DELETE / HTTP/1.1\r\n\r\n").answer, Answer::NotAllowed);
        for bad in
            ["GET /\r\n\r\n", "GET / HTTP/2\r\n\r\n", "\r\n\r\n", "GET / HTTP/1.1\r\nx\r\n\r\n"]
        {
            assert_eq!(request(bad), BAD, "{bad:?}");
        }
    }

    #[test]
    fn the_connection_stays_as_the_rfc_says_and_never_after_a_body() {
        let keep = |text: &str| request(text).keep;
        assert!(keep("GET / HTTP/1.1\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.0\r\n\r\n"));
        assert!(keep("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.1\r\nCONNECTION:close\r\n\r\n"));
        assert!(!keep("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"));
        assert!(!keep("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"));
    }

    #[tokio::test]
    async fn requests_may_be_pipelined_split_and_endless() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener));

        let mut stream = TcpStream::connect(address).await.unwrap();
        let requests = b"HEAD /bytes/5 HTTP/1.1\r\n\r\nGET /bytes/0 HTTP/1.1\r\n\r\n\
            GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n";
        for byte in requests {
            stream.write_all(&[*byte]).await.unwrap();
        }
        let mut answers = String::new();
        stream.read_to_string(&mut answers).await.unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
        assert!(answers.ends_with("Connection: close\r\n\r\nnot found\n"), "{answers}");

        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[b'a'; MAX_HEAD]).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        serving.abort();
    }
}
