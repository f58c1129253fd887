//! The links of a worker, by their sessions.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::link::Link;
use proto::Priority;
use proto::greeting::Features;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::spread::{self, Goodput, least_round_trip, most_goodput};
use super::{Session, State, Worker};

/// A link without a carrier counts as silent after this time, like a link whose peer owes a
/// response (`proto/src/link/liveness.rs`). A running client has usually reconnected by then.
pub const AWAY: Duration = Duration::from_secs(1);

/// The visitors that should leave a silent link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// Visitors of whom no bytes were carried: they lose nothing by a failover.
    Fresh,
    /// All visitors that another client can serve.
    All,
}

/// The links by session id.
#[derive(Default)]
pub(super) struct Links {
    members: Rc<Members>,
    turn: Cell<usize>,
    /// Whether a task measures the goodput of links.
    measures: Rc<Cell<bool>>,
}

type Members = RefCell<HashMap<u64, Vec<Member>>>;

struct Member {
    session: Arc<Session>,
    link: Link,
    live: bool,
    /// Whether the peer is responsive: it owes no overdue response. False for a link that is not
    /// live.
    answers: bool,
    stays: bool,
    /// The goodput of a link whose client spreads its links over several paths.
    goodput: Option<Goodput>,
}

impl Member {
    fn note_answers(&mut self, worker: usize, answers: bool) {
        if std::mem::replace(&mut self.answers, answers) != answers {
            let count = &self.session.answering[worker];
            if answers {
                count.fetch_add(1, Ordering::Relaxed);
            } else {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

impl State {
    /// Adds a new link of the session to this worker.
    pub fn add_link(&self, worker: usize, session: &Arc<Session>, link: &Link) {
        let member = Member {
            session: Arc::clone(session),
            link: link.clone(),
            live: false,
            answers: false,
            stays: true,
            goodput: link.features().have(Features::SPREADS).then(Goodput::default),
        };
        if member.goodput.is_some() && !self.links.measures.replace(true) {
            spawn_local(measure(
                Rc::downgrade(&self.links.members),
                Rc::clone(&self.links.measures),
            ));
        }
        self.links.members.borrow_mut().entry(session.id).or_default().push(member);
        session.links[worker].fetch_add(1, Ordering::Relaxed);
        session.staying[worker].fetch_add(1, Ordering::Relaxed);
        session.steer();
    }

    /// Records whether a link accepts streams. A link that is going away accepts none, even after
    /// it resumes on another carrier.
    pub fn set_live(&self, worker: usize, session: &Session, serial: u64, live: bool) {
        let mut links = self.links.members.borrow_mut();
        let members = links.get_mut(&session.id).map_or(&mut [][..], Vec::as_mut_slice);
        let Some(member) = members.iter_mut().find(|member| member.link.serial() == serial) else {
            return;
        };
        let goes = member.link.is_going_away() || member.link.has_ended();
        let left = goes && std::mem::replace(&mut member.stays, false);
        if left {
            session.staying[worker].fetch_sub(1, Ordering::Relaxed);
        }
        let live = live && !goes;
        member.note_answers(worker, live);
        let has_changed = std::mem::replace(&mut member.live, live) != live;
        if has_changed {
            if live {
                session.live[worker].fetch_add(1, Ordering::Relaxed);
                session.revived.notify_waiters();
            } else {
                session.live[worker].fetch_sub(1, Ordering::Relaxed);
                session.note_loss();
            }
        }
        drop(links);
        if left || has_changed {
            session.steer();
        }
    }

    /// Records whether the peer of a live link is responsive.
    pub fn set_answers(&self, worker: usize, session: &Session, serial: u64, answers: bool) {
        let mut links = self.links.members.borrow_mut();
        let members = links.get_mut(&session.id).map_or(&mut [][..], Vec::as_mut_slice);
        let mut members = members.iter_mut();
        let Some(member) = members.find(|member| member.link.serial() == serial) else { return };
        let answers = answers && member.live;
        member.note_answers(worker, answers);
        let link = member.link.clone();
        drop(links);
        session.steer();
        if answers {
            return;
        }
        let name = session.name.as_str();
        tracing::debug!(
            link = serial,
            peer = name,
            "link {serial} does not answer; new visitors go elsewhere if they can"
        );
        forsake(&link, Leave::All);
    }

    /// Removes a link that has ended and keeps its totals.
    pub fn remove_link(&self, worker: usize, session: &Session, serial: u64) {
        self.set_live(worker, session, serial, false);
        let mut links = self.links.members.borrow_mut();
        if let Some(members) = links.get_mut(&session.id) {
            let before = members.len();
            members.retain(|member| {
                let stays = member.link.serial() != serial;
                if !stays {
                    let stayed = u32::from(member.stays);
                    session.staying[worker].fetch_sub(stayed, Ordering::Relaxed);
                    let (received, sent, resumes) = member.link.totals();
                    let past = session.past.get(worker).into_iter().flatten();
                    for (sum, part) in past.zip([received, sent, resumes]) {
                        sum.fetch_add(part, Ordering::Relaxed);
                    }
                }
                stays
            });
            let gone = u32::try_from(before - members.len()).unwrap_or(0);
            session.links[worker].fetch_sub(gone, Ordering::Relaxed);
            if members.is_empty() {
                links.remove(&session.id);
            }
        }
        drop(links);
        session.steer();
    }

    /// A link of the session for a new flow: a live link, or a link that waits for a carrier,
    /// together with which the flow waits.
    pub(crate) fn flow_link(&self, session: &Session) -> Option<Link> {
        self.live_link(session).or_else(|| {
            let links = self.links.members.borrow();
            let mut members = links.get(&session.id)?.iter();
            let waits = members.find(|member| !member.link.is_going_away())?;
            Some(waits.link.clone())
        })
    }

    /// Returns a live link of the session on this worker. Several live links take turns. An
    /// unresponsive link is used only if no live link is responsive.
    pub fn live_link(&self, session: &Session) -> Option<Link> {
        let links = self.links.members.borrow();
        let members = links.get(&session.id)?;
        let turn = self.links.turn.get();
        self.links.turn.set(turn.wrapping_add(1));
        let in_turn = || (0..members.len()).map(|n| &members[turn.wrapping_add(n) % members.len()]);
        let found = in_turn().find(|member| member.answers);
        let found = found.or_else(|| in_turn().find(|member| member.live));
        found.map(|member| member.link.clone())
    }

    /// The link for a stream of this priority, where `link` is the link whose turn it is. The links
    /// of a client that spreads them over several paths are chosen by what a stream needs: an
    /// interactive stream by the round trip, a bulk stream by the goodput.
    pub fn link_of_class(&self, session: &Session, link: Link, priority: Priority) -> Link {
        // The path of all other streams.
        if priority == Priority::Normal || !link.features().have(Features::SPREADS) {
            return link;
        }
        let mut links = self.links.members.borrow_mut();
        let Some(members) = links.get_mut(&session.id) else { return link };
        let turn = self.links.turn.get();
        let count = members.len();
        let in_turn =
            || (0..count).map(|n| &members[turn.wrapping_add(n) % count]).filter(|m| m.answers);
        let chosen = match priority {
            Priority::Interactive => least_round_trip(in_turn().map(|m| m.link.round_trip())),
            Priority::Bulk => most_goodput(in_turn().map(|member| {
                let streams = u64::try_from(member.link.stream_count()).unwrap_or(u64::MAX);
                (member.goodput.unwrap_or_default(), streams)
            })),
            Priority::Normal => None,
        };
        let chosen = chosen.and_then(|nth| Some(in_turn().nth(nth)?.link.clone()));
        let Some(chosen) = chosen else { return link };
        if priority == Priority::Bulk {
            let serial = chosen.serial();
            let member = members.iter_mut().find(|member| member.link.serial() == serial);
            if let Some(goodput) = member.and_then(|member| member.goodput.as_mut()) {
                goodput.assign();
            }
        }
        chosen
    }

    /// The link of this worker for a visitor of the session. `None`: the visitor has to wait, or
    /// another worker has a responsive link and this worker has none.
    pub fn visitor_link(&self, worker: usize, session: &Session) -> Option<Link> {
        let is_silent = session.answers_on(worker) == 0 && session.answers();
        if is_silent { None } else { self.live_link(session) }
    }

    /// The link with this serial.
    pub fn link(&self, session: &Session, serial: u64) -> Option<Link> {
        let links = self.links.members.borrow();
        let member = links.get(&session.id)?.iter().find(|m| m.link.serial() == serial)?;
        Some(member.link.clone())
    }

    /// The link with this serial, if it waits for a carrier.
    fn stalled_link(&self, session: &Session, serial: u64) -> Option<Link> {
        let links = self.links.members.borrow();
        let link = &links.get(&session.id)?.iter().find(|m| m.link.serial() == serial)?.link;
        (!link.is_live() && !link.has_ended()).then(|| link.clone())
    }

    /// Lets visitors leave the lost or silent links of a session on this worker, if another client
    /// can serve them.
    pub fn leave_silent(&self, session: u64) {
        let links = self.links.members.borrow();
        let members = links.get(&session).into_iter().flatten();
        let silent = members.filter(|member| {
            let is_lost = !member.link.is_live() && !member.link.has_ended();
            is_lost || member.live && !member.answers
        });
        let silent: Vec<_> = silent.map(|member| member.link.clone()).collect();
        drop(links);
        silent.iter().for_each(|link| forsake(link, Leave::All));
    }

    /// The ids of the sessions with clients or servers that have a link on this worker.
    pub fn session_ids(&self) -> Vec<u64> {
        let links = self.links.members.borrow();
        let is_of_node =
            |members: &[Member]| members.first().is_some_and(|one| one.session.is_of_node());
        links.iter().filter(|(_, members)| !is_of_node(members)).map(|(id, _)| *id).collect()
    }

    /// The links of a session on this worker. Links that are going away are included.
    pub fn links_of(&self, session: u64) -> Vec<(Arc<Session>, Link)> {
        let links = self.links.members.borrow();
        let members = links.get(&session).into_iter().flatten();
        members.map(|m| (Arc::clone(&m.session), m.link.clone())).collect()
    }

    /// Calls `show` with each link of a session on this worker. Links that are going away are
    /// included.
    pub fn each_link_of(&self, session: u64, mut show: impl FnMut(&Session, &Link)) {
        let links = self.links.members.borrow();
        let members = links.get(&session).into_iter().flatten();
        members.for_each(|member| show(&member.session, &member.link));
    }

    /// All links of this worker with their sessions. Links that are going away are included.
    pub fn all_links(&self) -> Vec<(Arc<Session>, Link)> {
        let links = self.links.members.borrow();
        links.values().flatten().map(|m| (Arc::clone(&m.session), m.link.clone())).collect()
    }
}

/// Measures the goodput of the links whose clients spread them, until there is no such link.
async fn measure(members: Weak<Members>, measures: Rc<Cell<bool>>) {
    loop {
        sleep(spread::LOOK).await;
        let Some(members) = members.upgrade() else { return };
        let mut is_needed = false;
        for member in members.borrow_mut().values_mut().flatten() {
            let Some(goodput) = &mut member.goodput else { continue };
            is_needed = true;
            let (received, sent, _) = member.link.totals();
            goodput.look(received.saturating_add(sent));
        }
        if !is_needed {
            measures.set(false);
            return;
        }
    }
}

/// Lets visitors leave a link of this worker that has lost its carrier, if another client can serve
/// them: at once the visitors of whom no bytes were carried, and the others if the link does not
/// resume soon.
pub fn note_stall(worker: &Rc<Worker>, session: &Arc<Session>, serial: u64) {
    let Some(link) = worker.state.link(session, serial) else { return };
    forsake(&link, Leave::Fresh);
    let (worker, session) = (Rc::clone(worker), Arc::clone(session));
    spawn_local(async move {
        sleep(AWAY).await;
        if let Some(link) = worker.state.stalled_link(&session, serial) {
            forsake(&link, Leave::All);
        }
    });
}

/// Signals the visitors of a silent link to fail over if they can.
fn forsake(link: &Link, leave: Leave) {
    for (stream, outlet) in link.streams(0..link.stream_slots()) {
        let leaves = leave == Leave::All || stream.sent == 0;
        if let Some(outlet) = outlet.filter(|_| stream.is_ours && leaves) {
            outlet.silent();
        }
    }
    for (flow, outlet) in link.flows(0..link.flow_slots()) {
        let leaves = leave == Leave::All || flow.received.datagrams == 0;
        if let Some(outlet) = outlet.filter(|_| flow.is_ours && leaves) {
            outlet.silent();
        }
    }
}
