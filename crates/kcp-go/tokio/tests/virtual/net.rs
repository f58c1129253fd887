//! A network in memory: sockets by address, each behind an emulated path, on the clock of tokio.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use kcp_tokio::{Arrival, PacketSocket, Run};
use testkit::netem::{Datagrams, Weather};
use tokio::time::Sleep;

type Packet = (SocketAddr, Vec<u8>);

/// All sockets by their address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net(Arc<Mutex<HashMap<SocketAddr, Arc<Mutex<Inbox>>>>>);

#[derive(Debug)]
struct Inbox {
    path: Datagrams<Packet>,
    waker: Option<Waker>,
    is_cut: bool,
    /// What the next calls to send return.
    errors: Vec<io::Error>,
    /// The socket takes nothing.
    is_full: bool,
    sender: Option<Waker>,
    sent: usize,
}

/// A socket of the network.
#[derive(Debug)]
pub(crate) struct Socket {
    net: Net,
    address: SocketAddr,
    inbox: Arc<Mutex<Inbox>>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Does things to a socket that a driver owns.
#[derive(Clone, Debug)]
pub(crate) struct Remote(Arc<Mutex<Inbox>>);

impl Remote {
    /// Whether what is sent to the socket is lost from now on.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.0.lock().unwrap().is_cut = is_cut;
    }

    /// The next calls to send fail.
    pub(crate) fn fail(&self, errors: impl IntoIterator<Item = io::Error>) {
        self.0.lock().unwrap().errors.extend(errors);
    }

    /// Whether the socket takes nothing.
    pub(crate) fn fill(&self, is_full: bool) {
        let mut inbox = self.0.lock().unwrap();
        inbox.is_full = is_full;
        let sender = inbox.sender.take();
        drop(inbox);
        sender.into_iter().for_each(Waker::wake);
    }

    /// Datagrams that were sent.
    pub(crate) fn sent(&self) -> usize {
        self.0.lock().unwrap().sent
    }

    /// Errors that were not returned yet.
    pub(crate) fn errors(&self) -> usize {
        self.0.lock().unwrap().errors.len()
    }
}

pub(crate) fn address(n: u16) -> SocketAddr {
    let [a, b] = n.to_be_bytes();
    SocketAddr::from(([10, 0, a, b], 1_000))
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Net {
    /// A socket; `weather` is that of the path to it.
    pub(crate) fn socket(&self, address: SocketAddr, weather: Weather) -> (Socket, Remote) {
        let path = Datagrams::new(weather, u64::from(address.port()) + 7);
        let inbox = Inbox {
            path,
            waker: None,
            is_cut: false,
            errors: Vec::new(),
            is_full: false,
            sender: None,
            sent: 0,
        };
        let inbox = Arc::new(Mutex::new(inbox));
        self.0.lock().unwrap().insert(address, Arc::clone(&inbox));
        let remote = Remote(Arc::clone(&inbox));
        (Socket { net: self.clone(), address, inbox, sleep: None }, remote)
    }

    pub(crate) fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let Some(inbox) = self.0.lock().unwrap().get(&to).cloned() else { return };
        let mut inbox = inbox.lock().unwrap();
        if inbox.is_cut {
            return;
        }
        inbox.path.write(now(), bytes.len(), || (from, bytes.to_vec()));
        let waker = inbox.waker.take();
        drop(inbox);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl PacketSocket for Socket {
    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        arrivals: &mut [Arrival],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut inbox = self.inbox.lock().unwrap();
            let mut count = 0;
            while count < buffers.len()
                && let Some((from, bytes)) = inbox.path.read(now())
            {
                let length = bytes.len();
                buffers[count][..length].copy_from_slice(&bytes);
                arrivals[count] = Arrival { from, length, segment: length };
                count += 1;
            }
            if count > 0 {
                return Poll::Ready(Ok(count));
            }
            inbox.waker = Some(cx.waker().clone());
            let next = inbox.path.next_arrival();
            drop(inbox);
            let Some(next) = next else {
                self.sleep = None;
                return Poll::Pending;
            };
            let mut sleep = Box::pin(tokio::time::sleep_until(next.into()));
            if sleep.as_mut().poll(cx).is_pending() {
                self.sleep = Some(sleep);
                return Poll::Pending;
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, run: &Run<'_>) -> Poll<io::Result<()>> {
        let mut inbox = self.inbox.lock().unwrap();
        if inbox.is_full {
            inbox.sender = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(error) = inbox.errors.pop() {
            return Poll::Ready(Err(error));
        }
        inbox.sent += run.datagrams().count();
        drop(inbox);
        for datagram in run.datagrams() {
            self.net.send(self.address, run.to, datagram);
        }
        Poll::Ready(Ok(()))
    }

    fn longest_run(&self) -> usize {
        16
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// An error of the operating system.
pub(crate) fn error(kind: ErrorKind) -> io::Error {
    io::Error::new(kind, "made up")
}
