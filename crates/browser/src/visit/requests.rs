//! Requests and their responses, with a stream of the inner link for each.

use bytes::{Bytes, BytesMut};
use proto::{Event, Instant, Open, Priority, ResetCode, StreamKey, Target};

use super::Visit;
use super::drive::send;
use crate::http::{BadRequest, Body, Piece, Request, Response};
use crate::news::News;

/// The largest number of queued bytes of a body; the page supplies more when fewer are queued.
const WAITING_LOW: usize = 64 << 10;

/// The largest number of requests at a time: more than the service worker has in progress.
const REQUESTS_MAX: usize = 256;

/// A request.
#[derive(Debug)]
pub(super) struct Asked {
    /// Its stream, after the inner link was live.
    key: Option<StreamKey>,
    body: Body,
    /// Bytes for which the stream has no room yet.
    waiting: BytesMut,
    /// The page waits for room.
    is_full: bool,
    response: Response,
    /// Whether the page has the header of the response.
    has_head: bool,
}

impl Visit {
    /// Starts a request. Its body follows by [`Visit::body`] and ends by [`Visit::end_body`].
    ///
    /// # Errors
    /// The parts of the request do not form a single message.
    pub fn ask(&mut self, now: Instant, request: &Request<'_>) -> Result<u32, BadRequest> {
        let waiting = BytesMut::from(request.head()?);
        self.last_request = self.last_request.wrapping_add(1);
        let number = self.last_request;
        let (response, body) = (Response::to(request.method), request.body);
        let (key, has_head) = (None, false);
        let asked = Asked { key, body, waiting, is_full: false, response, has_head };
        let is_full = self.requests.len() >= REQUESTS_MAX;
        self.requests.insert(number, asked);
        if self.is_over() {
            self.fail(number, "over");
        } else if is_full {
            self.fail(number, "limit");
        }
        self.drive(now);
        Ok(number)
    }

    /// The next bytes of a body. False: wait for [`News::Room`] before the next bytes. Bytes that
    /// arrive too early, or beyond the declared length, end the request: the page runs code of the
    /// service in frames beside it.
    pub fn body(&mut self, now: Instant, request: u32, bytes: &[u8]) -> bool {
        let Some(asked) = self.requests.get_mut(&request) else { return true };
        let mut waits = false;
        match asked.body.piece(bytes).filter(|_| !asked.is_full) {
            Some(piece) => {
                asked.waiting.extend_from_slice(&piece);
                asked.is_full = asked.waiting.len() > WAITING_LOW;
                // If there is room at once, the event is reported all the same: otherwise two
                // pieces could be sent at once.
                waits = asked.is_full;
            }
            None => self.fail(request, "bad"),
        }
        self.drive(now);
        !waits
    }

    /// The body of a request is complete.
    pub fn end_body(&mut self, now: Instant, request: u32) {
        // The direction stays open: many servers take its end to mean that the visitor has left.
        if let Some(asked) = self.requests.get_mut(&request) {
            match asked.body.end() {
                Some(end) => asked.waiting.extend_from_slice(end),
                None => self.fail(request, "bad"),
            }
        }
        self.drive(now);
    }

    /// The page no longer needs the response.
    pub fn cancel(&mut self, now: Instant, request: u32) {
        self.close(request);
        self.drive(now);
    }

    /// The page has delivered this number of bytes of [`News::Body`].
    pub fn took(&mut self, now: Instant, request: u32, bytes: usize) {
        let key = self.requests.get(&request).and_then(|asked| asked.key);
        if let (Some(key), Some(link)) = (key, self.inner.link()) {
            link.consume(now, key, bytes);
        }
        self.drive(now);
    }

    /// Removes a request and aborts its stream.
    fn close(&mut self, number: u32) {
        let asked = self.requests.remove(&number);
        if let (Some(key), Some(link)) = (asked.and_then(|asked| asked.key), self.inner.link()) {
            link.reset(key, ResetCode::Aborted);
            link.stop(key, ResetCode::Aborted);
        }
    }

    fn fail(&mut self, number: u32, why: &'static str) {
        self.close(number);
        self.news.push_back(News::Failed(number, why));
    }

    /// Fails all requests that have a stream; requests that wait for a stream keep waiting unless
    /// the visit is over.
    pub(super) fn fail_requests(&mut self, why: &'static str) {
        let is_over = self.is_over();
        let gone = self.requests.iter().filter(|(_, asked)| is_over || asked.key.is_some());
        for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.fail(number, why);
        }
    }

    /// Opens the streams of the requests that waited for the link. Returns whether it opened any: a
    /// link that is going away opens none, but its successor does.
    pub(super) fn open_requests(&mut self) -> bool {
        if !self.inner.is_live() || self.requests.values().all(|asked| asked.key.is_some()) {
            return false;
        }
        let Some(link) = self.inner.link() else { return false };
        let target = Target::Service(self.service.as_str().to_owned());
        let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
        let mut opened = false;
        for asked in self.requests.values_mut().filter(|asked| asked.key.is_none()) {
            asked.key = link.open(&open);
            opened |= asked.key.is_some();
        }
        opened
    }

    /// Sends as many bytes as there is room for. Returns whether any were sent.
    pub(super) fn ask_again(&mut self) -> bool {
        let mut moved = self.open_requests();
        let Some(link) = self.inner.link() else { return false };
        // Their room is checked anyway.
        while link.poll_room().is_some() {}
        for (number, asked) in &mut self.requests {
            let Some(key) = asked.key else { continue };
            moved |= send(link, key, &mut asked.waiting);
            if asked.is_full && asked.waiting.len() <= WAITING_LOW {
                asked.is_full = false;
                self.news.push_back(News::Room(*number));
            }
        }
        moved
    }

    pub(super) fn inner_stream(&mut self, now: Instant, event: Event) {
        let of = |key| {
            let mut all = self.requests.iter();
            all.find(|(_, asked)| asked.key == Some(key)).map(|(number, _)| *number)
        };
        match event {
            Event::Data { key, bytes } => match of(key) {
                Some(number) => self.arrived(now, number, key, &bytes),
                None => {
                    if let Some(link) = self.inner.link() {
                        link.consume(now, key, bytes.len());
                    }
                }
            },
            Event::Finished { key } => {
                let Some(number) = of(key) else { return };
                let Some(asked) = self.requests.get_mut(&number) else { return };
                match asked.response.finish() {
                    Ok(Some(_)) => self.end(number),
                    Ok(None) => {}
                    Err(_) => self.fail(number, "cut"),
                }
            }
            Event::Reset { key, code } => {
                if let Some(number) = of(key) {
                    self.fail(number, reason(code));
                }
            }
            // The service may respond before it has read the whole request.
            Event::Stopped { .. } | Event::Closed { .. } => {}
            Event::Opened { key, .. } => {
                if let Some(link) = self.inner.link() {
                    link.refuse(key, ResetCode::Unknown);
                }
            }
            Event::FlowOpened { .. }
            | Event::Datagram { .. }
            | Event::FlowClosed { .. }
            | Event::Control(_)
            | Event::Resumed
            | Event::ProbeNextPath
            | Event::Silent
            | Event::Heard
            | Event::Doubted(_)
            | Event::Unanswered(_)
            | Event::TookOver(_)
            | Event::CarrierDead(_)
            | Event::GoingAway(_)
            | Event::Expired => {}
        }
    }

    /// Bytes of a response have arrived.
    fn arrived(&mut self, now: Instant, number: u32, key: StreamKey, bytes: &Bytes) {
        let Some(asked) = self.requests.get_mut(&number) else { return };
        asked.response.push(bytes);
        // The page reads the bytes of the body; all others are read here.
        let mut passed = 0;
        let is_over = loop {
            match asked.response.poll() {
                Ok(Some(Piece::Head(head))) => {
                    asked.has_head = true;
                    self.news.push_back(News::Head(number, head));
                }
                Ok(Some(Piece::Body(body))) => {
                    passed += body.len();
                    self.news.push_back(News::Body(number, body));
                }
                Ok(Some(Piece::End)) => break true,
                Ok(None) => break asked.response.is_over(),
                Err(_) => {
                    let why = if asked.has_head { "cut" } else { "no-http" };
                    return self.fail(number, why);
                }
            }
        };
        if let Some(link) = self.inner.link() {
            link.consume(now, key, bytes.len().saturating_sub(passed));
        }
        if is_over {
            self.end(number);
        }
    }

    fn end(&mut self, number: u32) {
        self.close(number);
        self.news.push_back(News::End(number));
    }
}

/// A word for the page.
fn reason(code: ResetCode) -> &'static str {
    match code {
        ResetCode::Refused => "refused",
        ResetCode::Timeout => "timeout",
        ResetCode::Unreachable => "unreachable",
        ResetCode::Denied | ResetCode::Unknown => "unknown",
        ResetCode::Limit => "limit",
        ResetCode::Shutdown | ResetCode::Moved => "shutdown",
        ResetCode::Aborted | ResetCode::Internal | ResetCode::Other(_) => "cut",
    }
}
