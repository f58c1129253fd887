//! The queue of a carrier's first lane: frames of bytes, and the pages of payloads between them.
//!
//! A lane takes a run of bytes in one gathered write, so the run at the front of the queue is
//! stored separately, in the form in which lanes take it. Without pages the whole queue is this
//! run.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use net::pages::Pages;
use proto::{Outgoing, Priority, StreamKey, frame_of_pages};
use transport::Lane;

use crate::pages::RetainedPages;

/// A part of the queue.
enum Frame {
    /// Whole frames, or the header of a frame whose payload is the pages after it.
    Bytes(Bytes),
    Pages(Pages),
}

/// The frames of the state machine that the lane has not taken yet.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The bytes at the front.
    front: VecDeque<Bytes>,
    /// The frames after them, pages first.
    rest: VecDeque<Frame>,
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.front.is_empty() && self.rest.is_empty()
    }

    /// The queue of a lane without pages.
    pub(crate) const fn bytes(&mut self) -> &mut VecDeque<Bytes> {
        &mut self.front
    }

    /// The queue as the destination of frames. `retained`: the pages of the link, if the lane takes
    /// pages.
    pub(crate) const fn filling<'a>(
        &'a mut self,
        retained: Option<&'a RetainedPages>,
    ) -> Filling<'a> {
        Filling { outbox: self, retained }
    }

    fn push(&mut self, frame: Bytes) {
        if self.rest.is_empty() {
            self.front.push_back(frame);
        } else {
            self.rest.push_back(Frame::Bytes(frame));
        }
    }

    /// Offers the front of the queue to the lane. Returns the number of bytes that the lane took; 0
    /// with an empty queue.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        lane: &mut dyn Lane,
    ) -> Poll<io::Result<usize>> {
        while let Some(Frame::Bytes(frame)) =
            self.rest.pop_front_if(|frame| matches!(frame, Frame::Bytes(_)))
        {
            self.front.push_back(frame);
        }
        let Some(Frame::Pages(pages)) = self.rest.front_mut() else {
            if self.front.is_empty() {
                return Poll::Ready(Ok(0));
            }
            return lane.poll_write(cx, &mut self.front);
        };
        let Some(sink) = lane.page_sink() else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        if !self.front.is_empty() {
            return sink.poll_write_before(cx, &mut self.front);
        }
        let drained = ready!(sink.poll_drain(cx, pages));
        match drained {
            Err(error) if net::pages::is_refusal(&error) => {
                self.copy_pages()?;
                self.poll_write(cx, lane)
            }
            drained => {
                self.rest.pop_front_if(|frame| matches!(frame, Frame::Pages(p) if p.is_empty()));
                Poll::Ready(drained)
            }
        }
    }

    /// Converts the pages at the front to bytes, because the system refuses the pages.
    fn copy_pages(&mut self) -> io::Result<()> {
        if let Some(Frame::Pages(pages)) = self.rest.pop_front() {
            let mut bytes = BytesMut::new();
            pages.copy_out(&mut bytes)?;
            self.front.push_back(bytes.freeze());
        }
        Ok(())
    }
}

/// Takes the frames of a carrier with a single lane.
pub(crate) struct Filling<'a> {
    outbox: &'a mut Outbox,
    retained: Option<&'a RetainedPages>,
}

impl Outgoing for Filling<'_> {
    const LANES: bool = false;

    fn push(&mut self, frame: Bytes) {
        self.outbox.push(frame);
    }

    fn push_payload(&mut self, _key: StreamKey, _priority: Priority, frame: Bytes) {
        self.push(frame);
    }

    fn push_pages(
        &mut self,
        _key: StreamKey,
        _priority: Priority,
        head: Bytes,
        (payload, len): (Rc<dyn proto::Pages>, usize),
    ) {
        match self.retained.and_then(|retained| retained.to_send(payload.number(), len)) {
            Some(pages) => {
                self.push(head);
                self.outbox.rest.push_back(Frame::Pages(pages));
            }
            None => self.push(frame_of_pages(&head, &*payload, len)),
        }
    }

    fn push_fin(&mut self, _key: StreamKey, frame: Bytes) {
        self.push(frame);
    }

    fn abort(&mut self, _key: StreamKey) {}

    fn holds_back(&mut self, _key: StreamKey, _priority: Priority, _under_way: u64) -> bool {
        false
    }

    fn takes_payload(&self) -> bool {
        true
    }
}
