//! Services of our own: what the client side publishes in a test.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::LONG;

/// A listener on a loopback port with a thread per connection. A handler's end is reported, so
/// that a test can wait for it; it lives as long as the test process.
#[derive(Debug)]
pub struct Origin {
    port: u16,
    ends: Receiver<Result<(), String>>,
}

/// Connections that may wait to be accepted; the kernel lowers it to `somaxconn`.
const BACKLOG: i32 = 4096;

impl Origin {
    /// Serves each connection with `handler`. A panic in it fails the test at [`Self::wait_one`].
    pub fn start(handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0", handler)
    }

    /// The same on an address of the caller's choice.
    pub fn start_on(address: &str, handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        // The standard library's 128 are less than come at once in some tests, and who finds no place
        // tries again after a second.
        rustix::net::listen(&listener, BACKLOG).unwrap();
        let port = listener.local_addr().unwrap().port();
        // As many connections as one test makes.
        let (report, ends) = sync_channel(4096);
        let handler = Arc::new(handler);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, handler, report) =
                    (stream.unwrap(), Arc::clone(&handler), report.clone());
                stream.set_read_timeout(Some(LONG)).unwrap();
                stream.set_write_timeout(Some(LONG)).unwrap();
                std::thread::spawn(move || serve(stream, &*handler, &report));
            }
        });
        Self { port, ends }
    }

    /// Sends back what it gets.
    pub fn echo() -> Self {
        Self::start(|stream| {
            // A visitor that goes away is none of the echo's business.
            drop(std::io::copy(&mut &stream, &mut &stream));
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until one more connection was served to its end without a complaint.
    pub fn wait_one(&self, deadline: Duration) {
        let end = self.ends.recv_timeout(deadline).expect("a connection is served to its end");
        if let Err(complaint) = end {
            panic!("the origin says: {complaint}");
        }
    }
}

fn serve(stream: TcpStream, handler: &dyn Fn(TcpStream), report: &SyncSender<Result<(), String>>) {
    let call = std::panic::AssertUnwindSafe(|| handler(stream));
    let end = std::panic::catch_unwind(call).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    });
    // Nobody may be waiting.
    drop(report.try_send(end));
}
