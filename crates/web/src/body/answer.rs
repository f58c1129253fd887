//! The body of a response on its way to the visitor.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use hyper::{
    StatusCode,
    body::{Body, Frame, SizeHint},
};

use super::BLOCK;
use crate::{
    account::{Account, Hold as Held, Piece, Share},
    compress::{AnswerError, Coded},
    gate::Progress,
    multiplex::Lease,
    recording::Recording,
    upstream::Exchange,
    wire::WireState,
};

/// The body of a response on its way to the visitor.
#[derive(Debug)]
pub(crate) struct AnswerBody {
    content: Content,
    share: Rc<Share>,
    /// The response counts as sent when its body is dropped.
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
    /// From a target over HTTP/2.
    Stream {
        incoming: Coded,
        lease: Lease,
    },
}

/// Reports the end of a response, and holds the memory of its request.
#[derive(Debug)]
pub(crate) struct Answer {
    progress: Rc<Progress>,
    held: Held,
    /// The record of a request of a visitor.
    recording: Option<Recording>,
}

impl Answer {
    pub(crate) fn new(progress: &Rc<Progress>, held: Held, recording: Option<Recording>) -> Self {
        Self { progress: Rc::clone(progress), held, recording }
    }

    /// The record of the request.
    pub(crate) const fn recording(&self) -> Option<&Recording> {
        self.recording.as_ref()
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

    /// Records that the response header is sent to the visitor.
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(recording) = self.answer.as_ref().and_then(Answer::recording) {
            recording.answered(status);
        }
    }

    /// Records whether the response is complete.
    fn noted(self) -> Self {
        if self.is_end_stream() {
            self.note(0);
        }
        self
    }

    /// Records bytes of the response, and whether it is complete with them.
    fn note(&self, bytes: usize) {
        if let Some(recording) = self.answer.as_ref().and_then(Answer::recording) {
            recording.sent(bytes);
            if self.is_end_stream() {
                recording.complete();
            }
        }
    }
}

impl AnswerBody {
    pub(crate) fn stream(incoming: Coded, lease: Lease, answer: Answer) -> Self {
        let share = Share::new(answer.account());
        let content = Content::Stream { incoming, lease };
        Self { content, share, answer: Some(answer) }.noted()
    }
}

/// Completes the response: the connection to the target may take the next request.
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
                let polled = Pin::new(&mut *incoming).poll_frame(cx);
                lease.read(incoming.take_read());
                let frame = ready!(polled);
                let charged = |bytes: Bytes| share.charge(bytes, BLOCK);
                frame.map(|frame| frame.map(|frame| frame.map_data(charged)))
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
