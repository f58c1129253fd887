//! Unix sockets at either end: the same bytes, the same half-close, and the end that an abort
//! causes.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use net::SocketOptions;
use net::resolve::Lookups;
use proto::{ResetCode, UnixAddr};
use relay::{ListeningUnix, Room, TargetAddr, Timeouts, dial, listen_unix};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use testkit::origins::{Digest, Origin, Pattern};

use crate::rig::{DEADLINE, FRAME, Rig, WINDOW, receive, run, run_paused, send, until, visit};

const MB: u64 = 1_000_000;

/// The folder of the sockets of one test.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn target(&self, name: &str) -> TargetAddr {
        TargetAddr::Unix(UnixAddr::new(self.path(name).to_str().unwrap()).unwrap())
    }
}

fn rig(target: TargetAddr) -> Rig {
    Rig::to(target, WINDOW, FRAME, Timeouts::default(), None)
}

fn door(rig: &Rig, path: &Path) -> ListeningUnix {
    let listener = UnixListener::bind(path).unwrap();
    listen_unix(listener, "test", Rc::clone(&rig.door), Room::default()).unwrap()
}

/// Runs a service for one visitor.
fn serve<T: Send + 'static>(
    listener: UnixListener,
    f: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::spawn(move || f(patient(listener.accept().unwrap().0)))
}

fn patient(socket: UnixStream) -> UnixStream {
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket.set_write_timeout(Some(DEADLINE)).unwrap();
    socket
}

async fn knock<T: Send + 'static>(
    path: PathBuf,
    f: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> T {
    let visit = move || f(patient(UnixStream::connect(path).unwrap()));
    tokio::task::spawn_blocking(visit).await.unwrap()
}

async fn joined<T: Send + 'static>(thread: JoinHandle<T>) -> T {
    tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap()
}

#[test]
fn half_close_is_kept_both_ways_between_unix_sockets() {
    run(async {
        let place = Place::new();
        let (front, back) = (place.path("front"), place.path("back"));
        // In the first round the visitor ends first and reads on, in the second the service.
        for visitor_first in [true, false] {
            let ends_first = |socket: UnixStream| -> Digest {
                send(&socket, 10 * MB).unwrap();
                socket.shutdown(Shutdown::Write).unwrap();
                receive(&socket).unwrap()
            };
            let ends_last = |socket: UnixStream| -> Digest {
                let got = receive(&socket).unwrap();
                send(&socket, 10 * MB).unwrap();
                got
            };
            let rig = rig(place.target("back"));
            let _door = door(&rig, &front);
            let listener = UnixListener::bind(&back).unwrap();
            let (service, visitor) = if visitor_first {
                (serve(listener, ends_last), knock(front.clone(), ends_first).await)
            } else {
                (serve(listener, ends_first), knock(front.clone(), ends_last).await)
            };
            assert_eq!(visitor, Pattern.digest(10 * MB));
            assert_eq!(joined(service).await, Pattern.digest(10 * MB));
            rig.settled().await;
            std::fs::remove_file(&front).unwrap();
            std::fs::remove_file(&back).unwrap();
        }
    });
}

#[test]
fn bytes_cross_both_ways_at_once_between_unix_and_tcp() {
    run(async {
        let place = Place::new();
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        let _door = door(&rig, &place.path("front"));
        let got = knock(place.path("front"), |socket| {
            let sending = socket.try_clone().unwrap();
            let sender = std::thread::spawn(move || {
                send(&sending, 30 * MB).unwrap();
                sending.shutdown(Shutdown::Write).unwrap();
            });
            let got = receive(&socket).unwrap();
            sender.join().unwrap();
            got
        });
        assert_eq!(got.await, Pattern.digest(30 * MB));
        rig.settled().await;
    });
}

#[test]
fn a_service_that_leaves_bytes_unread_resets_its_tcp_visitor() {
    run(async {
        let place = Place::new();
        let rig = rig(place.target("back"));
        let listener = UnixListener::bind(place.path("back")).unwrap();
        let service = serve(listener, |mut socket| {
            socket.read_exact(&mut [0]).unwrap();
        });
        let error = rig.visit(|socket| {
            send(&socket, 100).unwrap();
            receive(&socket).unwrap_err().kind()
        });
        assert_eq!(error.await, ErrorKind::ConnectionReset);
        joined(service).await;
        rig.settled().await;
    });
}

#[test]
fn an_abort_closes_a_unix_visitor_at_once() {
    run(async {
        let place = Place::new();
        let origin = Origin::resetter(100).unwrap();
        let rig = Rig::new(origin.address());
        let _door = door(&rig, &place.path("front"));
        let got = knock(place.path("front"), |socket| {
            send(&socket, 100).unwrap();
            receive(&socket).unwrap()
        });
        assert_eq!(got.await.length(), 0);
        rig.settled().await;
    });
}

#[test]
fn a_socket_without_a_listener_is_refused_and_a_missing_one_unreachable() {
    run(async {
        let place = Place::new();
        drop(UnixListener::bind(place.path("stale")).unwrap());
        std::fs::write(place.path("file"), "").unwrap();
        for (name, code) in [
            ("stale", ResetCode::Refused),
            ("file", ResetCode::Refused),
            ("missing", ResetCode::Unreachable),
        ] {
            let rig = rig(place.target(name));
            let error = rig.visit(|socket| receive(&socket).unwrap_err().kind()).await;
            assert_eq!(error, ErrorKind::ConnectionReset, "{name}");
            rig.settled().await;
            assert_eq!(rig.targets.stats.refused(code), 1, "{name}");
        }
    });
}

#[test]
fn a_full_queue_is_waited_for_until_the_deadline() {
    let full = |place: &Place| {
        let socket =
            socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        socket.bind(&socket2::SockAddr::unix(place.path("back")).unwrap()).unwrap();
        socket.listen(0).unwrap();
        (UnixListener::from(socket), UnixStream::connect(place.path("back")).unwrap())
    };
    run_paused(async {
        let place = Place::new();
        let _full = full(&place);
        let error = dial::dial(
            &place.target("back"),
            None,
            Duration::from_secs(10),
            (Room::default(), &SocketOptions::DEFAULT),
            &Lookups::default(),
        )
        .await;
        assert_eq!(error.unwrap_err().code(), ResetCode::Timeout);
    });
    run(async {
        let place = Place::new();
        let (listener, _first) = full(&place);
        let rig = rig(place.target("back"));
        let address = rig.address;
        let visitor = tokio::task::spawn_local(visit(address, |socket| receive(&socket).unwrap()));
        until(|| rig.targets.stats.live() == 1).await;
        drop(listener.accept().unwrap());
        let service = serve(listener, |mut socket| socket.write_all(b"welcome").unwrap());
        assert_eq!(visitor.await.unwrap().length(), 7);
        joined(service).await;
        rig.settled().await;
    });
}

#[test]
fn a_name_without_a_file_is_reached_too() {
    run(async {
        let name = format!("tunnel-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let service = serve(listener, |mut socket| socket.write_all(b"abstract").unwrap());
        let rig = rig(TargetAddr::Unix(UnixAddr::new(&format!("@{name}")).unwrap()));
        let got = rig.visit(|socket| receive(&socket).unwrap()).await;
        assert_eq!(got.length(), 8);
        joined(service).await;
        rig.settled().await;
    });
}

/// A passed descriptor ends the read(2) that meets it, although more bytes follow. So a short read
/// does not mean that the socket is empty.
#[test]
fn bytes_behind_a_passed_descriptor_arrive() {
    run(async {
        let place = Place::new();
        let listener = UnixListener::bind(place.path("back")).unwrap();
        let service = serve(listener, |mut socket| {
            let fds = [socket.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
            sendmsg(&socket, &[IoSlice::new(b"one")], &mut ancillary, SendFlags::empty()).unwrap();
            socket.write_all(b"two").unwrap();
            // No later event could wake the reader here.
            socket.read_exact(&mut [0]).unwrap();
        });
        let rig = rig(place.target("back"));
        rig.visit(|mut socket| {
            let mut got = [0; 6];
            socket.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"onetwo");
            socket.write_all(b".").unwrap();
        })
        .await;
        joined(service).await;
        rig.settled().await;
    });
}
