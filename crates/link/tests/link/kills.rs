//! A conversation whose connection is killed at every byte.

use std::rc::Rc;

use proto::ResetCode;
use proto::control::{ControlMessage, Register};
use transport::memory::Faults;

use crate::rig::{
    Appetite, Client, Cut, Killer, Rules, Scripted, Server, Tls, open, path, plan, really, serve,
    until, virtually,
};

/// The number of bytes sent in each direction.
#[derive(Clone, Copy)]
struct Script {
    up: u64,
    down: u64,
}

const SHORT: Script = Script { up: 700, down: 500 };
/// Beyond the implicit window, so that credit is needed.
const LONG: Script = Script { up: 60_000, down: 45_000 };

/// Streams of both sides, an abort and a message. Every byte and every end must come.
async fn converse(server: &Server, client: &Client, script: Script) {
    let link = client.live().await;
    let far = server.owner();
    let before = far.messages.borrow().len();
    let register = Register { generation: 1, services: Vec::new(), leaving: false, standby: false };
    assert!(link.send_message(&ControlMessage::Register(register)));
    let asked = open(&link, "asked", Appetite::SOME);
    let asking = async {
        let (sent, tap) = tokio::join!(asked.send_pattern(script.up), far.next_tap());
        assert!(sent && tap.send_pattern(script.down).await);
        until("both ends of a stream", || asked.is_over() && tap.is_over()).await;
        tap.assert_pattern(script.up);
        asked.assert_pattern(script.down);
    };
    let served = async {
        // The server's stream begins when its link has been seen to work.
        let links = server.links();
        let near = open(links.last().unwrap(), "served", Appetite::ALL);
        let (sent, tap) = tokio::join!(near.send_pattern(script.down), client.owner.next_tap());
        assert!(sent && tap.send_pattern(script.down / 3).await);
        until("both ends of a stream", || near.is_over() && tap.is_over()).await;
        tap.assert_pattern(script.down);
        near.assert_pattern(script.down / 3);
    };
    tokio::join!(asking, served);
    let aborted = open(&link, "aborted", Appetite::ALL);
    let tap = far.next_tap();
    let (_, tap) = tokio::join!(aborted.send(b"begun"), tap);
    aborted.abort(ResetCode::Aborted);
    tap.finish();
    until("the abort", || tap.reset.get().is_some() && aborted.is_over()).await;
    assert!(aborted.finished.get());
    until("the message", || far.messages.borrow().len() == before + 1).await;
    let forgot =
        || link.stream_count() == 0 && server.links().iter().all(|l| l.stream_count() == 0);
    until("both sides forget", forgot).await;
    assert!(!link.has_ended());
}

/// One conversation in memory; true when the fault came before its end.
fn in_memory(faults: Faults, script: Script) -> bool {
    virtually(async {
        let (server, memory) = serve();
        let dialer = Scripted::new(&memory, [faults]);
        let client = Client::start(plan(vec![path(dialer.clone(), 1)]));
        converse(&server, &client, script).await;
        // A carrier killed during its greeting may have left a link that no client knows.
        assert!(server.links().len() <= 2);
        assert_eq!(client.links.get(), 1);
        dialer.dials.get() > 1
    })
}

fn every_offset(script: Script, step: usize) {
    let kinds: [fn(u64) -> Faults; 2] = [
        |n| Faults { kill_after_sent: Some(n), ..Faults::default() },
        |n| Faults { kill_after_received: Some(n), ..Faults::default() },
    ];
    for kind in kinds {
        let last = (0..).step_by(step).find(|n| !in_memory(kind(*n), script)).unwrap();
        println!("killed at every {step}. of {last} bytes");
        assert!(last > script.down);
    }
}

#[test]
fn a_carrier_killed_at_any_byte_loses_none() {
    every_offset(SHORT, 1);
}

#[test]
fn a_carrier_killed_amid_credit_loses_no_byte() {
    every_offset(LONG, 211);
}

#[test]
fn two_carriers_killed_one_after_the_other_lose_no_byte() {
    for (first, second) in (400..1800).step_by(53).zip((380..).step_by(29)) {
        virtually(async {
            let (server, memory) = serve();
            let kill = |n| Faults { kill_after_sent: Some(n), ..Faults::default() };
            let back = Faults { kill_after_received: Some(second), ..Faults::default() };
            let dialer = Scripted::new(&memory, [kill(first), kill(second), back]);
            let client = Client::start(plan(vec![path(dialer, 1)]));
            converse(&server, &client, SHORT).await;
        });
    }
}

/// Conversations at once: each mostly waits for the others' handshakes and its own pauses.
const LANES: usize = 8;

#[test]
fn a_tls_connection_cut_at_any_byte_loses_none() {
    let begin = std::time::Instant::now();
    really(async {
        let tls = Rc::new(Tls::new());
        for kind in [Cut::Sent as fn(usize) -> Cut, Cut::Received as fn(usize) -> Cut] {
            let lanes: Vec<_> = (1..=LANES)
                .map(|first| tokio::task::spawn_local(cut_from(Rc::clone(&tls), kind, first)))
                .collect();
            let mut most = 0;
            for lane in lanes {
                most = most.max(lane.await.unwrap());
            }
            println!("{:?} was beyond the end; {:?}", kind(most), begin.elapsed());
            assert!(most > 1000);
        }
    });
}

/// Cuts after `first` bytes, then every [`LANES`] more, to the end of the conversation.
async fn cut_from(tls: Rc<Tls>, kind: fn(usize) -> Cut, first: usize) -> usize {
    let (listener, port) = tls.listen();
    let server = Server::start(vec![listener], Rules::default());
    let killer = Killer::start(port).await;
    let mut at = first;
    loop {
        killer.cut(kind(at));
        let client = Client::start(plan(vec![path(tls.dialer(), killer.port)]));
        client.live().await;
        // A greeting cut after the server accepted it leaves a link that no client knows.
        until("the server's side", || server.links().iter().any(link::Link::is_live)).await;
        converse_over(&server, &client).await;
        drop(client);
        server.forget();
        if !killer.has_fired() {
            return at;
        }
        at += LANES;
    }
}

/// A short exchange in real time; what is watched is bytes and ends.
async fn converse_over(server: &Server, client: &Client) {
    let link = client.live().await;
    let far = server.owner();
    far.taps.borrow_mut().clear();
    let near = open(&link, "a", Appetite::ALL);
    let (sent, tap) = tokio::join!(near.send_pattern(300), far.next_tap());
    assert!(sent && tap.send_pattern(200).await);
    until("the ends", || near.is_over() && tap.is_over()).await;
    tap.assert_pattern(300);
    near.assert_pattern(200);
    until("forgotten", || link.stream_count() == 0).await;
    let none = || server.links().iter().all(|link| link.stream_count() == 0);
    until("forgotten there", none).await;
}
