//! A listener and a dialer that hand session descriptions to each other in memory.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

pub(crate) mod stun;

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use transport::{Carrier, CarrierError, Dialer, Incoming, Listener, LocalFuture, Transport};
use transport_webrtc::{
    Admission, Answerer, Arrived, First, Interfaces, Offerer, Peers, WEBRTC, WebrtcSettings,
};

/// The deadline of a test, many times the time that it takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The address that stands for the listener.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// Settings for peers on this machine.
pub(crate) fn settings() -> WebrtcSettings {
    WebrtcSettings {
        bind: vec![Ipv4Addr::LOCALHOST.into()],
        admission: Admission { loopback: true, private: false },
        ..WebrtcSettings::default()
    }
}

/// Runs a test on a runtime of one thread.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_within(DEADLINE, test);
}

/// The same with another deadline.
pub(crate) fn run_within(deadline: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(deadline, test).await.expect("within the deadline");
    });
}

/// Runs a test in virtual time, which goes on when all tasks wait.
pub(crate) fn run_paused(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// An offer, and where its answer goes.
type Request = (String, oneshot::Sender<String>);

#[derive(Debug)]
pub(crate) struct Memory {
    requests: mpsc::Receiver<Request>,
    peers: Peers,
}

#[derive(Debug)]
pub(crate) struct MemoryDialer {
    requests: mpsc::Sender<Request>,
    peers: Peers,
}

#[derive(Debug)]
struct Offered {
    request: Request,
    peers: Peers,
}

/// Both ends of an exchange in memory.
pub(crate) fn pair(settings: &WebrtcSettings) -> (Memory, MemoryDialer) {
    let (sender, requests) = mpsc::channel(100);
    let [accepting, dialling] = [(); 2].map(|()| Peers::new(settings.clone()));
    (Memory { requests, peers: accepting }, MemoryDialer { requests: sender, peers: dialling })
}

impl Listener for Memory {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let request = ready!(self.requests.poll_recv(cx)).ok_or(io::ErrorKind::NotConnected)?;
        Poll::Ready(Ok(Box::new(Offered { request, peers: self.peers.clone() })))
    }

    fn local_addr(&self) -> SocketAddr {
        ADDRESS
    }

    fn transport(&self) -> Transport {
        WEBRTC
    }
}

impl Incoming for Offered {
    fn remote(&self) -> SocketAddr {
        ADDRESS
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let (offer, reply) = self.request;
            let answerer = Answerer::new(&self.peers, &offer, Interfaces::Announced).await?;
            let _ = reply.send(answerer.answer().to_owned());
            carrier(answerer.connect().await?)
        })
    }
}

impl Dialer for MemoryDialer {
    fn dial(&self, _: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let (requests, peers) = (self.requests.clone(), self.peers.clone());
        Box::pin(async move {
            let offerer = Offerer::new(&peers, First::Carrier, Interfaces::Announced).await?;
            let (reply, answer) = oneshot::channel();
            requests.send((offerer.offer().to_owned(), reply)).await.unwrap();
            carrier(offerer.connect(&answer.await.unwrap()).await?)
        })
    }

    fn transport(&self) -> Transport {
        WEBRTC
    }
}

fn carrier(arrived: Arrived) -> Result<Carrier, CarrierError> {
    match arrived {
        Arrived::Carrier(carrier) => Ok(carrier),
        Arrived::Channels(_) => Err(CarrierError::Tls("not a tunnel".to_owned())),
    }
}

/// The begin of a ClientHello of DTLS 1.2 in a record, as a stranger may send it.
pub(crate) const CLIENT_HELLO: [u8; 60] = {
    let mut bytes = [0; 60];
    bytes[0] = 22;
    (bytes[1], bytes[2]) = (0xfe, 0xfd);
    bytes[12] = 47;
    bytes[13] = 1;
    bytes[16] = 35;
    bytes[24] = 35;
    (bytes[25], bytes[26]) = (0xfe, 0xfd);
    bytes
};
