//! The body of an answer: a page of this end, or a file.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tower_http::services::fs::ServeFileSystemResponseBody;

use crate::body::Answer;

pub(super) struct FileBody {
    content: Content,
    /// The answer counts as given when its body is dropped.
    _answer: Answer,
}

enum Content {
    Page(Option<Bytes>),
    File(ServeFileSystemResponseBody),
}

impl FileBody {
    pub(super) fn page(page: Bytes, answer: Answer) -> Self {
        let page = Some(page).filter(|page| !page.is_empty());
        Self { content: Content::Page(page), _answer: answer }
    }

    pub(super) const fn file(body: ServeFileSystemResponseBody, answer: Answer) -> Self {
        Self { content: Content::File(body), _answer: answer }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.content {
            Content::Page(page) => Poll::Ready(page.take().map(|page| Ok(Frame::data(page)))),
            Content::File(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Page(page) => page.is_none(),
            Content::File(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Page(page) => {
                SizeHint::with_exact(page.as_ref().map_or(0, |page| page.len() as u64))
            }
            Content::File(body) => body.size_hint(),
        }
    }
}
