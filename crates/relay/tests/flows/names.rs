//! Targets with names: rules, slow lookups, several addresses.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use net::SocketOptions;
use net::resolve::{Bounds, Lookups, Resolver};
use proto::ResetCode;
use relay::dial::ask_datagram;
use relay::{Allow, Destination, DialError, DropReason, Room, TargetAddr};
use tokio::net::UdpSocket;
use tokio::time::{advance, sleep};

use crate::rig::{Plan, is_silent, receive, run, target, until};

/// Lookups that find `addresses` once the gate is open.
fn lookups(addresses: Vec<IpAddr>) -> (Lookups, Arc<(Mutex<bool>, Condvar)>) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let held = Arc::clone(&gate);
    let resolver = Resolver::with(Bounds::OWN, move |_| {
        let is_open = held.0.lock().unwrap();
        drop(held.1.wait_while(is_open, |is_open| !*is_open).unwrap());
        Ok(addresses.clone())
    });
    (Lookups::on(&resolver, "home"), gate)
}

fn open(gate: &(Mutex<bool>, Condvar)) {
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

#[tokio::test]
async fn a_few_datagrams_wait_for_a_lookup_and_no_other_flow_does() {
    run(async {
        let (slow_target, slow_at) = target().await;
        let (quick_target, quick_at) = target().await;
        let (slow_lookups, gate) = lookups(vec![Ipv4Addr::LOCALHOST.into()]);
        let mut plan = Plan::to_host("slow.example", slow_at.port());
        plan.targets.lookups = slow_lookups;
        let slow = plan.rig();
        let quick = Plan::to(quick_at).rig();
        let (patient, other) = (slow.visitor().await, quick.visitor().await);
        for number in 0..12_u8 {
            patient.send(&[number]).await.unwrap();
        }
        until(|| slow.dropped(DropReason::Early) == 4).await;
        other.send(b"quick").await.unwrap();
        assert_eq!(receive(&quick_target).await.0, b"quick");
        open(&gate);
        for number in 0..8 {
            assert_eq!(receive(&slow_target).await.0, [number]);
        }
        patient.send(b"then").await.unwrap();
        assert_eq!(receive(&slow_target).await.0, b"then");
    })
    .await;
}

#[tokio::test]
async fn at_most_64_kib_wait_for_a_lookup() {
    run(async {
        let (target, at) = target().await;
        let (lookups, gate) = lookups(vec![Ipv4Addr::LOCALHOST.into()]);
        let mut plan = Plan::to_host("slow.example", at.port());
        plan.targets.lookups = lookups;
        let rig = plan.rig();
        let visitor = rig.visitor().await;
        for _ in 0..3 {
            visitor.send(&[0; 30_000]).await.unwrap();
        }
        until(|| rig.dropped(DropReason::Early) == 1).await;
        open(&gate);
        assert_eq!(receive(&target).await.0.len(), 30_000);
        assert_eq!(receive(&target).await.0.len(), 30_000);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_denied_target_closes_the_flow_and_is_asked_for_once_a_second() {
    run(async {
        let (target, at) = target().await;
        let by_address = Allow::new(move |to| match to {
            Destination::Udp(ip, port) => !(ip.is_loopback() && port == at.port()),
            Destination::Name(..) | Destination::Tcp(..) | Destination::Unix(_) => true,
        });
        for host in ["127.0.0.1", "::ffff:127.0.0.1", "localhost"] {
            let plan = Plan::to_host(host, at.port());
            let rig = Plan { allow: Some(by_address.clone()), ..plan }.rig();
            let visitor = rig.visitor().await;
            for _ in 0..5 {
                visitor.send(b"?").await.unwrap();
                until(|| rig.dropped(DropReason::Denied) > 0).await;
            }
            until(|| rig.visitors.stats.datagrams_in() == 5).await;
            assert_eq!(*rig.link.closed.borrow(), [ResetCode::Denied], "{host}");
            assert_eq!((rig.live(), rig.link.opened.get()), ((0, 0), 1));
            advance(Duration::from_millis(1_100)).await;
            visitor.send(b"?").await.unwrap();
            until(|| rig.link.closed.borrow().len() == 2).await;
        }
        assert!(is_silent(&target).await);
    })
    .await;
}

#[tokio::test]
async fn a_denied_name_is_not_looked_up() {
    run(async {
        let resolver = Resolver::with(Bounds::OWN, |host| panic!("{host} was looked up"));
        let mut plan = Plan::to_host("leak.example", 53);
        plan.targets.lookups = Lookups::on(&resolver, "home");
        plan.allow = Some(Allow::new(|to| !matches!(to, Destination::Name("leak.example", 53))));
        let rig = plan.rig();
        rig.visitor().await.send(b"?").await.unwrap();
        until(|| !rig.link.closed.borrow().is_empty()).await;
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Denied]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lookup_has_a_deadline() {
    run(async {
        let (lookups, gate) = lookups(vec![Ipv4Addr::LOCALHOST.into()]);
        let mut plan = Plan::to_host("silent.example", 53);
        plan.targets.lookups = lookups;
        plan.targets.dial = Duration::from_secs(3);
        let rig = plan.rig();
        rig.visitor().await.send(b"?").await.unwrap();
        until(|| rig.targets.stats.live() == 1).await;
        sleep(Duration::from_millis(3_100)).await;
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Timeout]);
        assert_eq!((rig.live(), rig.dropped(DropReason::Unreachable)), ((0, 0), 1));
        open(&gate);
    })
    .await;
}

#[tokio::test]
async fn a_name_whose_first_address_refuses_is_reached_at_the_next() {
    run(async {
        let (target, at) = target().await;
        // Nobody listens at the first one, as with `localhost` and a target of IPv4 alone.
        let found = vec![Ipv4Addr::new(127, 0, 0, 2).into(), at.ip()];
        let (lookups, gate) = lookups(found);
        open(&gate);
        let mut plan = Plan::to_host("two.example", at.port());
        plan.targets.lookups = lookups;
        let rig = plan.rig();
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        let (got, from) = receive(&target).await;
        assert_eq!(got, b"1", "what was refused is sent again");
        target.send_to(b"!", from).await.unwrap();
        assert_eq!(receive(&visitor).await.0, b"!");
        visitor.send(b"2").await.unwrap();
        assert_eq!(receive(&target).await, (b"2".to_vec(), from));
        assert_eq!(rig.dropped(DropReason::Unreachable), 1);
    })
    .await;
}

#[tokio::test]
async fn an_address_that_answers_keeps_the_flow_although_it_refuses_later() {
    run(async {
        let (first, at) = target().await;
        let other = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), at.port())).await.unwrap();
        let (lookups, gate) = lookups(vec![at.ip(), other.local_addr().unwrap().ip()]);
        open(&gate);
        let mut plan = Plan::to_host("two.example", at.port());
        plan.targets.lookups = lookups;
        let rig = plan.rig();
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        let from = receive(&first).await.1;
        first.send_to(b"!", from).await.unwrap();
        receive(&visitor).await;
        drop(first);
        for number in 2..5 {
            visitor.send(b"2").await.unwrap();
            until(|| rig.targets.stats.datagrams_out() == number).await;
        }
        assert!(is_silent(&other).await);
    })
    .await;
}

/// The network of loopback has the broadcast address 127.255.255.255.
#[tokio::test]
async fn a_broadcast_address_is_sent_to_with_consent_alone_and_answers_reach_the_visitor() {
    run(async {
        let machine = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = machine.local_addr().unwrap().port();
        let mut plan = Plan::to_host("127.255.255.255", port);
        let without = plan.clone().rig();
        let visitor = without.visitor().await;
        visitor.send(b"wake").await.unwrap();
        until(|| without.dropped(DropReason::Denied) > 0).await;
        assert!(is_silent(&machine).await);

        plan.targets.broadcast = true;
        let with = plan.rig();
        let visitor = with.visitor().await;
        visitor.send(b"wake").await.unwrap();
        let (datagram, from) = receive(&machine).await;
        assert_eq!(datagram, b"wake");
        machine.send_to(b"awake", from).await.unwrap();
        assert_eq!(receive(&visitor).await.0, b"awake");
    })
    .await;
}

#[tokio::test]
async fn a_check_asks_all_machines_of_a_network_with_consent_alone() {
    let machine = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let port = machine.local_addr().unwrap().port();
    let target = TargetAddr::Udp { host: "127.255.255.255".to_owned(), port };
    let (room, lookups) = (Room::default(), Lookups::default());
    let ask = async |broadcast| {
        let limit = Duration::from_secs(30);
        let place = (room, &SocketOptions::DEFAULT);
        ask_datagram((&target, broadcast), b"ping", limit, place, &lookups).await
    };
    let error = ask(false).await.unwrap_err();
    assert!(matches!(error, DialError::Broadcast(_)), "{error}");
    let answer = async {
        let (datagram, from) = receive(&machine).await;
        assert_eq!(datagram, b"ping");
        machine.send_to(b"pong", from).await.unwrap();
    };
    let (asked, ()) = tokio::join!(ask(true), answer);
    assert_eq!(asked.unwrap(), b"pong");
}
