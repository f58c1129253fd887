//! The bodies of requests and answers. Both stream, and neither is kept.

use std::{
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use hyper::{
    StatusCode,
    body::{Body, Frame, Incoming, SizeHint},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Sleep, sleep},
};

use crate::{
    account::{Account, Hold as Held, Piece, Share, unpinned},
    compress::{AnswerError, Coded},
    gate::Progress,
    http2::{Tunnel, Upload},
    interim::Sink,
    multiplex::Lease,
    record::Note,
    replay::Source,
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
    Stream(#[source] h2::Error),
    #[error("the connection of the visitor ended")]
    Left,
    #[error("memory is short")]
    Memory,
}

/// The body of a request on its way to the target, in one attempt.
#[derive(Debug)]
pub(crate) struct RequestBody {
    source: Rc<Source>,
    /// What an earlier attempt has read of the source.
    again: VecDeque<Bytes>,
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
        source: &Rc<Source>,
        again: VecDeque<Bytes>,
        hold: Option<Hold>,
        wire: Rc<WireState>,
    ) -> Self {
        let body = Self { source: Rc::clone(source), again, hold, wire };
        body.wire.sending.set(!body.is_end_stream());
        body
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
        if let Some(hold) = &mut body.hold {
            // A visitor that sends without being asked waits for nothing.
            let has_begun = !body.again.is_empty() || body.source.rest().has_begun();
            if !has_begun {
                ready!(hold.poll(cx));
                hold.sink.invite(body.wire.account());
            }
            body.hold = None;
        }
        if !body.wire.may_queue(cx) {
            return Poll::Pending;
        }
        if let Some(piece) = body.again.pop_front() {
            body.wire.sending.set(!body.is_end_stream());
            body.wire.queue(piece.len());
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = ready!(body.source.poll_frame(cx));
        if frame.is_none() || body.is_end_stream() {
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
        self.again.is_empty() && self.source.rest().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.source.rest().size_hint();
        let again = self.again.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let mut all = SizeHint::new();
        all.set_lower(rest.lower().saturating_add(again));
        if let Some(upper) = rest.upper() {
            all.set_upper(upper.saturating_add(again));
        }
        all
    }
}

/// The body of an answer on its way to the visitor.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    content: Content,
    share: Rc<Share>,
    /// The answer counts as given when its body is dropped.
    answer: Option<Answer>,
}

#[derive(Debug)]
enum Content {
    Page(Option<Bytes>),
    Target {
        incoming: Coded,
        wire: Rc<WireState>,
        exchange: Option<Exchange>,
    },
    /// Of a target over HTTP/2.
    Stream {
        incoming: Incoming,
        lease: Lease,
    },
}

/// Reports the end of an answer, and holds the memory of its request.
#[derive(Debug)]
pub(crate) struct Answer {
    progress: Rc<Progress>,
    held: Held,
    /// The record of a request of a visitor.
    note: Option<Note>,
}

impl Answer {
    pub(crate) fn new(progress: &Rc<Progress>, held: Held, note: Option<Note>) -> Self {
        Self { progress: Rc::clone(progress), held, note }
    }

    /// The record of the request.
    pub(crate) const fn note(&self) -> Option<&Note> {
        self.note.as_ref()
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
        let share = Share::new(account);
        Self { content: Content::Page(page), share, answer }.noted()
    }

    pub(crate) fn target(incoming: Coded, exchange: Exchange, answer: Answer) -> Self {
        let (wire, share) = (exchange.wire(), Share::new(answer.account()));
        let mut exchange = Some(exchange);
        if incoming.is_end_stream() {
            finish(&mut exchange);
        }
        let content = Content::Target { incoming, wire, exchange };
        Self { content, share, answer: Some(answer) }.noted()
    }

    /// The head of the answer goes to the visitor.
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(note) = self.answer.as_ref().and_then(Answer::note) {
            note.answered(status);
        }
    }

    /// Notes whether the answer is complete.
    fn noted(self) -> Self {
        if self.is_end_stream() {
            self.note(0);
        }
        self
    }

    /// Notes bytes of the answer, and whether it is complete with them.
    fn note(&self, bytes: usize) {
        if let Some(note) = self.answer.as_ref().and_then(Answer::note) {
            note.sent(bytes);
            if self.is_end_stream() {
                note.complete();
            }
        }
    }
}

impl AnswerBody {
    pub(crate) fn stream(incoming: Incoming, lease: Lease, answer: Answer) -> Self {
        let share = Share::new(answer.account());
        let content = Content::Stream { incoming, lease };
        Self { content, share, answer: Some(answer) }.noted()
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
        let frame = match content {
            Content::Page(page) => {
                let page = page.take().map(|page| share.charge(page, 0));
                page.map(|page| Ok(Frame::data(page)))
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
                frame.map(|frame| frame.map(|frame| frame.map_data(charged)))
            }
            Content::Stream { incoming, lease } => {
                if !share.may_take(BLOCK as u64, cx) {
                    return Poll::Pending;
                }
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                let charged = |bytes: Bytes| {
                    lease.read(bytes.len());
                    share.charge(bytes, BLOCK)
                };
                let charged = |frame: Frame<Bytes>| frame.map_data(charged);
                frame.map(|frame| frame.map(charged).map_err(AnswerError::from))
            }
        };
        match &frame {
            Some(Ok(frame)) => self.note(frame.data_ref().map_or(0, Buf::remaining)),
            Some(Err(_)) => {}
            None => self.note(0),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Page(page) => page.is_none(),
            Content::Target { incoming, .. } => incoming.is_end_stream(),
            Content::Stream { incoming, .. } => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Page(page) => {
                SizeHint::with_exact(page.as_ref().map_or(0, |page| page.len() as u64))
            }
            Content::Target { incoming, .. } => incoming.size_hint(),
            Content::Stream { incoming, .. } => incoming.size_hint(),
        }
    }
}
