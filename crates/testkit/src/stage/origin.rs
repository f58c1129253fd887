//! Services inside the test process: the targets that the client side publishes in a test.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use super::LONG;

/// A listener on a loopback port with a thread per connection. The origin reports the end of each
/// handler, so that a test can wait for it. The origin runs as long as the test process.
#[derive(Debug)]
pub struct Origin {
    port: u16,
    ends: Receiver<Result<(), String>>,
}

/// The queue of connections that wait to be accepted; the kernel lowers the number to `somaxconn`.
const BACKLOG: i32 = 4096;

impl Origin {
    /// Serves each connection with `handler`. A panic in `handler` fails the test at
    /// [`Self::wait_one`].
    pub fn start(handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0", handler)
    }

    /// As [`Self::start`], on the caller's address.
    pub fn start_on(address: &str, handler: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        // Some tests make more connections at once than the standard library's backlog of 128. A
        // client that finds the queue full retries only after a second.
        rustix::net::listen(&listener, BACKLOG).unwrap();
        let port = listener.local_addr().unwrap().port();
        // The largest number of connections that one test makes.
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

    /// Sends back the received bytes.
    pub fn echo() -> Self {
        Self::start(|stream| {
            // A visitor that leaves is not a failure of the echo.
            drop(std::io::copy(&mut &stream, &mut &stream));
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until one more connection was served to its end without a failure.
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
    // Perhaps no test waits for it.
    drop(report.try_send(end));
}
