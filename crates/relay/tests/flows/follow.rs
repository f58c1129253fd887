//! Flows in use follow their targets, and healthy ones stay.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use net::resolve::{Bounds, Lookups, Resolver};
use proto::ResetCode;
use relay::TargetAddr;
use tokio::net::UdpSocket;
use tokio::time::advance;

use crate::rig::{Plan, Rig, StandIns, receive, run, target, until};

/// The former and the next machine of a name.
const NEXT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// A name, and its record.
struct Moving {
    rig: Rig,
    former: UdpSocket,
    next: UdpSocket,
    record: Arc<Mutex<Vec<IpAddr>>>,
}

impl Moving {
    async fn new() -> Self {
        let (former, at) = target().await;
        let next = UdpSocket::bind((NEXT, at.port())).await.unwrap();
        let record = Arc::new(Mutex::new(vec![at.ip()]));
        let known = Arc::clone(&record);
        let resolver = Resolver::with(Bounds::OWN, move |_| Ok(known.lock().unwrap().clone()));
        let mut plan = Plan::to_host("moving.example", at.port());
        plan.targets.lookups = Lookups::on(&resolver, "home");
        Self { rig: plan.rig(), former, next, record }
    }
}

/// Receives a datagram without letting the clock run on, as a wait for a lookup would.
async fn soon(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let start = std::time::Instant::now();
    loop {
        let mut space = [0; 64];
        match socket.try_recv_from(&mut space) {
            Ok((size, from)) => return (space[..size].to_vec(), from),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "nothing came");
        tokio::task::yield_now().await;
    }
}

/// Goes on sending twice a second until `next` gets a datagram, at most for `seconds`. `former`
/// answers if it is given. Returns the time and the sender.
async fn go_on(
    visitor: &UdpSocket,
    next: &UdpSocket,
    former: Option<&UdpSocket>,
    seconds: u64,
) -> Option<(u64, SocketAddr)> {
    for turn in 0..seconds * 2 {
        visitor.send(b"?").await.unwrap();
        if let Some(former) = former {
            for _ in 0..200 {
                tokio::task::yield_now().await;
                let mut space = [0; 8];
                if let Ok((_, from)) = former.try_recv_from(&mut space) {
                    former.send_to(b"!", from).await.unwrap();
                }
            }
        }
        // A thread makes the lookup.
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            tokio::task::yield_now().await;
        }
        if let Ok((_, from)) = next.try_recv_from(&mut [0; 8]) {
            return Some((turn / 2, from));
        }
        advance(Duration::from_millis(500)).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_flow_without_answers_follows_the_record_of_its_name() {
    run(async {
        let Moving { rig, former, next, record } = Moving::new().await;
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        former.send_to(b"!", soon(&former).await.1).await.unwrap();
        soon(&visitor).await;
        *record.lock().unwrap() = vec![NEXT.into()];
        let (after, from) = go_on(&visitor, &next, None, 20).await.expect("it follows");
        assert!(after < 10, "{after} s");
        next.send_to(b"new", from).await.unwrap();
        assert_eq!(soon(&visitor).await.0, b"new");
        assert_eq!((rig.live(), rig.targets.stats.opened()), ((1, 1), 1), "it is the same flow");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answered_flow_keeps_its_socket_until_its_name_has_moved() {
    run(async {
        let Moving { rig, former, next, record } = Moving::new().await;
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        let from = soon(&former).await.1;
        former.send_to(b"!", from).await.unwrap();
        let both = vec![NEXT.into(), former.local_addr().unwrap().ip()];
        *record.lock().unwrap() = both;
        assert_eq!(go_on(&visitor, &next, Some(&former), 60).await, None, "it is one of two");
        visitor.send(b"2").await.unwrap();
        assert_eq!(soon(&former).await.1, from, "the port is the same");
        *record.lock().unwrap() = vec![NEXT.into()];
        let (after, _) = go_on(&visitor, &next, Some(&former), 60).await.expect("it follows");
        assert!(after <= 32, "{after} s");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_moves_to_the_other_address_of_a_target_that_refuses() {
    run(async {
        let Moving { rig, former, next, record } = Moving::new().await;
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        former.send_to(b"!", soon(&former).await.1).await.unwrap();
        soon(&visitor).await;
        *record.lock().unwrap() = vec![former.local_addr().unwrap().ip(), NEXT.into()];
        drop(former);
        let (after, _) = go_on(&visitor, &next, None, 10).await.expect("it moves");
        assert!(after < 5, "{after} s");
    })
    .await;
}

#[tokio::test]
async fn a_flow_of_another_target_ends_and_the_next_datagram_opens_one() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        receive(&target).await;
        let to = |port| TargetAddr::Udp { host: at.ip().to_string(), port };
        rig.flows.lead_to(&[to(at.port())]);
        assert_eq!(rig.live(), (1, 1));
        rig.flows.lead_to(&[to(at.port() ^ 1)]);
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Shutdown]);
        visitor.send(b"2").await.unwrap();
        assert_eq!(receive(&target).await.0, b"2");
        rig.flows.lead_to(&[]);
        until(|| rig.live() == (0, 0)).await;
        visitor.send(b"3").await.unwrap();
        receive(&target).await;
        let listening = rig.listening.as_ref().unwrap();
        listening.renew();
        assert_eq!(rig.live(), (0, 0), "a forward that leads elsewhere");
        visitor.send(b"4").await.unwrap();
        assert_eq!(receive(&target).await.0, b"4");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_whose_targets_all_refuse_keeps_one_reason_of_each() {
    run(async {
        let [(first, at), (second, next)] = [target().await, target().await];
        drop((first, second));
        let stand_ins = StandIns::of(&[next]);
        let plan = Plan { stand_ins: Some(stand_ins.clone()), ..Plan::to(at) };
        let rig = plan.rig();
        let visitor = rig.visitor().await;
        let start = std::time::Instant::now();
        while stand_ins.asked.borrow().len() < 6 {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", stand_ins.asked);
            visitor.send(b"?").await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(stand_ins.asked.borrow()[..6], [1, 2, 2, 2, 2, 2]);
    })
    .await;
}

/// Many protocols have no answers, as syslog has none.
#[tokio::test(start_paused = true)]
async fn what_a_target_has_taken_for_long_goes_to_no_other_target() {
    run(async {
        let [(first, at), (second, next)] = [target().await, target().await];
        let stand_ins = StandIns::of(&[next]);
        let plan = Plan { stand_ins: Some(stand_ins.clone()), ..Plan::to(at) };
        let rig = plan.rig();
        let visitor = rig.visitor().await;
        visitor.send(b"old").await.unwrap();
        assert_eq!(soon(&first).await.0, b"old");
        advance(Duration::from_secs(5)).await;
        drop(first);
        visitor.send(b"lost").await.unwrap();
        until(|| !stand_ins.asked.borrow().is_empty()).await;
        visitor.send(b"new").await.unwrap();
        assert_eq!(soon(&second).await.0, b"new");
        assert_eq!(rig.live(), (1, 1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_without_an_answer_tells_so_and_leaves_where_another_target_answers() {
    run(async {
        let [(first, at), (_second, next)] = [target().await, target().await];
        let stand_ins = StandIns::of(&[next]);
        let rig = Plan { stand_ins: Some(stand_ins.clone()), ..Plan::to(at) }.rig();
        let visitor = rig.visitor().await;
        let pass = async |seconds: u64| {
            for _ in 0..seconds * 2 {
                advance(Duration::from_millis(500)).await;
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
            }
        };
        visitor.send(b"1").await.unwrap();
        let from = soon(&first).await.1;
        first.send_to(b"!", from).await.unwrap();
        soon(&visitor).await;
        pass(3).await;
        assert_eq!(*stand_ins.reported.borrow(), [true], "an answer is reported once");
        visitor.send(b"2").await.unwrap();
        soon(&first).await;
        pass(20).await;
        assert_eq!(*stand_ins.reported.borrow(), [true, false], "a last datagram is reported once");
        visitor.send(b"3").await.unwrap();
        soon(&first).await;
        pass(3).await;
        assert_eq!(*stand_ins.reported.borrow(), [true, false, false]);
        assert_eq!(rig.live(), (1, 1), "no other target answers");
        stand_ins.others_answer.set(true);
        visitor.send(b"4").await.unwrap();
        soon(&first).await;
        pass(8).await;
        assert_eq!(rig.live(), (0, 0));
        // The next datagram begins a new flow, whose target is selected again.
        visitor.send(b"5").await.unwrap();
        assert_ne!(soon(&first).await.1, from);
    })
    .await;
}
