//! Measures throughput and CPU cost of one bulk stream over a data channel: two threads over
//! loopback, each with its own runtime, like two daemons of one worker each.
//!
//! `cargo run --profile bench -p transport-webrtc --example webrtc_bulk [GB]` prints Mbit/s and
//! CPU-seconds per GB of both ends together.

#![allow(clippy::print_stdout, reason = "its purpose")]

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use transport::Lane;
use transport_webrtc::{
    Admission, Answerer, Arrived, First, Interfaces, Offerer, Peers, WebrtcSettings,
};

/// The allocator of the static binary. The library allocates several times for each packet.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The frame size of a single stream.
const FRAME: usize = 64 << 10;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let gigabytes: usize = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let total = gigabytes * 1_000_000_000;
    let (offers, offered) = mpsc::channel::<String>();
    let (answers, answered) = mpsc::channel::<String>();
    let reader = thread::spawn(move || {
        runtime()?.block_on(async {
            let answerer = Answerer::new(&peers(), &offered.recv()?, Interfaces::Announced).await?;
            answers.send(answerer.answer().to_owned())?;
            receive(lane(answerer.connect().await?)?).await
        })
    });
    let (start, cpu) = runtime()?.block_on(async {
        let offerer = Offerer::new(&peers(), First::Carrier, Interfaces::Announced).await?;
        offers.send(offerer.offer().to_owned())?;
        let lane = lane(offerer.connect(&answered.recv()?).await?)?;
        let (start, cpu) = (Instant::now(), cpu_seconds()?);
        send(lane, total).await?;
        Ok::<_, Failure>((start, cpu))
    })?;
    let got = reader.join().map_err(|_| "the reader panicked")??;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    let gigabytes = got as f64 / 1e9;
    println!("{:.0} Mbit/s  {:.2} CPU-s/GB", gigabytes * 8e3 / seconds, cpu / gigabytes);
    Ok(())
}

fn runtime() -> std::io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}

fn peers() -> Peers {
    Peers::new(WebrtcSettings {
        bind: vec![Ipv4Addr::LOCALHOST.into()],
        admission: Admission { loopback: true, private: false },
        ..WebrtcSettings::default()
    })
}

fn lane(arrived: Arrived) -> Result<Box<dyn Lane>, Failure> {
    let Arrived::Carrier(mut carrier) = arrived else { return Err("no carrier".into()) };
    carrier.lane.authenticated();
    Ok(carrier.lane)
}

async fn receive(mut lane: Box<dyn Lane>) -> Result<usize, Failure> {
    let mut got = 0;
    let mut buf = BytesMut::with_capacity(512 << 10);
    loop {
        buf.clear();
        let n = poll_fn(|cx| lane.poll_read(cx, &mut buf)).await?;
        if n == 0 {
            break;
        }
        got += n;
    }
    poll_fn(|cx| lane.poll_close(cx)).await?;
    // The sender drops its lane when it sees the end.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    Ok(got)
}

async fn send(mut lane: Box<dyn Lane>, total: usize) -> Result<(), Failure> {
    let payload = Bytes::from(vec![0x5a; FRAME]);
    let mut frames = VecDeque::new();
    let mut sent = 0;
    while sent < total {
        while frames.len() < 8 {
            frames.push_back(payload.clone());
        }
        sent += poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    poll_fn(|cx| lane.poll_close(cx)).await?;
    let mut buf = BytesMut::with_capacity(16);
    poll_fn(|cx| lane.poll_read(cx, &mut buf)).await?;
    Ok(())
}

/// The CPU time of this process, user and system, in seconds (proc(5), 100 ticks per second).
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit_once(')').ok_or("stat")?.1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}
