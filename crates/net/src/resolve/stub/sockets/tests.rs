use super::super::packets::{ANSWER, a, reply, srv};
use super::super::wire::{Record, RecordKind};
use super::*;
use tokio::net::TcpListener;

const CUT: u16 = ANSWER | 0x0200;

fn question() -> Question {
    Question { name: "app.test".into(), kind: RecordKind::A }
}

/// A socket for datagrams and a listener on the same port.
async fn server() -> (UdpSocket, TcpListener, SocketAddr) {
    loop {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let at = socket.local_addr().unwrap();
        // Another program may have the port of the other protocol.
        if let Ok(listener) = TcpListener::bind(at).await {
            return (socket, listener, at);
        }
    }
}

async fn next(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut packet = vec![0; 512];
    let (size, from) = socket.recv_from(&mut packet).await.unwrap();
    packet.truncate(size);
    (packet, from)
}

#[tokio::test]
async fn forged_packets_are_ignored_and_the_answer_counts() {
    let (socket, _listener, at) = server().await;
    let forger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let serve = async {
        let (packet, from) = next(&socket).await;
        let forged = reply(&packet, ANSWER, &[a("app.test", 9, [6, 6, 6, 6])], &[]);
        // From another address; with another number; about another name; and rubbish.
        forger.send_to(&forged, from).await.unwrap();
        let mut numbered = forged.clone();
        numbered[1] ^= 1;
        socket.send_to(&numbered, from).await.unwrap();
        let mut named = forged;
        named[13] = b'x';
        socket.send_to(&named, from).await.unwrap();
        socket.send_to(b"rubbish", from).await.unwrap();
        let good = reply(&packet, ANSWER, &[a("app.test", 9, [10, 0, 0, 1])], &[]);
        socket.send_to(&good, from).await.unwrap();
    };
    let (answer, ()) = tokio::join!(Sockets.ask(at, &question(), false), serve);
    assert_eq!(answer.unwrap().found, [Record::Address([10, 0, 0, 1].into())]);
}

#[tokio::test]
async fn each_question_has_a_port_and_a_number_of_its_own() {
    let (socket, _listener, at) = server().await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..8 {
        let serve = async {
            let (packet, from) = next(&socket).await;
            seen.insert((packet[0], packet[1], from.port()));
            socket.send_to(&reply(&packet, ANSWER, &[], &[]), from).await.unwrap();
        };
        let (answer, ()) = tokio::join!(Sockets.ask(at, &question(), false), serve);
        answer.unwrap();
    }
    assert_eq!(seen.len(), 8);
}

#[tokio::test]
async fn an_answer_that_was_cut_comes_whole_over_tcp() {
    let (socket, listener, at) = server().await;
    let serve = async {
        let (packet, from) = next(&socket).await;
        socket.send_to(&reply(&packet, CUT, &[], &[]), from).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let size = stream.read_u16().await.unwrap();
        let mut packet = vec![0; size.into()];
        stream.read_exact(&mut packet).await.unwrap();
        let many: Vec<_> = (0..30).map(|n| a("app.test", 9, [10, 0, 0, n])).collect();
        let whole = reply(&packet, ANSWER, &many, &[]);
        stream.write_u16(u16::try_from(whole.len()).unwrap()).await.unwrap();
        stream.write_all(&whole).await.unwrap();
    };
    let (answer, ()) = tokio::join!(Sockets.ask(at, &question(), false), serve);
    assert_eq!(answer.unwrap().found.len(), 30);
}

#[tokio::test]
async fn where_no_tcp_passes_the_addresses_that_had_room_count() {
    let (socket, listener, at) = server().await;
    drop(listener);
    let serve = async {
        let (packet, from) = next(&socket).await;
        let part = reply(&packet, CUT, &[a("app.test", 9, [10, 0, 0, 1])], &[]);
        socket.send_to(&part, from).await.unwrap();
    };
    let (answer, ()) = tokio::join!(Sockets.ask(at, &question(), false), serve);
    assert_eq!(answer.unwrap().found, [Record::Address([10, 0, 0, 1].into())]);
}

#[tokio::test]
async fn where_no_tcp_passes_a_part_of_the_servers_of_a_service_is_no_answer() {
    let (socket, listener, at) = server().await;
    drop(listener);
    let question = Question { name: "_tunnel._tcp.test".into(), kind: RecordKind::Srv };
    let serve = async {
        let (packet, from) = next(&socket).await;
        let part = srv("_tunnel._tcp.test", 9, [1, 1, 7000], "fra.test");
        socket.send_to(&reply(&packet, CUT, &[part], &[]), from).await.unwrap();
    };
    let (answer, ()) = tokio::join!(Sockets.ask(at, &question, false), serve);
    assert_eq!(answer.unwrap_err(), Trouble::Unreachable(rustix::io::Errno::CONNREFUSED));
}

#[tokio::test]
async fn a_lost_datagram_is_sent_again_and_a_closed_port_is_told_at_once() {
    let (socket, _listener, at) = server().await;
    let serve = async {
        let (first, _) = next(&socket).await;
        let (packet, from) = next(&socket).await;
        assert_eq!(first, packet, "an answer to either counts");
        socket.send_to(&reply(&packet, ANSWER, &[], &[]), from).await.unwrap();
    };
    let (answer, ()) = tokio::join!(Sockets.ask(at, &question(), false), serve);
    answer.unwrap();
    drop(socket);
    let answer = Sockets.ask(at, &question(), false).await.unwrap_err();
    assert_eq!(answer, Trouble::Unreachable(rustix::io::Errno::CONNREFUSED));
}
