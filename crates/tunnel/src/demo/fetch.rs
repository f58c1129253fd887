//! The visitor of `tunnel demo --once`: fetches over plain TCP, checks every byte and measures the
//! time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::body;

/// Time limit of each wait. Through a tunnel on this machine, a response begins within
/// milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest page, in bytes. A larger page is not from the origin of the demo.
const MAX_PAGE: u64 = 1 << 20;

/// Size of the read buffer, in bytes: larger than one TLS record or frame, so that the fetcher is
/// not the bottleneck.
const BUFFER: usize = 256 << 10;

/// A fetched page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The status line: `HTTP/1.1 200 OK`.
    pub(crate) status: String,
    /// The body as text.
    pub(crate) text: String,
}

/// A measured download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    /// Length of the body, in bytes.
    pub(crate) bytes: u64,
    /// Time from the request to the last byte.
    pub(crate) elapsed: Duration,
}

impl Figure {
    /// The throughput in gigabits (10^9 bits) per second.
    pub(crate) fn gigabits(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Fetches a page.
pub(crate) async fn page(address: SocketAddr, path: &str) -> anyhow::Result<Page> {
    let mut answer = ask(address, path).await?;
    ensure!(answer.length <= MAX_PAGE, "a page of {} bytes is not ours", answer.length);
    let mut text = std::mem::take(&mut answer.early);
    let missing = answer.length.saturating_sub(text.len() as u64);
    let mut rest = answer.stream.take(missing);
    timeout(ANSWER_TIMEOUT, rest.read_to_end(&mut text))
        .await
        .context("the page stopped midway")??;
    ensure!(text.len() as u64 == answer.length, "the page ended too early");
    Ok(Page { status: answer.status, text: String::from_utf8_lossy(&text).into_owned() })
}

/// Downloads `bytes` bytes from the origin's `/bytes/N` and compares each byte.
pub(crate) async fn download(address: SocketAddr, bytes: u64) -> anyhow::Result<Figure> {
    let started = Instant::now();
    let mut answer = ask(address, &format!("/bytes/{bytes}")).await?;
    ensure!(answer.status.contains(" 200 "), "{}", answer.status);
    ensure!(answer.length == bytes, "{} bytes announced instead of {bytes}", answer.length);
    ensure!(body::matches(0, &answer.early), "the download was altered on the way");
    let mut at = answer.early.len() as u64;
    let mut buffer = vec![0; BUFFER];
    while at < bytes {
        let read = timeout(ANSWER_TIMEOUT, answer.stream.read(&mut buffer)).await;
        let n = read.with_context(|| format!("the download stalled at byte {at}"))??;
        ensure!(n > 0, "the download ended at byte {at} of {bytes}");
        ensure!(body::matches(at, &buffer[..n]), "the download was altered near byte {at}");
        at += n as u64;
    }
    ensure!(at == bytes, "more bytes than announced");
    Ok(Figure { bytes, elapsed: started.elapsed() })
}

struct Answer {
    stream: TcpStream,
    status: String,
    length: u64,
    /// The first bytes of the body, which arrived with the head.
    early: Vec<u8>,
}

async fn ask(address: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        loop {
            ensure!(stream.read_buf(&mut head).await? > 0, "closed without an answer");
            if let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") {
                let early = head.split_off(end + 4);
                return parse(stream, &head, early);
            }
            ensure!(head.len() < 16 << 10, "an endless head");
        }
    };
    let asked = timeout(ANSWER_TIMEOUT, asking).await.context("no answer in time");
    asked.flatten().with_context(|| format!("http://{address}{path}"))
}

fn parse(stream: TcpStream, head: &[u8], early: Vec<u8>) -> anyhow::Result<Answer> {
    let head = std::str::from_utf8(head).context("the head is not text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default().to_owned();
    if !status.starts_with("HTTP/1.") {
        bail!("not HTTP: {status:?}");
    }
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .context("no length announced")?;
    Ok(Answer { stream, status, length, early })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::origin;
    use super::*;

    #[tokio::test]
    async fn the_fetcher_gets_the_page_and_every_byte_of_a_download_from_the_origin() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(origin::serve(listener));

        let page = page(address, "/").await.unwrap();
        assert_eq!(page.status, "HTTP/1.1 200 OK");
        assert!(page.text.contains("came through the tunnel"));
        assert_eq!(super::page(address, "/no").await.unwrap().status, "HTTP/1.1 404 Not Found");
        for bytes in [0, 1, 65_521, 3_000_001] {
            let figure = download(address, bytes).await.unwrap();
            assert_eq!(figure.bytes, bytes);
        }
        serving.abort();
    }

    async fn answered(with: Vec<u8>, bytes: u64) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answering = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(&with).await.unwrap();
        });
        let error = download(address, bytes).await.unwrap_err();
        answering.await.unwrap();
        format!("{error:#}")
    }

    #[tokio::test]
    async fn a_wrong_byte_a_missing_byte_and_another_protocol_are_errors() {
        let head =
            |n: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n").into_bytes();
        let mut altered = [head(1000), body::piece(0, 1000).to_vec()].concat();
        *altered.last_mut().unwrap() ^= 1;
        assert!(answered(altered, 1000).await.contains("altered"));
        let short = [head(1000), body::piece(0, 999).to_vec()].concat();
        assert!(answered(short, 1000).await.contains("ended at byte 999"));
        assert!(answered(b"SSH-2.0-x\r\n\r\n".to_vec(), 1).await.contains("not HTTP"));
    }
}
