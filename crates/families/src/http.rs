//! One HTTP request to a service that this program asks: hyper over a connection of our own
//! transports ([`Way::of_http`](crate::Way::of_http)), with their trust settings.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::Context as _;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::http::{HeaderName, HeaderValue, Request, Response};
use hyper::rt::{Read, ReadBufCursor, Write};
use transport::Lane;

/// The number of bytes per read.
const PIECE: usize = 16 << 10;

/// The body of an answer has more bytes than the caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its answer has more than {0} bytes")]
pub struct TooLarge(pub usize);

/// The header fields of each request to a service: `Host`, and the fields that the configuration
/// adds or replaces. Their values are marked as sensitive, because they may be credentials.
pub fn fields(path: &config::Path) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
    let own = crate::request(path)?;
    let mut fields = Vec::new();
    for (name, value) in own.fields() {
        let mut value = HeaderValue::from_str(value).with_context(|| name.clone())?;
        value.set_sensitive(true);
        fields.push((HeaderName::from_bytes(name.as_bytes())?, value));
    }
    Ok(fields)
}

/// Sends the request over `lane`, a new connection, and returns the answer with its whole body.
///
/// # Errors
/// The connection or the HTTP exchange fails, or the body has more than `most` bytes
/// ([`TooLarge`]).
pub async fn ask(
    lane: Box<dyn Lane>,
    request: Request<Full<Bytes>>,
    most: usize,
) -> anyhow::Result<Response<Bytes>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(OverLane::new(lane)).await?;
    let exchange = async move {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, most).collect().await;
        let body = body.map_err(|why| match why.downcast::<LengthLimitError>() {
            Ok(_) => anyhow::Error::new(TooLarge(most)),
            Err(why) => anyhow::anyhow!("its answer: {why}"),
        })?;
        anyhow::Ok(Response::from_parts(head, body.to_bytes()))
    };
    // The connection future transfers the bytes. It may complete first, after all bytes are
    // transferred.
    let moving = async {
        let _ = connection.await;
        std::future::pending().await
    };
    tokio::select! { answer = exchange => answer, never = moving => never }
}

/// A lane with hyper's I/O traits.
#[derive(Debug)]
pub struct OverLane {
    lane: Box<dyn Lane>,
    read: BytesMut,
    unwritten: VecDeque<Bytes>,
}

impl OverLane {
    /// Reads and writes the bytes of this lane.
    pub fn new(lane: Box<dyn Lane>) -> Self {
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
