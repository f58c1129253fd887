//! All keys of a large range, page by page, at one revision.

use bytes::{BufMut as _, Bytes, BytesMut};
use cluster::engine::{Range, Revision};

use crate::answers::{Freshness, Page};
use crate::calls::Calls;
use crate::error::{Error, Reason};

/// A range that is read in pages. The first page decides the revision, and all further pages are
/// of the same revision.
#[derive(Clone, Debug)]
pub struct RangePages {
    range: Range,
    /// Of the first page.
    first: Freshness,
    /// `None`: the first page is not read yet.
    at: Option<Revision>,
    is_done: bool,
}

impl RangePages {
    /// The keys of `range`, whose limit is the most keys of a page and at least 1. The first page
    /// is read by `first`.
    #[must_use]
    pub fn new(mut range: Range, first: Freshness) -> Self {
        range.limit = range.limit.max(1);
        Self { range, first, at: None, is_done: false }
    }

    /// The revision that all pages have, once the first page is read. A watch from the next
    /// revision on reports all later changes.
    #[must_use]
    pub const fn revision(&self) -> Option<Revision> {
        self.at
    }

    /// The next page, or `None` after the last page. Its revision is that of the first page. A page
    /// that is too large is halved, down to one key. Cancel-safe.
    ///
    /// # Errors
    /// As of [`Calls::range`]. With [`Code::OUT_OF_RANGE`](crate::Code::OUT_OF_RANGE) the revision
    /// was compacted, and the range has to be read from the beginning.
    pub async fn next(&mut self, calls: &mut Calls) -> Result<Option<Page>, Error> {
        while !self.is_done {
            let reading = self.at.map_or(self.first, Freshness::At);
            match calls.range(&self.range, reading).await {
                Ok(mut page) => {
                    let at = match (self.at, self.first) {
                        (Some(at), _) | (None, Freshness::At(at)) => at,
                        (None, Freshness::Current | Freshness::Local) => page.revision,
                    };
                    page.revision = at;
                    self.at = Some(at);
                    self.advance(&page);
                    return Ok(Some(page));
                }
                Err(Error { reason: Reason::TooLarge(_), .. }) if self.range.limit > 1 => {
                    self.range.limit /= 2;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Makes the next page begin behind the last key of this page.
    fn advance(&mut self, page: &Page) {
        match page.keys.last() {
            Some(last) if page.more => {
                let mut from = BytesMut::with_capacity(last.key.len() + 1);
                from.put_slice(&last.key);
                from.put_u8(0);
                self.range.from = Bytes::from(from);
            }
            Some(_) | None => self.is_done = true,
        }
    }
}
