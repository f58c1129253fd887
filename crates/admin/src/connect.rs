//! `POST /api/v1/connect`: the connection of a request becomes the byte stream to a target on the
//! server's side, by an upgrade of HTTP/1.1 (RFC 9110 section 7.8).

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ops::{Daemon, command};
use tokio::io::{AsyncReadExt, copy_bidirectional};
use tokio::net::UnixStream;

use super::answer::{failed, problem};

/// The protocol after the upgrade: the bytes of the target.
const PROTOCOL: &str = "tunnel";

/// The upgrade that a request asks for.
pub(super) fn upgrade(request: &mut Request) -> Option<OnUpgrade> {
    let is_ours =
        request.headers().get(UPGRADE)?.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes());
    is_ours.then(|| hyper::upgrade::on(request))
}

/// Connects with the target, and only then changes the protocol: a refusal is an answer of HTTP.
pub(super) async fn connect(
    daemon: &Arc<dyn Daemon>,
    target: &str,
    upgrade: Option<OnUpgrade>,
) -> Response {
    let Some(upgrade) = upgrade else {
        let why = "the header fields `Connection: upgrade` and `Upgrade: tunnel` are missing";
        return with_protocol(problem(StatusCode::UPGRADE_REQUIRED, why));
    };
    let mut stream = match open(daemon.as_ref(), target).await {
        Ok(stream) => stream,
        Err(why) => return failed(&why),
    };
    tokio::spawn(async move {
        // An error means that the connection has ended, and so does the stream.
        let Ok(upgraded) = upgrade.await else { return };
        drop(copy_bidirectional(&mut TokioIo::new(upgraded), &mut stream).await);
    });
    with_protocol(StatusCode::SWITCHING_PROTOCOLS.into_response())
}

/// The byte stream to a target.
async fn open(daemon: &dyn Daemon, target: &str) -> anyhow::Result<UnixStream> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    command::connect(daemon, target, theirs).await?;
    let mut stream = UnixStream::from_std(ours)?;
    let mut line = vec![0; ops::connect::CONNECTED.len()];
    stream.read_exact(&mut line).await?;
    if line != ops::connect::CONNECTED {
        return Err(io::Error::from(io::ErrorKind::InvalidData).into());
    }
    Ok(stream)
}

fn with_protocol(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    response
}
