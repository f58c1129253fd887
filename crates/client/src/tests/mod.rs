//! Tests of links that use up their stream ids or break under real visitors: a client and a server
//! as in two processes, over loopback.

mod certified;
mod choosing;
mod claims;
mod detours;
mod measured;
mod old_server;
mod roaming;
mod stun;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use config::{ClientFlags, Loaded, Problem, ServerFlags, Sources, Text};
use ops::status::{LinkState, ServiceState};
use proto::greeting::Features;
use proto::{Measure, Open, Priority, ResetCode, StreamId, Target};
use testkit::origins::Origin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use transport::{Connector, Outlet};

use super::*;
use node::session::Worker;
use server::Server;

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The limit of each wait. Milliseconds suffice; a visitor is held for 10 s.
const SOON: Duration = Duration::from_secs(15);

/// The streams of one opener on a link whose stream ids are limited.
const STREAMS: u32 = 20;

struct Tunnel {
    server: Server,
    client: Client,
    public: SocketAddr,
    forward: SocketAddr,
    _origin: Origin,
}

#[derive(Clone, Copy, Debug)]
struct Worn {
    client: bool,
    server: bool,
}

impl Tunnel {
    async fn start(worn: Worn) -> Self {
        let origin = Origin::echo().unwrap();
        let (public, forward, target) = (free_port(), free_port(), origin.address());
        let text = format!(
            "listen: tcp://127.0.0.1:0\nworkers: 2\npublic_bind: 127.0.0.1\nclients:\n  - {{ name: \
             home, token: {TOKEN}, allow: {{ tcp: {}, forward: \"{target}\" }} }}\n",
            public.port()
        );
        let text = Text { name: "server.yaml", text: &text };
        let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
        let link = link_config(&config.common, worn.server);
        let server =
            Server::start_with(config, None, (link, Features::OURS), None, None).await.unwrap();
        let url = server.listen().first().unwrap();
        let text = format!(
            "servers: {url}\nname: home\ntoken: {TOKEN}\nworkers: 2\nconnections: 2\nretry: {{ min: \
             5ms, max: 20ms }}\nservices:\n  - {{ name: echo, target: \"tcp://{target}\", public: \
             \"tcp://:{}\" }}\nforwards:\n  - {{ listen: \"tcp://{forward}\", target: \
             \"tcp://{target}\" }}\n",
            public.port()
        );
        let text = Text { name: "client.yaml", text: &text };
        let config = loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()));
        let link = link_config(&config.common, worn.client);
        let client = Client::start_with(config, link, None).await.unwrap();
        let tunnel = Self { server, client, public, forward, _origin: origin };
        tunnel.wait_states("two links", |states| states == [LinkState::Up; 2]).await;
        tunnel
            .wait("the service", |client, _| {
                client.sessions[0].services[0].state == ServiceState::Up
            })
            .await;
        tunnel
    }

    async fn wait(&self, what: &str, is_so: impl Fn(&Status, &Status) -> bool) {
        let poll = async {
            loop {
                let both = (self.client.status().await, self.server.status().await);
                if is_so(&both.0, &both.1) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = timeout(SOON, poll).await;
        assert!(found.is_ok(), "never: {what}; {:?}", self.client.status().await.sessions);
    }

    /// Waits until both ends show links of such states.
    async fn wait_states(&self, what: &str, is_so: impl Fn(&[LinkState]) -> bool) {
        self.wait(what, |client, server| {
            [client, server].into_iter().all(|status| {
                let links = status.sessions.iter().flat_map(|session| &session.links);
                let states: Vec<_> = links.map(|link| link.state.state()).collect();
                is_so(&states)
            })
        })
        .await;
    }

    /// The highest number of a link so far.
    async fn links_ever(&self) -> u64 {
        let sessions = self.server.status().await.sessions;
        sessions.iter().flat_map(|session| &session.links).map(|link| link.serial).max().unwrap()
    }

    async fn stop(self) {
        self.client.close().await;
        self.server.close().await;
    }
}

fn link_config(common: &Common, worn: bool) -> LinkConfig {
    let last_id = if worn { StreamId::new(2 * STREAMS) } else { StreamId::LAST };
    LinkConfig { last_id, ..memory::link_config(common) }
}

fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("no files".to_owned()) }
}

fn loaded<C>(outcome: Result<Loaded<C>, Vec<Problem>>) -> C {
    outcome.unwrap().config
}

fn free_port() -> SocketAddr {
    // The runner of the tests reserves ports for each test program.
    (Ipv4Addr::LOCALHOST, testkit::stage::free_port()).into()
}

/// Connects through the tunnel and checks that the bytes come back.
async fn visit(door: SocketAddr, word: &str) -> TcpStream {
    let mut visitor = TcpStream::connect(door).await.unwrap();
    converse(&mut visitor, word).await;
    visitor
}

async fn converse(visitor: &mut TcpStream, word: &str) {
    let mut heard = vec![0; word.len()];
    let talk = async {
        visitor.write_all(word.as_bytes()).await?;
        visitor.read_exact(&mut heard).await
    };
    let outcome = timeout(SOON, talk).await;
    assert!(matches!(outcome, Ok(Ok(_))), "visitor {word} was turned away: {outcome:?}");
    assert_eq!(heard, word.as_bytes());
}

/// Fifty visitors connect one after the other; every tenth stays.
async fn crowd(door: SocketAddr, first: u32) -> Vec<(String, TcpStream)> {
    let mut staying = Vec::new();
    for n in first..first + 50 {
        let word = format!("{door} {n}");
        let visitor = visit(door, &word).await;
        if n % 10 == 0 {
            staying.push((word, visitor));
        }
    }
    staying
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_whose_ids_are_used_up_turn_no_visitor_away_and_keep_those_who_stay() {
    for (client, server) in [(true, false), (false, true), (true, true)] {
        let tunnel = Tunnel::start(Worn { client, server }).await;
        let doors = [tunnel.public, tunnel.forward];
        let crowds = doors.into_iter().flat_map(|door| (0..3).map(move |n| (door, n * 50)));
        #[expect(clippy::disallowed_methods, reason = "visitors are no tasks of a worker")]
        let crowds: Vec<_> = crowds.map(|(door, n)| tokio::spawn(crowd(door, n))).collect();
        let mut staying = Vec::new();
        for crowd in crowds {
            staying.extend(crowd.await.unwrap());
        }
        let ever = tunnel.links_ever().await;
        println!("client {client}, server {server}: {ever} links, {} stay", staying.len());
        assert!(ever >= 8, "{ever} links for 150 visitors of each door");
        tunnel
            .wait_states("old links beside new ones", |states| {
                states.contains(&LinkState::GoingAway)
                    && states.iter().filter(|state| **state == LinkState::Up).count() == 2
            })
            .await;
        for (word, visitor) in &mut staying {
            converse(visitor, word).await;
        }
        drop(staying);
        tunnel.wait_states("the new links only", |states| states == [LinkState::Up; 2]).await;
        visit(tunnel.public, "again").await;
        tunnel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_told_to_stop_makes_no_further_link() {
    let tunnel = Tunnel::start(Worn { client: false, server: true }).await;
    let mut stays = visit(tunnel.public, "stays").await;
    let before = tunnel.links_ever().await;
    let drained = tunnel.client.drain();
    let meanwhile = async {
        // Links ask to be replaced while the last visitor is still there.
        for handle in tunnel.server.handles().iter() {
            let all = |worker: &Rc<Worker>| {
                worker.state.all_links().iter().for_each(|(_, link)| link.go_away());
            };
            handle.call(all).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(tunnel.links_ever().await, before);
        converse(&mut stays, "still here").await;
        drop(stays);
    };
    let (drained, ()) = tokio::join!(timeout(SOON, drained), meanwhile);
    drained.unwrap();
    tunnel.client.close().await;
    tunnel.wait("no session", |_, server| server.sessions.is_empty()).await;
    tunnel.stop().await;
}

/// An outlet that panics at the first byte, and notifies when its stream is reset.
#[derive(Debug, Default)]
struct Defect(Notify);

impl Outlet for Defect {
    fn deliver(&self, _pieces: &mut VecDeque<Bytes>) -> usize {
        panic!("a defect, for a test");
    }
    fn finish(&self) {}
    fn reset(&self, _code: ResetCode) {
        self.0.notify_one();
    }
    fn stop(&self, _code: ResetCode) {}
    fn room(&self) {}
}

/// Causes the panic in a task of one of this worker's links. The inlet is kept, because dropping it
/// would reset the stream before the answer comes.
fn run_into_a_defect(worker: &Rc<Worker>) -> bool {
    let Some((_, link)) = worker.state.all_links().pop() else { return false };
    let (target, priority) = (Target::Service("echo".into()), Priority::Normal);
    let defect = Rc::<Defect>::default();
    let open = Open { target, visitor: None, priority, fields: None };
    let inlet = link.open(open, Rc::<Defect>::clone(&defect)).unwrap();
    let mut frame = BytesMut::zeroed(proto::HEAD_ROOM + 1);
    inlet.send(&mut frame);
    tokio::task::spawn_local(async move {
        defect.0.notified().await;
        drop(inlet);
    });
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_task_of_a_link_ends_that_link_and_nothing_else() {
    let tunnel = Tunnel::start(Worn { client: false, server: false }).await;
    let mut visitors = Vec::new();
    for n in 0..16 {
        visitors.push(visit(tunnel.public, &format!("visitor {n}")).await);
    }
    let mut streams = 0;
    tunnel.wait("all streams", |_, server| server.sessions[0].services[0].streams == 16).await;
    for link in &tunnel.server.status().await.sessions[0].links {
        if link.worker == 0 {
            streams += link.streams;
        }
    }
    assert!(tunnel.server.handles()[0].call(run_into_a_defect).await.unwrap());
    // That link's visitors are reset, the others' go on, and there is a new link for the next.
    tunnel
        .wait("another link", |_, server| {
            let links = server.sessions.iter().flat_map(|session| &session.links);
            links.filter(|link| link.state == LinkState::Up && link.serial > 2).count() == 1
        })
        .await;
    tunnel.wait_states("two links", |states| states == [LinkState::Up; 2]).await;
    let mut reset = 0;
    for visitor in &mut visitors {
        let outcome = timeout(SOON, async {
            visitor.write_all(b"?").await?;
            visitor.read_exact(&mut [0]).await
        });
        reset += u64::from(outcome.await.expect("an answer or a reset").is_err());
    }
    assert_eq!(reset, streams);
    visit(tunnel.public, "next").await;
    visit(tunnel.forward, "next").await;
    tunnel.stop().await;
}

/// Reports the code with which the peer ended the stream.
#[derive(Debug)]
struct Ended(RefCell<Option<oneshot::Sender<ResetCode>>>);

impl Outlet for Ended {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        pieces.drain(..).map(|piece| piece.len()).sum()
    }
    fn finish(&self) {}
    fn reset(&self, code: ResetCode) {
        if let Some(tell) = self.0.take() {
            let _ = tell.send(code);
        }
    }
    fn stop(&self, _code: ResetCode) {}
    fn room(&self) {}
}

/// Asks the client of a link of this worker to measure. The result is the code with which the
/// client ends the stream.
fn demand(worker: &Rc<Worker>, measure: Measure, bytes: usize) -> oneshot::Receiver<ResetCode> {
    let (reply, answer) = oneshot::channel();
    let (_, link) = worker.state.all_links().pop().unwrap();
    let (tell, allowed) = oneshot::channel();
    let target = Target::Measure(measure);
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    let inlet = link.open(open, Rc::new(Ended(RefCell::new(Some(tell))))).unwrap();
    inlet.send(&mut BytesMut::zeroed(proto::HEAD_ROOM + bytes));
    tokio::task::spawn_local(async move {
        let _ = reply.send(allowed.await.unwrap());
        drop(inlet);
    });
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_sends_back_a_few_bytes_of_its_server_and_measures_nothing_else_for_it() {
    let tunnel = Tunnel::start(Worn { client: false, server: false }).await;
    let ping = tunnel.server.ping(SOON).await;
    assert!(ping.ok && ping.omitted == 0 && ping.links.len() == 2, "{ping:?}");
    assert!(ping.links.iter().all(|pong| pong.micros.is_some() && pong.peer == "home"), "{ping:?}");
    let nothing = Measure::Target { service: "nothing".parse().unwrap() };
    for (measure, bytes, code) in [
        (nothing, 1, ResetCode::Unknown),
        (Measure::Echo, 1025, ResetCode::Limit),
        (Measure::Sink, 1, ResetCode::Denied),
        (Measure::Source { millis: 1000 }, 1, ResetCode::Denied),
    ] {
        let handle = &tunnel.server.handles()[0];
        let text = measure.to_string();
        let answer = handle.call(move |worker| demand(worker, measure, bytes)).await.unwrap();
        assert_eq!(timeout(SOON, answer).await.unwrap(), Ok(code), "{text}");
    }
    tunnel.wait_states("the same links", |states| states == [LinkState::Up; 2]).await;
    assert_eq!(tunnel.links_ever().await, 2);

    // A ping without clients is not a failure.
    tunnel.client.close().await;
    tunnel.wait("no session", |_, server| server.sessions.is_empty()).await;
    let ping = tunnel.server.ping(SOON).await;
    assert!(ping.ok && ping.links.is_empty() && ping.trouble.is_some(), "{ping:?}");
    tunnel.stop().await;
}
