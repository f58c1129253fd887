//! A path that carries little of what there is: another one is tried, and the quicker one kept.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use transport::{ConnectionStats, Watch};

use crate::rig::{
    Appetite, Client, Scripted, Server, Tap, open, path, plan, serve, until, virtually,
};

/// A connection with this rate in bytes per second, which always has more bytes to send.
#[derive(Debug)]
struct Little(u64, Instant);

impl Watch for Little {
    fn stats(&self) -> ConnectionStats {
        let bytes = self.0 * u64::try_from(self.1.elapsed().as_millis()).unwrap() / 1000;
        ConnectionStats { acked_bytes: bytes, limited_bytes: bytes, ..ConnectionStats::default() }
    }

    fn address(&self) -> Option<SocketAddr> {
        None
    }
}

/// Two paths, of which the first seems to carry little, and a stream of the client's.
async fn two_paths(rate: u64) -> (Server, Client, Rc<Scripted>, Rc<Tap>, Rc<Tap>) {
    let (server, memory) = serve();
    let (first, second) = (Scripted::new(&memory, []), Scripted::new(&memory, []));
    *first.watch.borrow_mut() = Some(Arc::new(Little(rate, Instant::now())));
    let client = Client::start(plan(vec![path(first, 1), path(second.clone(), 2)]));
    let near = open(&client.live().await, "a", Appetite::ALL);
    near.keeps.set(false);
    let far = server.owner().next_tap().await;
    far.keeps.set(false);
    (server, client, second, near, far)
}

/// Sends evenly, until it is aborted.
fn trickle(tap: &Rc<Tap>, bytes_a_second: usize) {
    let tap = Rc::clone(tap);
    tokio::task::spawn_local(async move {
        let piece = vec![7; bytes_a_second / 100];
        while tap.send(&piece).await {
            sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn the_next_path_is_kept_where_it_is_quicker_and_left_later() {
    virtually(async {
        let (_server, client, _second, near, _far) = two_paths(100_000).await;
        let begin = Instant::now();
        trickle(&near, 1_000_000);
        until("the other path", || client.connected.borrow().last() == Some(&(2, true))).await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        sleep(Duration::from_secs(50)).await;
        assert_eq!(client.connected.borrow().len(), 2, "it is kept");
        assert_eq!(client.reason(), "memory://127.0.0.1:1 carries only 100000 bytes per second");
        until("back", || client.connected.borrow().last() == Some(&(1, true))).await;
        assert_eq!(client.reason(), "this path is preferred and answers");
        until("the other path", || client.connected.borrow().last() == Some(&(2, true))).await;
        sleep(Duration::from_secs(110)).await;
        assert_eq!(client.connected.borrow().len(), 4, "longer, the second time");
        until("back", || client.connected.borrow().last() == Some(&(1, true))).await;
        assert_eq!(client.links.get(), 1);
        assert!(!client.owner.saw(link::State::Stalled));
    });
}

#[test]
fn the_preferred_path_is_taken_back_at_once_where_the_other_is_no_quicker() {
    taken_back(100_000);
}

#[test]
fn the_preferred_path_is_taken_back_at_once_where_the_other_is_slower() {
    taken_back(10_000);
}

/// Runs the test with this rate of the other path.
fn taken_back(bytes_a_second: usize) {
    virtually(async {
        let (_server, client, second, near, _far) = two_paths(100_000).await;
        trickle(&near, bytes_a_second);
        until("the other path", || client.connected.borrow().last() == Some(&(2, true))).await;
        let begin = Instant::now();
        until("back", || client.connected.borrow().last() == Some(&(1, true))).await;
        assert_eq!(client.reason(), "memory://127.0.0.1:2 is not quicker");
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        sleep(Duration::from_mins(9)).await;
        assert_eq!(second.dials.get(), 1, "for a while no other trial");
        until("the other path", || second.dials.get() == 2).await;
    });
}

#[test]
fn a_path_that_cannot_be_had_changes_nothing() {
    virtually(async {
        let (_server, client, second, near, _far) = two_paths(100_000).await;
        second.is_down.set(true);
        trickle(&near, 100_000);
        until("it is tried", || second.dials.get() == 1).await;
        sleep(Duration::from_mins(2)).await;
        assert_eq!(*client.connected.borrow(), [(1, false)]);
        assert!((2..=13).contains(&second.dials.get()), "{}", second.dials.get());
    });
}
