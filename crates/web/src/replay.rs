//! The body of a request as received from its visitor, buffered for a retry.
//!
//! A target may close a keep-alive connection while a request is in flight. An idempotent request
//! (RFC 9110 section 9.2.2) is then retried with the same body: the sent part of a short body is
//! buffered until the response begins.

use std::{
    cell::{Ref, RefCell},
    collections::VecDeque,
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body as _, Frame};

use crate::{
    account::{Account, Hold},
    body::{Broken, VisitorBody},
};

/// The maximum number of buffered body bytes. Forms and API calls are shorter.
const MOST_KEPT: u64 = 64 * 1024;

/// The body of a request, shared by successive attempts.
pub(crate) struct Source {
    incoming: RefCell<VisitorBody>,
    kept: RefCell<Kept>,
}

enum Kept {
    /// Nothing is buffered: data is lost once it has been read.
    Not { is_begun: bool },
    /// All data read so far.
    All { pieces: VecDeque<Bytes>, size: u64, held: Hold },
}

impl Source {
    /// `keeps`: read data is buffered.
    pub(crate) fn new(incoming: VisitorBody, keeps: bool, account: &Rc<Account>) -> Rc<Self> {
        let kept = if keeps {
            Kept::All { pieces: VecDeque::new(), size: 0, held: account.hold(0) }
        } else {
            Kept::Not { is_begun: false }
        };
        Rc::new(Self { incoming: RefCell::new(incoming), kept: RefCell::new(kept) })
    }

    /// Whether a body is short enough to be buffered completely, according to its header.
    pub(crate) fn is_short(incoming: &VisitorBody) -> bool {
        incoming.is_end_stream()
            || incoming.size_hint().upper().is_some_and(|most| most <= MOST_KEPT)
    }

    /// The buffered start of the body; `None`: a part of it is lost.
    pub(crate) fn again(&self) -> Option<VecDeque<Bytes>> {
        match &*self.kept.borrow() {
            Kept::All { pieces, .. } => Some(pieces.clone()),
            Kept::Not { is_begun: false } => Some(VecDeque::new()),
            Kept::Not { is_begun: true } => None,
        }
    }

    /// Drops the buffer: the response begins, so there is no retry.
    pub(crate) fn forget(&self) {
        *self.kept.borrow_mut() = Kept::Not { is_begun: true };
    }

    /// The unread rest of the body.
    pub(crate) fn rest(&self) -> Ref<'_, VisitorBody> {
        self.incoming.borrow()
    }

    pub(crate) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = Pin::new(&mut *self.incoming.borrow_mut()).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.note(frame.data_ref());
        }
        frame
    }

    /// Records that a piece was read, or the trailers, which are not buffered.
    fn note(&self, piece: Option<&Bytes>) {
        let mut kept = self.kept.borrow_mut();
        if let (Kept::All { pieces, size, held }, Some(piece)) = (&mut *kept, piece) {
            let all = *size + piece.len() as u64;
            if all <= MOST_KEPT && held.account().may_grow(piece.len() as u64) {
                // A part of a larger block is copied, so that it does not pin the block.
                pieces.push_back(Bytes::copy_from_slice(piece));
                *size = all;
                held.set(all);
                return;
            }
        }
        *kept = Kept::Not { is_begun: true };
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}
