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
    sync::mpsc,
    time::{Sleep, sleep},
};

use crate::{
    gate::Progress,
    upstream::{Exchange, WireState},
};

/// How long the body waits for `100 Continue` of a target. A target that does not know
/// expectations waits for the body itself; curl waits for the same time.
const CONTINUE: Duration = Duration::from_secs(1);

/// The body of a request on its way to the target.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None` is an empty body: a request without body is repeated.
    incoming: Option<Incoming>,
    hold: Option<Hold>,
    wire: Rc<WireState>,
}

/// A body that waits until the target wants it.
#[derive(Debug)]
pub(crate) struct Hold {
    wanted: mpsc::Receiver<()>,
    patience: Pin<Box<Sleep>>,
}

impl Hold {
    /// The sender reports `100 Continue`.
    pub(crate) fn new() -> (mpsc::Sender<()>, Self) {
        let (wants, wanted) = mpsc::channel(1);
        (wants, Self { wanted, patience: Box::pin(sleep(CONTINUE)) })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Poll::Ready(Some(())) = self.wanted.poll_recv(cx) {
            return Poll::Ready(());
        }
        self.patience.as_mut().poll(cx)
    }
}

impl RequestBody {
    pub(crate) fn new(incoming: Option<Incoming>, hold: Option<Hold>, wire: Rc<WireState>) -> Self {
        let body = Self { incoming, hold, wire };
        body.wire.sending.set(!body.is_end_stream());
        body
    }

    /// The body of a request that did not leave.
    pub(crate) fn into_unsent(mut self) -> Option<Incoming> {
        self.incoming.take()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = &mut *self;
        if let Some(hold) = &mut body.hold {
            ready!(hold.poll(cx));
            body.hold = None;
        }
        let Some(incoming) = &mut body.incoming else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
        if frame.is_none() || incoming.is_end_stream() {
            body.wire.sending.set(false);
        }
        Poll::Ready(frame)
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
    /// The answer counts as given when its body is dropped.
    _answer: Option<Answer>,
}

#[derive(Debug)]
enum Content {
    Page(Option<Bytes>),
    Target { incoming: Incoming, exchange: Option<Exchange> },
}

/// Reports the end of an answer.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) Rc<Progress>);

impl Drop for Answer {
    fn drop(&mut self) {
        self.0.answered();
    }
}

impl AnswerBody {
    pub(crate) fn page(page: Bytes, answer: Option<Answer>) -> Self {
        let page = Some(page).filter(|page| !page.is_empty());
        Self { content: Content::Page(page), _answer: answer }
    }

    pub(crate) fn target(incoming: Incoming, exchange: Exchange, answer: Answer) -> Self {
        let mut exchange = Some(exchange);
        if incoming.is_end_stream() {
            finish(&mut exchange);
        }
        Self { content: Content::Target { incoming, exchange }, _answer: Some(answer) }
    }
}

/// The answer is complete: the connection to the target may take the next request.
fn finish(exchange: &mut Option<Exchange>) {
    if let Some(exchange) = exchange.take() {
        exchange.complete();
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.content {
            Content::Page(page) => Poll::Ready(page.take().map(|page| Ok(Frame::data(page)))),
            Content::Target { incoming, exchange } => {
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                match &frame {
                    // A body that broke off leaves the exchange, and with it the connection to the
                    // target, incomplete.
                    Some(Err(_)) => {}
                    Some(Ok(_)) if incoming.is_end_stream() => finish(exchange),
                    Some(Ok(_)) => {}
                    None => finish(exchange),
                }
                Poll::Ready(frame)
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
