//! An exit: the handshake is spoken over the stream, and the far side dials.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::rc::Rc;

use proto::{Open, Priority, ResetCode, Target};
use relay::{
    Allow, Destination, Exit, Handler, Listening, ProxyKind, Room, Settings, Socket, Visitor,
    accept_duplex, exit_stream, listen, serve_visitor,
};
use testkit::origins::{Origin, Pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::{Inlet, Outlet};

use super::rig::{ClosedPort, reply, request, socks5};
use crate::link::{Link, Opener};
use crate::rig::{FRAME, WINDOW, exchange, receive, run, until, visit};

const MB: u64 = 1_000_000;

pub(crate) struct ExitRig {
    pub(crate) address: SocketAddr,
    visitors: Rc<Settings>,
    pub(crate) far: Rc<Settings>,
    _listening: Listening,
}

impl ExitRig {
    /// An exit that reaches this machine at `named` alone.
    pub(crate) fn new(kind: ProxyKind, named: u16) -> Self {
        let exit = Exit::new(kind, None, move |_| {
            Allow::new(move |destination| match destination {
                Destination::Name(..) => true,
                Destination::Tcp(ip, port) => ip.is_loopback() && port == named,
                Destination::Udp(..) | Destination::Unix(_) => false,
            })
        });
        Self::serving(move |inlet, settings| {
            exit_stream(&exit, Visitor::Unknown, inlet, settings, None)
        })
    }

    fn serving(serve: impl Fn(Box<dyn Inlet>, &Rc<Settings>) -> Rc<dyn Outlet> + 'static) -> Self {
        let (visitors, far) = (Rc::<Settings>::default(), Rc::<Settings>::default());
        let of_far = Rc::clone(&far);
        let accept = Box::new(move |_open, inlet| serve(inlet, &of_far));
        let opener = Opener(Link::new(WINDOW, FRAME, accept));
        let door = Rc::new(Door { opener, settings: Rc::clone(&visitors) });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listening = listen(listener, door, Room::default()).unwrap();
        Self { address: listening.local_addr(), visitors, far, _listening: listening }
    }

    pub(crate) async fn settled(&self) {
        until(|| self.visitors.stats.live() == 0 && self.far.stats.live() == 0).await;
    }
}

#[derive(Debug)]
struct Door {
    opener: Opener,
    settings: Rc<Settings>,
}

impl Handler for Door {
    fn handle(&self, socket: Socket, visitor: Option<SocketAddr>) {
        let target = Target::Service("exit".into());
        let open = Open { target, visitor, priority: Priority::Normal, fields: None };
        serve_visitor((socket, false), &self.opener, open, &self.settings, None, None, None)
            .unwrap();
    }
}

#[test]
fn all_bytes_arrive_through_an_exit_also_those_behind_the_request() {
    run(async {
        let origin = Origin::half_close_echo().unwrap();
        let target = origin.address();
        let rig = ExitRig::new(ProxyKind::Socks5, target.port());
        let bulk = visit(rig.address, move |socket| {
            assert_eq!(socks5(&socket, target).unwrap(), 0);
            exchange(&socket, 10 * MB).unwrap()
        });
        assert_eq!(bulk.await, Pattern.digest(10 * MB));
        let piped = visit(rig.address, move |mut socket| {
            let said = [&[5, 1, 0][..], &request(1, target), Pattern.at(0, 5000)].concat();
            socket.write_all(&said).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            socket.read_exact(&mut [0; 2]).unwrap();
            assert_eq!(reply(&socket).unwrap(), 0);
            receive(&socket).unwrap()
        });
        assert_eq!(piped.await, Pattern.digest(5000));
        rig.settled().await;
        assert_eq!(rig.far.stats.opened(), 2);
    });
}

#[test]
fn an_exit_reaches_its_own_machine_only_where_that_is_named() {
    run(async {
        let port = ClosedPort::new();
        let closed = port.address();
        let origin = Origin::echo().unwrap();
        let other = origin.address();
        let rig = ExitRig::new(ProxyKind::Socks5, closed.port());
        let code = async |command: u8, to: SocketAddr| {
            visit(rig.address, move |mut socket| {
                socket.write_all(&[&[5, 1, 0][..], &request(command, to)].concat()).unwrap();
                socket.read_exact(&mut [0; 2]).unwrap();
                let code = reply(&socket).unwrap();
                assert_eq!(socket.read(&mut [0]).unwrap(), 0, "the end is clean");
                code
            })
            .await
        };
        assert_eq!(code(1, closed).await, 5);
        assert_eq!(code(1, other).await, 2);
        assert_eq!(code(1, (Ipv4Addr::new(169, 254, 169, 254), 80).into()).await, 2);
        assert_eq!(code(2, other).await, 7, "BIND");
        assert_eq!(code(3, other).await, 7, "UDP ASSOCIATE");
        assert_eq!(rig.far.stats.refused(ResetCode::Refused), 1);
        rig.settled().await;
        assert_eq!(origin.seen().accepted, 0);
    });
}

#[test]
fn an_exit_speaks_http_as_well() {
    run(async {
        let origin = Origin::http().unwrap();
        let target = origin.address();
        let rig = ExitRig::new(ProxyKind::Http, target.port());
        let answers = visit(rig.address, move |mut socket| {
            let said = format!(
                "CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n\
                 GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                port = target.port()
            );
            socket.write_all(said.as_bytes()).unwrap();
            let mut answers = String::new();
            socket.read_to_string(&mut answers).unwrap();
            answers
        })
        .await;
        assert!(answers.starts_with("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200"));
        assert!(answers.ends_with("ok\n"), "{answers}");
        rig.settled().await;
    });
}

#[test]
fn a_stream_can_end_inside_of_the_process() {
    run(async {
        let rig = ExitRig::serving(|inlet, settings| {
            let (outlet, mut stream) = accept_duplex(inlet, Visitor::Unknown, settings, None);
            tokio::task::spawn_local(async move {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                stream.write_all(&all).await.unwrap();
                stream.shutdown().await.unwrap();
            });
            outlet
        });
        let got = visit(rig.address, |socket| exchange(&socket, 5 * MB).unwrap()).await;
        assert_eq!(got, Pattern.digest(5 * MB));
        rig.settled().await;
        assert_eq!((rig.far.stats.bytes_in(), rig.far.stats.bytes_out()), (5 * MB, 5 * MB));
    });
}
