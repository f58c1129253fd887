//! Visitors of a proxy: each connection or flow is joined with a target of its entry.
//!
//! ```text
//!   visitor ──(TLS ends, if the entry has a certificate)──> passage <── target that is dialled
//! ```

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ops::status::StreamKind;
use proto::ResetCode;
use relay::{
    Announced, Attended, Layered, Permit, Settings, Socket, join_flow, refuse_socket, with_fields,
};
use tls::VisitorTls;
use tokio::task::spawn_local;
use tokio::time::timeout;
use transport::{FlowInlet, FlowOutlet};

use super::ProxyState;
use node::session::{Admitted, Here, ServesHere, Worker};
use targets::Local;

/// The timeout for the TLS handshake of a visitor.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The memory that the TLS of a visitor holds without buffered bytes, in bytes: the session, and an
/// incomplete record.
const TLS_HELD: u64 = 24 << 10;

/// Serves the visitors of all entries of a proxy.
#[derive(Debug)]
pub(super) struct Visitors;

impl ServesHere for Visitors {
    fn serve(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        visitor: Admitted,
        settings: &Rc<Settings>,
        permit: Permit,
    ) {
        serve(worker, name, visitor, settings, permit);
    }

    fn serve_flow(
        &self,
        worker: &Rc<Worker>,
        name: &str,
        peer: SocketAddr,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<Box<dyn FlowInlet>, ResetCode> {
        let entry =
            worker.state.of::<ProxyState>().entry(worker, name).ok_or(ResetCode::Unknown)?;
        let here = worker.state.of::<Here>();
        let table = here.table(StreamKind::Flow);
        Ok(join_flow(outlet, table, |inlet| {
            entry.local.serve_flow(relay::Visitor::At(peer), inlet)
        }))
    }
}

fn serve(
    worker: &Rc<Worker>,
    name: &str,
    (socket, peer, announced): Admitted,
    settings: &Rc<Settings>,
    permit: Permit,
) {
    let proxy = &worker.state.of::<ProxyState>();
    let (Some(shared), Some(entry)) = (proxy.shared(), proxy.entry(worker, name)) else {
        // The entry was removed from the configuration meanwhile.
        return refuse_socket(socket, settings, ResetCode::Unknown);
    };
    let table = Rc::clone(worker.state.of::<Here>().table(StreamKind::Stream));
    let header = header(&entry.local, &socket, peer, announced.as_deref());
    if !entry.ends_tls {
        let visitor = (socket, announced.is_some());
        return relay::serve_here(visitor, peer, settings, permit, &table, |inlet| {
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
                relay::serve_layered_here(visitor, peer, &settings, permit, &table, |inlet| {
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
    socket.begin_below_layer();
    Ok(match socket {
        Socket::Tcp(socket) => {
            let socket = Attended::new(socket, |socket| Some(socket));
            Layered::new(tls.accept(socket).await?, Bytes::new())
        }
        unix @ Socket::Unix(_) => Layered::new(tls.accept(unix).await?, Bytes::new()),
    })
}

/// The header that reports the addresses of the visitor to the target.
fn header(
    entry: &Local,
    socket: &Socket,
    peer: Option<SocketAddr>,
    announced: Option<&Announced>,
) -> Option<Bytes> {
    let how = entry.header.as_ref()?;
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let announced_address = announced.and_then(|header| header.public);
    let public = announced_address.or_else(|| socket.local()).unwrap_or(nowhere);
    let fields = announced.map(|header| &*header.fields).unwrap_or_default();
    Some(with_fields(how.version, peer, public, fields))
}
