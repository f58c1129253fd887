//! The ports of a server answer STUN: exactly, little, and not without end.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use crate::setup;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::Current;
use punch::stun::{answered, request, request_from_other_port};
use setup::{LOOPBACK, Setup, run, shake, socket};
use tokio::net::UdpSocket;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use transport::Listener as _;
use transport_quic::{QuicListener, STUN_RATE, StunServer};

/// A datagram that is sent arrives within this time, on a machine however busy.
const LONG: Duration = Duration::from_secs(10);

fn listener(setup: &Setup, stun: &Arc<StunServer>) -> QuicListener {
    let tls = Current::from(Arc::clone(&setup.server));
    let server = setup::server(tls, &setup.settings).with_stun(Arc::clone(stun));
    QuicListener::new(socket(), net::udp::SteeringSlot::ALONE, &server).unwrap()
}

async fn ask(client: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> Option<(SocketAddr, Vec<u8>)> {
    client.send_to(bytes, to).await.unwrap();
    let mut answer = [0; 2_000];
    let (length, from) = timeout(LONG, client.recv_from(&mut answer)).await.ok()?.unwrap();
    Some((from, answer[..length].to_vec()))
}

async fn second_port(stun: &Arc<StunServer>) -> SocketAddr {
    let serving = Arc::clone(stun);
    spawn_local(async move { serving.serve(LOOPBACK).await });
    loop {
        if let Some(port) = stun.other_port() {
            return SocketAddr::new(LOOPBACK.ip(), port);
        }
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn both_ports_say_where_a_request_comes_from_and_quic_goes_on() {
    run(async {
        let (setup, stun) = (Setup::new(), Arc::<StunServer>::default());
        let mut listener = listener(&setup, &stun);
        let first = listener.local_addr();
        let second = second_port(&stun).await;
        let client = UdpSocket::bind(LOOPBACK).await.unwrap();
        let own = client.local_addr().unwrap();
        for port in [first, second] {
            let (from, answer) = ask(&client, port, &request([7; 12])).await.unwrap();
            assert_eq!((from, answer.len()), (port, 32));
            assert_eq!(answered(&answer), Some(([7; 12], own)));
        }
        let (from, answer) = ask(&client, first, &request_from_other_port([8; 12])).await.unwrap();
        assert_eq!((from, answered(&answer)), (second, Some(([8; 12], own))));

        let mut broken = request([9; 12]);
        broken[3] = 4;
        client.send_to(&broken, first).await.unwrap();
        let (_, answer) = ask(&client, first, &request([10; 12])).await.unwrap();
        let next = answered(&answer).unwrap().0;
        assert_eq!(next, [10; 12], "neither STUN nor QUIC answers a broken request");
        let (dialled, accepted) = shake(&mut listener, &setup.dialer(), first).await;
        assert!(dialled.is_ok() && accepted.is_ok());
    });
}

#[test]
fn one_source_gets_a_bounded_number_of_answers() {
    run(async {
        let (setup, stun) = (Setup::new(), Arc::<StunServer>::default());
        let listener = listener(&setup, &stun);
        let clients =
            [UdpSocket::bind(LOOPBACK).await.unwrap(), UdpSocket::bind(LOOPBACK).await.unwrap()];
        let mut answers = 0;
        // The time stands still, so all of this is one second.
        tokio::time::pause();
        for _ in 0..STUN_RATE {
            for client in &clients {
                client.send_to(&request([7; 12]), listener.local_addr()).await.unwrap();
            }
            // The worker reads, and loopback delivers within the call.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            answers += clients.iter().filter(|one| one.try_recv(&mut [0; 64]).is_ok()).count();
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
            answers += clients.iter().filter(|one| one.try_recv(&mut [0; 64]).is_ok()).count();
        }
        assert_eq!(answers, STUN_RATE as usize, "both have one address");
    });
}
