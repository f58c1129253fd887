//! Payload in pages of the system, from the first byte and in payloads of every size, over real
//! sockets: both directions, half-closed, reset, stopped, and over carriers that are cut.

use std::rc::Rc;

use net::pages;
use proto::ResetCode;
use transport_tcp::TcpDialer;

use crate::rig::{
    Appetite, Client, Cut, Killer, Rules, Server, Tls, open, path, plan, really, until,
};

/// Sizes around heads, read sizes, and the payloads that are worth pages without the force.
const SIZES: [usize; 16] =
    [1, 2, 3, 11, 12, 13, 255, 1000, 4095, 4096, 4097, 16_383, 16_384, 65_536, 100_000, 262_144];

/// A server over `tcp://`, and the relay in front of it.
async fn start() -> (Server, Killer) {
    pages::force();
    let (listener, port) = Tls::listen_bare();
    (Server::start(vec![listener], Rules::default()), Killer::start(port).await)
}

async fn connect(server: &Server, port: u16) -> Client {
    let client = Client::start(plan(vec![path(Rc::new(TcpDialer::new(None)), port)]));
    client.live().await;
    until("the server's side", || server.links().iter().any(link::Link::is_live)).await;
    client
}

/// A stream with `up` and `down` bytes, whose first direction ends before the other one.
/// Returns how many payloads came as pages.
async fn converse(server: &Server, client: &Client, size: usize, (up, down): (u64, u64)) -> usize {
    let link = client.live().await;
    let far = server.owner();
    far.paged.set(size);
    let near = open(&link, "a", Appetite::SOME);
    near.paged.set(size);
    let (sent, tap) = tokio::join!(near.send_pattern(up), far.next_tap());
    assert!(sent);
    until("the first end", || tap.is_over()).await;
    assert!(tap.send_pattern(down).await);
    until("the other end", || near.is_over()).await;
    tap.assert_pattern(up);
    near.assert_pattern(down);
    until("both sides forget", || {
        link.stream_count() == 0 && server.links().iter().all(|link| link.stream_count() == 0)
    })
    .await;
    assert!(near.pages_sent.get() > 0 && tap.pages_sent.get() > 0);
    near.pages_seen.get() + tap.pages_seen.get()
}

#[test]
fn pages_of_every_size_cross_both_ways() {
    really(async {
        let (server, killer) = start().await;
        let client = connect(&server, killer.port).await;
        for size in SIZES {
            let total = (size as u64 * 200).clamp(300, 2_000_000);
            let seen = converse(&server, &client, size, (total, total / 2 + 1)).await;
            assert!(seen > 0, "payloads of {size} bytes came as bytes");
        }
    });
}

#[test]
fn carriers_cut_at_any_byte_lose_no_page() {
    really(async {
        let (server, killer) = start().await;
        let (mut cuts, mut seen) = (0, 0);
        for (n, size) in SIZES.into_iter().cycle().take(6 * SIZES.len()).enumerate() {
            for kind in [Cut::Sent as fn(usize) -> Cut, Cut::Received as fn(usize) -> Cut] {
                // Behind the greeting: at heads, amid payloads, at their ends.
                killer.cut(kind(1200 + 150 * n + n * n));
                let client = connect(&server, killer.port).await;
                let total = (size as u64 * 20).clamp(400, 60_000);
                seen += converse(&server, &client, size, (total, total)).await;
                drop(client);
                server.forget();
                cuts += usize::from(killer.has_fired());
            }
        }
        assert!(cuts >= 100, "{cuts}");
        assert!(seen > 1000, "{seen}");
    });
}

#[test]
fn resets_and_stops_amid_pages_end_their_directions_alone() {
    really(async {
        let (server, killer) = start().await;
        let client = connect(&server, killer.port).await;
        let (link, far) = (client.live().await, server.owner());
        for size in SIZES {
            far.paged.set(size);
            let begun = (size as u64 * 3).min(100_000);
            let near = open(&link, "a", Appetite::ALL);
            near.paged.set(size);
            let tap = far.next_tap().await;
            assert!(near.send_some(0, begun).await);
            until("the bytes", || tap.count() == begun).await;
            near.abort(ResetCode::Aborted);
            until("the reset", || tap.reset.get() == Some(ResetCode::Aborted)).await;
            assert!(!tap.finished.get());
            assert!(tap.send_some(0, begun).await);
            near.refuse_more(ResetCode::Denied);
            until("the stop", || tap.stopped.get() == Some(ResetCode::Denied)).await;
            assert!(!tap.send_some(begun, 1).await);
            until("forgotten", || link.stream_count() + server.link().stream_count() == 0).await;
            // What was dropped left nothing behind in the pipes.
            let seen = converse(&server, &client, size, (begun + 300, begun + 300)).await;
            assert!(seen > 0);
        }
    });
}
