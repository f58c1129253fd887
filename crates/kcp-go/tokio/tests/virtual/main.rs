//! Streams and listeners over a network in memory, on a clock that stands still while anything can
//! be done.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod errors;
mod limits;
mod net;
mod rest;
mod streams;
mod timeouts;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kcp_go::envelope::Seal;
use kcp_go::session;
use kcp_go::wire::Conversation;
use kcp_go_crypto::{Crypt, derive};
use kcp_tokio::{Config, Listener, Stream};
use testkit::netem::{Rng, Weather};
use tokio::time::{Instant, timeout};

use net::{Net, Remote, address};

const CONVERSATION: Conversation = Conversation(0x8123_4567);

const SERVER: u16 = 1;
const CLIENT: u16 = 2;

fn config() -> Config {
    Config::new(session::Config::new(CONVERSATION))
}

fn seal() -> Arc<dyn Seal> {
    let crypt: Crypt = "aes-128-gcm".parse().unwrap();
    Arc::from(crypt.envelope(&derive("a long passphrase")))
}

/// A path of 20 ms that loses this share.
fn path(loss: f64) -> Weather {
    Weather { delay: Duration::from_millis(20), loss, ..Weather::default() }
}

/// A listener, and a stream that has said nothing yet.
struct World {
    net: Net,
    listener: Listener,
    client: Stream,
    to_server: Remote,
    to_client: Remote,
}

impl World {
    fn new(config: Config, loss: f64) -> Self {
        let net = Net::default();
        let (socket, to_server) = net.socket(address(SERVER), path(loss));
        let listener = Listener::bind(socket, config.clone(), seal()).unwrap();
        let (socket, to_client) = net.socket(address(CLIENT), path(loss));
        let client =
            Stream::connect(socket, address(SERVER), CONVERSATION, config, seal()).unwrap();
        Self { net, listener, client, to_server, to_client }
    }

    /// The listener's end of the stream, after one byte came.
    async fn accept(&self) -> Stream {
        self.client.write_bytes(Bytes::from_static(b"!")).await.unwrap();
        let (server, peer) = within(60, self.listener.accept()).await.unwrap();
        assert_eq!(peer, address(CLIENT));
        assert_eq!(server.read_bytes(9).await.unwrap(), "!");
        server
    }
}

/// Bytes that differ everywhere.
fn payload(length: usize) -> Bytes {
    let mut rng = Rng::new(length as u64);
    (0..length).map(|_| rng.bits().to_le_bytes()[7]).collect()
}

/// Waits at most so many seconds of the clock of tokio.
async fn within<T>(seconds: u64, work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(seconds), work).await.unwrap()
}

/// Reads so many bytes.
async fn read(stream: &Stream, length: usize) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < length {
        read.extend_from_slice(&stream.read_bytes(length - read.len()).await.unwrap());
    }
    read
}

fn later(seconds: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(seconds))
}
