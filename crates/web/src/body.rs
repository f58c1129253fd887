//! The bodies of requests and answers. Both stream, and neither is kept.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Sleep, sleep},
};

use crate::{
    account::{Account, Hold as Held, Piece, Share, unpinned},
    compress::{AnswerError, Source},
    gate::Progress,
    http2::{Tunnel, Upload},
    interim::Sink,
    upstream::{Exchange, WireState},
};

/// How long the body waits for `100 Continue` of a target. A target that does not know
/// expectations waits for the body itself; curl waits for the same time.
const CONTINUE: Duration = Duration::from_secs(1);

/// A piece of a body that arrived lies in a buffer of about this size, bytes.
const BLOCK: usize = 16 * 1024;

/// What a visitor sends with a request.
#[derive(Debug)]
pub(crate) enum VisitorBody {
    /// Nothing.
    Empty,
    /// Over HTTP/1.
    Incoming(Incoming),
    /// Over HTTP/2.
    Stream(Upload),
    /// An extended CONNECT of HTTP/2: the stream of the visitor once it has its answer.
    Tunnel(oneshot::Receiver<Tunnel>),
}

impl VisitorBody {
    /// Whether a byte is known to have arrived. hyper does not tell for HTTP/1.
    fn has_begun(&self) -> bool {
        matches!(self, Self::Stream(upload) if upload.has_begun())
    }

    /// Whether memory is too short for the body.
    pub(crate) const fn is_starved(&self) -> bool {
        matches!(self, Self::Stream(upload) if upload.is_starved())
    }
}

impl Body for VisitorBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Empty | Self::Tunnel(_) => Poll::Ready(None),
            Self::Incoming(incoming) => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Broken::Message)))
            }
            Self::Stream(upload) => upload.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Tunnel(_) => true,
            Self::Incoming(incoming) => incoming.is_end_stream(),
            Self::Stream(upload) => upload.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Tunnel(_) => SizeHint::with_exact(0),
            Self::Incoming(incoming) => incoming.size_hint(),
            Self::Stream(upload) => upload.size_hint(),
        }
    }
}

/// Why the body of a request broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the message of the visitor broke off: {0}")]
    Message(hyper::Error),
    #[error("the stream of the visitor broke off: {0}")]
    Stream(h2::Error),
    #[error("the connection of the visitor ended")]
    Left,
    #[error("memory is short")]
    Memory,
}

/// The body of a request on its way to the target.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None` is an empty body: a request without body is repeated.
    incoming: Option<VisitorBody>,
    hold: Option<Hold>,
    wire: Rc<WireState>,
}

/// A body that waits until the target wants it (RFC 9110 section 10.1.1).
#[derive(Debug)]
pub(crate) struct Hold {
    wanted: mpsc::Receiver<()>,
    patience: Pin<Box<Sleep>>,
    sink: Sink,
}

impl Hold {
    /// The sender reports `100 Continue`.
    pub(crate) fn new(sink: &Sink) -> (mpsc::Sender<()>, Self) {
        let (wants, wanted) = mpsc::channel(1);
        let patience = Box::pin(sleep(CONTINUE));
        (wants, Self { wanted, patience, sink: sink.clone() })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(Some(())) = self.wanted.poll_recv(cx) {
            return Poll::Ready(());
        }
        self.patience.as_mut().poll(cx)
    }
}

impl RequestBody {
    pub(crate) fn new(
        incoming: Option<VisitorBody>,
        hold: Option<Hold>,
        wire: Rc<WireState>,
    ) -> Self {
        let body = Self { incoming, hold, wire };
        body.wire.sending.set(!body.is_end_stream());
        body
    }

    /// The body of a request that did not leave.
    pub(crate) fn into_unsent(mut self) -> Option<VisitorBody> {
        self.incoming.take()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let body = &mut *self;
        let Some(incoming) = &mut body.incoming else {
            return Poll::Ready(None);
        };
        if let Some(hold) = &mut body.hold {
            // A visitor that sends without being asked waits for nothing.
            let has_begun = incoming.has_begun();
            if !has_begun {
                ready!(hold.poll(cx));
                hold.sink.invite(body.wire.account());
            }
            body.hold = None;
        }
        if !body.wire.may_queue(cx) {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
        if frame.is_none() || incoming.is_end_stream() {
            body.wire.sending.set(false);
        }
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let frame = match frame.into_data() {
            Ok(bytes) => {
                let (bytes, size) = unpinned(bytes, BLOCK);
                body.wire.queue(size);
                Frame::data(bytes)
            }
            Err(frame) => frame,
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// The body of an answer on its way to the visitor.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    content: Content,
    share: Rc<Share>,
    /// The answer counts as given when its body is dropped.
    _answer: Option<Answer>,
}

#[derive(Debug)]
enum Content {
    Page(Option<Bytes>),
    Target { incoming: Source, wire: Rc<WireState>, exchange: Option<Exchange> },
}

/// Reports the end of an answer, and holds the memory of its request.
#[derive(Debug)]
pub(crate) struct Answer {
    progress: Rc<Progress>,
    held: Held,
}

impl Answer {
    pub(crate) fn new(progress: &Rc<Progress>, held: Held) -> Self {
        Self { progress: Rc::clone(progress), held }
    }

    pub(crate) const fn account(&self) -> &Rc<Account> {
        self.held.account()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.progress.answered();
    }
}

impl AnswerBody {
    pub(crate) fn page(page: Bytes, account: &Rc<Account>, answer: Option<Answer>) -> Self {
        let page = Some(page).filter(|page| !page.is_empty());
        Self { content: Content::Page(page), share: Share::new(account), _answer: answer }
    }

    pub(crate) fn target(incoming: Source, exchange: Exchange, answer: Answer) -> Self {
        let (wire, share) = (exchange.wire(), Share::new(answer.account()));
        let mut exchange = Some(exchange);
        if incoming.is_end_stream() {
            finish(&mut exchange);
        }
        Self { content: Content::Target { incoming, wire, exchange }, share, _answer: Some(answer) }
    }
}

/// The answer is complete: the connection to the target may take the next request.
fn finish(exchange: &mut Option<Exchange>) {
    if let Some(exchange) = exchange.take() {
        exchange.complete();
    }
}

impl Body for AnswerBody {
    type Data = Piece;
    type Error = AnswerError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, AnswerError>>> {
        let Self { content, share, .. } = &mut *self;
        match content {
            Content::Page(page) => {
                let page = page.take().map(|page| share.charge(page, 0));
                Poll::Ready(page.map(|page| Ok(Frame::data(page))))
            }
            Content::Target { incoming, wire, exchange } => {
                if !share.may_take(wire.block() as u64, cx) {
                    return Poll::Pending;
                }
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                match &frame {
                    // A body that broke off leaves the exchange, and with it the connection to the
                    // target, incomplete.
                    Some(Err(_)) => {}
                    Some(Ok(_)) if incoming.is_end_stream() => finish(exchange),
                    Some(Ok(_)) => {}
                    None => finish(exchange),
                }
                let charged = |bytes| share.charge(bytes, wire.block());
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(charged))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Page(page) => page.is_none(),
            Content::Target { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Page(page) => {
                SizeHint::with_exact(page.as_ref().map_or(0, |page| page.len() as u64))
            }
            Content::Target { incoming, .. } => incoming.size_hint(),
        }
    }
}
