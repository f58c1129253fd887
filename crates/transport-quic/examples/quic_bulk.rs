//! Measures throughput and CPU cost of one bulk stream over a QUIC lane: two threads over loopback,
//! each with a runtime of its own, like two daemons of one worker each.
//!
//! `cargo run --profile bench -p transport-quic --example quic_bulk [GB] [mtu] [cubic|bbr]` prints
//! Gbit/s and CPU-seconds per GB of both ends together.
//!
//! Measured on two shared cores, code of the dev profile with quinn at `opt-level = 3`, default
//! socket buffers. CPU-s/GB: payloads of 1,452 bytes take 4.5 with cubic and 4.9 with bbr, of 8,952
//! bytes 1.5-1.6 and 2.1, of 65,000 bytes 1.8 and 2.0. Measured on a later day with cubic and thin
//! LTO, medians of nine runs: 8,952 bytes take 1.63, 16,300 bytes 1.50, 21,800 bytes 1.61; median
//! of three runs: 32,700 bytes take 1.96. Payloads of 1,452 bytes, by segments per call: two take
//! 7.7, five 5.0, ten (the most that quinn puts into a call) 4.5. Fewer acknowledgements
//! (draft-ietf-quic-ack-frequency) gain nothing. With an acknowledgement of every twentieth packet
//! some transfers fell to 0.5 Gbit/s, so quinn's default stays.

#![allow(clippy::print_stdout, reason = "its purpose")]

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::future::poll_fn;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use net::pool;
use net::udp::WANTED;
use proto::Priority;
use tls::{Trust, client_config, self_signed, server_config, server_name};
use transport::{ALPN, Carrier, Dialer, Lanes, Listener};
use transport_quic::{
    Congestion, Keys, QuicDialer, QuicListener, QuicServer, QuicSettings, TlsClient,
};

/// The frame size of a stream that is alone.
const FRAME: usize = 64 << 10;

/// The unread bytes that the reader allows, as many as a link allows.
const WINDOW: u64 = 16 << 20;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let gigabytes: usize = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let total = gigabytes * 1_000_000_000;
    let mut settings = QuicSettings::default();
    if let Some(text) = arguments.next() {
        settings.mtu = text.parse()?;
    }
    if arguments.next().is_some_and(|name| name == "bbr") {
        settings.loopback = Congestion::Bbr;
    }

    let folder = tempfile::tempdir()?;
    let identity = self_signed(folder.path(), &["localhost".into()])?;
    let server = server_config(&identity, None, &[ALPN])?;
    let config = client_config(&Trust::Pins(vec![identity.pin()]), None, &[ALPN])?;
    let client = TlsClient { config, name: server_name("localhost")? };
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    let address = socket.local_addr()?;

    let reader = thread::spawn({
        let settings = settings.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let server =
                    QuicServer::new(server.into(), None, settings, Keys::fleeting()?, None)?;
                let mut listener =
                    QuicListener::new(socket, net::udp::SteeringSlot::ALONE, &server)?;
                let incoming = poll_fn(|cx| listener.poll_accept(cx)).await?;
                receive(incoming.handshake().await?).await
            })
        }
    });

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (start, cpu) = runtime.block_on(async {
        let carrier = QuicDialer::new(&client, settings, WANTED)?.dial(address).await?;
        let (start, cpu) = (Instant::now(), cpu_seconds()?);
        send(carrier, total).await?;
        Ok::<_, Failure>((start, cpu))
    })?;
    let got = reader.join().map_err(|_| "the reader panicked")??;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    let gigabytes = got as f64 / 1e9;
    println!("{:.2} Gbit/s  {:.3} CPU-s/GB", gigabytes * 8.0 / seconds, cpu / gigabytes);
    Ok(())
}

/// The lanes of a carrier; every QUIC carrier has them.
fn lanes(carrier: &mut Carrier) -> Result<Box<dyn Lanes>, Failure> {
    let mut lanes = carrier.lanes.take().ok_or("no lanes")?;
    lanes.authenticated(WINDOW);
    Ok(lanes)
}

async fn receive(mut carrier: Carrier) -> Result<usize, Failure> {
    let mut lanes = lanes(&mut carrier)?;
    let mut lane = poll_fn(|cx| lanes.poll_accept(cx)).await?;
    let mut got = 0;
    loop {
        let mut buf = pool::take(512 << 10);
        let n = poll_fn(|cx| lane.poll_read(cx, &mut buf)).await?;
        pool::give(buf);
        if n == 0 {
            break;
        }
        got += n;
    }
    // The sender ends as soon as it sees the close.
    let _ = poll_fn(|cx| carrier.lane.poll_close(cx)).await;
    Ok(got)
}

async fn send(mut carrier: Carrier, total: usize) -> Result<(), Failure> {
    let mut lanes = lanes(&mut carrier)?;
    let mut lane = lanes.open(Priority::Normal)?.ok_or("no lane")?;
    let payload = Bytes::from(vec![0x5a; FRAME]);
    let mut frames = VecDeque::new();
    let mut sent = 0;
    while sent < total {
        while frames.len() < 8 {
            frames.push_back(payload.clone());
        }
        sent += poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    lane.finish();
    // The reader ends its first lane after it has read all bytes.
    let mut buf = pool::take(16);
    poll_fn(|cx| carrier.lane.poll_read(cx, &mut buf)).await?;
    drop(carrier);
    // The connection's own task sends CONNECTION_CLOSE, which takes a moment.
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(())
}

/// The CPU time of this process, user and system, in seconds (proc(5), 100 ticks per second).
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("stat")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}
