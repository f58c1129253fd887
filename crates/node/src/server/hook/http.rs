//! One question over HTTP: a connection as our own transports make them, with their trust, and
//! hyper on top of it.

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

/// Bytes of an answer: one client's entry.
const ANSWER_MAX: usize = 64 << 10;

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;

/// Sends the request over a fresh connection and returns the whole answer.
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
    // The connection is what moves the bytes; it may end first, with all of them moved.
    let moving = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! { answer = exchange => answer, never = moving => never }
}

/// A lane as hyper sees a connection.
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
        // Whatever the lane does not take yet goes before anything else.
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

/// The entry of a client in the words of its server, as `clients` would have it: what is JSON is
/// YAML. `None`: there is no such client.
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
