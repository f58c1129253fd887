//! The ends of connections: every kind of end on one side arrives as the same kind on the other.

use std::cell::{Cell, RefCell};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use proto::ResetCode;
use relay::{DialError, Gate, Layer, LayerError, Layered, Socket, TargetAddr, Targets, Timeouts};
use testkit::origins::{Digest, Ended, Origin, Pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use transport::LocalFuture;

use crate::rig::{DEADLINE, FRAME, Rig, WINDOW, exchange, receive, reset, run, send, until};

const MB: u64 = 1_000_000;

fn closed_port() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Targets that are dialled one after the other, and the times of connections.
#[derive(Clone)]
struct InOrder(Vec<SocketAddr>, Rc<RefCell<Vec<Duration>>>);

impl InOrder {
    fn new(all: Vec<SocketAddr>) -> Self {
        Self(all, Rc::default())
    }
}

impl Targets for InOrder {
    fn first(&self) -> TargetAddr {
        tcp(self.0[0])
    }

    fn next(&self, failed: &[DialError]) -> Option<TargetAddr> {
        self.0.get(failed.len()).copied().map(tcp)
    }

    fn connected(&self, took: Duration) {
        self.1.borrow_mut().push(took);
    }
}

fn tcp(address: SocketAddr) -> TargetAddr {
    TargetAddr::Tcp { host: address.ip().to_string(), port: address.port() }
}

#[test]
fn a_target_that_refuses_leaves_its_stream_to_the_next_target() {
    run(async {
        let origin = Origin::echo().unwrap();
        let targets = InOrder::new(vec![closed_port(), closed_port(), origin.address()]);
        let times = Rc::clone(&targets.1);
        let rig = Rig::behind(None, targets, (WINDOW, FRAME), Timeouts::default(), None);
        let got = rig.visit(|socket| exchange(&socket, 100_000).unwrap()).await;
        assert_eq!(got, Pattern.digest(100_000));
        rig.settled().await;
        assert_eq!(rig.targets.stats.refused(ResetCode::Refused), 0);
        assert_eq!(times.borrow().len(), 1, "one of three targets was connected");

        let targets = InOrder::new(vec![closed_port(), closed_port()]);
        let rig = Rig::behind(None, targets, (WINDOW, FRAME), Timeouts::default(), None);
        rig.visit(|socket| assert!(receive(&socket).is_err())).await;
        rig.settled().await;
        assert_eq!(rig.targets.stats.refused(ResetCode::Refused), 1, "one stream");
    });
}

#[test]
fn a_visitor_that_half_closes_still_reads_ten_megabytes() {
    run(async {
        let origin = Origin::half_close_echo().unwrap();
        let rig = Rig::new(origin.address());
        let got = rig
            .visit(|socket| {
                send(&socket, 10 * MB).unwrap();
                socket.shutdown(Shutdown::Write).unwrap();
                receive(&socket).unwrap()
            })
            .await;
        assert_eq!(got, Pattern.digest(10 * MB));
        rig.settled().await;
    });
}

#[test]
fn a_service_that_half_closes_still_reads_ten_megabytes() {
    run(async {
        let origin = Origin::start(|mut socket| async move {
            let data = Pattern.at(0, 5000).repeat(2000);
            socket.write_all(&data).await.unwrap();
            socket.shutdown().await.unwrap();
            let mut all = Vec::new();
            let clean = socket.read_to_end(&mut all).await.is_ok();
            let mut received = Digest::default();
            received.update(&all);
            Ended { received, clean }
        })
        .unwrap();
        let rig = Rig::new(origin.address());
        let got = rig
            .visit(|socket| {
                let got = receive(&socket).unwrap();
                send(&socket, 10 * MB).unwrap();
                got
            })
            .await;
        assert_eq!(got.length(), 10 * MB);
        rig.settled().await;
        let ended = origin.wait_ended(1, DEADLINE).unwrap();
        assert_eq!(ended, [Ended { received: Pattern.digest(10 * MB), clean: true }]);
    });
}

#[test]
fn a_visitor_that_closes_at_once_after_100_mb_loses_none() {
    run(async {
        let origin = Origin::sink().unwrap();
        let rig = Rig::new(origin.address());
        rig.visit(|socket| send(&socket, 100 * MB).unwrap()).await;
        rig.settled().await;
        let ended = origin.wait_ended(1, DEADLINE).unwrap();
        assert_eq!(ended, [Ended { received: Pattern.digest(100 * MB), clean: true }]);
        assert_eq!(rig.visitors.stats.bytes_in(), 100 * MB);
        assert_eq!(rig.targets.stats.bytes_out(), 100 * MB);
    });
}

#[test]
fn a_service_that_closes_first_is_read_to_its_last_byte_and_no_further() {
    run(async {
        let origin = Origin::source(100 * MB).unwrap();
        let rig = Rig::new(origin.address());
        let got = rig.visit(|socket| receive(&socket).unwrap()).await;
        assert_eq!(got, Pattern.digest(100 * MB));
        rig.settled().await;
    });
}

#[test]
fn bytes_cross_both_ways_at_once() {
    run(async {
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        let got = rig.visit(|socket| exchange(&socket, 30 * MB).unwrap()).await;
        assert_eq!(got, Pattern.digest(30 * MB));
        rig.settled().await;
    });
}

#[test]
fn a_reset_by_the_service_is_a_reset_for_the_visitor() {
    run(async {
        let origin = Origin::resetter(100).unwrap();
        let rig = Rig::new(origin.address());
        let error = rig
            .visit(|socket| {
                send(&socket, 100).unwrap();
                receive(&socket).unwrap_err().kind()
            })
            .await;
        assert_eq!(error, ErrorKind::ConnectionReset);
        rig.settled().await;
    });
}

#[test]
fn a_reset_by_the_visitor_is_a_reset_for_the_service() {
    run(async {
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        rig.visit(|mut socket| {
            send(&socket, 100).unwrap();
            socket.read_exact(&mut [0; 100]).unwrap();
            reset(socket);
        })
        .await;
        rig.settled().await;
        let ended = origin.wait_ended(1, DEADLINE).unwrap();
        assert!(!ended[0].clean && ended[0].received.length() == 100, "{ended:?}");
    });
}

/// The kernel reports a reset once, to the first call. Here bytes wait for the visitor, so a write
/// is first, and the read after it returns the end of the stream.
#[test]
fn a_reset_that_a_write_finds_is_no_end_for_the_service() {
    run(async {
        let service = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let rig = Rig::new(service.local_addr().unwrap());
        let visitor = std::net::TcpStream::connect(rig.address).unwrap();
        (&visitor).write_all(b"a part").unwrap();
        until(|| rig.targets.stats.bytes_out() == 6).await;
        let mut target = service.accept().unwrap().0;
        target.set_read_timeout(Some(DEADLINE)).unwrap();
        target.read_exact(&mut [0; 6]).unwrap();
        target.set_nonblocking(true).unwrap();
        let (written, taken) = (&rig.visitors.stats, &rig.targets.stats);
        until(|| {
            while (&target).write(&[0; 10_000]).is_ok() {}
            taken.bytes_in() > written.bytes_out() + WINDOW as u64 / 2
        })
        .await;
        target.set_nonblocking(false).unwrap();
        reset(visitor);
        rig.settled().await;
        let end = target.read(&mut [0]).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_refused_dial_is_a_reset_with_its_reason_counted() {
    run(async {
        let rig = Rig::new(closed_port());
        let error = rig.visit(|socket| receive(&socket).unwrap_err().kind()).await;
        assert_eq!(error, ErrorKind::ConnectionReset);
        rig.settled().await;
        assert_eq!(rig.targets.stats.refused(ResetCode::Refused), 1);
        assert_eq!(rig.targets.stats.opened(), 0);
    });
}

#[test]
fn a_service_that_resets_at_once_is_a_reset() {
    run(async {
        let origin = Origin::refuser().unwrap();
        let rig = Rig::new(origin.address());
        let error = rig.visit(|socket| receive(&socket).unwrap_err().kind()).await;
        assert_eq!(error, ErrorKind::ConnectionReset);
        rig.settled().await;
    });
}

#[test]
fn visitors_without_a_permit_or_a_link_are_reset_and_counted() {
    run(async {
        let origin = Origin::echo().unwrap();
        let gate = Gate::new(Some(1));
        let timeouts = Timeouts::default();
        let rig = Rig::with(origin.address(), WINDOW, FRAME, timeouts, Some(gate.clone()));
        let address = rig.address;
        let second = rig
            .visit(move |mut first| {
                first.write_all(b"x").unwrap();
                first.read_exact(&mut [0]).unwrap();
                let second = std::net::TcpStream::connect(address).unwrap();
                let outcome = receive(&second).unwrap_err().kind();
                drop(first);
                outcome
            })
            .await;
        assert_eq!(second, ErrorKind::ConnectionReset);
        assert_eq!(rig.visitors.stats.refused(ResetCode::Limit), 1);
        rig.settled().await;
        until(|| gate.live() == 0).await;

        rig.link.refuse.set(true);
        let error = rig.visit(|socket| receive(&socket).unwrap_err().kind()).await;
        assert_eq!(error, ErrorKind::ConnectionReset);
        assert_eq!(rig.visitors.stats.refused(ResetCode::Shutdown), 1);
        assert_eq!((rig.visitors.stats.live(), gate.live()), (0, 0));
    });
}

/// More than an error page, and less than what the path takes of a service whose visitor does not
/// read yet. What a service has not sent when it resets its connection is lost, as without a
/// tunnel.
const ANSWER: usize = 256 << 10;

#[test]
fn an_answer_survives_a_service_that_does_not_read_its_request() {
    run(async {
        let origin = Origin::start(|mut socket| async move {
            socket.write_all(&[7; ANSWER]).await.unwrap();
            socket.shutdown().await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            // Closing a socket with unread bytes sends RST.
            Ended { received: Digest::default(), clean: true }
        })
        .unwrap();
        let rig = Rig::new(origin.address());
        let got = rig
            .visit(|mut socket| {
                let sending = socket.try_clone().unwrap();
                let sender = std::thread::spawn(move || send(&sending, 50 * MB));
                std::thread::sleep(Duration::from_millis(600));
                let mut all = Vec::new();
                socket.read_to_end(&mut all).unwrap();
                let _ = socket.shutdown(Shutdown::Both);
                let _ = sender.join();
                all.len()
            })
            .await;
        assert_eq!(got, ANSWER);
        rig.settled().await;
    });
}

/// The bytes of the service lie in front of its reset, as without a tunnel.
#[test]
fn an_answer_survives_the_reset_behind_it() {
    run(async {
        let origin = Origin::start(|mut socket| async move {
            let _ = socket.read(&mut [0; 10]).await;
            socket.write_all(&[7; 8 << 10]).await.unwrap();
            // Closing a socket with unread bytes sends RST.
            Ended { received: Digest::default(), clean: true }
        })
        .unwrap();
        let rig = Rig::new(origin.address());
        for _ in 0..20 {
            rig.visit(|mut socket| {
                socket.write_all(&[0; 1000]).unwrap();
                let mut all = Vec::new();
                let end = socket.read_to_end(&mut all).map_err(|error| error.kind());
                assert_eq!((all.len(), end), (8 << 10, Err(ErrorKind::ConnectionReset)));
            })
            .await;
        }
        rig.settled().await;
    });
}

/// A layer without effect, which notes what it was asked for.
#[derive(Debug, Default)]
struct Noting {
    asked: RefCell<Vec<bool>>,
    fails: Cell<bool>,
}

impl Layer for Noting {
    fn wrap(
        &self,
        socket: Socket,
        is_http2: bool,
    ) -> LocalFuture<'static, Result<Layered, LayerError>> {
        self.asked.borrow_mut().push(is_http2);
        let fails = self.fails.get();
        Box::pin(async move {
            if fails {
                Err("fails".to_owned().into())
            } else {
                Ok(Layered::new(socket, Bytes::new()))
            }
        })
    }
}

#[test]
fn a_layer_learns_from_the_first_bytes_whether_they_are_http2() {
    run(async {
        let origin = Origin::echo().unwrap();
        let layer = Rc::new(Noting::default());
        let rig = Rig::above(Rc::<Noting>::clone(&layer), origin.address());
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
        for first in [preface, b"PRI * HTTP/2.0\r\n\r\nXX", b"GET / HTTP/1.1\r\n", b"P", b""] {
            rig.visit(move |mut socket| {
                for byte in first {
                    socket.write_all(&[*byte]).unwrap();
                }
                socket.shutdown(Shutdown::Write).unwrap();
                let mut all = Vec::new();
                socket.read_to_end(&mut all).unwrap();
                assert_eq!(all, first);
            })
            .await;
        }
        assert_eq!(layer.asked.take(), [true, false, false, false, false]);
        layer.fails.set(true);
        rig.visit(|mut socket| {
            socket.write_all(b"x").unwrap();
            assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        })
        .await;
        rig.settled().await;
        assert_eq!(rig.targets.stats.refused(ResetCode::Unreachable), 1);
    });
}

#[test]
fn a_service_whose_download_is_aborted_by_a_plain_close_does_not_send_on() {
    run(async {
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let origin = Origin::start(move |mut socket| {
            let count = Arc::clone(&count);
            async move {
                while socket.write_all(&[0; 64 << 10]).await.is_ok() {
                    count.fetch_add(64 << 10, Ordering::Relaxed);
                }
                Ended { received: Digest::default(), clean: false }
            }
        })
        .unwrap();
        let rig = Rig::new(origin.address());
        rig.visit(|mut socket| {
            socket.read_exact(&mut [0; 1000]).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        })
        .await;
        rig.settled().await;
        assert!(!origin.wait_ended(1, DEADLINE).unwrap()[0].clean);
        // The bound covers the socket buffers, the window and the bounded discarding. A loopback at
        // full speed would move gigabytes while the socket lingers.
        assert!(sent.load(Ordering::Relaxed) < 100 * MB, "{sent:?}");
    });
}

#[test]
fn a_link_that_ends_resets_both_sockets() {
    run(async {
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        let visitor = tokio::task::spawn_local(crate::rig::visit(rig.address, |mut socket| {
            socket.write_all(b"x").unwrap();
            socket.read_exact(&mut [0]).unwrap();
            receive(&socket).unwrap_err().kind()
        }));
        until(|| rig.visitors.stats.bytes_out() == 1).await;
        rig.link.kill();
        assert_eq!(visitor.await.unwrap(), ErrorKind::ConnectionReset);
        rig.settled().await;
        assert!(!origin.wait_ended(1, DEADLINE).unwrap()[0].clean);
    });
}

#[test]
fn a_target_gets_the_header_before_every_byte_and_no_counter_has_it() {
    run(async {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("back");
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let port = tcp.local_addr().unwrap().port();
        let targets = [
            TargetAddr::Tcp { host: "127.0.0.1".to_owned(), port },
            TargetAddr::Unix(proto::UnixAddr::new(path.to_str().unwrap()).unwrap()),
        ];
        for target in targets {
            let is_tcp = matches!(target, TargetAddr::Tcp { .. });
            let (tcp, unix) = (tcp.try_clone().unwrap(), unix.try_clone().unwrap());
            let service = std::thread::spawn(move || {
                let mut all = Vec::new();
                let read = if is_tcp {
                    tcp.accept().unwrap().0.read_to_end(&mut all)
                } else {
                    unix.accept().unwrap().0.read_to_end(&mut all)
                };
                read.unwrap();
                all
            });
            let header = Some(Bytes::from_static(b"header "));
            let rig = Rig::behind(header, target, (WINDOW, FRAME), Timeouts::default(), None);
            rig.visit(|mut socket| socket.write_all(b"bytes").unwrap()).await;
            let got = tokio::task::spawn_blocking(|| service.join().unwrap()).await.unwrap();
            assert_eq!(got, b"header bytes");
            rig.settled().await;
            assert_eq!(rig.targets.stats.bytes_out(), 5);
        }
    });
}
