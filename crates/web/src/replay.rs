//! The body of a request as its visitor sends it, for a request that may have to be sent again.
//!
//! A target may close a kept connection while a request is on its way. A request that may be
//! repeated (RFC 9110 section 9.2.2) is, with the same body: what was sent of it is kept, as long
//! as it is short, until the answer begins.

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

/// Bytes of a body that are kept at most. Forms and calls of an API are shorter.
const MOST_KEPT: u64 = 64 * 1024;

/// The body of a request, which successive attempts share.
pub(crate) struct Source {
    incoming: RefCell<VisitorBody>,
    kept: RefCell<Kept>,
}

enum Kept {
    /// Nothing is kept: a part of the body is gone once it was read.
    Not { is_begun: bool },
    /// All that was read.
    All { pieces: VecDeque<Bytes>, size: u64, held: Hold },
}

impl Source {
    /// `keeps`: what is read is kept.
    pub(crate) fn new(incoming: VisitorBody, keeps: bool, account: &Rc<Account>) -> Rc<Self> {
        let kept = if keeps {
            Kept::All { pieces: VecDeque::new(), size: 0, held: account.hold(0) }
        } else {
            Kept::Not { is_begun: false }
        };
        Rc::new(Self { incoming: RefCell::new(incoming), kept: RefCell::new(kept) })
    }

    /// Whether a body is short enough to be kept whole, as far as its head tells.
    pub(crate) fn is_short(incoming: &VisitorBody) -> bool {
        incoming.is_end_stream()
            || incoming.size_hint().upper().is_some_and(|most| most <= MOST_KEPT)
    }

    /// The body from its begin; `None`: a part of it is gone.
    pub(crate) fn again(&self) -> Option<VecDeque<Bytes>> {
        match &*self.kept.borrow() {
            Kept::All { pieces, .. } => Some(pieces.clone()),
            Kept::Not { is_begun: false } => Some(VecDeque::new()),
            Kept::Not { is_begun: true } => None,
        }
    }

    /// The answer begins: the request is not sent again.
    pub(crate) fn forget(&self) {
        *self.kept.borrow_mut() = Kept::Not { is_begun: true };
    }

    /// The rest of the body, as far as hyper tells about it.
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

    /// A piece was read, or the trailers, which are not kept.
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
