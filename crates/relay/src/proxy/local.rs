//! The near end of a proxy: visitors of a forward that name their targets.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use proto::{Priority, ResetCode};
use tokio::time::timeout;

use super::handshake::{Agreed, Asked, Failed, HANDSHAKE, MEMORY, Speech, handshake, linger};
use super::opening::Opening;
use super::{Connectors, Fault, Proxy, associate};
use crate::{Permit, Settings, Socket};

/// Serves a visitor of a proxy in a task of this thread: the handshake within 10 s, then the
/// requested connection, which the far end dials. Without a link, the visitor waits for at most
/// `patience`. The task owns the socket and the permit.
pub fn serve_proxy(
    socket: Socket,
    visitor: Option<SocketAddr>,
    proxy: &Rc<Proxy>,
    permit: Option<Permit>,
    patience: Duration,
) {
    tokio::task::spawn_local(serve(socket, visitor, Rc::clone(proxy), permit, patience));
}

async fn serve(
    mut socket: Socket,
    visitor: Option<SocketAddr>,
    proxy: Rc<Proxy>,
    permit: Option<Permit>,
    patience: Duration,
) {
    let Some(_held) = proxy.settings.hold(MEMORY, visitor) else {
        return socket.reset_on_close();
    };
    let credentials = proxy.credentials.as_ref();
    let source = visitor.map(|visitor| visitor.ip().into());
    let agreed = handshake(&mut socket, proxy.kind, credentials, source, true);
    let agreed = timeout(HANDSHAKE, agreed).await;
    let Agreed { asked, speech, rest } = match agreed {
        Ok(Ok(agreed)) => agreed,
        Ok(Err(Failed::Fault(fault))) => {
            complain(&proxy, visitor, fault);
            return linger(&mut socket).await;
        }
        Ok(Err(error @ (Failed::Ended | Failed::Io(_)))) => {
            return tracing::debug!(?visitor, %error, "no request from a visitor of a proxy");
        }
        Err(_) => {
            return tracing::debug!(?visitor, "a visitor of a proxy made no request in time");
        }
    };
    match asked {
        Asked::Connect(target) | Asked::Request(target) => {
            let opening = Opening {
                socket,
                speech,
                target: format!("tcp://{target}"),
                rest,
                visitor,
                priority: proxy.priority,
                settings: Rc::clone(&proxy.settings),
                permit,
            };
            let connectors = proxy.links.to(&opening.target, patience).await;
            // Boxed, so that the task is small while it waits for the request. On an error the
            // visitor has its answer, and the reason is in the log.
            let _ = Box::pin(opening.connect(connectors.as_ref())).await;
        }
        Asked::Associate(port) => Box::pin(associate::serve(socket, port, &proxy, permit)).await,
    }
}

/// Logs why the request of a visitor was malformed or not admitted, at most once per period: a
/// program is misconfigured, and its user should see why.
fn complain(proxy: &Proxy, visitor: Option<SocketAddr>, fault: Fault) {
    tracing::debug!(?visitor, %fault, "a visitor of a proxy is refused");
    if fault.is_denial() {
        proxy.settings.stats.count_refused(ResetCode::Denied);
    }
    if fault != Fault::Unauthenticated && proxy.complaints.ready() {
        tracing::info!("a program at a local proxy was refused: {fault}");
    }
}

/// Connects a socket with a target that the far end dials. The socket gets the bytes `ready` once
/// the target is connected, and nothing before. `target` has the form of
/// [`proto::Target::Forward`]: `tcp://host:port`, `unix:///path`. When the future is ready, the
/// pump runs in a separate task.
///
/// # Errors
/// Why the target is not connected. The socket is closed.
pub async fn serve_connect(
    socket: Socket,
    (target, ready): (&str, &'static [u8]),
    connectors: &Connectors,
    priority: Priority,
    settings: &Rc<Settings>,
) -> Result<(), ResetCode> {
    let opening = Opening {
        socket,
        speech: Speech::Ready(ready),
        target: target.to_owned(),
        rest: bytes::BytesMut::new(),
        visitor: None,
        priority,
        settings: Rc::clone(settings),
        permit: None,
    };
    opening.connect(Some(connectors)).await
}
