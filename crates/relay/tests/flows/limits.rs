//! How many flows there may be.

use std::net::Ipv4Addr;
use std::sync::Arc;

use proto::ResetCode;
use relay::{DropReason, FlowBounds};

use crate::rig::{Plan, receive, run, target, until};

#[tokio::test]
async fn the_flow_without_an_answer_goes_and_answered_ones_stay() {
    run(async {
        let (target, at) = target().await;
        let mut plan = Plan::to(at);
        plan.visitors.bounds = Arc::new(FlowBounds::new(3, 256));
        let rig = plan.rig();
        let mut answered = Vec::new();
        for _ in 0..2 {
            let visitor = rig.visitor().await;
            visitor.send(b"?").await.unwrap();
            let from = receive(&target).await.1;
            target.send_to(b"!", from).await.unwrap();
            receive(&visitor).await;
            answered.push((visitor, from));
        }
        for number in 1..=10 {
            rig.visitor().await.send(b"flood").await.unwrap();
            receive(&target).await;
            assert_eq!(rig.visitors.stats.evicted(), number - 1);
            assert_eq!(rig.live(), (3, 3));
        }
        for (visitor, from) in &answered {
            visitor.send(b"still").await.unwrap();
            assert_eq!(receive(&target).await, (b"still".to_vec(), *from));
        }
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Limit; 9]);
        // The third is answered as well: then a new peer is refused.
        let third = rig.visitor().await;
        third.send(b"?").await.unwrap();
        let from = receive(&target).await.1;
        target.send_to(b"!", from).await.unwrap();
        receive(&third).await;
        rig.visitor().await.send(b"late").await.unwrap();
        until(|| rig.dropped(DropReason::Limit) == 1).await;
        assert_eq!(rig.live(), (3, 3));
    })
    .await;
}

#[tokio::test]
async fn a_source_with_its_share_of_flows_loses_its_own() {
    run(async {
        let (target, at) = target().await;
        let mut plan = Plan::to(at);
        plan.visitors.bounds = Arc::new(FlowBounds::new(100, 2));
        let rig = plan.rig();
        let neighbour = rig.visitor_from(Ipv4Addr::new(127, 0, 0, 7)).await;
        neighbour.send(b"n").await.unwrap();
        let of_neighbour = receive(&target).await.1;
        let mut visitors = Vec::new();
        for _ in 0..5 {
            let visitor = rig.visitor().await;
            visitor.send(b"?").await.unwrap();
            receive(&target).await;
            visitors.push(visitor);
        }
        assert_eq!((rig.live(), rig.visitors.stats.evicted()), ((3, 3), 3));
        neighbour.send(b"n").await.unwrap();
        assert_eq!(receive(&target).await.1, of_neighbour);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_source_whose_flows_are_all_in_use_gets_no_further_one() {
    run(async {
        let (target, at) = target().await;
        let mut plan = Plan::to(at);
        plan.visitors.bounds = Arc::new(FlowBounds::new(100, 1));
        let rig = plan.rig();
        let busy = rig.visitor().await;
        busy.send(b"?").await.unwrap();
        let from = receive(&target).await.1;
        target.send_to(b"!", from).await.unwrap();
        receive(&busy).await;
        rig.visitor().await.send(b"?").await.unwrap();
        until(|| rig.dropped(DropReason::SourceLimit) == 1).await;
        busy.send(b"still").await.unwrap();
        assert_eq!(receive(&target).await, (b"still".to_vec(), from));
    })
    .await;
}

#[tokio::test]
async fn a_flow_leads_to_no_target_of_streams() {
    run(async {
        let mut plan = Plan::to(target().await.1);
        plan.target = "tcp://127.0.0.1:9".parse().unwrap();
        let rig = plan.rig();
        rig.visitor().await.send(b"?").await.unwrap();
        until(|| !rig.link.closed.borrow().is_empty()).await;
        assert_eq!(*rig.link.closed.borrow(), [ResetCode::Unknown]);
        assert_eq!((rig.live(), rig.targets.stats.opened()), ((0, 0), 0));
    })
    .await;
}
