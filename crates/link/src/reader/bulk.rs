//! The reads of a lane whose large payloads are read as pages: the pages of a payload, or exactly
//! the bytes up to the next payload.

use std::io;
use std::task::{Context, Poll, ready};

use net::pages::Pages;
use net::pool;
use proto::StreamKey;

use super::{BUDGET, BUSY, Input, LaneReader, SMALL, left_of_payload, make_room};
use crate::pages::{Bulk, Reading};
use crate::read_end::ReadEnd;

impl<S: Input> LaneReader<'_, S> {
    pub(super) fn read_bulk(
        &mut self,
        cx: &mut Context<'_>,
        budget: usize,
    ) -> Poll<Result<usize, ReadEnd>> {
        let expected = self.link.machine.borrow_mut().expected(self.io.number);
        let is_large = |left: usize| self.buf.is_empty() && left >= Bulk::min_pages();
        match expected.filter(|(_, left)| is_large(*left)) {
            Some(payload) => self.read_pages(cx, budget, payload),
            None => self.read_between(cx, budget),
        }
    }

    /// Moves the arrived part of a payload as pages.
    fn read_pages(
        &mut self,
        cx: &mut Context<'_>,
        budget: usize,
        (key, left): (StreamKey, usize),
    ) -> Poll<Result<usize, ReadEnd>> {
        let outlet = self.link.outlet(key).filter(|outlet| outlet.takes_pages());
        let Some((outlet, mut pages)) = outlet.and_then(|outlet| Some((outlet, Pages::take()?)))
        else {
            return self.leave(cx, budget);
        };
        let polled = match self.io.lane.borrow_mut().page_source() {
            Some(lane) => lane.poll_fill(cx, &mut pages, left.min(BUDGET)),
            None => return self.leave(cx, budget),
        };
        let n = match polled {
            Poll::Ready(Ok(0)) => {
                let ended = io::ErrorKind::UnexpectedEof.into();
                return Poll::Ready(Err(ReadEnd::Lost(ended)));
            }
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(error)) if net::pages::is_refusal(&error) => {
                return self.leave(cx, budget);
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(ReadEnd::Lost(error))),
            Poll::Pending => {
                // An idle carrier holds no buffer.
                pool::give(std::mem::take(&mut self.buf));
                return Poll::Pending;
            }
        };
        let (link, now) = (self.link, crate::now());
        link.heard.set(link.heard.get() + 1);
        link.recent_small.begin_turn(now);
        let turn = link.begin_turn();
        link.machine.borrow_mut().moved(now, self.io.number, n);
        link.deliver_pages(now, (key, &*outlet), pages);
        turn.end(now);
        Poll::Ready(Ok(n))
    }

    /// Reads the bytes up to the next payload. A longer read would take that payload as bytes.
    fn read_between(
        &mut self,
        cx: &mut Context<'_>,
        budget: usize,
    ) -> Poll<Result<usize, ReadEnd>> {
        let number = self.io.number;
        let most = self.link.machine.borrow_mut().until_payload(number, &self.buf);
        make_room(&mut self.buf, self.size.min(most.max(BUSY)));
        let polled = self.poll_at_most(cx, most);
        let n = ready!(self.arrived(polled))?;
        let payloads = self.take_in(n, budget)?;
        let left = left_of_payload(self.link, self.io, &self.buf);
        if let Reading::Bulk(bulk) = &mut self.reading
            && !bulk.pays(left)
        {
            self.reading = Reading::new(true);
        }
        Poll::Ready(Ok(n.max(payloads * SMALL)))
    }

    /// Reads at most `most` bytes.
    fn poll_at_most(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<Option<usize>>> {
        let mut lane = self.io.lane.borrow_mut();
        let polled = match lane.page_source() {
            Some(lane) => lane.poll_read_at_most(cx, &mut self.buf, most),
            None => lane.poll_read(cx, &mut self.buf),
        };
        Poll::Ready(match ready!(polled) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => Ok(Some(n)),
            Err(error) => Err(error),
        })
    }

    /// Reads this payload as bytes, and by the rule the payloads after it: its target takes no
    /// pages, or the system refuses to move pages.
    fn leave(&mut self, cx: &mut Context<'_>, budget: usize) -> Poll<Result<usize, ReadEnd>> {
        self.reading = Reading::new(true);
        self.read_mixed(cx, budget)
    }
}
