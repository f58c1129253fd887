//! What a failure leaves behind: no descriptor, and a counter.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};

use super::{Balancer, connect, entry, lettered};
use crate::harness::{LONG, Origin, SOON, free_port, reset_on_drop, try_connect, wait};

/// Lets `n` visitors fail, and waits until the proxy has as many descriptors as before.
fn leaves_nothing(proxy: &Balancer, what: &str, n: usize, visitor: impl Fn()) {
    let before = proxy.daemon.descriptors();
    (0..n).for_each(|_| visitor());
    wait(&format!("the descriptors of {what} are closed"), LONG, || {
        (proxy.daemon.descriptors() <= before).then_some(())
    });
}

/// Reads until the end or the reset of the connection.
fn read_to_end(mut visitor: TcpStream) {
    drop(visitor.read_to_end(&mut Vec::new()));
}

#[test]
fn descriptors_return_to_the_base_after_each_failure() {
    let [refusing, one, late, tls, full] = [(); 5].map(|()| free_port());
    let origin = lettered(b'a');
    let resetting = Origin::start(|mut stream| {
        drop(stream.write_all(b"x"));
        reset_on_drop(&stream);
    });
    let certificate = super::protocols::Certificate::new();
    let (dead, broken) = (free_port(), free_port());
    // Accepts nothing: its queue is full after the first connection.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let _fillers: Vec<_> = (0..2).filter_map(|_| fill(&silent)).collect();
    let named = |name: &str, entry: String| entry.replace("name: web", &format!("name: {name}"));
    let entries = [
        named("refusing", entry(refusing, &[dead, broken], "")),
        named("resetting", entry(one, &[resetting.port()], "")),
        named(
            "silent",
            entry(late, &[silent.local_addr().unwrap().port()], ", timeouts: { dial: 200ms }"),
        ),
        named("tls", entry(tls, &[origin.port()], &certificate.keys())),
        named("full", entry(full, &[origin.port()], ", limits: { connections: 1 }")),
    ];
    let proxy = Balancer::start(refusing, &entries);
    // The first visitors make what stays: pipes of the runtime, the list of open files.
    visit(refusing);
    leaves_nothing(&proxy, "targets that refuse", 20, || visit(refusing));
    leaves_nothing(&proxy, "targets that reset", 20, || visit(one));
    leaves_nothing(&proxy, "targets that do not answer", 5, || visit(late));
    leaves_nothing(&proxy, "visitors without TLS", 20, || {
        let mut visitor = connect(tls);
        drop(visitor.write_all(b"GET / HTTP/1.1\r\n\r\n"));
        read_to_end(visitor);
    });
    leaves_nothing(&proxy, "visitors that leave during TLS", 20, || {
        let visitor = connect(tls);
        visitor.shutdown(Shutdown::Both).unwrap();
    });
    leaves_nothing(&proxy, "visitors that reset", 20, || {
        // The target's reset may come first.
        if let Ok(visitor) = try_connect(one) {
            reset_on_drop(&visitor);
        }
    });
    {
        let held = connect(full);
        assert_eq!(super::letter(&held), b'a');
        leaves_nothing(&proxy, "surplus visitors", 20, || {
            assert!(super::is_turned_away(full));
        });
    }
    let refused = &proxy.entry(0)["refused"];
    assert_eq!(refused["refused"], 21, "{refused}");
    let refused = &proxy.entry(2)["refused"];
    assert_eq!(refused["timeout"], 5, "{refused}");
    let refused = &proxy.entry(4)["refused"];
    assert_eq!(refused["limit"], 20, "{refused}");
}

/// Visits a port whose visitors are reset, which may be before `connect` returns.
fn visit(port: u16) {
    match try_connect(port) {
        Ok(visitor) => read_to_end(visitor),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

/// Fills the queue of a listener.
fn fill(listener: &TcpListener) -> Option<TcpStream> {
    TcpStream::connect_timeout(&listener.local_addr().ok()?, SOON / 20).ok()
}
