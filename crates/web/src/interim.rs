//! Interim responses (RFC 9110 section 15.2) of a target on their way to the visitor, over HTTP/1.1
//! by the gate and over HTTP/2 by h2. An HTTP/1.0 visitor gets none.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt::{self, Write as _},
    future::poll_fn,
    rc::Rc,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    task::{Context, Poll, Waker},
};

use bytes::{Buf as _, BytesMut};
use hyper::{
    Request, Response, StatusCode,
    ext::on_informational,
    header::{self, HeaderMap, HeaderName},
};
use tokio::sync::mpsc;

use crate::{account::Account, fields};

/// The maximum number of interim responses to one request, and of bytes in their fields.
const MOST: u32 = 64;
const MOST_BYTES: usize = 64 * 1024;

/// The interim responses of a target to one request, in order of arrival.
#[derive(Debug)]
pub(crate) struct Arriving(mpsc::Receiver<Box<Interim>>);

/// A message that a target has sent before its final response.
#[derive(Debug)]
pub(crate) enum Interim {
    /// An interim response.
    One(StatusCode, HeaderMap),
    /// The limit is exceeded.
    TooMany,
}

impl Arriving {
    /// Subscribes to the interim responses to a request.
    pub(crate) fn of<B>(request: &mut Request<B>) -> Self {
        let (sender, arriving) = mpsc::channel(MOST as usize + 1);
        let (count, bytes) = (AtomicU32::new(0), AtomicUsize::new(0));
        on_informational(request, move |response| {
            let (status, list) = (response.status(), response.headers());
            let earlier = count.fetch_add(1, Ordering::Relaxed);
            let length = fields::length(list);
            let before = bytes.fetch_add(length, Ordering::Relaxed);
            let interim = if earlier < MOST && before.saturating_add(length) <= MOST_BYTES {
                Interim::One(status, list.clone())
            } else {
                Interim::TooMany
            };
            // The channel is full only for messages after the first `TooMany`.
            let _ = sender.try_send(Box::new(interim));
        });
        Self(arriving)
    }

    /// The next interim response. Pending at the end, too, because the final response marks the
    /// end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Interim> {
        match self.0.poll_recv(cx) {
            Poll::Ready(Some(interim)) => Poll::Ready(*interim),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

/// The destination of the interim responses to one request.
#[derive(Clone, Debug)]
pub(crate) enum Sink {
    /// An HTTP/1.0 visitor.
    Nowhere,
    /// An HTTP/1.1 visitor.
    Gate(Rc<Leaving>),
    /// An HTTP/2 visitor.
    Stream(Rc<Queue>),
}

impl Sink {
    /// Forwards an interim response, without the hop-by-hop fields of the target. When memory is
    /// short the response is dropped, because it is optional.
    pub(crate) fn send(&self, status: StatusCode, mut fields: HeaderMap, account: &Account) {
        fields::strip_hop_by_hop(&mut fields);
        fields.remove(header::CONTENT_LENGTH);
        if matches!(self, Self::Nowhere) || !account.head_queued(fields::length(&fields) as u64) {
            return;
        }
        match self {
            Self::Nowhere => {}
            Self::Gate(leaving) => encode(&mut leaving.bytes.borrow_mut(), status, &fields),
            Self::Stream(queue) => {
                let mut response = Response::new(());
                (*response.status_mut(), *response.headers_mut()) = (status, fields);
                queue.list.borrow_mut().push_back(response);
                if let Some(waker) = queue.waker.take() {
                    waker.wake();
                }
            }
        }
    }

    /// Waits until no interim response can be overtaken by the final response.
    pub(crate) async fn sent(&self) {
        if let Self::Gate(leaving) = self {
            poll_fn(|cx| leaving.poll_empty(cx)).await;
        }
    }

    /// Sends `100 Continue` to an HTTP/2 visitor. For an HTTP/1.1 visitor hyper does so when the
    /// body is read.
    pub(crate) fn invite(&self, account: &Account) {
        if matches!(self, Self::Stream(_)) {
            self.send(StatusCode::CONTINUE, HeaderMap::new(), account);
        }
    }
}

/// Interim responses for the stream of an HTTP/2 visitor, whose task passes them to h2.
#[derive(Default)]
pub(crate) struct Queue {
    list: RefCell<VecDeque<Response<()>>>,
    waker: Cell<Option<Waker>>,
}

impl Queue {
    /// The next interim response. If there is none, the task of `cx` is woken for the next.
    pub(crate) fn next(&self, cx: &Context<'_>) -> Option<Response<()>> {
        let next = self.list.borrow_mut().pop_front();
        if next.is_none() {
            self.waker.set(Some(cx.waker().clone()));
        }
        next
    }
}

/// Interim responses that the gate writes to an HTTP/1.1 visitor.
///
/// A request is processed once all earlier responses were handed to the gate. hyper flushes the
/// gate when it has nothing more to write, and the final response waits for the interim responses:
/// so between a request and its response, a flush marks a message boundary.
#[derive(Default)]
pub(crate) struct Leaving {
    bytes: RefCell<BytesMut>,
    /// Whether a part of the bytes is written, so that nothing else may be written before the rest.
    is_begun: Cell<bool>,
    waker: Cell<Option<Waker>>,
}

impl Leaving {
    pub(crate) const fn is_begun(&self) -> bool {
        self.is_begun.get()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.borrow().is_empty()
    }

    /// Calls `write` with the bytes, and removes those that it has written.
    pub(crate) fn write<E>(
        &self,
        write: impl FnOnce(&[u8]) -> Poll<Result<usize, E>>,
    ) -> Poll<Result<usize, E>> {
        let mut bytes = self.bytes.borrow_mut();
        let result = write(&bytes);
        if let Poll::Ready(Ok(written)) = result {
            bytes.advance(written);
            self.is_begun.set(!bytes.is_empty());
            if bytes.is_empty() {
                *bytes = BytesMut::new();
                if let Some(waker) = self.waker.take() {
                    waker.wake();
                }
            }
        }
        result
    }

    fn poll_empty(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_empty() {
            return Poll::Ready(());
        }
        self.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.list.borrow().len()).finish()
    }
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leaving").field(&self.bytes.borrow().len()).finish()
    }
}

/// Appends a header in the form in which hyper writes it.
fn encode(bytes: &mut BytesMut, status: StatusCode, fields: &HeaderMap) {
    let reason = status.canonical_reason().unwrap_or_default();
    // Writing to memory does not fail.
    let _ = write!(bytes, "HTTP/1.1 {} {reason}\r\n", status.as_str());
    for (name, value) in fields {
        title(bytes, name);
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
}

fn title(bytes: &mut BytesMut, name: &HeaderName) {
    let mut begins = true;
    for &byte in name.as_str().as_bytes() {
        let byte = if begins { byte.to_ascii_uppercase() } else { byte };
        bytes.extend_from_slice(&[byte]);
        begins = byte == b'-';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_written_as_hyper_writes_it() {
        let mut fields = HeaderMap::new();
        fields.append("link", "</a.css>; rel=preload".parse().unwrap());
        fields.append("link", "</b.js>".parse().unwrap());
        fields.append("x-own-field", "1".parse().unwrap());
        let mut bytes = BytesMut::new();
        encode(&mut bytes, StatusCode::EARLY_HINTS, &fields);
        encode(&mut bytes, StatusCode::from_u16(199).unwrap(), &HeaderMap::new());
        assert_eq!(
            bytes.escape_ascii().to_string(),
            b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nLink: </b.js>\r\n\
              X-Own-Field: 1\r\n\r\nHTTP/1.1 199 \r\n\r\n"
                .escape_ascii()
                .to_string()
        );
    }
}
