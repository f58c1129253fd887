//! A client learns at its log-in where the server answers STUN.

use punch::stun::{answered, request};
use tokio::net::UdpSocket;
use tokio::time::sleep;

use super::*;

#[tokio::test]
async fn a_client_is_told_the_ports_and_both_answer() {
    let folder = tempfile::tempdir().unwrap();
    let identity = tls::self_signed(folder.path(), &[]).unwrap();
    let pin = identity.pin();
    let further = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = further.local_addr().unwrap().port();
    drop(further);
    let text = format!(
        "listen: [\"quic://127.0.0.1:0\", \"tcp://127.0.0.1:0\"]\nworkers: 2\npublic_bind: \
         127.0.0.1\nstun: {port}\nclients:\n  - {{ name: home, token: {TOKEN} }}\n",
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
    let server = Server::start(config, Some(identity)).await.unwrap();
    let [quic, tcp] = server.listen() else { panic!("two listeners") };
    let quic: u16 = quic.rsplit(':').next().unwrap().parse().unwrap();
    let text = format!(
        "servers: {tcp}\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\ntls: {{ pin: \
         \"{pin}\" }}\np2p: {{ stun: \"127.0.0.1:9\" }}\n"
    );
    let text = Text { name: "client.yaml", text: &text };
    let config = loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()));
    let client = Client::start(config).await.unwrap();
    let all = timeout(SOON, async {
        loop {
            let all = client.stun_servers().await;
            if all.len() == 3 {
                return all;
            }
            sleep(Duration::from_millis(5)).await;
        }
    });
    let all = all.await.expect("the ports of the server and that of the file");
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
