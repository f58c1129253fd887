//! Handles the events of the two links.

use std::collections::VecDeque;

use bytes::{Buf as _, BytesMut};
use proto::greeting::{Binding, GreetingError, Refusal};
use proto::{Event, HEAD_ROOM, Instant, Link, Open, Priority, ResetCode, StreamKey, Target};

use super::{DIRECT, GREETING_INSIDE, LAST_WORDS, Relay, Visit};
use crate::end::Told;
use crate::news::{News, Path, State};

impl Visit {
    /// Runs every step that is possible now.
    pub(super) fn drive(&mut self, now: Instant) {
        loop {
            self.outer.hear(now);
            self.inner.hear(now);
            if let Some(event) = self.outer.poll_told() {
                self.outer_told(now, event);
            } else if let Some(event) = self.inner.poll_told() {
                self.inner_told(now, event);
            } else if !(self.relay(now) || self.transmit(now) || self.ask_again() || self.seek(now))
            {
                return;
            }
        }
    }

    fn outer_told(&mut self, now: Instant, event: Told<u32>) {
        match event {
            Told::Enrolled(token) => self.tell(State::Enrolled(token)),
            Told::Live(_) => {
                self.retry.begin();
                if !self.inner.is_live() {
                    self.tell(State::Visiting);
                }
            }
            Told::Lost(slot) => {
                self.news.push_back(News::Close(slot));
                self.offline();
            }
            Told::Failed(_, GreetingError::Refused(Refusal::BadCredential)) => {
                self.over(if self.is_code { "code" } else { "login" });
            }
            Told::Failed(_, GreetingError::Refused(Refusal::Superseded | Refusal::NameTaken)) => {
                self.over("elsewhere");
            }
            Told::Failed(_, GreetingError::Unproven) => self.over("unproven"),
            Told::Failed(..) => self.offline(),
            Told::Forgotten | Told::Ended => {
                self.seek.outer_begins();
                self.relay_lost(now);
                self.offline();
            }
            Told::Control(bytes) => self.outer_control(bytes),
            // Its carriers belong to the page, which reconnects when one is lost.
            Told::Suspect => {}
            Told::Stream(event) => self.outer_stream(now, event),
        }
    }

    /// The state of a visit without a link to the server, which a data channel does not need.
    pub(super) fn offline(&mut self) {
        if !self.outer.is_live() && !self.inner.is_attached(Path::Direct) {
            self.tell(State::Offline);
        }
    }

    fn outer_stream(&mut self, now: Instant, event: Event) {
        let is_relay = |key: StreamKey| self.relay.as_ref().is_some_and(|relay| relay.key == key);
        match event {
            Event::Data { key, bytes } => {
                if is_relay(key) {
                    self.inner.handle(now, Path::Relay, &bytes);
                }
                if let Some(link) = self.outer.link() {
                    link.consume(now, key, bytes.len());
                }
            }
            // A STOP overtakes bytes that were sent before it: the reason of a refusal is among
            // them.
            Event::Stopped { key, code } if is_relay(key) => {
                if let Some(relay) = &mut self.relay {
                    relay.waiting.clear();
                    relay.stopped.get_or_insert((code, now + LAST_WORDS));
                }
            }
            Event::Reset { key, code } if is_relay(key) => self.relay_ended(now, Some(code)),
            Event::Finished { key } | Event::Closed { key } if is_relay(key) => {
                self.relay_ended(now, None);
            }
            Event::Opened { key, .. } => {
                if let Some(link) = self.outer.link() {
                    link.refuse(key, ResetCode::Unknown);
                }
            }
            Event::Reset { .. }
            | Event::Stopped { .. }
            | Event::Finished { .. }
            | Event::Closed { .. }
            | Event::FlowOpened { .. }
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

    /// The stream to the other client was refused, by the server or by that client.
    fn refused(&mut self, now: Instant, code: ResetCode) {
        match code {
            ResetCode::Unknown => self.over("unknown"),
            ResetCode::Denied => self.over("denied"),
            ResetCode::Unreachable => {
                // The server has waited 10 s for the other client, which is enough of a pause.
                self.retry.begin();
                self.try_later(now);
                if !self.inner.is_live() {
                    self.tell(State::Away);
                }
            }
            ResetCode::Aborted
            | ResetCode::Refused
            | ResetCode::Timeout
            | ResetCode::Limit
            | ResetCode::Shutdown
            | ResetCode::Internal
            | ResetCode::Moved
            | ResetCode::Other(_) => self.silent(now),
        }
    }

    /// The inner link has lost a carrier.
    pub(super) fn silent(&mut self, now: Instant) {
        self.try_later(now);
        if !self.inner.is_live() && self.outer.is_live() && self.state != Some(State::Away) {
            self.tell(State::Silent);
        }
    }

    /// The stream to the other client has ended, for the reason in its STOP or for this reason.
    pub(super) fn relay_ended(&mut self, now: Instant, code: Option<ResetCode>) {
        let stopped = self.relay.as_ref().and_then(|relay| relay.stopped);
        self.relay_lost(now);
        match stopped.map(|(first, _)| first).or(code) {
            Some(code) => self.refused(now, code),
            None => self.silent(now),
        }
    }

    fn try_later(&mut self, now: Instant) {
        if self.retry_at.is_none() {
            self.retry_at = Some(now + self.retry.next(self.entropy.next()));
        }
    }

    fn relay_lost(&mut self, now: Instant) {
        if let Some(relay) = self.relay.take() {
            if let Some(link) = self.outer.link() {
                link.reset(relay.key, ResetCode::Aborted);
                link.stop(relay.key, ResetCode::Aborted);
            }
            self.inner.lost(now, Path::Relay);
        }
    }

    /// The data channel was lost, or could not be opened.
    pub(super) fn direct_lost(&mut self, now: Instant) {
        self.seek_failed(now);
        // A relayed carrier that was added takes over.
        if !self.inner.is_live() && !self.inner.is_attached(Path::Relay) {
            self.offline();
            self.silent(now);
            // The connection to the server is live, and no query was sent yet.
            if self.relay.is_none() {
                self.retry_at = None;
            }
        }
    }

    fn inner_told(&mut self, now: Instant, event: Told<Path>) {
        match event {
            Told::Live(path) => {
                self.retry_at = None;
                self.retry.begin();
                self.seek.is_suspect = false;
                if path == Path::Direct {
                    self.found_direct();
                }
                self.tell(State::Live(path));
                self.open_requests();
            }
            Told::Lost(Path::Relay) => {
                self.relay_lost(now);
                // A data channel may have replaced it.
                if !self.inner.is_attached(Path::Direct) {
                    self.silent(now);
                }
            }
            Told::Lost(Path::Direct) => self.direct_lost(now),
            // The link continues unchanged.
            Told::Failed(Path::Direct, _) => {}
            Told::Failed(_, GreetingError::Refused(Refusal::BadCredential)) => self.over("token"),
            Told::Failed(_, GreetingError::Refused(Refusal::Binding | Refusal::Denied)) => {
                self.over("denied");
            }
            Told::Failed(_, GreetingError::Unproven) => self.over("unproven"),
            Told::Failed(..) => self.silent(now),
            Told::Forgotten | Told::Ended => {
                self.relay_lost(now);
                self.seek_anew(now);
                self.fail_requests("lost");
                self.silent(now);
            }
            Told::Control(bytes) => self.inner_control(now, bytes),
            Told::Suspect => self.seek.is_suspect = true,
            Told::Stream(event) => self.inner_stream(now, event),
            // A token is not a code.
            Told::Enrolled(_) => {}
        }
    }

    /// The visit has ended for good.
    fn over(&mut self, why: &'static str) {
        self.tell(State::Over(why));
        self.fail_requests("over");
    }

    /// Opens the stream that carries the inner link, if it is wanted. Returns whether it did.
    fn relay(&mut self, now: Instant) -> bool {
        let waits = self.retry_at.is_some_and(|at| at > now);
        if self.relay.is_some() || self.is_over() || waits || !self.outer.is_live() {
            return false;
        }
        // A data channel is enough, as long as it is not silent.
        if self.inner.is_attached(Path::Direct) && !self.seek.is_suspect {
            return false;
        }
        let (client, service) = (self.client.clone(), self.service.clone());
        let target = Target::Private { client, service };
        let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
        let Some(key) = self.outer.link().and_then(|link| link.open(&open)) else {
            self.try_later(now);
            return false;
        };
        self.retry_at = None;
        self.relay = Some(Relay { key, waiting: BytesMut::new(), stopped: None });
        let adds = self.inner.is_live();
        let nonce = self.entropy.next();
        self.inner.dial(now + GREETING_INSIDE, Path::Relay, nonce, Binding::None, adds);
        true
    }

    /// Moves bytes of the inner link to its carriers. Returns whether any were moved.
    fn transmit(&mut self, now: Instant) -> bool {
        let flushed = self.flush_relay();
        let is_free = |relay: &Relay| relay.waiting.is_empty() && relay.stopped.is_none();
        let can_relay = self.relay.as_ref().is_some_and(is_free);
        let mut out = VecDeque::new();
        let takes = |path| path == Path::Relay && can_relay;
        match self.inner.poll_transmit(now, takes, &mut out) {
            None => return flushed,
            Some(Path::Relay) => {
                if let Some(relay) = &mut self.relay {
                    out.iter().for_each(|frame| relay.waiting.extend_from_slice(frame));
                }
            }
            // Its greeting. Everything else waits until the page accepts it.
            Some(Path::Direct) => self.news.push_back(News::Send(DIRECT, super::joined(&out))),
        }
        true
    }

    fn flush_relay(&mut self) -> bool {
        let (Some(relay), Some(link)) = (&mut self.relay, self.outer.link()) else { return false };
        send(link, relay.key, &mut relay.waiting)
    }
}

/// Sends as many bytes as the stream has room for. Returns whether any were sent.
pub(super) fn send(link: &mut Link, key: StreamKey, waiting: &mut BytesMut) -> bool {
    let mut sent = false;
    while !waiting.is_empty() {
        let size = link.room(key).min(waiting.len());
        if size == 0 {
            break;
        }
        let mut frame = BytesMut::with_capacity(HEAD_ROOM + size);
        frame.resize(HEAD_ROOM, 0);
        frame.extend_from_slice(&waiting[..size]);
        waiting.advance(size);
        link.send(key, &mut frame);
        sent = true;
    }
    sent
}
