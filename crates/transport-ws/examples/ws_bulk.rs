//! Measures throughput and CPU cost of one bulk stream over a WebSocket: two threads over loopback.
//!
//! `cargo run --profile bench -p transport-ws --example ws_bulk [up|down] [GB] [ws|wss]` prints
//! Gbit/s and CPU-seconds per GB of both ends together. `up` is the direction from the client,
//! which masks.

#![allow(clippy::print_stdout, reason = "its purpose")]

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::{listen_group, pool};
use tls::{Trust, client_config, self_signed, server_config, server_name};
use transport::{Dialer, Lane, Listener};
use transport_tcp::{Speech, TcpDialer, TcpListener, TlsClient};
use transport_ws::{Request, Terms, WsDialer, WsListener};

/// The frame size of a stream that is alone.
const FRAME: usize = 64 << 10;

const STILL: Duration = Duration::from_secs(25);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let is_up = arguments.next().is_none_or(|direction| direction == "up");
    let gigabytes: usize = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let total = gigabytes * 1_000_000_000;
    let (server_tls, client_tls) = if arguments.next().is_some_and(|scheme| scheme == "wss") {
        let folder = tempfile::tempdir()?;
        let identity = self_signed(folder.path(), &[])?;
        let (alpn, trust) = ([Speech::Http.alpn()], Trust::Pins(vec![identity.pin()]));
        let client = client_config(&trust, None, &alpn)?;
        let client = TlsClient { config: client, name: server_name("localhost")? };
        (Some(server_config(&identity, None, &alpn)?.into()), Some(client))
    } else {
        (None, None)
    };

    let Some(socket) = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1)?.pop() else {
        return Err("no listener".into());
    };
    let address = socket.local_addr()?;
    let server = thread::spawn(move || {
        runtime()?.block_on(async {
            let inner = TcpListener::new(socket, server_tls)?.speaking(Speech::Http);
            let mut listener = WsListener::new(inner, None, Terms::without_proxies(STILL));
            let incoming = poll_fn(|cx| listener.poll_accept(cx)).await?;
            let mut lane = incoming.handshake().await.map_err(io::Error::other)?.lane;
            if is_up { receive(&mut *lane).await } else { send(&mut *lane, total).await }
        })
    });
    let (start, cpu) = (Instant::now(), cpu_seconds()?);
    runtime()?.block_on(async {
        let request = Request::new("/", "localhost", &[]).map_err(io::Error::other)?;
        let inner = TcpDialer::new(client_tls).speaking(Speech::Http);
        let dialer = WsDialer::new(inner, request, STILL);
        let mut lane = dialer.dial(address).await.map_err(io::Error::other)?.lane;
        if is_up { send(&mut *lane, total).await } else { receive(&mut *lane).await }
    })?;
    server.join().map_err(|_| "the server panicked")??;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    let gigabytes = total as f64 / 1e9;
    println!("{:.2} Gbit/s  {:.3} CPU-s/GB", gigabytes * 8.0 / seconds, cpu / gigabytes);
    Ok(())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

async fn send(lane: &mut dyn Lane, total: usize) -> io::Result<()> {
    lane.set_send_limit(512 << 10);
    let payload = Bytes::from(vec![0x5a; FRAME]);
    let (mut frames, mut sent) = (VecDeque::new(), 0);
    while sent < total {
        while frames.len() < 8 {
            frames.push_back(Bytes::from_static(b"twelve bytes"));
            frames.push_back(payload.clone());
        }
        sent += poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    poll_fn(|cx| lane.poll_close(cx)).await?;
    receive(lane).await
}

async fn receive(lane: &mut dyn Lane) -> io::Result<()> {
    loop {
        let mut buf = pool::take(512 << 10);
        let n = poll_fn(|cx| lane.poll_read(cx, &mut buf)).await?;
        pool::give(buf);
        if n == 0 {
            // The peer may have closed the socket already.
            let closed = poll_fn(|cx| lane.poll_close(cx)).await;
            let is_over = |error: &io::Error| error.kind() == io::ErrorKind::NotConnected;
            return closed.or_else(|error| if is_over(&error) { Ok(()) } else { Err(error) });
        }
    }
}

/// The CPU time of this process, user and system, in seconds (proc(5), 100 ticks per second).
fn cpu_seconds() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>().map_err(io::Error::other)? as f64 / 100.0)
}
