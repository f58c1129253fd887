//! A visit: the outer link to the server, the inner link to the client that has the service, and the
//! requests over the inner link.
//!
//! | file | content |
//! |---|---|
//! | `mod` | what the page calls |
//! | `drive` | what follows from what the two links tell: the relayed carrier, the state of the visit |
//! | `requests` | requests and their responses |

mod drive;
mod requests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::BytesMut;
use proto::greeting::{Binding, Features, Identity, Name, Token};
use proto::{InstanceId, Instant, StreamKey};

use crate::end::{End, Who};
use crate::entropy::Entropy;
use crate::news::{News, State};
use requests::Asked;

/// The time before a visit is tried again. The server has waited for the other client for 10 s then.
const RETRY: Duration = Duration::from_secs(2);

/// Who visits what.
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
    /// 32 bytes of the browser's generator of random numbers.
    pub seed: [u8; 32],
}

/// A visitor that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadVisit(&'static str);

/// The stream of the outer link that is a carrier of the inner link.
#[derive(Debug)]
struct Relay {
    key: StreamKey,
    /// Bytes that the stream has no room for yet.
    waiting: BytesMut,
}

/// A visit. Inputs are the methods that take the time; after each of them the page drains
/// [`Visit::poll`] and arms a timer for [`Visit::poll_timeout`].
#[derive(Debug)]
pub struct Visit {
    client: Name,
    service: Name,
    is_code: bool,
    entropy: Entropy,
    outer: End<u32>,
    /// Its one carrier is the stream of `relay`.
    inner: End<()>,
    relay: Option<Relay>,
    /// When the inner link is dialled again.
    retry_at: Option<Instant>,
    requests: BTreeMap<u32, Asked>,
    last_request: u32,
    /// The carriers of the page that take no bytes for now.
    paused: HashSet<u32>,
    news: VecDeque<News>,
    state: Option<State>,
}

impl Visit {
    /// A visit without a carrier.
    ///
    /// # Errors
    /// A value of the code is none.
    pub fn new(visitor: &Visitor<'_>) -> Result<Self, BadVisit> {
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
            outer: End::new(outer, Features::PRIVATE),
            inner: End::new(inner, Features::default()),
            relay: None,
            retry_at: None,
            requests: BTreeMap::new(),
            last_request: 0,
            paused: HashSet::new(),
            news: VecDeque::new(),
            state: None,
        })
    }

    /// A connection to the server is open.
    pub fn dial(&mut self, now: Instant, slot: u32) {
        let nonce = self.entropy.next();
        self.outer.dial(slot, nonce, Binding::None, false);
        self.drive(now);
    }

    /// Bytes of a connection to the server.
    pub fn handle(&mut self, now: Instant, slot: u32, bytes: &[u8]) {
        self.outer.handle(now, slot, bytes);
        self.drive(now);
    }

    /// A connection to the server is gone.
    pub fn lost(&mut self, now: Instant, slot: u32) {
        self.paused.remove(&slot);
        if self.outer.has(slot) {
            self.outer.lost(now, slot);
            self.offline();
        }
        self.drive(now);
    }

    /// Whether a connection of the page takes bytes for now.
    pub fn pause(&mut self, slot: u32, paused: bool) {
        if paused {
            self.paused.insert(slot);
        } else {
            self.paused.remove(&slot);
        }
    }

    /// The time has come for what [`Visit::poll_timeout`] has said.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outer.handle_timeout(now);
        self.inner.handle_timeout(now);
        self.drive(now);
    }

    /// When [`Visit::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let retry = self.retry_at.filter(|_| self.relay.is_none() && self.outer.is_live());
        [self.outer.poll_timeout(), self.inner.poll_timeout(), retry].into_iter().flatten().min()
    }

    /// The next news.
    pub fn poll(&mut self, now: Instant) -> Option<News> {
        if let Some(news) = self.news.pop_front() {
            return Some(news);
        }
        let mut out = VecDeque::new();
        let paused = &self.paused;
        let slot = self.outer.poll_transmit(now, |slot| !paused.contains(&slot), &mut out)?;
        let mut all = BytesMut::new();
        out.iter().for_each(|frame| all.extend_from_slice(frame));
        Some(News::Send(slot, all.freeze()))
    }

    /// Tells the state where it is another one.
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
