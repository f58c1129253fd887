//! Daemons that get their listening sockets from another process, this test, or from the service
//! manager: every kind of listener serves, and visitors that came before the start are served as
//! well.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use testkit::stage::{Daemon, Running};

use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, tunnel, wait};
use crate::manager::started_with;
use crate::udp::Echo;

/// Workers of each daemon: a group has a socket for each.
const WORKERS: usize = 2;

/// Hands the sockets to the daemon that connects, and closes them. Returns the variable that tells
/// the daemon where.
pub(crate) fn hand_over(at: &Path, sockets: Vec<OwnedFd>) -> (&'static str, OsString) {
    let listener = UnixListener::bind(at).unwrap();
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        for some in sockets.chunks(5) {
            let some: Vec<_> = some.iter().map(AsFd::as_fd).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&some)));
            let bytes = [IoSlice::new(b"x")];
            sendmsg(&stream, &bytes, &mut ancillary, SendFlags::empty()).unwrap();
        }
    });
    ("TUNNEL_INHERIT", at.into())
}

fn owned(group: impl IntoIterator<Item = impl Into<OwnedFd>>) -> Vec<OwnedFd> {
    group.into_iter().map(Into::into).collect()
}

fn tcp(at: SocketAddr, count: usize) -> Vec<OwnedFd> {
    owned(net::listen_group(at, count).unwrap())
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn everywhere(port: u16) -> SocketAddr {
    net::bindable(SocketAddr::from(([0; 16], port))).unwrap()
}

fn echoes(mut stream: impl Read + Write) {
    stream.write_all(b"hello").unwrap();
    let mut read = [0; 5];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(&read, b"hello");
}

/// Sends datagrams to a loopback port until one comes back: UDP promises no single one.
fn returns(port: u16) {
    let socket = UdpSocket::bind(local(0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.connect(local(port)).unwrap();
    wait("a datagram that comes back", SOON, || {
        socket.send(b"datagram").ok()?;
        let mut read = [0; 16];
        let length = socket.recv(&mut read).ok()?;
        assert_eq!(&read[..length], b"datagram");
        Some(())
    });
}

/// The answer of a request to this loopback port.
fn asked(mut stream: TcpStream, host: &str, path: &str) -> String {
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn daemons_serve_on_every_kind_of_listener_of_another_process() {
    serve_on_every_kind(|list, sockets| (Some(hand_over(list, sockets)), Vec::new()));
}

#[test]
fn daemons_serve_on_every_kind_of_listener_of_the_service_manager() {
    serve_on_every_kind(|list, sockets| {
        let unnamed = |socket| ("listeners".to_owned(), socket);
        (None, started_with(list, sockets.into_iter().map(unnamed).collect()))
    });
}

/// How a daemon gets its sockets: a variable, or the words before its command.
type Way = (Option<(&'static str, OsString)>, Vec<OsString>);

fn serve_on_every_kind(way: impl Fn(&Path, Vec<OwnedFd>) -> Way) {
    let (origin, datagrams) = (Origin::echo(), Echo::start());
    let site = Origin::start(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    });
    let mut setup = Setup::new(Scheme::TLS);
    let [quic, door, admin, public, flows] = std::array::from_fn(|_| free_port());
    let [forward, forward_udp] = std::array::from_fn(|_| free_port());
    let path = |name: &str| setup.dir().join(name);
    let (server_sock, client_sock) = (path("server.sock"), path("client.sock"));
    let (file, lists) = (path("forward.sock"), [path("server.fds"), path("client.fds")]);
    let abstract_name = format!("tunnel-inherited-{public}");

    setup.more_listen.push(format!("quic://127.0.0.1:{quic}"));
    setup.allow.push(public);
    setup.more_rights.push(format!("udp: [\"{flows}\"], http: [\"*\"]"));
    setup.more_targets.push(format!("127.0.0.1:{}", origin.port()));
    setup.more_targets.push(format!("127.0.0.1:{}", datagrams.port()));
    writeln!(
        setup.server_lines,
        "workers: {WORKERS}\nhttp: {{ listen: \"127.0.0.1:{door}\" }}\n\
         admin: {{ listen: \"127.0.0.1:{admin}\", token: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi }}"
    )
    .unwrap();
    let target = format!("tcp://127.0.0.1:{}", origin.port());
    let udp_target = format!("udp://127.0.0.1:{}", datagrams.port());
    let lines = [
        format!("workers: {WORKERS}\nservices:"),
        format!("  - {{ name: a, public: \"tcp://:{public}\", target: \"{target}\" }}"),
        format!("  - {{ name: b, public: \"udp://:{flows}\", target: \"{udp_target}\" }}"),
        format!(
            "  - {{ name: c, public: \"http://site.example.com\", target: \"tcp://127.0.0.1:{}\" }}",
            site.port()
        ),
        "forwards:".to_owned(),
        format!("  - {{ listen: \"tcp://127.0.0.1:{forward}\", target: \"{target}\" }}"),
        format!("  - {{ listen: \"udp://127.0.0.1:{forward_udp}\", target: \"{udp_target}\" }}"),
        format!("  - {{ listen: \"unix://{}\", target: \"{target}\" }}", file.display()),
        format!("  - {{ listen: \"unix://@{abstract_name}\", target: \"{target}\" }}"),
    ];
    for line in lines {
        writeln!(setup.client_lines, "{line}").unwrap();
    }

    let flow = |at| net::udp::flow_group(at, WORKERS).unwrap().sockets;
    let of_server = [
        tcp(local(setup.server_port()), WORKERS),
        owned(net::udp::udp_group(local(quic), WORKERS).unwrap()),
        tcp(local(door), WORKERS),
        tcp(local(admin), 1),
        owned([UnixListener::bind(&server_sock).unwrap()]),
        tcp(everywhere(public), WORKERS),
        owned(flow(everywhere(flows))),
    ];
    let by_name = unix::SocketAddr::from_abstract_name(&abstract_name).unwrap();
    let of_client = [
        owned([UnixListener::bind(&client_sock).unwrap()]),
        tcp(local(forward), WORKERS),
        owned(flow(local(forward_udp))),
        owned([UnixListener::bind(&file).unwrap()]),
        owned([UnixListener::bind_addr(&by_name).unwrap()]),
    ];
    let (variable, starter) = way(&lists[0], of_server.into_iter().flatten().collect());
    setup.server_env.extend(variable);
    setup.server_starter = starter;
    let (variable, starter) = way(&lists[1], of_client.into_iter().flatten().collect());
    setup.client_env.extend(variable);
    setup.client_starter = starter;

    // Visitors that come before anybody serves.
    let early = [connect(public), connect(forward)];
    let early_health = connect(admin);
    let early_unix = UnixStream::connect(&file).unwrap();

    let server_port = setup.server_port();
    let mut running: Running = setup.start();
    early.into_iter().for_each(echoes);
    echoes(early_unix);
    assert!(asked(early_health, "localhost", "/healthz").starts_with("HTTP/1.1 200 "));

    running.wait_echo(public);
    running.wait_echo(forward);
    returns(flows);
    returns(forward_udp);
    echoes(UnixStream::connect(&file).unwrap());
    echoes(UnixStream::connect_addr(&by_name).unwrap());
    assert!(asked(connect(door), "site.example.com", "/").ends_with("hi"));
    for role in ["server", "client"] {
        assert!(running.status(role).is_some(), "the control socket of the {role}");
    }
    // The listener of QUIC, where a datagram has to reach the worker of its connection.
    running.client().kill();
    running.client().wait_end(SOON);
    let text = fs::read_to_string(running.file("client.yaml")).unwrap();
    let over_tls = format!("tls://127.0.0.1:{server_port}");
    assert!(text.contains(&over_tls));
    let text = text.replace(&over_tls, &format!("quic://127.0.0.1:{quic}"));
    fs::write(running.file("quic.yaml"), text).unwrap();
    let mut over_quic = tunnel(&["client", "--config"]);
    over_quic.arg(running.file("quic.yaml")).env("HOME", running.dir());
    let _over_quic = Daemon::start("quic", running.dir(), &mut over_quic);
    wait("the client over QUIC", SOON, || {
        let status = running.status("server")?;
        let links = status["sessions"].as_array()?.iter().flat_map(|one| one["links"].as_array());
        let quic = links.flatten().filter(|link| link["carriers"][0]["transport"] == "quic");
        (quic.count() == WORKERS).then_some(())
    });
    running.wait_echo(public);
}
