//! What peers and targets see.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use proto::ResetCode;
use proto::control::FlowTimes;
use relay::DropReason;
use tokio::net::UdpSocket;
use tokio::time::{Instant, advance, sleep};

use crate::rig::{Plan, is_silent, receive, run, target, until};

fn filled(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 7 + seed) % 251) as u8).collect()
}

#[tokio::test]
async fn payloads_of_all_sizes_arrive_whole_in_both_directions() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        let mut sizes: Vec<usize> = (0..24).flat_map(|bit| [(1 << bit) - 1, 1 << bit]).collect();
        sizes.extend([40, 1_200, 1_452, 1_453, 1_472, 1_473, 4_096, 9_000, 65_506, 65_507]);
        for length in sizes.into_iter().filter(|&length| length <= 65_507) {
            visitor.send(&filled(length, 1)).await.unwrap();
            let (got, from) = receive(&target).await;
            assert_eq!(got, filled(length, 1));
            target.send_to(&filled(length, 2), from).await.unwrap();
            assert_eq!(receive(&visitor).await.0, filled(length, 2));
        }
        assert_eq!(rig.link.opened.get(), 1, "one flow");
        assert_eq!(rig.visitors.stats.drops().count() + rig.targets.stats.drops().count(), 0);
    })
    .await;
}

#[tokio::test]
async fn each_peer_has_its_own_flow_and_gets_its_own_answers() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let mut visitors = Vec::new();
        for _ in 0..50 {
            visitors.push(rig.visitor().await);
        }
        let mut ports = BTreeSet::new();
        for turn in 0..5 {
            for (number, visitor) in visitors.iter().enumerate() {
                visitor.send(&[number as u8, turn]).await.unwrap();
            }
            for _ in &visitors {
                let (got, from) = receive(&target).await;
                ports.insert(from);
                target.send_to(&got, from).await.unwrap();
            }
            for (number, visitor) in visitors.iter().enumerate() {
                assert_eq!(receive(visitor).await.0, [number as u8, turn]);
            }
        }
        assert_eq!(
            (ports.len(), rig.link.opened.get()),
            (50, 50),
            "a port for each peer, for good"
        );
        let stats = &rig.visitors.stats;
        assert_eq!((stats.live(), stats.datagrams_in(), stats.datagrams_out()), (50, 250, 250));
        assert_eq!((stats.bytes_in(), stats.bytes_out()), (500, 500));
    })
    .await;
}

#[tokio::test]
async fn an_answer_comes_from_the_address_that_the_peer_dialled() {
    run(async {
        for bind in ["0.0.0.0:0", "[::]:0"] {
            let (target, at) = target().await;
            let rig = Plan { bind, ..Plan::to(at) }.rig();
            let visitor = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            for last in [1, 2] {
                let to = (Ipv4Addr::new(127, 0, 0, last), rig.address.port());
                visitor.send_to(b"?", to).await.unwrap();
                let from = receive(&target).await.1;
                target.send_to(b"!", from).await.unwrap();
                assert_eq!(receive(&visitor).await, (b"!".to_vec(), to.into()), "{bind}");
            }
            assert_eq!(rig.link.opened.get(), 2, "a flow for each address");
        }
    })
    .await;
}

#[tokio::test]
async fn bursts_keep_their_boundaries_and_order() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        let sizes: Vec<usize> = (0..60).map(|n| [1_200, 1_200, 1_200, 300][n % 4]).collect();
        for (number, &size) in sizes.iter().enumerate() {
            visitor.send(&filled(size, number)).await.unwrap();
        }
        let mut back = None;
        for (number, &size) in sizes.iter().enumerate() {
            let (got, from) = receive(&target).await;
            assert_eq!(got, filled(size, number), "{number}");
            back = Some(from);
        }
        for (number, &size) in sizes.iter().enumerate() {
            target.send_to(&filled(size, number), back.unwrap()).await.unwrap();
        }
        for (number, &size) in sizes.iter().enumerate() {
            assert_eq!(receive(&visitor).await.0, filled(size, number), "{number}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_speaks_every_25_s_keeps_its_flow_and_the_targets_socket() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        let mut ports = BTreeSet::new();
        let start = Instant::now();
        // In the first minute there is no answer, as while a WireGuard peer is offline.
        while start.elapsed() < Duration::from_secs(300) {
            visitor.send(b"alive").await.unwrap();
            let from = receive(&target).await.1;
            ports.insert(from);
            if start.elapsed() > Duration::from_secs(60) {
                target.send_to(b"too", from).await.unwrap();
                receive(&visitor).await;
            }
            sleep(Duration::from_secs(25)).await;
        }
        assert_eq!((ports.len(), rig.link.opened.get(), rig.live()), (1, 1, (1, 1)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_flow_ends_30_s_after_a_question_and_120_s_after_an_answer() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        visitor.send(b"?").await.unwrap();
        receive(&target).await;
        sleep(Duration::from_millis(29_900)).await;
        assert_eq!(rig.live(), (1, 1));
        sleep(Duration::from_millis(200)).await;
        assert_eq!(rig.live(), (0, 0));
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Timeout]);

        visitor.send(b"?").await.unwrap();
        let from = receive(&target).await.1;
        target.send_to(b"!", from).await.unwrap();
        receive(&visitor).await;
        sleep(Duration::from_millis(119_900)).await;
        assert_eq!(rig.live(), (1, 1));
        sleep(Duration::from_millis(200)).await;
        assert_eq!(rig.live(), (0, 0));
        assert_eq!(rig.visitors.stats.idle() + rig.targets.stats.idle(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn traffic_of_either_side_keeps_a_flow() {
    run(async {
        let (target, at) = target().await;
        let times = FlowTimes { unanswered: 5, answered: 10 };
        let mut plan = Plan::to(at);
        (plan.visitors.times, plan.targets.times) = (times, times);
        let rig = plan.rig();
        let visitor = rig.visitor().await;
        visitor.send(b"?").await.unwrap();
        let from = receive(&target).await.1;
        target.send_to(b"!", from).await.unwrap();
        receive(&visitor).await;
        for _ in 0..5 {
            sleep(Duration::from_secs(9)).await;
            target.send_to(b"!", from).await.unwrap();
            receive(&visitor).await;
        }
        assert_eq!(rig.live(), (1, 1));
        rig.listening.as_ref().unwrap().set_times(FlowTimes { unanswered: 1, answered: 1 });
        sleep(Duration::from_millis(1_100)).await;
        assert_eq!(rig.live(), (0, 0), "new times hold for flows that exist");
    })
    .await;
}

#[tokio::test]
async fn a_target_that_refuses_is_counted_and_keeps_its_flow() {
    run(async {
        let (gone, at) = target().await;
        drop(gone);
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        for number in 1..=5 {
            visitor.send(b"?").await.unwrap();
            until(|| rig.targets.stats.datagrams_out() == number).await;
        }
        assert_eq!(rig.dropped(DropReason::Unreachable), 4, "each learns of the one before");
        assert_eq!((rig.live(), rig.link.opened.get()), ((1, 1), 1));
        let target = UdpSocket::bind(at).await.unwrap();
        visitor.send(b"again").await.unwrap();
        let (got, from) = receive(&target).await;
        assert_eq!(got, b"again");
        target.send_to(b"!", from).await.unwrap();
        assert_eq!(receive(&visitor).await.0, b"!");
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_is_gone_costs_no_other_peer_a_datagram() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let (gone, friend) = (rig.visitor().await, rig.visitor().await);
        gone.send(b"gone").await.unwrap();
        friend.send(b"friend").await.unwrap();
        let first = receive(&target).await;
        let second = receive(&target).await;
        let (to_gone, to_friend) =
            if first.0 == b"gone" { (first.1, second.1) } else { (second.1, first.1) };
        drop(gone);
        for number in 0..40_u8 {
            target.send_to(&[0; 100], to_gone).await.unwrap();
            target.send_to(&[0; 60_000], to_gone).await.unwrap();
            target.send_to(&[number; 100], to_friend).await.unwrap();
            assert_eq!(receive(&friend).await.0, [number; 100]);
        }
    })
    .await;
}

#[tokio::test]
async fn what_the_link_drops_is_counted() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        receive(&target).await;
        rig.link.full.set(true);
        visitor.send(b"2").await.unwrap();
        until(|| rig.dropped(DropReason::QueueFull) == 1).await;
        rig.link.full.set(false);
        visitor.send(b"3").await.unwrap();
        assert_eq!(receive(&target).await.0, b"3");
    })
    .await;
}

#[tokio::test]
async fn without_a_link_datagrams_are_counted_and_the_peer_may_ask_again() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        for (code, reason) in [
            (ResetCode::Shutdown, DropReason::NoLink),
            (ResetCode::Denied, DropReason::Denied),
            (ResetCode::Limit, DropReason::Limit),
        ] {
            rig.link.refuses.set(Some(code));
            visitor.send(b"?").await.unwrap();
            until(|| rig.dropped(reason) == 1).await;
        }
        assert_eq!(rig.live(), (0, 0));
        rig.link.refuses.set(None);
        visitor.send(b"now").await.unwrap();
        assert_eq!(receive(&target).await.0, b"now");
    })
    .await;
}

#[tokio::test]
async fn what_a_refusal_of_the_far_side_meets_is_counted_and_what_follows_it_for_a_while() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        for _ in 0..3 {
            visitor.send(b"?").await.unwrap();
            receive(&target).await;
        }
        let outlet = rig.link.outlets.borrow()[0].clone();
        outlet.close(ResetCode::Denied);
        until(|| rig.dropped(DropReason::Denied) == 3).await;
        visitor.send(b"?").await.unwrap();
        until(|| rig.dropped(DropReason::Denied) == 4).await;
        assert_eq!(rig.link.opened.get(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_link_that_ends_lets_the_peer_begin_anew() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        let first = receive(&target).await.1;
        let outlet = Rc::clone(&rig.link.outlets.borrow()[0]);
        outlet.close(ResetCode::Shutdown);
        assert_eq!(rig.visitors.stats.live(), 0);
        visitor.send(b"2").await.unwrap();
        let (got, second) = receive(&target).await;
        assert_eq!((got.as_slice(), rig.link.opened.get()), (b"2".as_slice(), 2));
        assert_ne!(first, second);
    })
    .await;
}

#[tokio::test]
async fn a_closed_listener_frees_its_port_and_ends_its_flows() {
    run(async {
        let (target, at) = target().await;
        let mut rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        let from = receive(&target).await.1;
        drop(rig.listening.take());
        std::net::UdpSocket::bind(rig.address).unwrap();
        assert_eq!(rig.live(), (0, 0));
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Shutdown]);
        std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, from.port())).unwrap();
        // An outlet that the link still holds is harmless.
        let outlet = Rc::clone(&rig.link.outlets.borrow()[0]);
        outlet.deliver(b"late".as_slice().into());
        assert!(is_silent(&visitor).await);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_was_delivered_before_a_close_still_leaves() {
    run(async {
        let (target, at) = target().await;
        let rig = Plan::to(at).rig();
        let visitor = rig.visitor().await;
        visitor.send(b"1").await.unwrap();
        let from = receive(&target).await.1;
        target.send_to(b"last", from).await.unwrap();
        until(|| rig.visitors.stats.datagrams_out() == 1).await;
        let outlet = Rc::clone(&rig.link.outlets.borrow()[0]);
        outlet.deliver(b"words".as_slice().into());
        outlet.close(ResetCode::Timeout);
        assert_eq!(receive(&visitor).await.0, b"last");
        assert_eq!(receive(&visitor).await.0, b"words");
        advance(Duration::from_secs(1)).await;
    })
    .await;
}
