//! One HTTP request: hyper over a connection of our own transports, with their trust settings.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::{Context as _, ensure};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::http::{Request, StatusCode};
use hyper::rt::{Read, ReadBufCursor, Write};
use transport::Lane;

/// The maximum length of an answer, in bytes. An answer is the entry of one client.
const ANSWER_MAX: usize = 64 << 10;

/// The number of bytes per read.
const PIECE: usize = 16 << 10;

/// Sends the request over `lane`, a new connection, and returns status and body.
///
/// # Errors
/// The connection or the HTTP exchange fails, or the body has more than [`ANSWER_MAX`] bytes.
pub(super) async fn ask(
    lane: Box<dyn Lane>,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(OverLane::new(lane)).await?;
    let exchange = async move {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|why| anyhow::anyhow!("its answer: {why}"))?;
        anyhow::Ok((status, body.to_bytes()))
    };
    // The connection future transfers the bytes. It may complete first, after all bytes are
    // transferred.
    let moving = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! { answer = exchange => answer, never = moving => never }
}

/// Adapts a lane to hyper's I/O traits.
struct OverLane {
    lane: Box<dyn Lane>,
    read: BytesMut,
    unwritten: VecDeque<Bytes>,
}

impl OverLane {
    fn new(lane: Box<dyn Lane>) -> Self {
        Self { lane, read: BytesMut::new(), unwritten: VecDeque::new() }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unwritten.is_empty() {
            ready!(self.lane.poll_write(cx, &mut self.unwritten))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl Read for OverLane {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { lane, read, .. } = &mut *self;
        if read.is_empty() {
            read.reserve(PIECE);
            ready!(lane.poll_read(cx, read))?;
        }
        let count = read.len().min(to.remaining());
        to.put_slice(&read[..count]);
        read.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl Write for OverLane {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_rest(cx))?;
        self.unwritten.push_back(Bytes::copy_from_slice(bytes));
        // Bytes that the lane does not accept now are written before any later bytes.
        if let Poll::Ready(Err(error)) = self.poll_rest(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_rest(cx))?;
        self.lane.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_rest(cx))?;
        self.lane.poll_close(cx)
    }
}

/// The client's entry in the form of an entry under `clients`: JSON is also YAML. `None`: there is
/// no such client (status 403 or 404).
///
/// # Errors
/// Any other status than 200, a body that is not a JSON map, or an entry with another name.
pub(super) fn entry(name: &str, status: StatusCode, body: &[u8]) -> anyhow::Result<Option<String>> {
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) {
        return Ok(None);
    }
    ensure!(status == StatusCode::OK, "it answers {status}; 200, 403 or 404 would say something");
    let mut entry: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(body).context("its answer is not a map in JSON")?;
    let named = entry.insert("name".to_owned(), name.into());
    ensure!(named.is_none_or(|named| named == name), "it answers with the entry of another client");
    Ok(Some(serde_json::to_string(&entry)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_clear_is_an_answer() {
        let entry = |status: u16, body: &str| {
            entry("home", StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        assert_eq!(entry(404, "<html>").unwrap(), None);
        assert_eq!(entry(403, "").unwrap(), None);
        let read = entry(200, r#"{"token": "x"}"#).unwrap().unwrap();
        assert_eq!(read, r#"{"name":"home","token":"x"}"#);
        assert!(entry(200, r#"{"name": "home"}"#).unwrap().is_some());
        for (status, body) in
            [(200, ""), (200, "[]"), (200, r#"{"name": "other"}"#), (204, ""), (301, ""), (500, "")]
        {
            assert!(entry(status, body).is_err(), "{status} {body}");
        }
    }
}
