//! Visitors of a proxy: each connection or flow is joined with a target of its entry.
//!
//! ```text
//!   visitor ──(TLS ends, if the entry has a certificate)──> passage <── target that is dialled
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use proto::ResetCode;
use relay::{
    Announced, Attended, Layered, Permit, Settings, Socket, join_flow, refuse_socket, with_fields,
};
use tls::VisitorTls;
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{FlowInlet, FlowOutlet};

use crate::proxy::ProxyState;
use crate::session::Worker;
use crate::targets::Local;
use ops::status::StreamKind;

/// The longest TLS handshake of a visitor.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The memory that the TLS of a visitor holds without bytes that wait: the session, and a record that
/// has not arrived completely.
const TLS_HELD: u64 = 24 << 10;

/// Connects an admitted visitor of the entry `name` with a target. `announced` is the header that a
/// load balancer has put in front of the visitor's bytes.
pub(crate) fn serve(
    worker: &Rc<Worker>,
    name: &str,
    (socket, peer, announced): (Socket, Option<SocketAddr>, Option<Box<Announced>>),
    settings: &Rc<Settings>,
    permit: Permit,
) {
    let proxy = &worker.state.of::<ProxyState>();
    let (Some(shared), Some(entry)) = (proxy.shared(), proxy.entry(worker, name)) else {
        // The entry has left the configuration meanwhile.
        return refuse_socket(socket, settings, ResetCode::Unknown);
    };
    let roll = Rc::clone(proxy.roll(StreamKind::Stream));
    let header = header(&entry.local, &socket, peer, announced.as_deref());
    if !entry.ends_tls {
        let visitor = (socket, announced.is_some());
        return relay::serve_here(visitor, peer, settings, permit, &roll, |inlet| {
            entry.local.serve(peer.into(), header, None, inlet)
        });
    }
    let Some(tls) = shared.certificates.load().get(name).cloned() else {
        return refuse_socket(socket, settings, ResetCode::Unknown);
    };
    let settings = Rc::clone(settings);
    spawn_local(async move {
        match timeout(HANDSHAKE, shake_hands(&tls, socket)).await {
            Ok(Ok(visitor)) => {
                let visitor = (visitor, TLS_HELD);
                relay::serve_layered_here(visitor, peer, &settings, permit, &roll, |inlet| {
                    entry.local.serve(peer.into(), header, None, inlet)
                });
            }
            Ok(Err(error)) => {
                tracing::debug!(visitor = ?peer, "the TLS of a visitor failed: {error}");
                settings.stats.count_refused(ResetCode::Aborted);
            }
            Err(_) => settings.stats.count_refused(ResetCode::Timeout),
        }
    });
}

async fn shake_hands(tls: &VisitorTls, socket: Socket) -> std::io::Result<Layered> {
    Ok(match socket {
        Socket::Tcp(socket) => {
            relay::prepare(&socket);
            let socket = Attended::new(socket, |socket| Some(socket));
            Layered::new(tls.accept(socket).await?, Bytes::new())
        }
        unix @ Socket::Unix(_) => Layered::new(tls.accept(unix).await?, Bytes::new()),
    })
}

/// The header that tells the target the addresses of the visitor.
fn header(
    entry: &Local,
    socket: &Socket,
    peer: Option<SocketAddr>,
    announced: Option<&Announced>,
) -> Option<Bytes> {
    let how = entry.header.as_ref()?;
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let told = announced.and_then(|header| header.public);
    let public = told.or_else(|| socket.local()).unwrap_or(nowhere);
    let fields = announced.map(|header| &*header.fields).unwrap_or_default();
    Some(with_fields(how.version, peer, public, fields))
}

/// Joins a flow of a visitor with a target of the entry `name`.
///
/// # Errors
/// The entry has left the configuration.
pub(crate) fn serve_flow(
    worker: &Rc<Worker>,
    name: &str,
    peer: SocketAddr,
    outlet: Rc<dyn FlowOutlet>,
) -> Result<Box<dyn FlowInlet>, ResetCode> {
    let proxy = &worker.state.of::<ProxyState>();
    let entry = proxy.entry(worker, name).ok_or(ResetCode::Unknown)?;
    let roll = proxy.roll(StreamKind::Flow);
    Ok(join_flow(outlet, roll, |inlet| entry.local.serve_flow(relay::Visitor::At(peer), inlet)))
}
