//! A client learns at its log-in where the server answers STUN, and asks there what stands between
//! it and other clients.

use ops::nat::{Filtering, Mapping, NatProbe, Network, Path, Peer, Udp};
use punch::stun::{answered, request};
use testkit::stage::free_port;
use tokio::net::UdpSocket;
use tokio::time::sleep;

use super::*;

/// A server and a client of it, with these keys of the server and STUN servers of the client.
async fn pair(listen: &str, keys: &str, stun: &str) -> (Server, Client) {
    let folder = tempfile::tempdir().unwrap();
    let identity = tls::self_signed(folder.path(), &[]).unwrap();
    let pin = identity.pin();
    let text = format!(
        "listen: [{listen}]\nworkers: 2\npublic_bind: 127.0.0.1\n{keys}clients:\n  - {{ name: \
         home, token: {TOKEN} }}\n",
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
    let server = Server::start(config, Some(identity)).await.unwrap();
    let tcp = server.listen().iter().find(|url| url.starts_with("tcp://")).unwrap().clone();
    let text = format!(
        "servers: {tcp}\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\ntls: {{ pin: \
         \"{pin}\" }}\n{stun}"
    );
    let text = Text { name: "client.yaml", text: &text };
    let config = loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()));
    (server, Client::start(config).await.unwrap())
}

/// The ports at which the server of a [`pair`] answers, after the client was told of so many
/// addresses.
async fn learned(client: &Client, count: usize) -> Vec<SocketAddr> {
    let all = timeout(SOON, async {
        loop {
            let all = client.stun_servers().await;
            if all.len() == count {
                return all;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    all.await.expect("the ports of the server and that of the file")
}

#[tokio::test]
async fn a_client_is_told_the_ports_and_both_answer() {
    let port = free_port();
    let listen = "\"quic://127.0.0.1:0\", \"tcp://127.0.0.1:0\"";
    let stun = "p2p: { stun: \"127.0.0.1:9\" }\n";
    let (server, client) = pair(listen, &format!("stun: {port}\n"), stun).await;
    let quic: u16 = server.listen()[0].rsplit(':').next().unwrap().parse().unwrap();
    let all = learned(&client, 3).await;
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    assert_eq!(all, [local(quic), local(port), local(9)]);

    let socket = UdpSocket::bind(local(0)).await.unwrap();
    for server in [local(quic), local(port)] {
        socket.send_to(&request([7; 12]), server).await.unwrap();
        let mut answer = [0; 64];
        let (length, from) = timeout(SOON, socket.recv_from(&mut answer)).await.unwrap().unwrap();
        let seen = answered(&answer[..length]).unwrap().1;
        assert_eq!((from, seen), (server, socket.local_addr().unwrap()));
    }
}

#[tokio::test]
async fn a_client_asks_what_stands_in_front_of_it() {
    let listen = "\"quic://127.0.0.1:0\", \"tcp://127.0.0.1:0\"";
    let (_server, client) = pair(listen, &format!("stun: {}\n", free_port()), "").await;
    let servers = learned(&client, 2).await;
    let report = client.probe().await.unwrap();
    assert_eq!(report.udp, Udp::Passes);
    let asked: Vec<_> = report.servers.iter().map(|one| one.address.clone()).collect();
    assert_eq!(asked, servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>());
    let outer = |one: &ops::nat::StunServer| one.outer.clone().unwrap_or_default();
    assert!(report.servers.iter().all(|one| outer(one).starts_with("127.0.0.1:")), "{report:?}");
    // A peer elsewhere would send to itself.
    let is_loopback = |one: &String| one.starts_with("127.") || one.starts_with("[::1]");
    assert!(!report.candidates.iter().any(is_loopback), "{report:?}");
    let network = Network { mapping: Mapping::None, filtering: Filtering::Open };
    assert_eq!((report.ipv4, report.ipv6), (Some(network), None));
    for expected in &report.peers {
        let is_blocked = expected.peer == Peer::Blocked;
        assert_eq!(expected.path == Path::Relayed, is_blocked, "{expected:?}");
    }
}

#[tokio::test]
async fn silence_of_all_servers_is_an_answer_and_no_server_is_none() {
    let nobody = format!("p2p: {{ stun: \"127.0.0.1:{}\" }}\n", free_port());
    let (_server, client) = pair("\"tcp://127.0.0.1:0\"", "", &nobody).await;
    let report = client.probe().await.unwrap();
    assert_eq!((report.udp, report.servers.len()), (Udp::Blocked, 1));
    assert!(report.peers.iter().all(|expected| expected.path == Path::Relayed));

    let (_server, client) = pair("\"tcp://127.0.0.1:0\"", "", "").await;
    let error = timeout(SOON, async {
        loop {
            let error = client.probe().await.unwrap_err().to_string();
            if !error.contains("not connected") {
                return error;
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert!(error.contains("its file needs") && error.contains("`stun: 3478`"), "{error}");
}
