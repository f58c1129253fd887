//! The sessions of all clients and their links. Each query about a client is answered from the
//! entry of that client, so its cost grows with the links of the client and not with all links of
//! the server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proto::greeting::{Grant, LinkSecret};
use proto::{InstanceId, LinkId};

use crate::presence::{ProcessHere, instance_of};
use node::session::Session;

/// All links, by id, by serial, and by client and session.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    links: HashMap<LinkId, LinkEntry>,
    ids: HashMap<u64, LinkId>,
    /// Each client that has a link, by name.
    clients: HashMap<String, OfClient>,
}

#[derive(Debug)]
pub(super) struct LinkEntry {
    pub(super) placed: Placed,
    pub(super) secret: LinkSecret,
    pub(super) instance: InstanceId,
    pub(super) session: Arc<Session>,
    /// The process runs alongside others of its name; see [`Sessions::in_charge`].
    pub(super) beside: bool,
}

/// The worker and the serial of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placed {
    pub worker: usize,
    pub serial: u64,
}

/// A link with its session.
pub(super) type OfSession = (Arc<Session>, Placed);

/// The processes of one client that have links. Usually there is one. Processes with a shared
/// service run side by side, if the client may share.
#[derive(Debug, Default)]
struct OfClient {
    /// The id of the session in charge: that of the process that logged in last, or of one of the
    /// processes that run side by side.
    current: Option<u64>,
    /// The highest id of the sessions that had a link.
    newest: u64,
    /// The highest id of the sessions that logged in alone: they superseded all earlier sessions.
    alone: u64,
    /// By the id of the session.
    processes: HashMap<u64, Process>,
}

#[derive(Debug)]
struct Process {
    instance: InstanceId,
    session: Arc<Session>,
    beside: bool,
    links: Vec<Placed>,
}

/// Whether a session decides about the services of its client. Sessions are compared by their
/// numbers ([`Session::id`]), which are given in the order of the log-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The session is in charge, or runs alongside the session in charge.
    InForce,
    /// The process of the session with this number has logged in later and has taken over.
    Superseded(u64),
    /// The session has no link any more.
    Ended,
}

/// A link that was removed.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) session: Arc<Session>,
    /// The session has no link any more.
    pub(super) was_last: bool,
    /// The session was in charge: no newer process has taken over.
    pub(super) in_charge: bool,
    /// The session ran alongside others.
    pub(super) beside: bool,
}

impl OfClient {
    fn current(&self) -> Option<&Process> {
        self.processes.get(self.current.as_ref()?)
    }

    /// Whether a process is in charge, or runs alongside others and is not superseded.
    fn is_in_force(&self, process: &Process) -> bool {
        let id = process.session.id;
        self.current == Some(id) || (process.beside && id > self.alone)
    }
}

impl Sessions {
    /// The link with this serial.
    pub(super) fn link(&self, serial: u64) -> Option<&LinkEntry> {
        self.links.get(self.ids.get(&serial)?)
    }

    /// The link with this id.
    pub(super) fn link_by_id(&self, id: LinkId) -> Option<&LinkEntry> {
        self.links.get(&id)
    }

    /// The link with this id, if it belongs to this process.
    pub(super) fn link_of(
        &self,
        id: LinkId,
        name: &str,
        instance: InstanceId,
    ) -> Option<&LinkEntry> {
        let entry = self.links.get(&id)?;
        (entry.instance == instance && entry.session.name == name).then_some(entry)
    }

    #[cfg(test)]
    /// The process in charge of a client: its instance, its session, and its links.
    pub(super) fn current(&self, name: &str) -> Option<(InstanceId, &Arc<Session>, &[Placed])> {
        let process = self.clients.get(name)?.current()?;
        Some((process.instance, &process.session, &process.links))
    }

    /// The number of links of a process of a client; 0: there is no such process.
    pub(super) fn links_of_process(&self, name: &str, instance: InstanceId) -> usize {
        let processes = self.clients.get(name).into_iter().flat_map(|of| of.processes.values());
        let own = processes.filter(|process| process.instance == instance);
        own.map(|process| process.links.len()).sum()
    }

    /// The processes of a client, as the cluster is told of them. If one of those in force runs
    /// beside others, all do.
    pub(super) fn processes_here(&self, name: &str) -> Vec<ProcessHere> {
        let Some(client) = self.clients.get(name) else { return Vec::new() };
        let in_force = client.processes.values().filter(|one| client.is_in_force(one));
        let has_group = in_force.clone().any(|process| process.beside);
        let here = |process: &Process| {
            let is_in_force = client.is_in_force(process);
            let is_beside = process.beside || (is_in_force && has_group);
            ProcessHere {
                session: process.session.id,
                instance: instance_of(name, process.instance, is_beside),
                links: u32::try_from(process.links.len()).unwrap_or(u32::MAX),
                is_in_force,
            }
        };
        client.processes.values().map(here).collect()
    }

    /// The number of all links.
    pub(super) fn all_links(&self) -> usize {
        self.links.len()
    }

    /// The links of a session.
    pub(super) fn of_session(&self, session: &Session) -> &[Placed] {
        let client = self.clients.get(&session.name);
        let process = client.and_then(|client| client.processes.get(&session.id));
        process.map(|process| process.links.as_slice()).unwrap_or_default()
    }

    /// All sessions.
    pub(super) fn all(&self) -> Vec<Arc<Session>> {
        let processes = self.clients.values().flat_map(|of| of.processes.values());
        processes.map(|process| Arc::clone(&process.session)).collect()
    }

    /// The number of processes of a client that have links.
    pub(super) fn processes(&self, name: &str) -> usize {
        self.clients.get(name).map_or(0, |client| client.processes.len())
    }

    /// Whether a session is in force, and no other session of its client is.
    pub(super) fn is_alone(&self, session: &Session) -> bool {
        self.in_force(&session.name).iter().all(|other| other.id == session.id)
    }

    /// Whether a session decides about the services of its client.
    pub(super) fn standing(&self, session: &Session) -> Standing {
        let client = self.clients.get(&session.name);
        let process = client.and_then(|client| client.processes.get(&session.id));
        let (Some(client), Some(process)) = (client, process) else { return Standing::Ended };
        if client.is_in_force(process) {
            return Standing::InForce;
        }
        // The session in charge may have ended since.
        Standing::Superseded(client.newest)
    }

    /// The session in charge of a client, and the sessions that run alongside it.
    pub(super) fn in_force(&self, name: &str) -> Vec<Arc<Session>> {
        let Some(client) = self.clients.get(name) else { return Vec::new() };
        let all = client.processes.values().filter(|process| client.is_in_force(process));
        all.map(|process| Arc::clone(&process.session)).collect()
    }

    /// The sessions of a process of a client that is in force.
    pub(super) fn of_process(
        &self,
        name: &str,
        is_it: impl Fn(InstanceId, bool) -> bool,
    ) -> Vec<Arc<Session>> {
        let Some(client) = self.clients.get(name) else { return Vec::new() };
        let own = client.processes.values().filter(|process| {
            client.is_in_force(process) && is_it(process.instance, process.beside)
        });
        own.map(|process| Arc::clone(&process.session)).collect()
    }

    /// The number of links of a client, over all its processes.
    pub(super) fn count(&self, name: &str) -> usize {
        let processes = self.clients.get(name).into_iter().flat_map(|of| of.processes.values());
        processes.map(|process| process.links.len()).sum()
    }

    /// For how long no link of a client has been live, over all its processes. `None`: a link is
    /// live, or the client has no link.
    pub(super) fn stalled(&self, name: &str) -> Option<Duration> {
        let processes = self.clients.get(name).into_iter().flat_map(|of| of.processes.values());
        let stalled: Option<Vec<_>> = processes.map(|process| process.session.stalled()).collect();
        stalled?.into_iter().min()
    }

    /// Whether another server has the services of a client, according to each of its processes
    /// that is in force.
    pub(super) fn stands_by(&self, name: &str) -> bool {
        let all = self.in_force(name);
        !all.is_empty() && all.iter().all(|session| session.is_standby())
    }

    /// The number of links of a client, whether one of them is live, and whether the client stands
    /// by.
    pub(super) fn glance(&self, name: &str) -> (usize, bool, bool) {
        let Some(of) = self.clients.get(name) else { return (0, false, false) };
        let links = of.processes.values().map(|process| process.links.len()).sum();
        let is_live = of.processes.values().any(|process| process.session.live() > 0);
        (links, is_live, self.stands_by(name))
    }

    /// Whether a client has a link.
    pub(super) fn is_connected(&self, name: &str) -> bool {
        self.clients.contains_key(name)
    }

    /// The links of a client, over all its processes except `but`.
    pub(super) fn links_of(&self, name: &str, but: Option<InstanceId>) -> Vec<OfSession> {
        let processes = self.clients.get(name).into_iter().flat_map(|of| of.processes.values());
        processes.filter(|one| Some(one.instance) != but).flat_map(Process::all).collect()
    }

    /// The session that a new link joins, and the links of older processes that it replaces.
    /// `None`: a newer process has logged in meanwhile. A session without a link is not stored: the
    /// caller adds the link by [`Self::add`] under the same lock. A process that runs `beside`
    /// others replaces only processes that do not.
    pub(super) fn in_charge(
        &self,
        grant: &Grant,
        beside: bool,
        workers: usize,
    ) -> Option<(Arc<Session>, Vec<OfSession>)> {
        let name = grant.name.as_str();
        let new = || Session::new(name, workers);
        let Some(client) = self.clients.get(name) else { return Some((new(), Vec::new())) };
        let own = client.processes.values().find(|process| {
            let is_current = client.current == Some(process.session.id);
            let joins = is_current || (beside && process.beside && client.is_in_force(process));
            process.instance == grant.instance && joins
        });
        if let Some(own) = own {
            return Some((Arc::clone(&own.session), Vec::new()));
        }
        let is_old =
            |process: &&Process| client.is_in_force(process) && !(beside && process.beside);
        let old: Vec<_> = client.processes.values().filter(is_old).collect();
        if !old.is_empty() && !grant.takeover {
            return None;
        }
        Some((new(), old.into_iter().flat_map(Process::all).collect()))
    }

    /// Adds a link, whose session is in charge from now on.
    pub(super) fn add(&mut self, id: LinkId, entry: LinkEntry) {
        let LinkEntry { placed, instance, session, beside, .. } = &entry;
        let client = self.clients.entry(session.name.clone()).or_default();
        client.newest = client.newest.max(session.id);
        // A process that stops to share a service with a further link supersedes no other.
        if !*beside && !client.processes.contains_key(&session.id) {
            client.alone = client.alone.max(session.id);
        }
        // Of processes that run side by side, the first stays in charge.
        let stays = *beside && client.current().is_some_and(|process| process.beside);
        if !stays {
            client.current = Some(session.id);
        }
        let process = client.processes.entry(session.id).or_insert_with(|| {
            let (session, links) = (Arc::clone(session), Vec::new());
            Process { instance: *instance, session, beside: *beside, links }
        });
        process.beside = *beside;
        process.links.push(*placed);
        self.ids.insert(placed.serial, id);
        self.links.insert(id, entry);
    }

    /// Removes a link. With its last link a session is not in charge any more.
    pub(super) fn remove(&mut self, serial: u64) -> Option<Removed> {
        let LinkEntry { session, .. } = self.links.remove(&self.ids.remove(&serial)?)?;
        let client = self.clients.get_mut(&session.name)?;
        let process = client.processes.get_mut(&session.id)?;
        process.links.retain(|placed| placed.serial != serial);
        let (was_last, in_charge) = (process.links.is_empty(), client.current == Some(session.id));
        let beside = process.beside;
        if was_last {
            client.processes.remove(&session.id);
            if in_charge {
                client.current = None;
                let others = client.processes.values();
                let others = others.filter(|process| client.is_in_force(process));
                client.current = others.map(|process| process.session.id).min();
            }
        }
        if client.processes.is_empty() {
            self.clients.remove(&session.name);
        }
        Some(Removed { session, was_last, in_charge, beside })
    }
}

impl Process {
    fn all(&self) -> impl Iterator<Item = OfSession> {
        self.links.iter().map(|placed| (Arc::clone(&self.session), *placed))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    use bytes::BytesMut;
    use proto::greeting::{
        Binding, ClientGreeting, ClientSetup, Features, Identity, Name, ServerEvent,
        ServerGreeting, ServerSetup, Terms, Token, Versions,
    };

    use super::*;

    pub(in super::super) fn greeting() -> Accepted {
        let (binding, versions, features) =
            (Binding::Exporter([7; 32]), Versions::OURS, Features(0));
        let token = Token::new("q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ").unwrap();
        let credential = token.stored();
        let mut client = ClientGreeting::new(ClientSetup {
            binding,
            name: Name::new("home").unwrap(),
            identity: Identity::Token(token),
            instance: InstanceId([1; 16]),
            takeover: true,
            attach: None,
            versions,
            features,
            nonce: [2; 32],
        })
        .unwrap();
        let (certificate_name, introductions, nonce) = (None, false, [3; 32]);
        let mut server = ServerGreeting::new(ServerSetup {
            binding,
            certificate_name,
            versions,
            features,
            introductions,
            links_suffice: false,
            nonce,
        });
        let (mut to_client, mut to_server) = (BytesMut::new(), BytesMut::new());
        let terms = Terms {
            new_link: LinkId::compose([1; 4], [2; 12]),
            resume_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(20),
        };
        loop {
            to_server.extend(std::iter::from_fn(|| client.poll_output()).flatten());
            server.handle_input(&mut to_server);
            while let Some(event) = server.poll_event() {
                if let ServerEvent::Decide(grant) = event {
                    let accepted = server.accept(&terms).unwrap();
                    return Accepted(*grant, accepted.secret.unwrap());
                }
                server.credentials(std::slice::from_ref(&credential));
            }
            to_client.extend(std::iter::from_fn(|| server.poll_output()).flatten());
            client.handle_input(&mut to_client);
        }
    }

    /// The log-ins of any client: a greeting that was accepted, with another name.
    pub(in super::super) struct Accepted(Grant, LinkSecret);

    impl Accepted {
        pub(in super::super) const fn grant(&self) -> &Grant {
            &self.0
        }

        pub(in super::super) fn by(&self, name: &str, instance: u8, takeover: bool) -> Self {
            let mut grant = self.0.clone();
            grant.name = Name::new(name).unwrap();
            grant.instance = InstanceId([instance; 16]);
            grant.takeover = takeover;
            Self(grant, self.1.clone())
        }
    }

    /// Logs in as `Registry::place` does. Returns the serials of the links that are to end.
    pub(in super::super) fn log_in(
        sessions: &mut Sessions,
        of: &Accepted,
        serial: u64,
    ) -> Option<Vec<u64>> {
        let Accepted(grant, secret) = of;
        let (session, old) = sessions.in_charge(grant, false, 2)?;
        let mut random = [0; 12];
        random[..8].copy_from_slice(&serial.to_be_bytes());
        let placed = Placed { worker: serial as usize % 2, serial };
        let (secret, instance) = (secret.clone(), grant.instance);
        let entry = LinkEntry { placed, secret, instance, session, beside: false };
        sessions.add(LinkId::compose([0; 4], random), entry);
        Some(old.into_iter().map(|(_, placed)| placed.serial).collect())
    }

    #[test]
    fn processes_that_share_stand_beside_each_other_and_others_take_over() {
        let (mut sessions, accepted) = (Sessions::default(), greeting());
        let mut log_in = |instance: u8, beside: bool, serial: u64| {
            let Accepted(grant, secret) = accepted.by("pod", instance, true);
            let (session, old) = sessions.in_charge(&grant, beside, 2).unwrap();
            let id = session.id;
            let (placed, instance) = (Placed { worker: 0, serial }, grant.instance);
            let entry = LinkEntry { placed, secret, instance, session, beside };
            let mut random = [0; 12];
            random[..8].copy_from_slice(&serial.to_be_bytes());
            sessions.add(LinkId::compose([0; 4], random), entry);
            let old: Vec<_> = old.into_iter().map(|(_, placed)| placed.serial).collect();
            (id, old, sessions.in_force("pod").len())
        };
        let (alone, old, count) = log_in(1, false, 1);
        assert_eq!((old, count), (vec![], 1));
        // The first that shares takes over from the process that does not.
        let (first, old, count) = log_in(2, true, 2);
        assert_eq!((old, count), (vec![1], 1));
        let (second, old, count) = log_in(3, true, 3);
        assert_eq!((old, count), (vec![], 2));
        assert_eq!(log_in(2, true, 4).0, first, "a further link of the same process");
        assert!(first != second && first != alone);
        // A process that does not share takes over from all.
        let (_, mut old, _) = log_in(4, false, 5);
        old.sort_unstable();
        assert_eq!(old, [2, 3, 4]);
        // The processes that it superseded are not in force while their links end, nor after the
        // end of the process that superseded them.
        assert_eq!(sessions.in_force("pod").len(), 1);
        let Accepted(grant, _) = accepted.by("pod", 2, false);
        assert!(sessions.in_charge(&grant, true, 2).is_none());
        let first = Arc::clone(&sessions.link(2).unwrap().session);
        let last = sessions.remove(5).unwrap().session;
        assert!(sessions.in_force("pod").is_empty());
        assert_eq!(sessions.standing(&first), Standing::Superseded(last.id));
    }

    #[test]
    fn a_process_that_stops_to_share_supersedes_no_process_beside_it() {
        let (mut sessions, accepted) = (Sessions::default(), greeting());
        let mut log_in = |instance: u8, beside: bool, serial: u64| {
            let Accepted(grant, secret) = accepted.by("pod", instance, true);
            let (session, old) = sessions.in_charge(&grant, beside, 2).unwrap();
            assert!(old.is_empty());
            let (placed, instance) = (Placed { worker: 0, serial }, grant.instance);
            let entry =
                LinkEntry { placed, secret, instance, session: Arc::clone(&session), beside };
            let mut random = [0; 12];
            random[..8].copy_from_slice(&serial.to_be_bytes());
            sessions.add(LinkId::compose([0; 4], random), entry);
            session
        };
        let [first, second, third] = [1, 2, 3].map(|n| log_in(n, true, n.into()));
        // The process in charge is the first. Its next link comes after a reload of its file.
        log_in(1, false, 4);
        for session in [&first, &second, &third] {
            assert_eq!(sessions.standing(session), Standing::InForce);
        }
        sessions.remove(1).unwrap();
        sessions.remove(4).unwrap();
        assert_eq!(sessions.in_force("pod").len(), 2);
    }

    /// The links of a client, found by a look at every link.
    fn scan(sessions: &Sessions, name: &str, but: Option<InstanceId>) -> BTreeSet<u64> {
        let all = sessions.links.values().filter(|entry| entry.session.name == name);
        all.filter(|entry| Some(entry.instance) != but).map(|entry| entry.placed.serial).collect()
    }

    #[test]
    fn a_newer_process_is_alone_while_the_links_of_the_former_process_end() {
        let (mut sessions, accepted) = (Sessions::default(), greeting());
        let mut log_in = |instance: u8| {
            log_in(&mut sessions, &accepted.by("home", instance, true), instance.into()).unwrap();
            Arc::clone(&sessions.link(instance.into()).unwrap().session)
        };
        let [first, second] = [1, 2].map(&mut log_in);
        assert!(sessions.is_alone(&second) && !sessions.is_alone(&first));
    }

    #[test]
    fn a_session_that_a_later_process_has_superseded_is_in_force_never_again() {
        let (mut sessions, accepted) = (Sessions::default(), greeting());
        let mut log_in = |instance: u8, serial: u64| {
            log_in(&mut sessions, &accepted.by("home", instance, true), serial).unwrap();
            Arc::clone(&sessions.link(serial).unwrap().session)
        };
        let [first, second] = [1, 2].map(|n| log_in(n, n.into()));
        assert!(second.id > first.id, "the numbers are in the order of the log-ins");
        assert_eq!(sessions.standing(&second), Standing::InForce);
        assert_eq!(sessions.standing(&first), Standing::Superseded(second.id));
        // The process that took over ends before the links of the former process do.
        sessions.remove(2).unwrap();
        assert_eq!(sessions.standing(&second), Standing::Ended);
        assert_eq!(sessions.standing(&first), Standing::Superseded(second.id));
        sessions.remove(1).unwrap();
        assert_eq!(sessions.standing(&first), Standing::Ended);
    }

    #[test]
    fn the_entry_of_a_client_says_what_a_look_at_all_links_says() {
        let (mut sessions, mut live) = (Sessions::default(), Vec::new());
        let accepted = greeting();
        // A fixed sequence of numbers (Knuth's MMIX generator).
        let mut state = 36_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for serial in 1..5_000 {
            let name = ["a", "b", "c"][next(3) as usize];
            if next(3) == 0 && !live.is_empty() {
                let gone = live.swap_remove(next(live.len() as u64) as usize);
                let of = sessions.link(gone).unwrap().session.name.clone();
                let id = sessions.link(gone).unwrap().session.id;
                let removed = sessions.remove(gone).unwrap();
                let left = sessions.links.values().any(|entry| entry.session.id == id);
                assert_eq!((removed.was_last, removed.session.name == of), (!left, true));
                assert!(sessions.remove(gone).is_none());
            } else {
                let of = accepted.by(name, next(3) as u8, next(2) == 0);
                let current = sessions.current(name).map(|(instance, ..)| instance);
                let others = current.is_some_and(|instance| instance != of.0.instance);
                let old = log_in(&mut sessions, &of, serial);
                assert_eq!(old.is_none(), others && !of.0.takeover);
                let Some(old) = old else { continue };
                assert_eq!(!old.is_empty(), others);
                live.push(serial);
                assert_eq!(sessions.current(name).unwrap().0, of.0.instance);
            }
            for name in ["a", "b", "c"] {
                for but in [None, Some(InstanceId([1; 16]))] {
                    let links = sessions.links_of(name, but).into_iter();
                    let links: BTreeSet<_> = links.map(|(_, placed)| placed.serial).collect();
                    assert_eq!(links, scan(&sessions, name, but));
                }
                let all = scan(&sessions, name, None);
                assert_eq!(
                    (sessions.count(name), sessions.is_connected(name)),
                    (all.len(), !all.is_empty())
                );
            }
        }
        assert!(live.len() > 10);
        live.into_iter().for_each(|serial| drop(sessions.remove(serial)));
        assert!(
            sessions.clients.is_empty() && sessions.links.is_empty() && sessions.ids.is_empty()
        );
    }

    /// The time of a log-in and of its end, beside the links of other clients.
    fn cost(others: u64) -> Duration {
        let (mut sessions, accepted) = (Sessions::default(), greeting());
        for serial in 1..=others {
            let of = accepted.by(&format!("c{serial}"), 1, true);
            log_in(&mut sessions, &of, serial).unwrap();
        }
        let own = accepted.by("own", 1, true);
        let rounds = (0..200).map(|_| {
            let began = Instant::now();
            for serial in others + 1..=others + 8 {
                log_in(&mut sessions, &own, serial).unwrap();
            }
            (others + 1..=others + 8).for_each(|serial| drop(sessions.remove(serial)));
            began.elapsed()
        });
        rounds.min().unwrap()
    }

    #[test]
    #[ignore = "measures time: the long step `timed`"]
    fn a_log_in_costs_as_much_beside_10_000_links_as_beside_100() {
        let (few, many) = (cost(100), cost(10_000));
        println!("8 links log in and end: {few:?} beside 100 links, {many:?} beside 10,000");
        assert!(many.as_secs_f64() < 1.3 * few.as_secs_f64());
    }
}
