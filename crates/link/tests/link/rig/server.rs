//! A server: accepts, greets, keeps links by id. As the real one does it, without workers.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use link::server::{
    Greeted, LogInError, OtherEnd, Placement, PreviewFuture, Stray, Verifier, VerifierFuture,
    log_in, log_in_passed,
};
use link::{GreetError, Link, Settings};
use proto::greeting::{
    Attach, Binding, Grant, LinkSecret, Name, PassedGreeting, Refusal, StoredCredential, Terms,
    Token,
};
use proto::{Budget, InstanceId, LinkConfig, LinkId, Side, Unlimited};
use tokio::task::AbortHandle;
use transport::memory::{Faults, pair};
use transport::{Carrier, Lane, Listener, Peer};

use super::{Party, TOKEN};

/// What a server is like.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) config: LinkConfig,
    pub(crate) budget: Rc<dyn Budget>,
}

impl Default for Rules {
    fn default() -> Self {
        let config = LinkConfig::default();
        Self { config, budget: Rc::new(Unlimited) }
    }
}

pub(crate) struct Server {
    pub(crate) state: Rc<Keeper>,
    tasks: Vec<AbortHandle>,
}

pub(crate) struct Keeper {
    rules: Rules,
    pub(crate) owner: Rc<Party>,
    pub(crate) links: RefCell<HashMap<LinkId, (Link, LinkSecret, InstanceId)>>,
    newest: Cell<Option<InstanceId>>,
    ids: Cell<u64>,
    pub(crate) greeted: Cell<usize>,
    /// How often a link was shown before its client was known.
    pub(crate) shown: Cell<usize>,
    /// Drops each carrier at once when its greeting is done.
    pub(crate) drops_greeted: Cell<bool>,
    /// Tells each new link at once to go away.
    pub(crate) sends_away: Cell<bool>,
    pub(crate) refused_carriers: Cell<usize>,
    pub(crate) errors: RefCell<Vec<GreetError>>,
    /// The server that has the links of other carriers.
    pub(crate) home: RefCell<Option<Rc<Self>>>,
    /// The carriers that are at the home.
    pub(crate) passed: Cell<usize>,
}

impl Server {
    pub(crate) fn start(listeners: Vec<Box<dyn Listener>>, rules: Rules) -> Self {
        let state = Rc::new(Keeper {
            rules,
            owner: Party::new(),
            links: RefCell::default(),
            newest: Cell::new(None),
            ids: Cell::new(0),
            greeted: Cell::new(0),
            shown: Cell::new(0),
            drops_greeted: Cell::new(false),
            sends_away: Cell::new(false),
            refused_carriers: Cell::new(0),
            errors: RefCell::default(),
            home: RefCell::default(),
            passed: Cell::new(0),
        });
        let accept = |listener| tokio::task::spawn_local(accept(Rc::clone(&state), listener));
        let tasks = listeners.into_iter().map(|one| accept(one).abort_handle()).collect();
        Self { state, tasks }
    }

    pub(crate) fn owner(&self) -> Rc<Party> {
        Rc::clone(&self.state.owner)
    }

    /// Links that live.
    pub(crate) fn links(&self) -> Vec<Link> {
        let links = self.state.links.borrow();
        links.values().map(|(link, ..)| link.clone()).filter(|link| !link.has_ended()).collect()
    }

    /// The only one.
    pub(crate) fn link(&self) -> Link {
        let mut links = self.links();
        assert_eq!(links.len(), 1);
        links.remove(0)
    }

    /// The latest.
    pub(crate) fn newest(&self) -> Link {
        self.links().into_iter().max_by_key(Link::serial).expect("a link")
    }

    /// As after a restart: nothing is known of any link.
    pub(crate) fn forget(&self) {
        let links = std::mem::take(&mut *self.state.links.borrow_mut());
        links.into_values().for_each(|(link, ..)| link.close());
    }

    pub(crate) fn stop(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        self.forget();
    }
}

async fn accept(state: Rc<Keeper>, mut listener: Box<dyn Listener>) {
    loop {
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let state = Rc::clone(&state);
        tokio::task::spawn_local(async move {
            let outcome = log_in(incoming, &*state, &*state).await;
            state.note(outcome);
        });
    }
}

/// Carries the bytes between two lanes until one of them ends.
async fn carry(mut near: Box<dyn Lane>, mut far: Box<dyn Lane>, answer: Bytes) {
    let (mut up, mut down) = (VecDeque::new(), VecDeque::from([answer]));
    poll_fn(|cx| {
        for is_up in [true, false] {
            let (from, to, frames) = match is_up {
                true => (&mut near, &mut far, &mut up),
                false => (&mut far, &mut near, &mut down),
            };
            loop {
                let mut bytes = BytesMut::with_capacity(1000);
                if !frames.is_empty() {
                    match to.poll_write(cx, frames) {
                        Poll::Ready(Ok(_)) => continue,
                        Poll::Ready(Err(_)) => return Poll::Ready(()),
                        Poll::Pending => break,
                    }
                }
                match from.poll_read(cx, &mut bytes) {
                    Poll::Ready(Ok(0) | Err(_)) => {
                        let _ = to.poll_close(cx);
                        return Poll::Ready(());
                    }
                    Poll::Ready(Ok(_)) => frames.push_back(bytes.freeze()),
                    Poll::Pending => {
                        let _ = to.poll_flush(cx);
                        break;
                    }
                }
            }
        }
        Poll::Pending
    })
    .await;
}

impl Placement for Keeper {
    fn place(&self, greeted: Greeted) -> bool {
        self.add(greeted);
        true
    }

    fn pass_on(&self, carrier: Carrier, other: OtherEnd) {
        self.passed.set(self.passed.get() + 1);
        let OtherEnd { lane, answer } = other;
        tokio::task::spawn_local(carry(carrier.lane, lane, answer.freeze()));
    }
}

impl Keeper {
    fn note(&self, outcome: Result<(), LogInError>) {
        if let Err(LogInError::Greeting(error)) = outcome {
            self.errors.borrow_mut().push(error);
        }
    }

    /// Continues the greeting of another server.
    async fn go_on(self: Rc<Self>, mut said: Bytes, peer: Peer) -> Option<OtherEnd> {
        let length = PassedGreeting::length(said[..2].try_into().unwrap()).unwrap();
        let greeting = PassedGreeting::decode(&said[2..2 + length]).unwrap();
        said.advance(2 + length);
        let exporter = match greeting.binding {
            Binding::Exporter(exporter) => Some(exporter),
            Binding::None => None,
        };
        let peer = Peer { exporter, ..peer };
        let (mut near, far) = pair(Faults::default());
        let mut said = VecDeque::from([said]);
        while !said.is_empty() {
            poll_fn(|cx| near.poll_write(cx, &mut said)).await.unwrap();
        }
        tokio::task::spawn_local(async move {
            let carrier = Carrier::single(peer, Box::new(far));
            let outcome = log_in_passed(carrier, greeting.nonce, &*self, &*self).await;
            self.note(outcome);
        });
        let mut answer = BytesMut::with_capacity(100);
        let read = poll_fn(|cx| near.poll_read(cx, &mut answer)).await.unwrap();
        (read > 0).then(|| OtherEnd { lane: Box::new(near), answer })
    }

    fn add(&self, greeted: Greeted) {
        self.greeted.set(self.greeted.get() + 1);
        if self.drops_greeted.get() {
            return;
        }
        let id = greeted.accepted.link;
        let is_new = greeted.accepted.secret.is_some();
        let link = match greeted.accepted.secret.clone() {
            Some(secret) => {
                let settings = Settings {
                    side: Side::Server,
                    config: self.rules.config,
                    budget: Rc::clone(&self.rules.budget),
                    serial: self.ids.get(),
                    features: greeted.accepted.features,
                };
                let link = Link::new(settings, Rc::clone(&self.owner) as Rc<dyn link::Owner>);
                let entry = (link.clone(), secret, greeted.grant.instance);
                self.links.borrow_mut().insert(id, entry);
                link
            }
            None => {
                let links = self.links.borrow();
                let Some((link, ..)) = links.get(&id) else { return };
                link.clone()
            }
        };
        if !greeted.attach_to(&link) {
            self.refused_carriers.set(self.refused_carriers.get() + 1);
        }
        if is_new && self.sends_away.get() {
            link.go_away();
        }
    }
}

impl Verifier for Keeper {
    fn credentials<'a>(&'a self, name: &'a Name) -> VerifierFuture<'a, Vec<StoredCredential>> {
        let known = name.as_str().starts_with("client");
        let all = known.then(|| Token::new(TOKEN).unwrap().stored()).into_iter().collect();
        Box::pin(std::future::ready(Ok(all)))
    }

    fn certificate_suffices(&self, _name: &Name) -> bool {
        false
    }

    fn link_secret(&self, _name: &Name, instance: InstanceId, link: LinkId) -> Option<LinkSecret> {
        let links = self.links.borrow();
        let (link, secret, owner) = links.get(&link)?;
        (*owner == instance && !link.has_ended()).then(|| secret.clone())
    }

    fn preview<'a>(&'a self, _: &'a Name, _: InstanceId, claim: Attach) -> PreviewFuture<'a> {
        self.shown.set(self.shown.get() + 1);
        let preview =
            self.links.borrow().get(&claim.link).and_then(|(link, ..)| link.preview(claim.carrier));
        let second = Duration::from_secs(1);
        let terms = Terms { new_link: claim.link, resume_timeout: second, keepalive: second };
        Box::pin(std::future::ready(preview.map(|preview| (terms, preview))))
    }

    fn pass_on<'a>(&'a self, stray: Stray<'a>) -> VerifierFuture<'a, Option<OtherEnd>> {
        let home = self.home.borrow().clone();
        Box::pin(async move {
            let has_it = |home: &Rc<Self>| home.links.borrow().contains_key(&stray.link);
            match home.filter(has_it) {
                Some(home) => Ok(home.go_on(stray.said.clone(), stray.peer.clone()).await),
                None => Ok(None),
            }
        })
    }

    fn decide<'a>(&'a self, grant: &'a Grant, _peer: &'a Peer) -> VerifierFuture<'a, Terms> {
        Box::pin(std::future::ready(self.terms(grant)))
    }
}

impl Keeper {
    fn terms(&self, grant: &Grant) -> Result<Terms, Refusal> {
        if grant.takeover {
            self.newest.set(Some(grant.instance));
        } else if self.newest.get().is_some_and(|newest| newest != grant.instance) {
            return Err(Refusal::Superseded);
        }
        let number = self.ids.get() + 1;
        self.ids.set(number);
        let mut random = [0; 12];
        random[..8].copy_from_slice(&number.to_be_bytes());
        Ok(Terms {
            new_link: LinkId::compose([1, 2, 3, 4], random),
            resume_timeout: self.rules.config.resume_timeout,
            keepalive: self.rules.config.keepalive,
        })
    }
}
