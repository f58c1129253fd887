//! A visit: the outer link to the server, the inner link to the client that provides the service,
//! and the requests over the inner link.
//!
//! | file | content |
//! |---|---|
//! | `mod` | what the page calls |
//! | `drive` | what follows from what the two links tell: the relayed carrier, the state of the visit |
//! | `direct` | the data channel straight to the other client |
//! | `requests` | requests and their responses |
//! | `retry` | the pauses between attempts to reach the other client |

mod direct;
mod drive;
mod requests;
mod retry;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::greeting::{Binding, Features, GREETING_TIMEOUT, Identity, Name, Token};
use proto::{InstanceId, Instant, ResetCode, StreamKey, Unlimited};

use crate::end::{End, Who};
use crate::entropy::Entropy;
use crate::memory::Memory;
use crate::news::{News, Path, State};
use direct::Seek;
use requests::Asked;
use retry::Retry;

/// The timeout of the greeting of the inner link: the server waits 10 s for a disconnected client.
const GREETING_INSIDE: Duration = GREETING_TIMEOUT.saturating_mul(2);

/// How long to wait for bytes that a STOP has overtaken.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The largest number of bytes of all streams together that wait for the page.
const MEMORY: u64 = 32 << 20;

/// The slot of the data channel. Connections to the server have other numbers.
const DIRECT: u32 = 0;

/// The visitor and the visited service.
#[derive(Clone, Copy, Debug)]
pub struct Visitor<'a> {
    /// The name of the visitor at the server.
    pub name: &'a str,
    /// Its one-time code, or its token.
    pub secret: &'a str,
    /// The secret is a one-time code.
    pub is_code: bool,
    /// The service: `CLIENT/SERVICE`.
    pub service: &'a str,
    /// The token that only the two clients have.
    pub token: &'a str,
    /// 32 bytes from the browser's random number generator.
    pub seed: [u8; 32],
}

/// Invalid data of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadVisit(&'static str);

/// The stream of the outer link that is a carrier of the inner link.
#[derive(Debug)]
struct Relay {
    key: StreamKey,
    /// Bytes for which the stream has no room yet.
    waiting: BytesMut,
    /// The far end accepts no more bytes, for this reason. Until then its own last bytes are
    /// awaited.
    stopped: Option<(ResetCode, Instant)>,
}

/// A visit. Inputs are the methods that take the time; after each input the page drains
/// [`Visit::poll`] and arms a timer for [`Visit::poll_timeout`].
#[derive(Debug)]
pub struct Visit {
    client: Name,
    service: Name,
    is_code: bool,
    entropy: Entropy,
    outer: End<u32>,
    /// Its carriers are the stream of `relay` and the data channel.
    inner: End<Path>,
    relay: Option<Relay>,
    /// When the inner link is retried.
    retry_at: Option<Instant>,
    retry: Retry,
    seek: Seek,
    requests: BTreeMap<u32, Asked>,
    last_request: u32,
    /// The carriers of the page that accept no bytes at present.
    paused: HashSet<u32>,
    news: VecDeque<News>,
    state: Option<State>,
}

impl Visit {
    /// A visit without a carrier.
    ///
    /// # Errors
    /// A value of the code is invalid.
    pub fn new(now: Instant, visitor: &Visitor<'_>) -> Result<Self, BadVisit> {
        let name = |text| Name::new(text).map_err(|_| BadVisit("a name in the code is no name"));
        let token = |text| Token::new(text).map_err(|_| BadVisit("a secret in the code is none"));
        let (client, service) =
            visitor.service.split_once('/').ok_or(BadVisit("the code names no service"))?;
        let mut entropy = Entropy::new(visitor.seed);
        let mut who = |identity| -> Result<Who, BadVisit> {
            let mut instance = [0; 16];
            instance.copy_from_slice(&entropy.next()[..16]);
            Ok(Who { name: name(visitor.name)?, identity, instance: InstanceId(instance) })
        };
        let secret = token(visitor.secret)?;
        let identity =
            if visitor.is_code { Identity::Code(secret) } else { Identity::Token(secret) };
        let (outer, inner) = (who(identity)?, who(Identity::Token(token(visitor.token)?))?);
        Ok(Self {
            client: name(client)?,
            service: name(service)?,
            is_code: visitor.is_code,
            entropy,
            // Its bytes are passed on at once.
            outer: End::new(outer, Features::PRIVATE, Rc::new(Unlimited)),
            inner: End::new(inner, Features::default(), Rc::new(Memory::new(MEMORY))),
            relay: None,
            retry_at: None,
            retry: Retry::default(),
            seek: Seek::new(now),
            requests: BTreeMap::new(),
            last_request: 0,
            paused: HashSet::new(),
            news: VecDeque::new(),
            state: None,
        })
    }

    /// A connection to the server was opened, or the data channel (slot 0).
    pub fn dial(&mut self, now: Instant, slot: u32) {
        if slot == DIRECT {
            self.channel_opened(now);
            return self.drive(now);
        }
        let nonce = self.entropy.next();
        self.outer.dial(now + GREETING_TIMEOUT, slot, nonce, Binding::None, false);
        self.drive(now);
    }

    /// Bytes of a connection to the server.
    pub fn handle(&mut self, now: Instant, slot: u32, bytes: &[u8]) {
        if slot == DIRECT {
            self.inner.handle(now, Path::Direct, bytes);
        } else {
            self.outer.handle(now, slot, bytes);
        }
        self.drive(now);
    }

    /// A connection to the server was lost.
    pub fn lost(&mut self, now: Instant, slot: u32) {
        self.paused.remove(&slot);
        if slot == DIRECT {
            self.inner.lost(now, Path::Direct);
            self.direct_lost(now);
        } else if self.outer.has(slot) {
            self.outer.lost(now, slot);
            self.offline();
        }
        self.drive(now);
    }

    /// Sets whether a connection of the page accepts bytes at present.
    pub fn pause(&mut self, slot: u32, paused: bool) {
        if paused {
            self.paused.insert(slot);
        } else {
            self.paused.remove(&slot);
        }
    }

    /// The time that [`Visit::poll_timeout`] returned has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outer.handle_timeout(now);
        self.inner.handle_timeout(now);
        let stopped = self.relay.as_ref().and_then(|relay| relay.stopped);
        if stopped.is_some_and(|(_, until)| until <= now) {
            self.relay_ended(now, None);
        }
        self.seek_timeout(now);
        self.drive(now);
    }

    /// When [`Visit::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let links = [self.outer.poll_timeout(), self.inner.poll_timeout()].into_iter().flatten();
        if self.is_over() {
            // Nothing is retried any more.
            return links.min();
        }
        let retry = self.retry_at.filter(|_| self.relay.is_none() && self.outer.is_live());
        let stopped = self.relay.as_ref().and_then(|relay| relay.stopped).map(|(_, until)| until);
        let seek = self.seek.poll_timeout(self.is_relayed());
        links.chain([retry, stopped, seek].into_iter().flatten()).min()
    }

    /// The next event.
    pub fn poll(&mut self, now: Instant) -> Option<News> {
        if let Some(news) = self.news.pop_front() {
            return Some(news);
        }
        let news = self.transmit_to_page(now)?;
        // Sent bytes make room: without this the next bytes would wait for a message of the far
        // end.
        self.drive(now);
        Some(news)
    }

    fn transmit_to_page(&mut self, now: Instant) -> Option<News> {
        let mut out = VecDeque::new();
        let paused = &self.paused;
        if let Some(slot) = self.outer.poll_transmit(now, |slot| !paused.contains(&slot), &mut out)
        {
            return Some(News::Send(slot, joined(&out)));
        }
        let takes = |path| path == Path::Direct && !paused.contains(&DIRECT);
        match self.inner.poll_transmit(now, takes, &mut out)? {
            Path::Direct => Some(News::Send(DIRECT, joined(&out))),
            Path::Relay => None,
        }
    }

    /// Reports the state if it has changed.
    fn tell(&mut self, state: State) {
        if self.state.as_ref() != Some(&state) && !self.is_over() {
            self.news.push_back(News::State(state.clone()));
            self.state = Some(state);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.state, Some(State::Over(_) | State::Enrolled(_)))
    }
}

fn joined(frames: &VecDeque<Bytes>) -> Bytes {
    let mut all = BytesMut::new();
    frames.iter().for_each(|frame| all.extend_from_slice(frame));
    all.freeze()
}
