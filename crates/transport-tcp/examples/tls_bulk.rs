//! Measures throughput and CPU cost of one bulk stream over a carrier: two threads over loopback.
//!
//! `cargo run --profile bench -p transport-tcp --example tls_bulk [tls|tcp] [GB]` prints Gbit/s and
//! CPU-seconds per GB of both ends together.

#![allow(clippy::print_stdout, reason = "its purpose")]

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use bytes::Bytes;
use net::{listen_group, pool};
use tls::{Trust, client_config, self_signed, server_config, server_name};
use transport::{ALPN, Dialer, Listener};
use transport_tcp::{TcpDialer, TcpListener, TlsClient};

/// The frame size of a stream that is alone.
const FRAME: usize = 64 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let sealed = arguments.next().is_none_or(|scheme| scheme == "tls");
    let gigabytes: usize = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let total = gigabytes * 1_000_000_000;

    let folder = tempfile::tempdir()?;
    let identity = self_signed(folder.path(), &["localhost".into()])?;
    let server = sealed.then(|| server_config(&identity, None, &[ALPN])).transpose()?;
    let trust = Trust::Pins(vec![identity.pin()]);
    let client = if sealed {
        let config = client_config(&trust, None, &[ALPN])?;
        Some(TlsClient { config, name: server_name("localhost")? })
    } else {
        None
    };
    let Some(socket) = listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1)?.pop() else {
        return Err("no listener".into());
    };
    let address = socket.local_addr()?;

    let reader = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut listener = TcpListener::new(socket, server.map(Into::into))?;
            let incoming = poll_fn(|cx| listener.poll_accept(cx)).await?;
            let mut lane = incoming.handshake().await.map_err(std::io::Error::other)?.lane;
            let mut got = 0;
            loop {
                let mut buf = pool::take(512 << 10);
                let n = poll_fn(|cx| lane.poll_read(cx, &mut buf)).await?;
                pool::give(buf);
                if n == 0 {
                    return Ok::<usize, std::io::Error>(got);
                }
                got += n;
            }
        })
    });

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (start, cpu) = runtime.block_on(async {
        let mut lane = TcpDialer::new(client).dial(address).await?.lane;
        lane.set_send_limit(512 << 10);
        let (start, cpu) = (Instant::now(), cpu_seconds()?);
        let payload = Bytes::from(vec![0x5a; FRAME]);
        let mut frames = VecDeque::new();
        let mut sent = 0;
        while sent < total {
            while frames.len() < 8 {
                frames.push_back(Bytes::from_static(b"twelve bytes"));
                frames.push_back(payload.clone());
            }
            sent += poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
        }
        poll_fn(|cx| lane.poll_close(cx)).await?;
        Ok::<_, Box<dyn Error>>((start, cpu))
    })?;
    let got = reader.join().map_err(|_| "the reader panicked")??;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    let gigabytes = got as f64 / 1e9;
    println!("{:.2} Gbit/s  {:.3} CPU-s/GB", gigabytes * 8.0 / seconds, cpu / gigabytes);
    Ok(())
}

/// The CPU time of this process, user and system, in seconds (proc(5), 100 ticks per second).
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("stat")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}
