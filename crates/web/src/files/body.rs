//! The body of a response: a page of the server, or a file.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tower_http::services::fs::ServeFileSystemResponseBody;

use crate::account::{Hold, Piece, Share};
use crate::body::Answer;

pub(super) struct FileBody {
    content: Content,
    share: Rc<Share>,
    /// The charge for a long page, or for the memory into which a file is read.
    held: Option<Hold>,
    /// The response counts as sent when its body is dropped.
    _answer: Answer,
}

enum Content {
    Page(Option<Bytes>),
    File {
        body: ServeFileSystemResponseBody,
        /// The size of one read, in bytes.
        piece: usize,
    },
}

impl FileBody {
    pub(super) fn page(page: Bytes, held: Option<Hold>, answer: Answer) -> Self {
        let page = Some(page).filter(|page| !page.is_empty());
        let share = Share::new(answer.account());
        Self { content: Content::Page(page), share, held, _answer: answer }
    }

    /// `piece`: see [`super::opened::piece`].
    pub(super) fn file(body: ServeFileSystemResponseBody, piece: usize, answer: Answer) -> Self {
        let share = Share::new(answer.account());
        Self { content: Content::File { body, piece }, share, held: None, _answer: answer }
    }
}

impl Body for FileBody {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Piece>>>> {
        let Self { content, share, held, .. } = &mut *self;
        match content {
            Content::Page(page) => {
                *held = None;
                let page = page.take().map(|page| share.charge(page, 0));
                Poll::Ready(page.map(|page| Ok(Frame::data(page))))
            }
            Content::File { body, piece } => {
                let size = *piece as u64;
                if !share.may_take(size, cx) {
                    return Poll::Pending;
                }
                // The reader keeps its memory, and the second block becomes the piece.
                let held = held.get_or_insert_with(|| share.account().hold(0));
                held.set(2 * size);
                let frame = ready!(Pin::new(body).poll_frame(cx));
                held.set(size);
                let charged = |bytes| share.charge(bytes, *piece);
                Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(charged))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Page(page) => page.is_none(),
            Content::File { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Page(page) => {
                SizeHint::with_exact(page.as_ref().map_or(0, |page| page.len() as u64))
            }
            Content::File { body, .. } => body.size_hint(),
        }
    }
}
