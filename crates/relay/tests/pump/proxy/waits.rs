//! What a proxy waits for, and how long: the handshake, the report, a visitor that leaves.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use proto::ResetCode;
use relay::Credentials;
use std::cell::{Cell, RefCell};
use transport::{Inlet, Outlet};

use super::rig::{Options, ProxyRig, reply, socks5};
use crate::rig::{reset, run, run_paused, until};

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

/// A greeting, and a request for it.
const CONNECT: &[u8] = b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50";

/// The far end of a stream that never says anything.
#[derive(Debug, Default)]
struct Silent {
    inlet: RefCell<Option<Box<dyn Inlet>>>,
    end: Cell<Option<ResetCode>>,
}

impl Outlet for Silent {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        pieces.drain(..).map(|piece| piece.len()).sum()
    }

    fn finish(&self) {}

    fn reset(&self, code: ResetCode) {
        self.end.set(Some(code));
        self.inlet.take();
    }

    fn stop(&self, _code: ResetCode) {}

    fn room(&self) {}
}

fn silent() -> (ProxyRig, Rc<Silent>) {
    let silent = Rc::<Silent>::default();
    let far = Rc::clone(&silent);
    let accept = Box::new(move |_, inlet| {
        *far.inlet.borrow_mut() = Some(inlet);
        Rc::<Silent>::clone(&far) as Rc<dyn Outlet>
    });
    (ProxyRig::new(Options { accept: Some(accept), ..Options::default() }), silent)
}

/// Sends bytes to the proxy, and returns the connection once the proxy has it.
async fn say(rig: &ProxyRig, said: &'static [u8]) -> TcpStream {
    let socket = rig.visit(move |mut socket| {
        socket.write_all(said).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    let socket = socket.await;
    until(|| rig.accepted.get() == 1).await;
    socket
}

/// Lets time pass. The clock jumps to the next timer of the proxy whenever nothing else happens.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Whether nothing has arrived at the socket, not even its end.
fn is_silent(mut socket: &TcpStream) -> bool {
    socket.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Waits for the end of the socket, and returns the bytes before it.
async fn rest(mut socket: TcpStream) -> Vec<u8> {
    socket.set_nonblocking(false).unwrap();
    let read = move || {
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).unwrap();
        heard
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

#[test]
fn a_program_that_says_nothing_or_too_little_is_left_after_ten_seconds() {
    for (said, answer) in [
        (&b""[..], &b""[..]),
        (b"\x05", b""),
        (b"\x05\x01\x00", b"\x05\x00"),
        (b"\x05\x01\x00\x05\x01\x00\x03\xff", b"\x05\x00"),
    ] {
        run_paused(async move {
            let rig = ProxyRig::new(Options::default());
            let mut socket = say(&rig, said).await;
            let mut heard = vec![0; answer.len()];
            until(|| socket.peek(&mut [0; 2]).unwrap_or(0) == answer.len()).await;
            let _ = socket.read(&mut heard);
            assert_eq!(heard, answer);
            pass(9).await;
            assert!(is_silent(&socket), "{said:?}");
            pass(2).await;
            assert_eq!(rest(socket).await, b"");
            assert_eq!((rig.near.stats.live(), rig.opened.borrow().len()), (0, 0));
        });
    }
}

#[test]
fn a_report_that_does_not_come_is_a_timeout() {
    run_paused(async {
        let (rig, far) = silent();
        let socket = say(&rig, CONNECT).await;
        until(|| rig.opened.borrow().len() == 1).await;
        until(|| socket.peek(&mut [0; 2]).unwrap_or(0) == 2).await;
        let _ = (&socket).read(&mut [0; 2]);
        pass(29).await;
        assert!(is_silent(&socket));
        pass(2).await;
        assert_eq!(rest(socket).await, [5, 6, 0, 1, 0, 0, 0, 0, 0, 0]);
        until(|| far.end.get().is_some()).await;
        assert_eq!(far.end.get(), Some(ResetCode::Aborted), "nobody waits for the dial any more");
        assert_eq!(rig.near.stats.refused(ResetCode::Timeout), 1);
        assert_eq!(rig.near.stats.live(), 0);
    });
}

#[test]
fn a_visitor_that_leaves_before_the_report_ends_the_dial() {
    run(async {
        let (rig, far) = silent();
        let socket = rig
            .visit(|mut socket| {
                socket.write_all(CONNECT).unwrap();
                socket.read_exact(&mut [0; 2]).unwrap();
                socket
            })
            .await;
        until(|| rig.opened.borrow().len() == 1).await;
        reset(socket);
        until(|| far.end.get().is_some()).await;
        assert_eq!(far.end.get(), Some(ResetCode::Aborted));
        rig.settled().await;
    });
}

#[test]
fn a_link_that_ends_before_the_report_is_no_way_to_the_network() {
    run(async {
        let (rig, _far) = silent();
        let visit = rig.visit(|socket| socks5(&socket, ANYWHERE).unwrap());
        let kill = async {
            until(|| rig.opened.borrow().len() == 1).await;
            rig.link.kill();
        };
        let (code, ()) = tokio::join!(visit, kill);
        assert_eq!(code, 3);
        rig.settled().await;
    });
}

#[test]
fn a_wrong_password_is_answered_late_and_a_right_one_at_once() {
    run(async {
        let credentials = Credentials::new("anna", "one");
        let rig = ProxyRig::new(Options { credentials, ..Options::default() });
        let guess = async |password: &'static str| {
            rig.visit(move |mut socket| {
                let begin = std::time::Instant::now();
                socket.write_all(&[5, 1, 2]).unwrap();
                socket.read_exact(&mut [0; 2]).unwrap();
                let length = u8::try_from(password.len()).unwrap();
                let said = [b"\x01\x04anna", &[length][..], password.as_bytes()].concat();
                socket.write_all(&said).unwrap();
                let mut status = [0; 2];
                socket.read_exact(&mut status).unwrap();
                if status[1] == 0 {
                    // Port 1 is denied.
                    socket.write_all(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x01").unwrap();
                    assert_eq!(reply(&socket).unwrap(), 2);
                } else {
                    let end = socket.read(&mut [0]).map_err(|error| error.kind());
                    assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
                }
                (status[1], begin.elapsed())
            })
            .await
        };
        let (status, took) = guess("two").await;
        assert!(status != 0 && took >= Duration::from_millis(500), "{status} {took:?}");
        assert_eq!(guess("one").await.0, 0);
        assert_eq!(rig.near.stats.refused(ResetCode::Denied), 2);
        rig.settled().await;
    });
}
