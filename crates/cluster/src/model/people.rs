//! Whoever uses the nodes: servers with their sessions and claims, processes of clients, visitors.

use std::collections::BTreeSet;
use std::time::Duration;

use super::world::{ModelWorld, WorldEvent, millis};
use crate::names::{ClientName, Generation, Instance, Key};
use crate::node::{Claimed, Located, OpenVerdict, PeerOpen, ServerWish, Subject, Ticket};
use crate::record::At;

/// A process of a client.
#[derive(Clone, Debug)]
pub(super) struct Person {
    pub(super) client: ClientName,
    pub(super) instance: Instance,
    /// The number of homes that it wants.
    pub(super) wants: usize,
    pub(super) homes: BTreeSet<usize>,
    pub(super) is_alive: bool,
    pub(super) was_kicked: bool,
}

/// A session at a server.
#[derive(Clone, Debug)]
pub(super) struct ServerSession {
    pub(super) instance: Instance,
    /// When it began.
    pub(super) since: crate::Moment,
}

/// A claim that a server has.
#[derive(Clone, Debug)]
pub(super) struct ServerHold {
    pub(super) client: ClientName,
    pub(super) instance: Instance,
    pub(super) generation: Generation,
}

/// What a ticket is for.
#[derive(Clone, Debug)]
pub(super) enum Use {
    Visit(u64),
    /// The owner looks at the record of its own client.
    Judge(u64),
    Claim {
        key: Key,
        client: ClientName,
        instance: Instance,
        may_take: bool,
    },
}

/// A visitor.
#[derive(Clone, Debug)]
pub(super) struct ModelVisit {
    pub(super) ingress: usize,
    pub(super) client: ClientName,
    finds: u32,
    open: Option<(usize, PeerOpen)>,
    /// A visitor that has to be served.
    pub(super) must: bool,
}

impl ModelWorld {
    pub(super) fn add_person(&mut self, client: &str, wants: usize) -> usize {
        let client = ClientName::new(client).unwrap();
        let instance = Instance(self.number());
        let (homes, is_alive) = (BTreeSet::new(), true);
        let was_kicked = false;
        self.people.push(Person { client, instance, wants, homes, is_alive, was_kicked });
        let person = self.people.len() - 1;
        self.after(Duration::ZERO, WorldEvent::Act(person));
        person
    }

    /// A person logs in where it is not yet.
    pub(super) fn act(&mut self, person: usize) {
        let Person { wants, homes, is_alive, was_kicked, .. } = &self.people[person];
        if !is_alive || *was_kicked || homes.len() >= *wants {
            return;
        }
        let is_open = |at: &usize| {
            let host = &self.hosts[*at];
            host.node.is_some() && host.is_ready && !self.is_paused(*at) && !homes.contains(at)
        };
        let open: Vec<_> = (0..self.hosts.len()).filter(is_open).collect();
        let at = self.random.below(open.len() as u64);
        if let Some(at) = open.get(at as usize).copied() {
            self.log_in(person, at);
        }
        let Person { wants, homes, .. } = &self.people[person];
        if homes.len() < (*wants).min(self.hosts.len()) {
            let time = millis(500 + self.random.below(1_000));
            self.after(time, WorldEvent::Act(person));
        }
    }

    pub(super) fn log_in(&mut self, person: usize, at: usize) {
        let Person { client, instance, .. } = self.people[person].clone();
        if let Some(former) = self.hosts[at].sessions.get(&client).map(|it| it.instance)
            && former != instance
        {
            self.end_session(at, &client, former);
            self.count_kick(&client, former);
        }
        let session = ServerSession { instance, since: self.now };
        self.hosts[at].sessions.insert(client.clone(), session);
        self.people[person].homes.insert(at);
        let links = 1 + self.random.below(2) as u32;
        self.wish(at, ServerWish::LoggedIn { client, instance, links });
    }

    /// A server ends a session, and releases what it held.
    pub(super) fn end_session(&mut self, at: usize, client: &ClientName, instance: Instance) {
        let host = &mut self.hosts[at];
        if host.sessions.get(client).is_some_and(|session| session.instance == instance) {
            host.sessions.remove(client);
        }
        let of_session = |hold: &ServerHold| hold.client == *client && hold.instance == instance;
        let held = host.held.iter().filter(|(_, hold)| of_session(hold));
        let held: Vec<_> = held.map(|(key, hold)| (key.clone(), hold.generation)).collect();
        for (key, generation) in held {
            self.hosts[at].held.remove(&key);
            self.hosts[at].former.push((key.clone(), generation));
            self.wish(at, ServerWish::Release { key, generation });
        }
        self.wish(at, ServerWish::LoggedOut { client: client.clone(), instance });
        for person in &mut self.people {
            if person.instance == instance {
                person.homes.remove(&at);
            }
        }
    }

    fn person(&self, instance: Instance) -> Option<usize> {
        self.people.iter().position(|person| person.instance == instance)
    }

    /// A process is told that a newer process is in charge. It has yielded once it has no home.
    fn count_kick(&mut self, client: &ClientName, instance: Instance) {
        let Some(person) = self.person(instance) else { return };
        if !self.people[person].homes.is_empty() {
            let time = millis(500 + self.random.below(1_000));
            return self.after(time, WorldEvent::Act(person));
        }
        if self.people[person].is_alive && !self.people[person].was_kicked {
            self.truth.kicked(client);
        }
        self.people[person].was_kicked = true;
    }

    /// A node tells its server to end a session.
    pub(super) fn kicked(&mut self, at: usize, client: &ClientName, instance: Instance) {
        self.end_session(at, client, instance);
        self.count_kick(client, instance);
    }

    /// A process ends.
    pub(super) fn quit(&mut self, person: usize) {
        self.people[person].is_alive = false;
        let Person { client, instance, homes, .. } = self.people[person].clone();
        for at in homes {
            self.end_session(at, &client, instance);
        }
    }

    /// The processes notice that a node is gone.
    pub(super) fn lose_sessions_of(&mut self, at: usize) {
        for person in 0..self.people.len() {
            if self.people[person].homes.remove(&at) {
                let time = millis(500 + self.random.below(1_000));
                self.after(time, WorldEvent::Act(person));
            }
        }
    }

    /// A server wishes a resource for a session.
    pub(super) fn want(&mut self, at: usize, key: Key, expected: Option<Generation>) {
        let count = self.hosts[at].sessions.len() as u64;
        let chosen = self.random.below(count) as usize;
        let Some((client, session)) = self.hosts[at].sessions.iter().nth(chosen) else { return };
        let (client, instance) = (client.clone(), session.instance);
        self.claim_for(at, key, (client, instance), expected);
    }

    fn claim_for(
        &mut self,
        at: usize,
        key: Key,
        (client, instance): (ClientName, Instance),
        expected: Option<Generation>,
    ) {
        let ticket = Ticket(self.number());
        let may_take = expected.is_none();
        let of = Use::Claim { key: key.clone(), client: client.clone(), instance, may_take };
        self.hosts[at].uses.insert(ticket, of);
        if let Some(expected) = expected {
            self.truth.expects(&key, expected);
        }
        let about = String::new();
        self.wish(at, ServerWish::Claim { ticket, key, client, instance, about, expected });
    }

    pub(super) fn claimed(&mut self, at: usize, ticket: Ticket, claimed: Claimed) {
        let Some(Use::Claim { key, client, instance, may_take }) =
            self.hosts[at].uses.remove(&ticket)
        else {
            return;
        };
        match claimed {
            Claimed::Away => self.truth.away += 1,
            Claimed::Taken { by, generation } => {
                self.truth.taken += 1;
                // The newer process of a client takes its resources over.
                if by.client == client && by.instance < instance && may_take {
                    self.claim_for(at, key, (client, instance), Some(generation));
                }
            }
            Claimed::Held(generation) => {
                self.truth.held += 1;
                let session = self.hosts[at].sessions.get(&client).map(|it| it.instance);
                if session == Some(instance) {
                    if let Some(former) = self.hosts[at]
                        .held
                        .insert(key.clone(), ServerHold { client, instance, generation })
                    {
                        self.hosts[at].former.push((key, former.generation));
                    }
                } else {
                    self.wish(at, ServerWish::Release { key, generation });
                }
            }
        }
    }

    pub(super) fn renumbered(&mut self, at: usize, key: Key, former: Generation, now: Generation) {
        if let Some(hold) = self.hosts[at].held.get_mut(&key)
            && hold.generation == former
        {
            hold.generation = now;
        }
    }

    pub(super) fn lost(&mut self, at: usize, key: &Key, generation: Generation) {
        if self.hosts[at].held.get(key).is_some_and(|hold| hold.generation == generation) {
            self.hosts[at].held.remove(key);
            self.truth.losses += 1;
        }
    }

    /// A server frees a resource, or repeats a release of the past.
    pub(super) fn let_go(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if self.random.below(2) == 0 {
            let chosen = self.random.below(host.held.len() as u64) as usize;
            let Some((key, hold)) = host.held.iter().nth(chosen) else { return };
            let (key, generation) = (key.clone(), hold.generation);
            host.held.remove(&key);
            host.former.push((key.clone(), generation));
            self.wish(at, ServerWish::Release { key, generation });
        } else {
            let chosen = self.random.below(host.former.len() as u64) as usize;
            let Some((key, generation)) = host.former.get(chosen).cloned() else { return };
            if host.held.get(&key).is_none_or(|hold| hold.generation > generation) {
                self.wish(at, ServerWish::Release { key, generation });
            }
        }
    }

    /// A visitor comes to a node.
    pub(super) fn visit(&mut self, ingress: usize, client: &ClientName, must: bool) {
        let id = self.number();
        let client = client.clone();
        self.visits.insert(id, ModelVisit { ingress, client, finds: 0, open: None, must });
        self.seek(id);
    }

    fn seek(&mut self, id: u64) {
        let ticket = Ticket(self.number());
        let Some(visit) = self.visits.get_mut(&id) else { return };
        visit.finds += 1;
        if visit.finds > 3 {
            return self.turned_away(id, "three nodes have refused");
        }
        let (at, subject) = (visit.ingress, Subject::Client(visit.client.clone()));
        self.hosts[at].uses.insert(ticket, Use::Visit(id));
        self.wish(at, ServerWish::Find { ticket, subject });
    }

    fn turned_away(&mut self, id: u64, why: &str) {
        if let Some(visit) = self.visits.remove(&id) {
            self.truth.turned_away(&visit, why);
        }
    }

    pub(super) fn found(&mut self, at: usize, ticket: Ticket, found: Located) {
        match self.hosts[at].uses.remove(&ticket) {
            Some(Use::Visit(id)) => self.found_for(id, found),
            Some(Use::Judge(id)) => self.judge(id, false),
            Some(Use::Claim { .. }) | None => {}
        }
    }

    fn found_for(&mut self, id: u64, found: Located) {
        let Some(visit) = self.visits.get(&id).cloned() else { return };
        match found {
            Located::Here(instance) => self.served(id, visit.ingress, instance),
            Located::Nowhere => self.turned_away(id, "nowhere"),
            Located::Away => self.turned_away(id, "away"),
            Located::Held { .. } => unreachable!("a client was asked for"),
            Located::There { generation, record, .. } => {
                let At { instance, homes, .. } = record;
                let position = |node| self.hosts.iter().position(|host| host.id == node);
                let homes: Vec<_> =
                    homes.into_iter().filter_map(|home| position(home.node)).collect();
                let mut linked: Vec<_> =
                    homes.into_iter().filter(|home| self.is_linked(visit.ingress, *home)).collect();
                self.random.shuffle(&mut linked);
                let Some(owner) = linked.first().copied() else {
                    return self.turned_away(id, "no home has a link");
                };
                let open = PeerOpen { client: visit.client, instance, generation };
                if let Some(visit) = self.visits.get_mut(&id) {
                    visit.open = Some((owner, open));
                }
                let (time, from) = (self.hop(), self.from(owner));
                self.after(time, WorldEvent::Open(from, id));
            }
        }
    }

    /// A stream of a visitor arrives at the owner.
    pub(super) fn opened(&mut self, _at: usize, id: u64) {
        self.judge(id, true);
    }

    fn judge(&mut self, id: u64, may_ask: bool) {
        let Some(visit) = self.visits.get(&id) else { return };
        let Some((owner, open)) = visit.open.clone() else { return };
        let now = self.now;
        let Some(node) = &mut self.hosts[owner].node else { return };
        let moved = match node.judge(now, &open) {
            OpenVerdict::Serve => return self.served(id, owner, open.instance),
            OpenVerdict::Ask if may_ask => {
                let ticket = Ticket(self.number());
                self.hosts[owner].uses.insert(ticket, Use::Judge(id));
                let subject = Subject::Client(open.client);
                return self.wish(owner, ServerWish::Find { ticket, subject });
            }
            OpenVerdict::Ask | OpenVerdict::Gone => None,
            OpenVerdict::Moved(generation, at) => Some((generation, at)),
        };
        let (at, generation) = (visit.ingress, open.generation);
        let subject = Subject::Client(open.client);
        self.wish(at, ServerWish::Refused { subject, generation, moved });
        self.seek(id);
    }

    /// A visitor is served by a session.
    fn served(&mut self, id: u64, owner: usize, instance: Instance) {
        let Some(visit) = self.visits.remove(&id) else { return };
        let session = self.hosts[owner].sessions.get(&visit.client).cloned();
        let Some(session) = session.filter(|session| session.instance == instance) else {
            // The server has ended the session in this moment.
            return self.truth.turned_away(&visit, "the session has ended");
        };
        let hears =
            self.hosts[visit.ingress].node.as_ref().is_some_and(crate::node::Node::is_member);
        self.truth.served(self.now, &visit, owner, &self.hosts[owner].id, &session, hears);
    }
}
