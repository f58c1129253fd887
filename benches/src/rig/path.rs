//! The whole data path on one thread: a listener for visitors, the server's end of a link, a
//! carrier over loopback, the client's end, and the dialled target. The links are joined without a
//! greeting; all other parts are the daemons' own.

use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;

use bytes::BytesMut;
use link::{Link, Owner, State};
use proto::control::ControlMessage;
use proto::greeting::Features;
use proto::{
    Attach, CarrierNumber, LinkConfig, Open, Priority, ResetCode, Side, Target, Unlimited,
};
use relay::{
    Caller, Handler, Listening, Room, Settings, Socket, TargetAddr, connect_stream, listen,
    refuse_stream, serve_visitor,
};
use transport::{Carrier, Dialer, Inlet, Listener, Outlet};
use transport_tcp::TcpDialer;
use transport_ws::{Request, Terms, WsDialer, WsListener};

use crate::server::STILL;

/// The transport of the carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// `tcp://`
    Tcp,
    /// `ws://`
    WebSocket,
}

/// A running path; it ends when dropped.
#[derive(Debug)]
pub struct Path {
    address: SocketAddr,
    _listening: Listening,
    links: [Link; 2],
}

impl Path {
    /// Starts a path with a carrier over this transport. Every visitor is joined with a connection
    /// to `target`. Needs a local runtime.
    pub async fn start(over: Over, target: SocketAddr) -> io::Result<Self> {
        let (accepted, dialled) = carriers(over).await?;
        let server = join(Side::Server, accepted, Rc::new(Nobody));
        let end = Targets { target, settings: Rc::default() };
        let client = join(Side::Client, dialled, Rc::new(end));
        let door = Visitors { link: server.clone(), settings: Rc::default() };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let listening = listen(listener, Rc::new(door), Room::default())?;
        Ok(Self { address: listening.local_addr(), _listening: listening, links: [server, client] })
    }

    /// The address where visitors connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.links.iter().for_each(Link::close);
    }
}

/// Both ends of one connection, the accepted end first.
async fn carriers(over: Over) -> io::Result<(Carrier, Carrier)> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let inner = transport_tcp::TcpListener::new(socket, None)?;
    let address = inner.local_addr();
    let (mut listener, dialer): (Box<dyn Listener>, Box<dyn Dialer>) = match over {
        Over::Tcp => (Box::new(inner), Box::new(TcpDialer::new(None))),
        Over::WebSocket => {
            let request = Request::new("/", "localhost", &[]).map_err(io::Error::other)?;
            (
                Box::new(WsListener::new(inner, None, Terms::without_proxies(STILL))),
                Box::new(WsDialer::new(TcpDialer::new(None), request, STILL)),
            )
        }
    };
    let accept = async {
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await?;
        incoming.handshake().await.map_err(io::Error::other)
    };
    let dial = async { dialer.dial(address).await.map_err(io::Error::other) };
    tokio::try_join!(accept, dial)
}

fn join(side: Side, carrier: Carrier, owner: Rc<dyn Owner>) -> Link {
    let (config, budget) = (LinkConfig::default(), Rc::new(Unlimited));
    let features = Features::OURS;
    let link = Link::new(link::Settings { side, config, budget, serial: 1, features }, owner);
    link.attach(CarrierNumber(1), Attach::New, carrier, BytesMut::new());
    link
}

/// The server's side: its client opens no streams here.
#[derive(Debug)]
struct Nobody;

impl Owner for Nobody {
    fn accept(&self, _link: &Link, _open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        refuse_stream(&*inlet, None, ResetCode::Unknown)
    }

    fn message(&self, _link: &Link, _message: ControlMessage) {}

    fn changed(&self, _link: &Link, _state: State) {}
}

/// The client's side: one service with one target.
#[derive(Debug)]
struct Targets {
    target: SocketAddr,
    settings: Rc<Settings>,
}

impl Owner for Targets {
    fn accept(&self, _link: &Link, _open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let (host, port) = (self.target.ip().to_string(), self.target.port());
        connect_stream(
            TargetAddr::Tcp { host, port },
            Caller::default(),
            inlet,
            &self.settings,
            None,
        )
    }

    fn message(&self, _link: &Link, _message: ControlMessage) {}

    fn changed(&self, _link: &Link, _state: State) {}
}

#[derive(Debug)]
struct Visitors {
    link: Link,
    settings: Rc<Settings>,
}

impl Handler for Visitors {
    fn handle(&self, socket: Socket, visitor: Option<SocketAddr>) {
        let open = Open {
            target: Target::Service("web".into()),
            visitor,
            priority: Priority::Normal,
            fields: None,
        };
        // A link that has ended refuses visitors by itself.
        let _ = serve_visitor((socket, false), &self.link, open, &self.settings, None, None, None);
    }
}
