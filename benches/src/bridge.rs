//! `load bridge`: a WebSocket for each visitor, and nothing else. Two bridges with a reverse proxy
//! between them measure the proxy without a tunnel.
//!
//! ```text
//! visitor -> bridge --server wss://… -> nginx -> bridge --target A -> origin
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use net::pool;
use tokio::time::sleep;
use transport::{CarrierError, Dialer, Incoming, Lane, Listener};
use transport_tcp::{Speech, TcpDialer, TcpListener};
use transport_ws::{Terms, WsListener};

use crate::options::{Usage, Words};
use crate::origin::PAUSE;
use crate::server::{STILL, Server};

/// The most bytes of one read and of one batch, as a link's driver handles a bulk stream.
const READ: usize = 512 << 10;

/// The far end of a bridge.
#[derive(Clone, Debug)]
pub enum Far {
    /// Visitors connect, and each gets a WebSocket to this server.
    Server(Server),
    /// WebSockets connect, and each gets a connection to this origin.
    Target(SocketAddr),
}

/// The options of the program.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The far end to connect to.
    pub far: Far,
}

impl Options {
    /// `--listen A --server URL [--pin P|--ca FILE]`, or `--listen A --target A`
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let listen = words.address("--listen")?;
        let far = if words.has("--target") {
            Far::Target(words.address("--target")?)
        } else {
            Far::Server(Server::read(words)?)
        };
        Ok(Self { listen, far })
    }
}

/// Listens, passes the bound address to `tell`, and bridges until it is dropped. Needs a local
/// runtime.
pub async fn run(options: Options, tell: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let socket = std::net::TcpListener::bind(options.listen)?;
    socket.set_nonblocking(true)?;
    let inner = TcpListener::new(socket, None)?;
    tell(inner.local_addr());
    let (mut listener, address, dialer): (Box<dyn Listener>, _, Rc<dyn Dialer>) = match options.far
    {
        Far::Server(server) => (Box::new(inner), server.address, server.dialer),
        Far::Target(target) => {
            let inner = inner.speaking(Speech::Http);
            let listener = WsListener::new(inner, None, Terms::without_proxies(STILL));
            (Box::new(listener), target, Rc::new(TcpDialer::new(None)))
        }
    };
    loop {
        let Ok(incoming) = poll_fn(|cx| listener.poll_accept(cx)).await else {
            sleep(PAUSE).await;
            continue;
        };
        let dialer = Rc::clone(&dialer);
        // A visitor learns of an error by the end of the visitor's connection.
        tokio::task::spawn_local(async move {
            let _ = bridge(incoming, &*dialer, address).await;
        });
    }
}

async fn bridge(
    incoming: Box<dyn Incoming>,
    dialer: &dyn Dialer,
    address: SocketAddr,
) -> Result<(), CarrierError> {
    let near = incoming.handshake().await?.lane;
    let far = dialer.dial(address).await?.lane;
    let [near, far] = [near, far].map(|mut lane| {
        lane.set_send_limit(READ);
        RefCell::new(lane)
    });
    let (mut there, mut there_done) = (Way::default(), false);
    let (mut back, mut back_done) = (Way::default(), false);
    poll_fn(|cx| {
        there_done = there_done || there.poll(cx, &near, &far)?.is_ready();
        back_done = back_done || back.poll(cx, &far, &near)?.is_ready();
        if there_done && back_done { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// One direction of a bridge.
#[derive(Debug, Default)]
struct Way {
    frames: VecDeque<Bytes>,
    /// The buffer that holds `frames`, kept for reuse.
    whole: Bytes,
    ended: bool,
}

impl Way {
    /// Is ready when the end was passed on.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &RefCell<Box<dyn Lane>>,
        to: &RefCell<Box<dyn Lane>>,
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.frames.is_empty() {
                ready!(to.borrow_mut().poll_write(cx, &mut self.frames))?;
            }
            pool::recycle(std::mem::take(&mut self.whole));
            if self.ended {
                return to.borrow_mut().poll_close(cx);
            }
            let mut buf = pool::take(READ);
            match from.borrow_mut().poll_read(cx, &mut buf)? {
                Poll::Pending => {
                    pool::give(buf);
                    ready!(to.borrow_mut().poll_flush(cx))?;
                    return Poll::Pending;
                }
                Poll::Ready(0) => self.ended = true,
                Poll::Ready(_) => {
                    self.whole = buf.freeze();
                    self.frames.push_back(self.whole.clone());
                }
            }
        }
    }
}
