//! Services by name for the HTTP proxy (`web`): visitors of HTTP/2, visitors whose TLS ended here,
//! and services with options.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use proto::{Open, ResetCode};
use relay::{Duplex, Socket};
use termination::{Alpn, TlsIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::spawn_local;
use web::{Found, LocalFuture, OpenFailed, Protocol, Refusal, Replayed, Rules, Visitor};

use super::Doors;
use super::tls::NAMELESS;
use crate::entrance::{self, Answer, Entrance};
use crate::names::{Published, Services, Space};
use crate::session::Worker;

/// The wait before the answer to a wrong password, which slows guessing over one connection.
const WRONG_PASSWORD: Duration = Duration::from_millis(500);

/// The byte stream of a visitor. One type for all of them keeps one HTTP server in the binary.
trait Io: AsyncRead + AsyncWrite {}

impl<T: AsyncRead + AsyncWrite> Io for T {}

/// Serves a visitor without TLS, of whom the bytes `first` were read already.
pub(super) fn serve_plain(
    worker: &Rc<Worker>,
    doors: Arc<Doors>,
    socket: Socket,
    peer: Option<SocketAddr>,
    first: BytesMut,
) {
    let Socket::Tcp(socket) = socket else { return };
    relay::prepare(&socket);
    let io: Pin<Box<dyn Io>> = if first.is_empty() {
        Box::pin(socket)
    } else {
        Box::pin(Replayed::new(first.freeze(), socket))
    };
    let way = Way { space: Space::Http, name: None, protocol: Protocol::Either };
    spawn_local(serve(Rc::clone(worker), doors, io, peer, way));
}

/// Serves a visitor whose TLS for `name` ended here.
pub(super) fn serve_secure(
    worker: &Rc<Worker>,
    doors: Arc<Doors>,
    io: TlsIo<TcpStream>,
    peer: Option<SocketAddr>,
    name: &str,
) {
    let protocol = match io.alpn() {
        Alpn::H2 => Protocol::H2,
        Alpn::Http1 => Protocol::H1,
    };
    let way = Way { space: Space::Tls, name: Some(name.to_owned()), protocol };
    // A task of its own: a connection that is decided is not among the undecided.
    spawn_local(serve(Rc::clone(worker), doors, Box::pin(io), peer, way));
}

/// How a visitor came.
struct Way {
    space: Space,
    /// The name in the TLS handshake.
    name: Option<String>,
    protocol: Protocol,
}

async fn serve(
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    io: Pin<Box<dyn Io>>,
    peer: Option<SocketAddr>,
    Way { space, name, protocol }: Way,
) {
    let settings = Arc::clone(&doors.terms.load().web);
    let (secure, trusted) = (space == Space::Tls, doors.trusts(peer));
    let visitor = Visitor { address: peer, secure, trusted, protocol };
    let stop = {
        let worker = Rc::clone(&worker);
        async move { worker.state.leaving.notified().await }
    };
    let site = Site { worker, doors, space, name, peer };
    web::serve(io, settings, visitor, Rc::new(site), stop).await;
}

/// The services that one visitor may reach.
#[derive(Clone, Debug)]
struct Site {
    worker: Rc<Worker>,
    doors: Arc<Doors>,
    space: Space,
    name: Option<String>,
    peer: Option<SocketAddr>,
}

impl web::Services for Site {
    fn find(&self, host: &str, path: &str) -> Found {
        if !self.doors.names().is_awaited(self.space, host) {
            return self.found(self.doors.names().find(self.space, host), path);
        }
        let (site, host, path) = (self.clone(), host.to_owned(), path.to_owned());
        Found::Later(Box::pin(async move {
            let services = site.doors.names().wait(site.space, &host).await;
            site.found(services, &path)
        }))
    }

    fn covers(&self, host: &str) -> bool {
        self.name.as_deref().is_none_or(|name| name == host || name == NAMELESS)
    }

    fn wrong_password(&self, host: &str) -> Duration {
        tracing::debug!(host, visitor = ?self.peer, "a visitor gave a wrong user or password");
        WRONG_PASSWORD
    }
}

impl Site {
    fn found(&self, services: Option<Services>, path: &str) -> Found {
        let takes =
            |one: &&Published| one.path.as_ref().is_none_or(|prefix| web::is_below(prefix, path));
        // The longest path comes first.
        let Some(found) = services.iter().flat_map(|all| all.iter()).find(takes) else {
            return Found::Unknown;
        };
        let aim = found.entrance.route.aim.load();
        if self.peer.is_some_and(|peer| !aim.visitors.permit(peer.ip())) {
            let (status, reason) = Answer::Forbidden.status();
            return Found::Refused(Refusal { status, reason: reason.into() });
        }
        let Some(rules) = aim.http.as_ref().map(|http| Arc::clone(&http.rules)) else {
            return Found::Unknown;
        };
        let (worker, entrance) = (Rc::clone(&self.worker), Arc::clone(&found.entrance));
        Found::Service(Rc::new(Service { worker, entrance, rules, peer: self.peer }))
    }
}

/// A service of one visitor.
struct Service {
    worker: Rc<Worker>,
    entrance: Arc<Entrance>,
    rules: Arc<Rules>,
    peer: Option<SocketAddr>,
}

impl web::Service for Service {
    fn identity(&self) -> u64 {
        self.entrance.id
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn open(&self) -> LocalFuture<Result<Box<dyn web::Stream>, OpenFailed>> {
        Box::pin(std::future::ready(self.open_now()))
    }
}

impl Service {
    /// Opens a stream over a link of this worker. Without such a link the stream is that of a
    /// visitor over a socket pair, which another worker gets, or which waits for a link.
    fn open_now(&self) -> Result<Box<dyn web::Stream>, OpenFailed> {
        let Self { worker, entrance, peer, .. } = self;
        let Some(link) = worker.state.live_link(&entrance.route.session.load()) else {
            let (near, far) = UnixStream::pair().map_err(|error| {
                tracing::debug!(%error, "no socket pair for a visitor");
                failed(Answer::Down(ResetCode::Internal))
            })?;
            entrance::visit(worker, entrance, far.into(), *peer, None);
            return Ok(Box::new(Elsewhere(near)));
        };
        let gate = entrance.route.gate.load();
        let permit = gate.admit().ok_or_else(|| failed(Answer::Busy))?;
        let down = || failed(Answer::Down(ResetCode::Shutdown));
        let settings = entrance::settings_of(worker, entrance).ok_or_else(down)?;
        let aim = entrance.route.aim.load();
        let target = aim.target.clone();
        let open = Open { target, visitor: *peer, priority: aim.priority };
        let duplex = relay::open_duplex(&link, open, &settings, Some(permit));
        Ok(Box::new(Here(duplex.map_err(|_| down())?)))
    }
}

fn failed(answer: Answer) -> OpenFailed {
    let (status, reason) = answer.status();
    OpenFailed { status, reason: sentence(reason) }
}

/// A sentence without its full stop.
fn sentence(text: &'static str) -> Cow<'static, str> {
    Cow::Borrowed(text.strip_suffix('.').unwrap_or(text))
}

/// A stream over a link of this worker.
struct Here(Duplex);

impl web::Stream for Here {
    fn failure(&self) -> Option<Cow<'static, str>> {
        self.0.reset_code().map(|code| sentence(Answer::Down(code).status().1))
    }
}

/// A stream that another worker serves.
struct Elsewhere(UnixStream);

impl web::Stream for Elsewhere {
    fn failure(&self) -> Option<Cow<'static, str>> {
        None
    }
}

/// Forwards the writing half of a stream to the stream inside.
macro_rules! write_through {
    ($type:ty) => {
        impl AsyncWrite for $type {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.0).poll_write(cx, bytes)
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.0).poll_write_vectored(cx, slices)
            }

            fn is_write_vectored(&self) -> bool {
                self.0.is_write_vectored()
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_shutdown(cx)
            }
        }
    };
}

/// Forwards the reading half of a stream to the stream inside.
macro_rules! read_through {
    ($type:ty) => {
        impl AsyncRead for $type {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_read(cx, buf)
            }
        }
    };
}

read_through!(Here);
write_through!(Here);
read_through!(Elsewhere);
write_through!(Elsewhere);
