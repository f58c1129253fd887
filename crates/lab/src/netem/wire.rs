//! The wire: one thread that reads packets from two TUN devices. It writes each packet to the other
//! device at the time that the model gives.
//!
//! The kernel hands over runs of TCP or UDP packets as one packet (segmentation offload). The wire
//! cuts them, so that each packet has its own fate and its own time. The wire joins packets that
//! arrive together, which makes Gbit/s at an MTU of 1500 cheap.

use std::fs;
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use testkit::netem::{Counts, Datagrams, Weather};
use tun_rs::{GROTable, IDEAL_BATCH_SIZE, SyncDevice, VIRTIO_NET_HDR_LEN};

use super::ends::{Device, Ends};
use super::lateness::Lateness;
use xtask::child::capture;

/// Packets that arrive within this time are delivered together: at 1 Gbit/s and an MTU of 1500,
/// eight packets per wake-up. On an idle machine, no packet is later than this.
const GRAIN: Duration = Duration::from_micros(100);

/// The longest sleep, so that the wire notices its end.
const IDLE: Duration = Duration::from_millis(20);

/// Reads from one device before the other device and due packets get their turn.
const TURN: usize = 16;

/// The statistics of a wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// From left to right, from right to left.
    pub(super) ways: [Counts; 2],
    /// Packets that the kernel refused or that could not be cut.
    pub(super) refused: u64,
    /// Lateness of packets.
    pub(super) lateness: Lateness,
    /// Processor time divided by elapsed time.
    pub(super) load: f64,
}

/// The offset of the last but one byte of the destination address in a packet of IPv4 (RFC 791,
/// section 3.1). The byte is the number of the path.
const PATH_AT: usize = VIRTIO_NET_HDR_LEN + 18;

/// A running wire; it ends when dropped.
#[derive(Debug)]
pub(super) struct Wire {
    end: Arc<AtomicBool>,
    /// For each path: packets are lost, in both directions.
    cut: Arc<[AtomicBool]>,
    thread: Option<JoinHandle<Result<Report>>>,
}

impl Wire {
    /// Joins the ends by a path with this weather in both directions.
    pub(super) fn start(ends: &Ends, weather: Weather, mtu: u16, seed: u64) -> Result<Self> {
        Self::with_paths(ends, vec![weather], mtu, seed)
    }

    /// Joins the ends by a path with each of these weathers in both directions. The packets between
    /// the nth addresses of the ends travel over the nth path.
    pub(super) fn with_paths(
        ends: &Ends,
        weathers: Vec<Weather>,
        mtu: u16,
        seed: u64,
    ) -> Result<Self> {
        let end = Arc::new(AtomicBool::new(false));
        let cut: Arc<[_]> = weathers.iter().map(|_| AtomicBool::new(false)).collect();
        let (devices, ended) = (Arc::clone(&ends.devices), Arc::clone(&end));
        let cuts = Arc::clone(&cut);
        let thread = std::thread::Builder::new()
            .name("wire".to_owned())
            .spawn(move || carry(&devices, &weathers, mtu.into(), seed, (&ended, &cuts)))?;
        Ok(Self { end, cut, thread: Some(thread) })
    }

    /// From now on, the packets of this path are lost, or get through again. Packets on their way
    /// arrive.
    pub(super) fn cut(&self, path: usize, is_cut: bool) {
        if let Some(cut) = self.cut.get(path) {
            cut.store(is_cut, Ordering::Relaxed);
        }
    }

    /// Cuts the wire. Packets on their way are lost.
    pub(super) fn finish(mut self) -> Result<Report> {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("it ends once")?;
        thread.join().map_err(|_| anyhow::anyhow!("the wire panicked"))?
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread fails or panics only after another failure.
            drop(thread.join());
        }
    }
}

fn carry(
    devices: &[Device; 2],
    weathers: &[Weather],
    mtu: usize,
    seed: u64,
    (end, cut): (&AtomicBool, &[AtomicBool]),
) -> Result<Report> {
    hurry();
    let [left, right] = [&devices[0].0, &devices[1].0];
    let mut cutter = Cutter::new(mtu);
    for device in [left, right] {
        // Drop the packets that were sent before the wire was there.
        while cutter.read(device)? != Read::Nothing {}
    }
    let lines = |way: u64| -> Vec<_> {
        let seeds = (seed.wrapping_add(way)..).step_by(2);
        weathers.iter().zip(seeds).map(|(weather, seed)| Datagrams::new(*weather, seed)).collect()
    };
    let mut ways = [Way::new(left, right, lines(0)), Way::new(right, left, lines(1))];
    let mut report = Report::default();
    let (start, busy) = (Instant::now(), cpu_time());
    while !end.load(Ordering::Relaxed) {
        for way in &mut ways {
            way.deliver(&mut report)?;
            way.take(&mut cutter, &mut report, cut)?;
        }
        let next = ways.iter().filter_map(Way::next_arrival).min();
        let wait = next.map_or(IDLE, |at| at.saturating_duration_since(Instant::now()));
        let wait = wait.clamp(GRAIN, IDLE);
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let mut readable = [left, right].map(|device| PollFd::new(device, PollFlags::IN));
        match poll(&mut readable, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for packets"),
        }
    }
    report.ways = ways.map(|way| way.counts());
    report.load = (cpu_time() - busy).as_secs_f64() / start.elapsed().as_secs_f64();
    Ok(report)
}

/// Makes this thread run as soon as it has something to do, whatever else runs (`SCHED_FIFO`). An
/// unprivileged thread gets precise sleeps at least. If neither is allowed, packets are later, and
/// the report has their lateness.
fn hurry() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let thread = rustix::thread::gettid().as_raw_pid().to_string();
    let _ = capture(Command::new("chrt").args(["--fifo", "--pid", "1", &thread]));
}

/// Processor time of this thread (Linux: Documentation/scheduler/sched-stats).
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// A packet, after the space that a device needs for its header.
type Packet = Vec<u8>;

/// One direction of the wire.
struct Way<'a> {
    from: &'a SyncDevice,
    to: &'a SyncDevice,
    /// For each path.
    lines: Vec<Datagrams<Packet>>,
    batch: Vec<Packet>,
    joiner: GROTable,
}

impl<'a> Way<'a> {
    fn new(from: &'a SyncDevice, to: &'a SyncDevice, lines: Vec<Datagrams<Packet>>) -> Self {
        Self { from, to, lines, batch: Vec::new(), joiner: GROTable::default() }
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.lines.iter().filter_map(Datagrams::next_arrival).min()
    }

    /// The counts of all paths together.
    fn counts(&self) -> Counts {
        self.lines.iter().map(Datagrams::counts).fold(Counts::default(), |sum, one| Counts {
            written: sum.written + one.written,
            lost: sum.lost + one.lost,
            dropped: sum.dropped + one.dropped,
            arrived: sum.arrived + one.arrived,
            arrived_bytes: sum.arrived_bytes + one.arrived_bytes,
        })
    }

    /// Delivers all packets that have arrived.
    fn deliver(&mut self, report: &mut Report) -> Result<()> {
        let now = Instant::now();
        loop {
            self.batch.clear();
            for line in &mut self.lines {
                while self.batch.len() < IDEAL_BATCH_SIZE
                    && let Some(at) = line.next_arrival()
                    && let Some(packet) = line.read(now)
                {
                    report.lateness.add(now - at);
                    self.batch.push(packet);
                }
            }
            if self.batch.is_empty() {
                return Ok(());
            }
            let sent = self.to.send_multiple(&mut self.joiner, &mut self.batch, VIRTIO_NET_HDR_LEN);
            // The device is down or the kernel refuses the packet: the packet is lost, as on any
            // wire.
            report.refused += u64::from(sent.is_err());
        }
    }

    /// Takes sent packets, at most as many as a turn allows.
    fn take(&mut self, cutter: &mut Cutter, report: &mut Report, cut: &[AtomicBool]) -> Result<()> {
        for _ in 0..TURN {
            match cutter.read(self.from)? {
                Read::Nothing => break,
                Read::Unfit => report.refused += 1,
                Read::Packets(count) => {
                    let now = Instant::now();
                    for (packet, &size) in cutter.packets.iter().zip(&cutter.sizes).take(count) {
                        let whole = &packet[..VIRTIO_NET_HDR_LEN + size];
                        // A wire with one path carries whatever has another address.
                        let path = whole.get(PATH_AT).copied().unwrap_or_default().into();
                        let path = if path < self.lines.len() { path } else { 0 };
                        let is_cut = cut.get(path).is_some_and(|cut| cut.load(Ordering::Relaxed));
                        if let Some(line) = self.lines.get_mut(path).filter(|_| !is_cut) {
                            line.write(now, size, || whole.to_vec());
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// There was nothing to read.
    Nothing,
    /// The packet cannot be cut.
    Unfit,
    /// The number of packets.
    Packets(usize),
}

/// Reads runs of packets and cuts them into single packets.
struct Cutter {
    run: Vec<u8>,
    packets: Vec<Packet>,
    sizes: Vec<usize>,
}

impl Cutter {
    fn new(mtu: usize) -> Self {
        Self {
            run: vec![0; VIRTIO_NET_HDR_LEN + usize::from(u16::MAX)],
            packets: vec![vec![0; VIRTIO_NET_HDR_LEN + mtu]; IDEAL_BATCH_SIZE],
            sizes: vec![0; IDEAL_BATCH_SIZE],
        }
    }

    fn read(&mut self, device: &SyncDevice) -> Result<Read> {
        let Self { run, packets, sizes } = self;
        match device.recv_multiple(run, packets, sizes, VIRTIO_NET_HDR_LEN) {
            Ok(count) => Ok(Read::Packets(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Read::Nothing),
            // The device is down: no packet will come.
            Err(error) if error.raw_os_error().is_some() => Err(error).context("reading packets"),
            Err(_) => Ok(Read::Unfit),
        }
    }
}
