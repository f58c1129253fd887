//! What thousands of sessions cost that do nothing, or little: 5,000 streams, each with a socket of
//! its own, to one listener over loopback UDP. The listener and the streams have a thread each, and
//! the program prints the processor time of both threads.
//!
//! ```text
//! cargo run --release -p kcp-tokio --example sessions [-- SECONDS]
//! ```
//!
//! First nothing is sent for SECONDS (20 by default), then two packets of 64 bytes per second and
//! session. System calls and the kernel's work in them are part of the figures.

#![allow(clippy::print_stdout, reason = "a program of the command line")]

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use kcp_go::envelope::Seal;
use kcp_go::session;
use kcp_go::wire::Conversation;
use kcp_go_crypto::{Crypt, derive};
use kcp_tokio::{Config, Listener, Stream, Udp};
use tokio::runtime::Builder;
use tokio::time::interval;

type Failure = Box<dyn Error + Send + Sync>;

const COUNT: usize = 5_000;
/// Between two packets of a session.
const EVERY: Duration = Duration::from_millis(500);
/// Between two groups of packets, which spread the packets evenly over the time.
const STEP: Duration = Duration::from_millis(1);
const GROUP: usize = COUNT * STEP.as_millis() as usize / EVERY.as_millis() as usize;
/// After this time without traffic, sessions have given back their memory.
const REST: Duration = Duration::from_secs(4);

/// Streams that were accepted, and packets that arrived.
static ACCEPTED: AtomicUsize = AtomicUsize::new(0);
static ARRIVED: AtomicUsize = AtomicUsize::new(0);
/// Packets are to be sent.
static IS_BUSY: AtomicBool = AtomicBool::new(true);

fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(20), |word| word.parse())?;
    let time = Duration::from_secs(seconds);
    let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    let threads = [start(move || listen(socket))?, start(move || connect(address))?];
    while ACCEPTED.load(Ordering::Relaxed) < COUNT {
        thread::sleep(Duration::from_millis(100));
    }
    for (what, is_busy) in [("idle", false), ("two packets per second each", true)] {
        IS_BUSY.store(is_busy, Ordering::Relaxed);
        thread::sleep(REST);
        let before = (cpu(&threads[0])?, cpu(&threads[1])?, ARRIVED.load(Ordering::Relaxed));
        thread::sleep(time);
        let packets = ARRIVED.load(Ordering::Relaxed) - before.2;
        let share = |spent: Duration| spent.as_secs_f64() / time.as_secs_f64() * 100.0;
        println!(
            "{COUNT} sessions, {what}: {packets} packets in {seconds} s, {:.2} % of a core at the \
             listener, {:.2} % at the streams",
            share(cpu(&threads[0])? - before.0),
            share(cpu(&threads[1])? - before.1),
        );
    }
    Ok(())
}

/// Runs a future on a thread of its own. Returns the file with the processor time of the thread.
fn start<F: Future<Output = Result<(), Failure>>>(
    make: impl FnOnce() -> F + Send + 'static,
) -> Result<PathBuf, Failure> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let place = std::fs::read_link("/proc/thread-self")?;
        // The main thread waits for it.
        let _ = tell.send(place);
        let ended = Builder::new_current_thread().enable_all().build()?.block_on(make());
        if let Err(failure) = &ended {
            println!("{failure}");
            std::process::exit(1);
        }
        ended
    });
    Ok(PathBuf::from("/proc").join(told.recv()?).join("schedstat"))
}

/// The processor time of a thread.
fn cpu(file: &PathBuf) -> Result<Duration, Failure> {
    let text = std::fs::read_to_string(file)?;
    let first = text.split(' ').next().ok_or("schedstat has a first field")?;
    Ok(Duration::from_nanos(first.parse()?))
}

fn settings() -> Result<(Config, Arc<dyn Seal>), Failure> {
    let crypt: Crypt = "aes-128-gcm".parse()?;
    let mut config = Config::new(session::Config::new(Conversation(1)));
    config.limits.sessions = COUNT;
    config.limits.backlog = COUNT;
    // All sessions come from one address.
    config.limits.per_source = 1_000_000;
    Ok((config, Arc::from(crypt.envelope(&derive("a passphrase")))))
}

/// Accepts streams and reads what comes.
async fn listen(socket: std::net::UdpSocket) -> Result<(), Failure> {
    let socket = Udp::new(tokio::net::UdpSocket::from_std(socket)?)?;
    socket.set_buffers(4 << 20, 4 << 20)?;
    let (config, seal) = settings()?;
    let listener = Listener::bind(socket, config, seal)?;
    loop {
        let (stream, _) = listener.accept().await?;
        ACCEPTED.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            while stream.read_bytes(usize::MAX).await.is_ok() {
                ARRIVED.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

/// Connects streams, and lets each stream send a packet at its turn.
async fn connect(address: SocketAddr) -> Result<(), Failure> {
    let (config, seal) = settings()?;
    let mut streams = Vec::with_capacity(COUNT);
    for number in 0..COUNT {
        let socket = Udp::bind((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let conversation = Conversation(u32::try_from(number)?);
        let seal = Arc::clone(&seal);
        streams.push(Stream::connect(socket, address, conversation, config.clone(), seal)?);
    }
    let packet = Bytes::from_static(&[7; 64]);
    let mut steps = interval(STEP);
    loop {
        for group in streams.chunks(GROUP) {
            steps.tick().await;
            while !IS_BUSY.load(Ordering::Relaxed) {
                tokio::time::sleep(EVERY).await;
                steps.reset();
            }
            for stream in group {
                stream.write_bytes(packet.clone()).await?;
            }
        }
    }
}
