//! The server's own answers to visitors of HTTP.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use bytes::{Bytes, BytesMut};
use config::ServerConfig;
use h1::Doubt;
use relay::Socket;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::spawn_local;
use tokio::time::timeout;
use web::Pages;

use node::session::Worker;

/// The timeout for sending an answer, and the idle timeout afterwards for a visitor that neither
/// sends nor ends its direction.
const FAREWELL: Duration = Duration::from_secs(5);

/// The time for which the bytes of the visitor are read and discarded after an answer. Closing with
/// unread bytes would send a reset, on which the visitor's system may drop the answer (RFC 9112
/// section 9.6), and many programs read no answer before they have sent a whole body. nginx has the
/// same two timeouts.
pub(super) const FAREWELL_ALL: Duration = Duration::from_secs(30);

/// The maximum number of bytes read before an answer that does not wait for the visitor.
const DISCARD: usize = 256 << 10;

/// The size of one read, in bytes.
const PIECE: usize = 4 << 10;

/// The memory that an answer costs in addition to its bytes: the socket, the task and its timer.
const FAREWELL_STATE: u64 = 2 << 10;

/// The maximum size of a page file, in bytes.
const PAGE_MAX: u64 = 256 << 10;

/// The path of ACME challenges (RFC 8555 section 8.3).
pub(super) const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// Why a response of a target is not forwarded.
pub(super) fn unsafe_response(doubt: Doubt) -> String {
    format!("The target sent a response that is not safe: {}.", doubt.reason())
}

/// The settings of the HTTP proxy. The page files are read here.
pub(super) fn settings(config: &ServerConfig) -> anyhow::Result<web::Settings> {
    let pages = &config.http.pages;
    let read = |path: &Option<std::path::PathBuf>| path.as_deref().map(page).transpose();
    let pages =
        Pages { not_found: read(&pages.not_found)?, unavailable: read(&pages.unavailable)? };
    let route_header = config.http.route_header.as_deref();
    let route_header = route_header.map(str::parse).transpose().context("http.route_header")?;
    Ok(web::Settings { route_header, pages, idle: config.http.idle.duration() })
}

fn page(path: &Path) -> anyhow::Result<Box<str>> {
    let shown = path.display();
    let open = || -> io::Result<_> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok((file, metadata))
    };
    let (file, metadata) = open().with_context(|| format!("page {shown}"))?;
    let size = metadata.len();
    anyhow::ensure!(size <= PAGE_MAX, "page {shown} has {size} bytes; at most {PAGE_MAX} are sent");
    anyhow::ensure!(
        !files::kept::is_kept(&file, &metadata),
        "page {shown} is a file of this daemon, with its configuration, a token or a key, which no \
         visitor may see"
    );
    let text = io::read_to_string(file).with_context(|| format!("page {shown}"))?;
    Ok(text.into())
}

/// Sends an answer and closes the connection in stages. When memory is short, the visitor is reset
/// instead. When descriptors are short, the server does not wait for the visitor: a visitor that
/// keeps its end open would occupy the seat of another visitor.
pub(super) fn send(worker: &Worker, socket: Socket, answer: Bytes) {
    if !socket.has_ample_room() {
        return send_at_once(&socket, &answer);
    }
    let cost = (answer.len() + PIECE) as u64 + FAREWELL_STATE;
    let peer = if let Socket::Tcp(socket) = &socket { socket.peer_addr().ok() } else { None };
    let Some(held) = worker.state.accounts.draw(cost, peer) else {
        return socket.reset_on_close();
    };
    let Socket::Tcp(socket) = socket else { return };
    spawn_local(async move {
        let _held = held;
        // A visitor that does not read the answer loses it.
        let _ = timeout(FAREWELL_ALL, say(socket, &answer)).await;
    });
}

/// Sends as much of an answer as the socket accepts immediately. The bytes that have arrived are
/// read first, because a close with unread bytes is a reset.
fn send_at_once(socket: &Socket, answer: &[u8]) {
    let Socket::Tcp(socket) = socket else { return };
    let (mut seen, mut piece) = (0, [0; PIECE]);
    while let Ok(size @ 1..) = socket.try_read(&mut piece) {
        seen += size;
        if seen >= DISCARD {
            break;
        }
    }
    // If the socket accepts no bytes, the visitor loses the answer.
    let _ = socket.try_write(answer);
}

/// Sends an answer, ends this direction, and reads what the visitor still sends.
pub(super) async fn say(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    answer: &[u8],
) -> io::Result<()> {
    timeout(FAREWELL, async {
        socket.write_all(answer).await?;
        socket.flush().await
    })
    .await??;
    socket.shutdown().await?;
    let mut buffer = BytesMut::with_capacity(PIECE);
    while timeout(FAREWELL, socket.read_buf(&mut buffer)).await?? > 0 {
        buffer.clear();
    }
    Ok(())
}
