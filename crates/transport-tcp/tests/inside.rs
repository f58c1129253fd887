//! A session of TLS inside the lane of another carrier passes the conformance suite of all
//! transports.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::task::{Context, Poll};

use net::listen_group;
use rustls::{ClientConfig, ServerConfig};
use testkit::conformance::{Fixture, check};
use tls::{PEER_NAME, peer_client_config, peer_server_config, server_name};
use transport::{ALPN, Carrier, CarrierError, Dialer, Incoming, Listener, LocalFuture, Transport};
use transport_tcp::{TcpDialer, TcpListener, TlsClient, accept_inside, connect_inside};

/// The suite knows by the name that there is a cipher.
const INSIDE: Transport = transport_tcp::TLS;

#[derive(Debug)]
struct Inside;

impl Fixture for Inside {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        let socket = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
        let (listener, dialer) = (TcpListener::new(socket, None).unwrap(), TcpDialer::new(None));
        let config = peer_server_config(&[ALPN]).unwrap();
        let listener = OverListener { listener: Box::new(listener), config };
        let config = peer_client_config(&[ALPN]).unwrap();
        (Box::new(listener), Box::new(OverDialer { dialer: Box::new(dialer), config }))
    }

    fn silent(&self, address: SocketAddr) -> Option<TcpStream> {
        Some(TcpStream::connect(address).unwrap())
    }

    fn shakes_hands(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct OverListener {
    listener: Box<dyn Listener>,
    config: Arc<ServerConfig>,
}

impl Listener for OverListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let config = Arc::clone(&self.config);
        let over = |under| -> Box<dyn Incoming> { Box::new(OverIncoming { under, config }) };
        self.listener.poll_accept(cx).map_ok(over)
    }

    fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    fn transport(&self) -> Transport {
        INSIDE
    }
}

#[derive(Debug)]
struct OverIncoming {
    under: Box<dyn Incoming>,
    config: Arc<ServerConfig>,
}

impl Incoming for OverIncoming {
    fn remote(&self) -> SocketAddr {
        self.under.remote()
    }

    fn handshake(self: Box<Self>) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        Box::pin(async move {
            let under = self.under.handshake().await?;
            accept_inside(under.lane, INSIDE, &self.config).await
        })
    }
}

#[derive(Debug)]
struct OverDialer {
    dialer: Box<dyn Dialer>,
    config: Arc<ClientConfig>,
}

impl Dialer for OverDialer {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let dial = self.dialer.dial(address);
        let tls =
            TlsClient { config: Arc::clone(&self.config), name: server_name(PEER_NAME).unwrap() };
        Box::pin(async move { connect_inside(dial.await?.lane, INSIDE, tls).await })
    }

    fn transport(&self) -> Transport {
        INSIDE
    }
}

#[test]
fn tls_inside_a_lane_conforms() {
    check(&Inside);
}
