//! `POST /api/v1/connect`: the connection of a request becomes the byte stream to a target on the
//! server's side, by an upgrade of HTTP/1.1 (RFC 9110 section 7.8).

use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ops::Daemon;
use ops::command::Connect;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answer::{failed, problem};

/// The protocol after the upgrade: the bytes of the target.
const PROTOCOL: &str = "tunnel";

/// The largest number of byte streams at a time. A connection of the API that became a stream no
/// longer occupies a connection slot.
pub(super) const STREAMS: usize = 64;

/// How long a client may send after the target has sent everything and its stream has ended.
const CLOSING: Duration = Duration::from_secs(10);

/// The upgrade that a request requests.
pub(super) fn upgrade(request: &mut Request) -> Option<OnUpgrade> {
    let is_ours =
        request.headers().get(UPGRADE)?.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes());
    is_ours.then(|| hyper::upgrade::on(request))
}

/// Connects to the target before it switches the protocol, so a refusal is a plain HTTP response.
/// `streams`: the permits of byte streams.
pub(super) async fn connect(
    daemon: &Arc<dyn Daemon>,
    streams: &Arc<Semaphore>,
    command: &Connect,
    upgrade: Option<OnUpgrade>,
) -> Response {
    let Some(upgrade) = upgrade else {
        let why = "the header fields `Connection: upgrade` and `Upgrade: tunnel` are missing";
        return with_protocol(problem(StatusCode::UPGRADE_REQUIRED, why));
    };
    let Ok(permit) = Arc::clone(streams).try_acquire_owned() else {
        let why = format!("{STREAMS} byte streams are open over the admin API; end one of them");
        return problem(StatusCode::TOO_MANY_REQUESTS, &why);
    };
    let stream = match open(daemon.as_ref(), command).await {
        Ok(stream) => stream,
        Err(why) => return failed(&why),
    };
    tokio::spawn(async move {
        let _permit = permit;
        if let Ok(upgraded) = upgrade.await {
            carry(TokioIo::new(upgraded), stream).await;
        }
    });
    with_protocol(StatusCode::SWITCHING_PROTOCOLS.into_response())
}

/// Copies the bytes of both directions. An error means that one end is gone, and the other end with
/// it.
async fn carry(client: impl AsyncRead + AsyncWrite, mut stream: UnixStream) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_stream, mut to_stream) = stream.split();
    let up = async {
        copy(&mut from_client, &mut to_stream).await?;
        to_stream.shutdown().await
    };
    let down = async {
        copy(&mut from_stream, &mut to_client).await?;
        to_client.shutdown().await
    };
    let (mut up, mut down) = (pin!(up), pin!(down));
    tokio::select! {
        // The timeouts of the stream apply to the rest.
        done = &mut up => if done.is_ok() {
            drop(down.await);
        },
        // The stream has ended, so its timeouts no longer apply.
        done = &mut down => if done.is_ok() {
            drop(timeout(CLOSING, up).await);
        },
    }
}

/// The byte stream to the target.
async fn open(daemon: &dyn Daemon, command: &Connect) -> anyhow::Result<UnixStream> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    command.connect(daemon, theirs).await?;
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

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_holds_nothing_after_the_stream_has_ended() {
        let (client, _far) = tokio::io::duplex(64);
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let began = Instant::now();
        carry(client, ours).await;
        assert!(began.elapsed() <= CLOSING, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_finished_gets_the_rest() {
        let (client, mut far) = tokio::io::duplex(64);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let carrying = tokio::spawn(carry(client, ours));
        far.write_all(b"question").await.unwrap();
        far.shutdown().await.unwrap();
        let mut question = String::new();
        theirs.read_to_string(&mut question).await.unwrap();
        theirs.write_all(b"answer").await.unwrap();
        drop(theirs);
        let mut answer = String::new();
        far.read_to_string(&mut answer).await.unwrap();
        assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
        carrying.await.unwrap();
    }
}
