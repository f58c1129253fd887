//! Flows when descriptors run short. The test has a file of its own, because the table of
//! descriptors belongs to the process.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::await_holding_lock,
    reason = "a test fails by panicking, and one test runs at a time"
)]

#[path = "flows/rig.rs"]
#[allow(dead_code, reason = "other tests use the rest of the rig")]
mod rig;

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use proto::ResetCode;
use relay::{Caller, DropReason, FlowBounds, Room, Settings, TargetAddr, connect_stream};
use transport::Inlet;

use rig::{Plan, receive, run, target, until};

/// The tests count the descriptors of the same process, so one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn a_flood_of_sources_costs_bounded_descriptors_and_no_answered_flow() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let (target, at) = target().await;
        let mut plan = Plan::to(at);
        plan.visitors.bounds = Arc::new(FlowBounds::new(100, 10));
        let rig = plan.rig();
        let friend = rig.visitor().await;
        friend.send(b"?").await.unwrap();
        let from = receive(&target).await.1;
        target.send_to(b"!", from).await.unwrap();
        receive(&friend).await;
        let base = open_descriptors();
        for number in 0..5_000_u32 {
            let [.., high, low] = number.to_be_bytes();
            let source = rig.visitor_from(Ipv4Addr::new(127, 1, high, low)).await;
            source.send(b"flood").await.unwrap();
            // Few flows of a flood begin, and the rest of its datagrams is dropped.
            let stats = &rig.visitors.stats;
            let seen = || stats.evicted() + stats.live() + stats.dropped(DropReason::Limit);
            until(|| seen() == u64::from(number) + 2).await;
            if number % 500 == 0 {
                // The runtime of a test that waits has a few as well.
                assert!(open_descriptors() <= base + 110, "{} over {base}", open_descriptors());
            }
        }
        let (evicted, live) = (rig.visitors.stats.evicted(), rig.live());
        assert!((128..=4_901).contains(&evicted) && live == (100, 100), "{evicted}, {live:?}");
        friend.send(b"still").await.unwrap();
        let still = async { while receive(&target).await != (b"still".to_vec(), from) {} };
        tokio::time::timeout(Duration::from_secs(30), still).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn descriptors_of_unanswered_flows_go_to_new_ones() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let (target, at) = target().await;
        let mut plan = Plan::to(at);
        let visitors: Vec<_> =
            (0..7).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        // The thread keeps a few descriptors of its own from its first flow on.
        let warm = Plan::to(at).rig();
        warm.visitor().await.send(b"warm").await.unwrap();
        receive(&target).await;
        drop(warm);
        // Room for the listener, and two sockets to targets.
        let next: Vec<_> = (0..3).map(|_| visitors[0].try_clone().unwrap()).collect();
        let highest = next.iter().map(AsRawFd::as_raw_fd).max().unwrap();
        drop(next);
        let ceiling = u32::try_from(highest).unwrap() + 1;
        plan.targets.room = Room::below(ceiling, ceiling);
        let rig = plan.rig();
        for visitor in &visitors {
            visitor.connect(rig.address).unwrap();
        }
        let mut answered = None;
        for (number, visitor) in visitors.iter().take(6).enumerate() {
            visitor.send(&[number as u8]).unwrap();
            let (got, from) = receive(&target).await;
            assert_eq!(got, [number as u8]);
            if number == 0 {
                target.send_to(b"!", from).await.unwrap();
                until(|| rig.visitors.stats.datagrams_out() == 1).await;
                answered = Some(from);
            }
        }
        assert_eq!(rig.live(), (2, 2));
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Limit; 4]);
        visitors[0].send(b"still").unwrap();
        let (got, from) = receive(&target).await;
        assert_eq!((got.as_slice(), Some(from)), (b"still".as_slice(), answered));
        // With both answered, a new flow finds no descriptor.
        visitors[5].send(b"?").unwrap();
        let from = receive(&target).await.1;
        target.send_to(b"!", from).await.unwrap();
        until(|| rig.visitors.stats.datagrams_out() == 2).await;
        visitors[6].send(b"?").unwrap();
        until(|| rig.link.closed.borrow().len() == 5).await;
        assert_eq!(rig.live(), (2, 2));
    })
    .await;
}

/// The far side of a stream that only waits for its dial.
#[derive(Debug, Default)]
struct Waiting {
    refused: Rc<Cell<Option<ResetCode>>>,
}

impl Inlet for Waiting {
    fn room(&self) -> usize {
        0
    }
    fn send(&self, _frame: &mut BytesMut) {}
    fn finish(&self) {}
    fn reset(&self, code: ResetCode) {
        self.refused.set(Some(code));
    }
    fn stop(&self, _code: ResetCode) {}
    fn consumed(&self, _bytes: usize) {}
}

#[tokio::test]
async fn descriptors_of_unanswered_flows_go_to_connections() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let (target, at) = target().await;
        let web = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to =
            TargetAddr::Tcp { host: "127.0.0.1".into(), port: web.local_addr().unwrap().port() };
        let warm = Plan::to(at).rig();
        warm.visitor().await.send(b"warm").await.unwrap();
        receive(&target).await;
        drop(warm);
        let visitors = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        // Room for the listener, and two sockets to targets.
        let next: Vec<_> = (0..3).map(|_| visitors[0].try_clone().unwrap()).collect();
        let highest = next.iter().map(AsRawFd::as_raw_fd).max().unwrap();
        drop(next);
        let ceiling = u32::try_from(highest).unwrap() + 1;
        let mut plan = Plan::to(at);
        plan.targets.room = Room::below(ceiling, ceiling);
        let rig = plan.rig();
        for visitor in &visitors {
            visitor.connect(rig.address).unwrap();
            visitor.send(b"?").unwrap();
            receive(&target).await;
        }
        assert_eq!(rig.live(), (2, 2));
        let room = Room::below(ceiling, ceiling);
        let settings = Rc::new(Settings { room, ..Settings::default() });
        let inlet = Waiting::default();
        let refused = Rc::clone(&inlet.refused);
        let outlet = connect_stream(to, Caller::default(), Box::new(inlet), &settings, None);
        let (accepted, _) = web.accept().await.unwrap();
        assert_eq!((refused.get(), rig.live()), (None, (1, 1)));
        assert_eq!(rig.targets.stats.evicted(), 1);
        drop((accepted, outlet));
    })
    .await;
}
