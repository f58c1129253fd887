//! A server, clients and streams whose bytes are known, on one runtime.

mod client;
mod flow;
mod killer;
mod owner;
mod server;
mod tap;
mod tls;

use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use transport::memory::{self, MemoryDialer};

pub(crate) use client::{Client, Scripted, TOKEN, direct, path, plan};
pub(crate) use flow::{FlowTap, open_flow};
pub(crate) use killer::{Cut, Killer};
pub(crate) use owner::{Behaviour, Party};
pub(crate) use server::{Rules, Server};
pub(crate) use tap::{Appetite, Tap, open};
pub(crate) use tls::{Tls, web_socket};

/// Runs in virtual time: it jumps to the next timer when nobody has anything to do.
pub(crate) fn virtually<T>(work: impl Future<Output = T>) -> T {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(work)
}

/// Runs in real time, over real sockets.
pub(crate) fn really<T>(work: impl Future<Output = T>) -> T {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(300), work).await.expect("in time")
    })
}

/// Waits for something that must come; two minutes are far more than anything takes.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_mins(2);
    while !condition() {
        assert!(tokio::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A server and a client over one path in memory.
pub(crate) async fn couple() -> (Server, Client, MemoryDialer) {
    let (server, dialer) = serve();
    let client = Client::start(plan(vec![direct(&dialer)]));
    client.live().await;
    (server, client, dialer)
}

/// A server in memory.
pub(crate) fn serve() -> (Server, MemoryDialer) {
    let (listener, dialer) = memory::laned_network(crate::LANES);
    (Server::start(vec![Box::new(listener)], Rules::default()), dialer)
}
