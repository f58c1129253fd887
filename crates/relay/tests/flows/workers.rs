//! The workers of one port.

use std::sync::Arc;

use net::udp::{BUCKETS, bucket_of, flow_group};
use tokio::net::UdpSocket;

use crate::rig::{Plan, receive, run, target, until};

#[tokio::test]
async fn a_peer_reaches_the_worker_with_a_link_and_a_flow_keeps_its_worker() {
    run(async {
        let (target, at) = target().await;
        let group = flow_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let steering = group.steering;
        let rigs: Vec<_> = group
            .sockets
            .into_iter()
            .zip(0..)
            .map(|(socket, n)| Plan::to(at).rig_on(socket, Some((Arc::clone(&steering), n))))
            .collect();
        let live = || (0..BUCKETS).map(|bucket| steering.live(bucket)).sum::<u32>();
        let opened = |worker: usize| rigs[worker].link.opened.get();
        steering.assign(&[1]).unwrap();
        let mut visitors = Vec::new();
        for _ in 0..20 {
            let visitor = rigs[0].visitor().await;
            visitor.send(b"1").await.unwrap();
            receive(&target).await;
            visitors.push(visitor);
        }
        assert_eq!((opened(0), opened(1), live()), (0, 20, 20));
        // The other worker gets a link: flows stay, and new peers are shared.
        steering.assign(&[0, 1]).unwrap();
        for visitor in &visitors {
            visitor.send(b"2").await.unwrap();
            receive(&target).await;
        }
        assert_eq!((opened(0), opened(1)), (0, 20));
        let buckets = steering.buckets();
        let mut of_first: Vec<UdpSocket> = Vec::new();
        while of_first.len() < 3 {
            let visitor = rigs[0].visitor().await;
            if buckets.worker(bucket_of(visitor.local_addr().unwrap())) == 0 {
                visitor.send(b"3").await.unwrap();
                receive(&target).await;
                of_first.push(visitor);
            }
        }
        assert_eq!((opened(0), opened(1), live()), (3, 20, 23));
        // The first worker loses its link.
        steering.assign(&[1]).unwrap();
        of_first[0].send(b"4").await.unwrap();
        until(|| opened(1) == 21).await;
        drop(rigs);
        assert_eq!(live(), 0);
        steering.close();
    })
    .await;
}

/// The second worker gets a link while the first datagram of a peer waits at the first worker. The
/// later datagrams go to the second worker, and a target must not see the peer at two addresses.
#[tokio::test]
async fn a_datagram_that_waited_at_the_former_worker_of_its_peer_opens_no_flow() {
    run(async {
        let (target, at) = target().await;
        let group = flow_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let (steering, sockets) = (group.steering, group.sockets);
        let port = sockets[0].local_addr().unwrap();
        steering.assign(&[0]).unwrap();
        let mut visitors = Vec::new();
        for _ in 0..40 {
            let visitor = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            visitor.send_to(b"1", port).await.unwrap();
            visitors.push(visitor);
        }
        steering.assign(&[0, 1]).unwrap();
        let buckets = steering.buckets();
        let worker_of =
            |visitor: &UdpSocket| buckets.worker(bucket_of(visitor.local_addr().unwrap()));
        let stay = visitors.iter().filter(|visitor| worker_of(visitor) == 0).count();
        assert!((1..40).contains(&stay), "{stay}");
        let rigs: Vec<_> = sockets
            .into_iter()
            .zip(0..)
            .map(|(socket, n)| Plan::to(at).rig_on(socket, Some((Arc::clone(&steering), n))))
            .collect();
        let opened = |worker: usize| rigs[worker].link.opened.get();
        for _ in 0..stay {
            receive(&target).await;
        }
        for visitor in visitors.iter().filter(|visitor| worker_of(visitor) == 1) {
            visitor.send_to(b"2", port).await.unwrap();
            assert_eq!(receive(&target).await.0, b"2");
        }
        assert_eq!((opened(0), opened(1)), (stay, 40 - stay));
        drop(rigs);
        steering.close();
    })
    .await;
}
