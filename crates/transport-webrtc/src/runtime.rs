//! The runtime of the library `webrtc`: the worker of the connection. It has one thread, so tasks
//! of the library and of the lane alternate without lock contention.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::spawn_local;
use webrtc::runtime::{
    AsyncInterval, AsyncTcpListener, AsyncTcpStream, AsyncUdpSocket, JoinHandle, Runtime,
};

use crate::gate::Gate;
use crate::socket::Socket;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Spawns on the thread that builds the connection.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) gate: Arc<Gate>,
}

#[derive(Debug)]
struct Task(tokio::task::JoinHandle<()>);

impl JoinHandle for Task {
    /// A Tokio task continues without its handle.
    fn detach(&self) {}

    fn abort(&self) {
        self.0.abort();
    }

    fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

#[derive(Debug)]
struct Interval(tokio::time::Interval);

impl AsyncInterval for Interval {
    fn tick(&mut self) -> Boxed<'_, ()> {
        Box::pin(async {
            self.0.tick().await;
        })
    }
}

impl Runtime for Worker {
    fn spawn(&self, future: Boxed<'static, ()>) -> Box<dyn JoinHandle> {
        Box::new(Task(spawn_local(future)))
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        Ok(Arc::new(Socket::new(socket, &self.gate)?))
    }

    /// No TCP address is configured.
    fn wrap_tcp_listener(
        &self,
        _listener: std::net::TcpListener,
    ) -> io::Result<Arc<dyn AsyncTcpListener>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// TCP candidates are skipped when a session description is parsed.
    fn connect_tcp<'a>(
        &'a self,
        _remote: SocketAddr,
    ) -> Boxed<'a, io::Result<Arc<dyn AsyncTcpStream>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    /// STUN servers are given by their address, so no name is resolved.
    fn resolve_host<'a>(&'a self, host: &'a str) -> Boxed<'a, io::Result<Vec<SocketAddr>>> {
        let address = host.parse().map(|address| vec![address]);
        Box::pin(async { address.map_err(|_| io::ErrorKind::InvalidInput.into()) })
    }

    /// The clock of the timers below, which runs faster in tests.
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep(&self, duration: Duration) -> Boxed<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn interval(&self, period: Duration) -> Box<dyn AsyncInterval> {
        Box::new(Interval(tokio::time::interval(period)))
    }

    /// For programs whose `main` is not asynchronous; a worker never calls it.
    fn block_on(&self, future: Pin<Box<dyn Future<Output = ()> + '_>>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(future),
            Err(error) => tracing::error!("no runtime: {error}"),
        }
    }

    fn yield_now(&self) -> Boxed<'static, ()> {
        Box::pin(tokio::task::yield_now())
    }

    fn name(&self) -> &'static str {
        "worker"
    }
}
