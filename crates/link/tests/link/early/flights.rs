//! QUIC on loopback, behind a path with a fixed one-way delay, which counts the flights before each
//! packet.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use net::udp::WANTED;
use tempfile::TempDir;
use tls::{ClientConfig, ServerConfig};
use tls::{Trust, client_config, self_signed, server_config, server_name};
use tokio::net::UdpSocket;
use tokio::task::{AbortHandle, spawn_local};
use transport::{ALPN, Listener};
use transport_quic::{Keys, QuicDialer, QuicListener, QuicServer, QuicSettings, TlsClient};

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The one-way delay of a packet: longer than the processing at either end, so that flights can be
/// distinguished.
const FLIGHT: Duration = Duration::from_millis(150);

/// A server's identity and keys.
pub(crate) struct Quic {
    keys: Keys,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    _folder: TempDir,
}

impl Quic {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let identity = self_signed(folder.path(), &[]).unwrap();
        let server = server_config(&identity, None, &[ALPN]).unwrap();
        let client = client_config(&Trust::Pins(vec![identity.pin()]), None, &[ALPN]).unwrap();
        Self { keys: Keys::fleeting().unwrap(), server, client, _folder: folder }
    }

    /// As a new process with the same keys.
    pub(crate) fn listen(&self) -> (Box<dyn Listener>, SocketAddr) {
        let tls = Arc::clone(&self.server).into();
        let settings = QuicSettings::default();
        let server = QuicServer::new(tls, None, settings, self.keys.clone(), None).unwrap();
        let socket = std::net::UdpSocket::bind(LOOPBACK).unwrap();
        let address = socket.local_addr().unwrap();
        (
            Box::new(QuicListener::new(socket, net::udp::SteeringSlot::ALONE, &server).unwrap()),
            address,
        )
    }

    pub(crate) fn dialer(&self) -> QuicDialer {
        let name = server_name("tunnel.example").unwrap();
        let tls = TlsClient { config: Arc::clone(&self.client), name };
        QuicDialer::new(&tls, QuicSettings::default(), WANTED).unwrap()
    }
}

/// A path to a server; each connection of a client has its own flow, by its port.
pub(crate) struct Flights {
    pub(crate) port: u16,
    flows: Rc<Flows>,
    task: AbortHandle,
}

#[derive(Default)]
struct Flows {
    of: RefCell<HashMap<SocketAddr, Rc<Flow>>>,
    newest: RefCell<Option<Rc<Flow>>>,
}

/// One connection, seen from between.
#[derive(Default)]
struct Flow {
    is_cut: Cell<bool>,
    /// The number of flights up to the latest received packet: at the client, at the server.
    behind: [Cell<u32>; 2],
    /// What the client sent before it had an answer.
    first: RefCell<Vec<Vec<u8>>>,
}

impl Flights {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let front = Rc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
        let port = front.local_addr().unwrap().port();
        let flows = Rc::<Flows>::default();
        let task = spawn_local(forward(front, server, Rc::clone(&flows)));
        Self { port, flows, task: task.abort_handle() }
    }

    /// Drops all further packets of the existing connections.
    pub(crate) fn cut(&self) {
        self.flows.of.borrow().values().for_each(|flow| flow.is_cut.set(true));
        *self.flows.newest.borrow_mut() = None;
    }

    /// The number of flights of the newest connection so far, at the client and at the server. Two
    /// flights are a round trip.
    pub(crate) fn behind(&self) -> [u32; 2] {
        let newest = self.flows.newest.borrow();
        newest.as_ref().map_or([0; 2], |flow| [flow.behind[0].get(), flow.behind[1].get()])
    }

    /// The packets of the newest connection before its first answer.
    pub(crate) fn first_flight(&self) -> Vec<Vec<u8>> {
        self.flows.newest.borrow().as_ref().unwrap().first.borrow().clone()
    }
}

impl Drop for Flights {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(front: Rc<UdpSocket>, server: SocketAddr, flows: Rc<Flows>) {
    let mut outside: HashMap<SocketAddr, Rc<UdpSocket>> = HashMap::new();
    let mut packet = vec![0; 65_536];
    loop {
        let (length, client) = front.recv_from(&mut packet).await.unwrap();
        if length == 0 {
            // A dialer probes for a listener with empty datagrams.
            continue;
        }
        let packet = packet[..length].to_vec();
        let known = flows.of.borrow().get(&client).cloned();
        let flow = known.unwrap_or_else(|| {
            let flow = Rc::<Flow>::default();
            flows.of.borrow_mut().insert(client, Rc::clone(&flow));
            *flows.newest.borrow_mut() = Some(Rc::clone(&flow));
            flow
        });
        let back = match outside.get(&client) {
            Some(back) => Rc::clone(back),
            None => {
                let back = Rc::new(UdpSocket::bind(LOOPBACK).await.unwrap());
                outside.insert(client, Rc::clone(&back));
                let (front, back_again) = (Rc::clone(&front), Rc::clone(&back));
                spawn_local(answers(front, back_again, client, Rc::clone(&flow)));
                back
            }
        };
        if flow.behind[0].get() == 0 {
            flow.first.borrow_mut().push(packet.clone());
        }
        carry(flow, 1, back, server, packet);
    }
}

async fn answers(front: Rc<UdpSocket>, back: Rc<UdpSocket>, client: SocketAddr, flow: Rc<Flow>) {
    let mut packet = vec![0; 65_536];
    while let Ok(length) = back.recv(&mut packet).await {
        carry(Rc::clone(&flow), 0, Rc::clone(&front), client, packet[..length].to_vec());
    }
}

/// Takes a packet to the end `to`.
fn carry(flow: Rc<Flow>, to: usize, socket: Rc<UdpSocket>, at: SocketAddr, packet: Vec<u8>) {
    let behind = flow.behind[1 - to].get() + 1;
    spawn_local(async move {
        tokio::time::sleep(FLIGHT).await;
        if !flow.is_cut.get() {
            flow.behind[to].set(flow.behind[to].get().max(behind));
            let _ = socket.send_to(&packet, at).await;
        }
    });
}
