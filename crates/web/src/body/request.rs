//! The body of a request on its way to the target.

use std::{
    collections::VecDeque,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::{
    sync::mpsc,
    time::{Sleep, sleep},
};

use super::{BLOCK, Broken};
use crate::{account::unpinned, interim::Sink, replay::Source, wire::WireState};

/// How long the body waits for `100 Continue` of a target. A target that does not support
/// expectations waits for the body; curl waits for the same time.
const CONTINUE: Duration = Duration::from_secs(1);

/// The body of a request on its way to the target, in one attempt.
#[derive(Debug)]
pub(crate) struct RequestBody {
    source: Rc<Source>,
    /// The pieces that an earlier attempt has read from the source.
    again: VecDeque<Bytes>,
    hold: Option<Hold>,
    wire: Rc<WireState>,
}

/// A body that waits until the target requests it (RFC 9110 section 10.1.1).
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
            // A visitor that sends without `100 Continue` does not wait.
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
