//! The record of a request in progress.

use std::{
    cell::{Cell, RefCell},
    fmt,
    net::IpAddr,
    rc::Rc,
    time::Duration,
};

use hyper::{Request, StatusCode};
use tokio::time::Instant;

use crate::{Record, RequestHead, Service, Services, Visitor};

/// The status of a request whose visitor left before the response, as in nginx. No response has
/// this status.
const LEFT: u16 = 499;

/// The record of a request in progress, which is reported when it is dropped.
pub(crate) struct Recording {
    services: Rc<dyn Services>,
    service: RefCell<Option<Rc<dyn Service>>>,
    begun: Instant,
    head: RefCell<Option<RequestHead>>,
    visitor: Option<IpAddr>,
    /// The status of the response, and the time until its header.
    answer: Cell<Option<(u16, Duration)>>,
    bytes: Cell<u64>,
    is_complete: Cell<bool>,
    is_reported: Cell<bool>,
}

impl Recording {
    /// Begins the record of a request of this visitor. `is_known`: the bytes of the visitor were a
    /// request.
    pub(crate) fn new<B>(
        services: &Rc<dyn Services>,
        visitor: &Visitor,
        request: &Request<B>,
        is_known: bool,
    ) -> Self {
        let wants = services.wants();
        let head = wants.filter(|_| is_known).map(|wants| RequestHead::of(request, wants));
        // If a proxy names no address, the address of the connection is recorded.
        let sender = |_| services.sender(visitor, request.headers()).address().or(visitor.address);
        let visitor = wants.and_then(sender).map(|address| address.ip());
        Self {
            services: Rc::clone(services),
            service: RefCell::default(),
            begun: Instant::now(),
            head: RefCell::new(head),
            visitor,
            answer: Cell::new(None),
            bytes: Cell::new(0),
            is_complete: Cell::new(false),
            is_reported: Cell::new(false),
        }
    }

    /// Records the service of the request.
    pub(crate) fn found(&self, service: &Rc<dyn Service>) {
        *self.service.borrow_mut() = Some(Rc::clone(service));
    }

    /// Records that the response header is sent to the visitor.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.answer.set(Some((status.as_u16(), self.begun.elapsed())));
    }

    /// Records response body bytes that are sent to the visitor.
    pub(crate) fn sent(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// Records that the response body is complete.
    pub(crate) fn complete(&self) {
        self.is_complete.set(true);
    }

    /// Reports the record, once.
    pub(crate) fn report(&self) {
        if self.is_reported.replace(true) {
            return;
        }
        let answer = self.answer.get();
        let record = Record {
            head: self.head.take(),
            visitor: self.visitor,
            status: answer.map_or(LEFT, |(status, _)| status),
            bytes: self.bytes.get(),
            first_byte: answer.map(|(_, first)| first),
            duration: self.begun.elapsed(),
            is_complete: self.is_complete.get(),
        };
        match self.service.take() {
            Some(service) => service.answered(&record),
            None => self.services.answered(&record),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.report();
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("answer", &self.answer).finish_non_exhaustive()
    }
}
