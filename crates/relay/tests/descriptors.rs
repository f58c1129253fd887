//! Descriptors: every descriptor is returned, and the program survives running out of them. The
//! tests have a file of their own, because limit and count belong to the process.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test fails by panicking, and its visitors are threads that may wait"
)]

#[path = "pump/link.rs"]
#[allow(dead_code, reason = "other tests use the rest of the link")]
mod link;
#[path = "pump/rig.rs"]
#[allow(dead_code, reason = "other tests use the rest of the rig")]
mod rig;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rig::{Rig, reset, run, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::origins::Origin;

/// The tests count the descriptors of the same process, so one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn abort_download(address: SocketAddr, by_reset: bool) {
    rig::visit(address, move |mut socket| {
        socket.read_exact(&mut [0; 1000]).unwrap();
        if by_reset {
            reset(socket);
        }
    })
    .await;
}

#[test]
fn a_thousand_aborted_downloads_leave_nothing_behind() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let origin = Origin::source(10 << 20).unwrap();
        let rig = Rig::new(origin.address());
        let base = open_descriptors();
        for _ in 0..100 {
            let address = rig.address;
            let ten: Vec<_> = (0..10)
                .map(|i| tokio::task::spawn_local(abort_download(address, i % 2 == 0)))
                .collect();
            for download in ten {
                download.await.unwrap();
            }
        }
        rig.settled().await;
        assert_eq!(rig.visitors.stats.opened(), 1000);
        until(|| open_descriptors() <= base).await;
    });
}

#[test]
fn accepting_goes_on_after_descriptors_ran_out() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        // Visitors connect while descriptors are free. The listener does not accept yet, because
        // this thread does not run its tasks.
        let mut visitors: Vec<_> =
            (0..20).map(|_| TcpStream::connect(rig.address).unwrap()).collect();
        let before = getrlimit(Resource::Nofile);
        let exhausted = open_descriptors() as u64 + 4;
        setrlimit(Resource::Nofile, Rlimit { current: Some(exhausted), ..before }).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(rig.visitors.stats.opened() < 20);
        setrlimit(Resource::Nofile, before).unwrap();
        until(|| rig.visitors.stats.opened() == 20).await;
        // Visitors whose target could not be dialled were reset; later visitors are served.
        visitors.clear();
        rig.settled().await;
        rig.visit(|mut socket| {
            socket.write_all(b"x").unwrap();
            socket.read_exact(&mut [0]).unwrap();
        })
        .await;
    });
}

#[test]
fn a_port_is_free_as_soon_as_its_guard_is_dropped() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(async {
        let origin = Origin::echo().unwrap();
        let rig = Rig::new(origin.address());
        let port = rig.address.port();
        // The socket is never accepted, because the task has not run yet.
        let waiting = TcpStream::connect(rig.address).unwrap();
        drop(rig);
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        drop(waiting);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    });
}
