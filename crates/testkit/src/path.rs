//! A scripted path of packets between a client and a listener, which acts as a NAT box and the
//! networks on both its sides.

use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};

/// The size of a socket buffer, in bytes.
const BUFFER: usize = 4 << 20;

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// The fate of a packet on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    Lost,
    Twice,
    /// The packet arrives after this delay, and later packets may overtake it.
    Late(Duration),
    /// One byte of the packet is changed.
    Broken,
}

/// The number of packets that passed in one direction.
#[derive(Debug, Default)]
pub struct Count {
    pub packets: Cell<usize>,
    pub bytes: Cell<usize>,
}

/// A box between a client and a server, which ends when it is dropped.
#[derive(Debug)]
pub struct Path {
    address: SocketAddr,
    rebind: Rc<Notify>,
    pub to_server: Rc<Count>,
    pub to_client: Rc<Count>,
    task: JoinHandle<()>,
}

impl Path {
    /// Makes a path to `server` on which `judge` decides the fate of each packet.
    pub fn new(server: SocketAddr, judge: impl FnMut(Way, &[u8]) -> Fate + 'static) -> Self {
        let front = bound();
        let address = front.local_addr().expect("a bound socket");
        let (rebind, to_server, to_client) =
            (Rc::<Notify>::default(), Rc::<Count>::default(), Rc::<Count>::default());
        let forwarding = forward(
            front,
            server,
            Rc::clone(&rebind),
            [Rc::clone(&to_server), Rc::clone(&to_client)],
            judge,
        );
        Self { address, rebind, to_server, to_client, task: spawn_local(forwarding) }
    }

    /// The address at which the client finds the server.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives the client another port. Packets to the old port are lost.
    pub fn rebind(&self) {
        self.rebind.notify_one();
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn bound() -> UdpSocket {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // The part that the system grants holds a window.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, BUFFER);
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&socket, BUFFER);
    socket.set_nonblocking(true).expect("a socket that does not block");
    UdpSocket::from_std(socket).expect("a runtime")
}

async fn forward(
    front: UdpSocket,
    server: SocketAddr,
    rebind: Rc<Notify>,
    counts: [Rc<Count>; 2],
    mut judge: impl FnMut(Way, &[u8]) -> Fate,
) {
    let front = Rc::new(front);
    let mut back = Rc::new(bound());
    let mut client = None;
    let (mut there, mut here) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            received = front.recv_from(&mut there) => {
                let (n, from) = received.expect("a datagram");
                client = Some(from);
                let fate = judge(Way::ToServer, &there[..n]);
                carry(fate, &there[..n], &back, server, &counts[0]).await;
            }
            received = back.recv_from(&mut here) => {
                let (n, _) = received.expect("a datagram");
                let fate = judge(Way::ToClient, &here[..n]);
                carry(fate, &here[..n], &front, client.expect("the client spoke first"), &counts[1]).await;
            }
            () = rebind.notified() => back = Rc::new(bound()),
        }
    }
}

async fn carry(
    fate: Fate,
    packet: &[u8],
    socket: &Rc<UdpSocket>,
    to: SocketAddr,
    count: &Rc<Count>,
) {
    let send = |packet: Vec<u8>| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
        let (socket, count) = (Rc::clone(socket), Rc::clone(count));
        Box::pin(async move {
            count.packets.set(count.packets.get() + 1);
            count.bytes.set(count.bytes.get() + packet.len());
            // A full buffer or a closed socket counts as a lost packet.
            let _ = socket.send_to(&packet, to).await;
        })
    };
    match fate {
        Fate::Lost => {}
        Fate::Passes => send(packet.to_vec()).await,
        Fate::Twice => {
            send(packet.to_vec()).await;
            send(packet.to_vec()).await;
        }
        Fate::Late(after) => {
            let sent = send(packet.to_vec());
            spawn_local(async move {
                tokio::time::sleep(after).await;
                sent.await;
            });
        }
        Fate::Broken => {
            let mut packet = packet.to_vec();
            let middle = packet.len() / 2;
            packet[middle] ^= 0x10;
            send(packet).await;
        }
    }
}
