//! Tests of a carrier that the worker of its link cannot take: epoll watches no more sockets
//! (ENOSPC), or the kernel has no memory for another socket.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use config::{ClientFlags, ServerFlags, Sources, Text};
use ops::status::LinkState;
use rustix::io::Errno;
use transport::{Carrier, CarrierError, Incoming, Lane, Listener, LocalFuture, Transport};

use super::*;
use client::Client;

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The limit of each wait. It is below `resume_timeout`, 60 s, until which a client asks for a link
/// that the server does not hold.
const SOON: Duration = Duration::from_secs(15);

/// The number of further carriers that break on their way.
type Breaks = Arc<AtomicUsize>;

#[derive(Debug)]
struct Brittle<T> {
    inner: T,
    breaks: Breaks,
}

impl Listener for Brittle<Box<dyn Listener>> {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let breaks = Arc::clone(&self.breaks);
        self.inner
            .poll_accept(cx)
            .map_ok(|inner| -> Box<dyn Incoming> { Box::new(Brittle { inner, breaks }) })
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn transport(&self) -> Transport {
        self.inner.transport()
    }
}

impl Incoming for Brittle<Box<dyn Incoming>> {
    fn remote(&self) -> SocketAddr {
        self.inner.remote()
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let Carrier { peer, lane: inner, .. } = self.inner.handshake().await?;
            Ok(Carrier::single(peer, Box::new(Brittle { inner, breaks: self.breaks })))
        })
    }
}

impl Lane for Brittle<Box<dyn Lane>> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.inner.poll_read(cx, buf)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_write(cx, frames)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_close(cx)
    }

    fn detach(&mut self) -> io::Result<()> {
        self.inner.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        let less = |n: usize| n.checked_sub(1);
        match self.breaks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            Ok(_) => Err(Errno::NOSPC.into()),
            Err(_) => self.inner.attach(),
        }
    }
}

fn sources() -> Sources<'static> {
    Sources { env: &|_: &str| None, read: &|_: &Path| Err("no files".to_owned()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_whose_first_carrier_was_lost_on_the_way_is_given_up_and_another_is_made() {
    let text = format!(
        "listen: tcp://127.0.0.1:0\nworkers: 1\nclients:\n  - {{ name: home, token: {TOKEN} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = config::load_server(Some(text), &ServerFlags::default(), &sources());
    let server = Server::start(config.unwrap().config, None).await.unwrap();

    let breaks = Breaks::new(AtomicUsize::new(3));
    let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    let (registry, counter) = (Arc::clone(&server.registry), Arc::clone(&breaks));
    let listening = server.handles()[0].call(move |worker| {
        let inner: Box<dyn Listener> =
            Box::new(transport_tcp::TcpListener::new(socket, None).unwrap());
        accept::start(worker, registry, Box::new(Brittle { inner, breaks: counter }));
    });
    listening.await.unwrap();

    let text = format!(
        "servers: tcp://{address}\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\nretry: \
         {{ min: 5ms, max: 20ms }}\nforwards:\n  - {{ listen: \"tcp://127.0.0.1:0\", target: \
         \"tcp://127.0.0.1:1\" }}\n"
    );
    let text = Text { name: "client.yaml", text: &text };
    let config = config::load_client(Some(text), &ClientFlags::default(), &sources());
    let client = Client::start(config.unwrap().config).await.unwrap();
    let up = async {
        loop {
            let sessions = server.status().await.sessions;
            if sessions
                .iter()
                .flat_map(|session| &session.links)
                .any(|link| link.state == LinkState::Up)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let up = tokio::time::timeout(SOON, up).await;
    assert!(up.is_ok(), "{:?}", client.status().await.sessions);
    assert_eq!(breaks.load(Ordering::Relaxed), 0);
    client.close().await;
    server.close().await;
}
