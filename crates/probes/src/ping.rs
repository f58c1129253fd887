//! Round trips through links: an echo of eight bytes over a separate stream. Either end may ping,
//! on the workers that own the links.
//!
//! A client pings over all links of its session. A server may have thousands of links: it pings
//! over at most [`LINKS_MAX`] links at a time, and over other links the next time.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use link::Link;
use ops::term;
use proto::{Measure, ResetCode};
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use transport::Connector;

use super::near::{ask_for, refusal};
use super::send::send_all;
use super::signals::Signals;
use node::session::{Handle, Session, Worker};
use ops::measure::{Ping, Pong};

/// The bytes that an echo sends back.
const QUESTION: [u8; 8] = *b"tunnel??";

/// The maximum number of links over which a server pings at a time. They cost its workers a few
/// milliseconds, independent of the number of clients.
const LINKS_MAX: usize = 256;

/// The role of the other side, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Far {
    Server,
    Client,
}

/// The reason for a missing answer.
#[derive(Debug)]
enum Silence {
    /// The other side refused. The refusal itself arrived over the link.
    Refused(ResetCode),
    Other(String),
}

type Answer = oneshot::Receiver<Result<u64, Silence>>;

/// The serial of the last link over which a server sent a ping. The next ping starts after it.
#[derive(Debug, Default)]
pub struct PingRotation(AtomicU64);

impl PingRotation {
    /// Chooses the next serials, at most [`LINKS_MAX`], and returns them in order with the number
    /// of omitted links. The chosen links follow the last choice in the order of serials, so they
    /// are the links whose last ping is oldest.
    fn choose(&self, mut all: Vec<u64>) -> (Vec<u64>, usize) {
        all.sort_unstable();
        let omitted = all.len().saturating_sub(LINKS_MAX);
        if omitted > 0 {
            let last = self.0.load(Ordering::Relaxed);
            let next = all.partition_point(|serial| *serial <= last);
            all.rotate_left(next);
            all.truncate(LINKS_MAX);
            self.0.store(all.last().copied().unwrap_or(0), Ordering::Relaxed);
            all.sort_unstable();
        }
        (all, omitted)
    }
}

/// Pings over each link of a client's session, one round trip each.
pub async fn ping(handles: &[Handle], session: &Arc<Session>, patience: Duration) -> Ping {
    let id = session.id;
    let links = round(handles, patience, Far::Server, move |of, _| of.id == id).await;
    let ok = links.iter().any(|pong| pong.micros.is_some());
    Ping { peer: session.name.clone(), ok, links, ..Ping::default() }
}

/// Pings over each link of a server, or over the links whose turn it is.
pub async fn ping_clients(handles: &[Handle], turn: &PingRotation, patience: Duration) -> Ping {
    let mut serials = Vec::new();
    for handle in handles {
        let list = |worker: &Rc<Worker>| -> Vec<u64> {
            let links = worker.state.all_links().into_iter();
            // Another node of the cluster is no client.
            let of_clients = links.filter(|(of, link)| !of.is_of_node() && !link.is_going_away());
            of_clients.map(|(_, link)| link.serial()).collect()
        };
        serials.extend(handle.call(list).await.unwrap_or_default());
    }
    let (chosen, omitted) = turn.choose(serials);
    let chosen = Arc::new(chosen);
    let is_chosen = move |_: &Session, link: &Link| chosen.binary_search(&link.serial()).is_ok();
    let links = round(handles, patience, Far::Client, is_chosen).await;
    let ok = links.is_empty() || is_reached(&links);
    let trouble = links.is_empty().then(|| "no client is connected".to_owned());
    Ping { peer: "clients".to_owned(), ok, trouble, links, omitted }
}

/// Whether a client is at the other end of any link. A sleeping client does not indicate a fault of
/// the server while another client answers. A client that refuses the echo, because its version is
/// older, is reachable.
fn is_reached(links: &[Pong]) -> bool {
    links.iter().any(|pong| pong.micros.is_some() || pong.refused)
}

/// Pings concurrently over all links for which `is_meant` is true.
async fn round(
    handles: &[Handle],
    patience: Duration,
    far: Far,
    is_meant: impl Fn(&Session, &Link) -> bool + Clone + Send + 'static,
) -> Vec<Pong> {
    let mut asked = Vec::new();
    for handle in handles {
        let is_meant = is_meant.clone();
        // A worker that has stopped has no links.
        asked.extend(handle.call(move |worker| ask(worker, is_meant)).await.unwrap_or_default());
    }
    let deadline = tokio::time::Instant::now() + patience;
    let mut links = Vec::new();
    for (mut pong, answer) in asked {
        match timeout_at(deadline, answer).await {
            Ok(Ok(Ok(micros))) => pong.micros = Some(micros),
            Ok(Ok(Err(Silence::Refused(code)))) => {
                pong.refused = true;
                pong.error = Some(far.refusal(code));
            }
            Ok(Ok(Err(Silence::Other(why)))) => pong.error = Some(why),
            Ok(Err(_)) => pong.error = Some("the link ended".to_owned()),
            Err(_) => pong.error = Some(format!("no answer within {} ms", patience.as_millis())),
        }
        links.push(pong);
    }
    links.sort_by_key(|pong| pong.link);
    links
}

impl Far {
    fn refusal(self, code: ResetCode) -> String {
        match (self, code) {
            (Self::Client, ResetCode::Denied | ResetCode::Unknown) => {
                "the client does not know how: it is older".to_owned()
            }
            (Self::Client, ResetCode::Limit) => "the client is busy with others".to_owned(),
            (Self::Client | Self::Server, code) => refusal(code),
        }
    }
}

/// Pings over the matching links of this worker.
fn ask(worker: &Rc<Worker>, is_meant: impl Fn(&Session, &Link) -> bool) -> Vec<(Pong, Answer)> {
    let links = worker.state.all_links().into_iter();
    // A link that is going away accepts no more streams; its successor is pinged.
    let links = links.filter(|(of, link)| is_meant(of, link) && !link.is_going_away());
    let ask = |(session, link): (Arc<Session>, Link)| {
        let (reply, answer) = oneshot::channel();
        let pong = pong_of(&session, &link);
        if link.is_live() {
            tokio::task::spawn_local(async move { question(link, reply).await });
        } else {
            // The receiver still exists, so the send succeeds.
            let _ = reply.send(Err(Silence::Other("no connection".to_owned())));
        }
        (pong, answer)
    };
    links.map(ask).collect()
}

fn pong_of(session: &Session, link: &Link) -> Pong {
    let peer = link.active_peer();
    Pong {
        link: link.serial(),
        peer: session.name.clone(),
        transport: peer.as_ref().map_or_else(String::new, |peer| peer.transport.name().to_owned()),
        address: peer.map_or_else(String::new, |peer| term::address(peer.address)),
        ..Pong::default()
    }
}

async fn question(link: Link, mut reply: oneshot::Sender<Result<u64, Silence>>) {
    let signals = Rc::new(Signals::of_echo());
    let begin = Instant::now();
    let inlet = match link.open(ask_for(Measure::Echo), Rc::<Signals>::clone(&signals)) {
        Ok(inlet) => inlet,
        Err(error) => return drop(reply.send(Err(Silence::Other(error.to_string())))),
    };
    let answer = async {
        send_all(&QUESTION, &*inlet, &signals).await?;
        inlet.finish();
        signals.end().await
    };
    let outcome = tokio::select! {
        outcome = answer => outcome,
        // The caller no longer waits.
        () = reply.closed() => return,
    };
    let micros = |at: Instant| at.duration_since(begin).as_micros().try_into().unwrap_or(u64::MAX);
    let answer = match (outcome, signals.first()) {
        (_, Some(at)) => Ok(micros(at)),
        (Err(code @ (ResetCode::Denied | ResetCode::Unknown | ResetCode::Limit)), None) => {
            Err(Silence::Refused(code))
        }
        (Err(code), None) => Err(Silence::Other(refusal(code))),
        (Ok(()), None) => Err(Silence::Other("an empty answer".to_owned())),
    };
    let _ = reply.send(answer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_refuses_does_not_answer_and_is_there_all_the_same() {
        let silent = Pong { error: Some("no answer within 3 ms".to_owned()), ..Pong::default() };
        let old = Pong { refused: true, ..silent.clone() };
        let well = Pong { micros: Some(1), ..Pong::default() };
        for (links, is_well) in [
            (vec![silent.clone()], false),
            (vec![silent.clone(), old], true),
            (vec![silent, well], true),
        ] {
            assert_eq!(is_reached(&links), is_well, "{links:?}");
        }
        let why = Far::Client.refusal(ResetCode::Denied);
        assert_eq!(why, "the client does not know how: it is older");
    }

    #[test]
    fn few_links_are_all_asked_and_many_in_turns() {
        let turn = PingRotation::default();
        let few: Vec<u64> = (0..LINKS_MAX as u64).rev().collect();
        let (chosen, omitted) = turn.choose(few);
        assert_eq!((chosen.len(), omitted), (LINKS_MAX, 0));
        assert!(chosen.is_sorted());

        let many: Vec<u64> = (1..=3 * LINKS_MAX as u64 + 10).collect();
        let mut asked = vec![0_u32; many.len() + 1];
        for _ in 0..4 {
            let (chosen, omitted) = turn.choose(many.clone());
            assert_eq!((chosen.len(), omitted), (LINKS_MAX, many.len() - LINKS_MAX));
            assert!(chosen.is_sorted());
            chosen.iter().for_each(|serial| asked[usize::try_from(*serial).unwrap()] += 1);
        }
        assert!(asked[1..].iter().all(|times| (1..=2).contains(times)), "{asked:?}");
    }
}
