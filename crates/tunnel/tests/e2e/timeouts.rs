//! Connections that end although their bytes move: `timeouts.total` and `timeouts.flush`, at a
//! service and at a forward. `relay/tests/pump/life.rs` has the times themselves, in virtual time.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, wait_listening};

/// Reads until the connection is reset, and returns how long that took.
fn until_reset(mut visitor: TcpStream) -> Duration {
    let begin = Instant::now();
    visitor.set_read_timeout(Some(SOON)).unwrap();
    loop {
        match visitor.read(&mut [0; 64 << 10]) {
            Ok(0) => panic!("a clean end"),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                return begin.elapsed();
            }
        }
    }
}

#[test]
fn a_connection_ends_after_its_time_and_after_one_side_has_finished() {
    // The origin sends without end, and never ends its direction.
    let origin = Origin::start(|mut stream| {
        while stream.write_all(&[0; 1000]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let [total, flush, forward] = [(); 3].map(|()| free_port());
    let target = format!("tcp://127.0.0.1:{}", origin.port());
    let mut setup = Setup::new(Scheme::ALL[0]);
    setup.allow = vec![total, flush];
    setup.more_targets.push(format!("127.0.0.1:{}", origin.port()));
    write!(
        setup.client_lines,
        "services:\n\
         \x20 - {{ name: total, target: \"{target}\", public: {total}, timeouts: {{ total: 1s }} }}\n\
         \x20 - {{ name: flush, target: \"{target}\", public: {flush}, timeouts: {{ flush: 1s }} }}\n\
         forwards:\n\
         \x20 - {{ listen: {forward}, target: \"{target}\", timeouts: {{ total: 1s }} }}\n"
    )
    .unwrap();
    let _running = setup.start();
    for port in [total, flush, forward] {
        wait_listening(port, SOON);
    }
    for port in [total, forward] {
        let lived = until_reset(connect(port));
        assert!(lived >= Duration::from_millis(900), "{lived:?}");
    }
    let mut visitor = connect(flush);
    // Both directions are open: the connection lasts.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1500) {
        assert!(visitor.read(&mut [0; 64 << 10]).unwrap() > 0);
    }
    visitor.shutdown(Shutdown::Write).unwrap();
    let lived = until_reset(visitor);
    assert!(lived >= Duration::from_millis(900), "{lived:?}");
}
