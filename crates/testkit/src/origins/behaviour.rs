//! The behaviours of the origins: how each origin serves a connection.

use std::future::pending;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Digest, Ended, Pattern};

/// The buffer size of one read of an origin.
const READ: usize = 64 << 10;

/// The maximum number of bytes that a half-close echo buffers.
const ECHO_MAX: u64 = 64 << 20;

/// Reads once; `Ok(None)` at the end of the stream.
async fn read<'b>(
    socket: &mut TcpStream,
    buffer: &'b mut [u8],
    digest: &mut Digest,
) -> io::Result<Option<&'b [u8]>> {
    let n = socket.read(buffer).await?;
    digest.update(&buffer[..n]);
    Ok((n > 0).then_some(&buffer[..n]))
}

fn ended(received: Digest, outcome: &io::Result<()>) -> Ended {
    Ended { received, clean: outcome.is_ok() }
}

pub(super) async fn echo(mut socket: TcpStream) -> Ended {
    let mut received = Digest::default();
    let mut buffer = vec![0; READ];
    let outcome = async {
        while let Some(data) = read(&mut socket, &mut buffer, &mut received).await? {
            socket.write_all(data).await?;
        }
        socket.shutdown().await
    };
    let outcome = outcome.await;
    ended(received, &outcome)
}

pub(super) async fn half_close_echo(mut socket: TcpStream) -> Ended {
    let mut received = Digest::default();
    let mut all = Vec::new();
    let outcome = async {
        (&mut socket).take(ECHO_MAX).read_to_end(&mut all).await?;
        socket.write_all(&all).await?;
        socket.shutdown().await
    };
    let outcome = outcome.await;
    received.update(&all);
    ended(received, &outcome)
}

pub(super) async fn sink(mut socket: TcpStream) -> Ended {
    let mut received = Digest::default();
    let mut buffer = vec![0; READ];
    let outcome = async {
        while read(&mut socket, &mut buffer, &mut received).await?.is_some() {}
        Ok(())
    };
    let outcome = outcome.await;
    ended(received, &outcome)
}

/// Writes the first `length` bytes of the pattern.
pub(super) async fn send(socket: &mut TcpStream, length: u64) -> io::Result<()> {
    let pattern = Pattern;
    let mut sent = 0;
    while sent < length {
        let data = pattern.at(sent, length - sent);
        socket.write_all(data).await?;
        sent += data.len() as u64;
    }
    Ok(())
}

pub(super) async fn source(mut socket: TcpStream, length: u64) -> Ended {
    let outcome = send(&mut socket, length).await;
    ended(Digest::default(), &outcome)
}

pub(super) async fn slow_reader(mut socket: TcpStream, rate: usize) -> Ended {
    // Ten small reads per second. Below 10 B/s each read takes one byte, and reads are rarer.
    let per_read = (rate / 10).max(1);
    let pause = Duration::from_secs_f64(per_read as f64 / rate.max(1) as f64);
    let mut received = Digest::default();
    let mut buffer = vec![0; per_read];
    let outcome = async {
        while read(&mut socket, &mut buffer, &mut received).await?.is_some() {
            tokio::time::sleep(pause).await;
        }
        Ok(())
    };
    let outcome = outcome.await;
    ended(received, &outcome)
}

pub(super) async fn never_reader(socket: TcpStream) -> Ended {
    let _open = socket;
    pending().await
}

pub(super) async fn banner(mut socket: TcpStream, text: &'static str) -> Ended {
    match socket.write_all(text.as_bytes()).await {
        Ok(()) => echo(socket).await,
        Err(error) => ended(Digest::default(), &Err(error)),
    }
}

pub(super) async fn refuser(socket: TcpStream) -> Ended {
    let outcome = socket.set_zero_linger();
    drop(socket);
    ended(Digest::default(), &outcome)
}

pub(super) async fn resetter(mut socket: TcpStream, after: u64) -> Ended {
    let mut received = Digest::default();
    let mut buffer = vec![0; READ];
    let outcome = async {
        while received.length() < after
            && read(&mut socket, &mut buffer, &mut received).await?.is_some()
        {}
        socket.set_zero_linger()
    };
    let outcome = outcome.await;
    ended(received, &outcome)
}
