//! Runs one end of a session over a real socket, behind an emulated path, until all bytes are
//! there.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use testkit::netem::{Datagrams, Rng, Weather};

/// Longest time of a transfer.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the operating system keeps of a burst of datagrams is less than a window.
const SOCKET_WAIT: Duration = Duration::from_millis(1);

/// One end of a session: what takes datagrams and bytes, and what time does to it. Times are since
/// the begin.
pub(crate) trait End {
    /// Takes a datagram of the peer.
    fn input(&mut self, now: Duration, datagram: &[u8], sink: &mut dyn FnMut(&[u8]));
    /// Does what is due. Returns the time of the next call.
    fn turn(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) -> Duration;
    /// Takes bytes to send, and returns how many.
    fn write(&mut self, now: Duration, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> usize;
    /// The next bytes that arrived, if there are any.
    fn read(&mut self, to: &mut [u8]) -> Option<usize>;
    /// Whether everything that was written has arrived.
    fn is_acknowledged(&self) -> bool;
}

/// A socket behind an emulated path.
#[derive(Debug)]
pub(crate) struct Line {
    /// It stays open until the end of the program: another test that got the port would get what
    /// this one's peer still sends.
    socket: ManuallyDrop<UdpSocket>,
    start: Instant,
    there: Datagrams<Vec<u8>>,
    back: Datagrams<Vec<u8>>,
}

impl Line {
    /// A socket that has no peer yet.
    pub(crate) fn bind(weather: Weather, seed: u64) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(SOCKET_WAIT)).unwrap();
        let path = |seed| Datagrams::new(weather, seed);
        let socket = ManuallyDrop::new(socket);
        Self { socket, start: Instant::now(), there: path(2 * seed), back: path(2 * seed + 1) }
    }

    /// A socket that talks to this port.
    pub(crate) fn to(port: u16, weather: Weather, seed: u64) -> Self {
        let line = Self::bind(weather, seed);
        line.socket.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        line
    }

    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    /// Waits for the first datagram, takes its sender as the peer, and returns a copy. The datagram
    /// itself travels on.
    pub(crate) fn accept(&mut self) -> Vec<u8> {
        let mut buffer = [0; 2_048];
        let start = Instant::now();
        loop {
            if let Ok((length, peer)) = self.socket.recv_from(&mut buffer) {
                self.socket.connect(peer).unwrap();
                let datagram = buffer[..length].to_vec();
                self.back.write(Instant::now(), length, || datagram.clone());
                return datagram;
            }
            assert!(start.elapsed() < PATIENCE, "nobody dials");
        }
    }

    /// Waits a moment for datagrams, and takes those that are there.
    fn listen(&mut self) {
        let mut buffer = [0; 2_048];
        loop {
            match self.socket.recv(&mut buffer) {
                Ok(length) => {
                    let datagram = &buffer[..length];
                    self.back.write(Instant::now(), length, || datagram.to_vec());
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => break,
            }
            // More than this and nothing else gets its turn.
            if self.back.next_arrival().is_some_and(|at| at <= Instant::now()) {
                break;
            }
        }
    }

    fn speak(&mut self) {
        while let Some(datagram) = self.there.read(Instant::now()) {
            // A full buffer loses datagrams as a path does.
            let _ = self.socket.send(&datagram);
        }
    }
}

/// What one end sends and what it has to get.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// The bytes to send.
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes to get.
    pub(crate) wanted: usize,
    /// The least time between two reads.
    pub(crate) reads: Duration,
}

impl Transfer {
    /// Bytes that differ everywhere.
    pub(crate) fn new(send: usize, wanted: usize) -> Self {
        let mut rng = Rng::new(send as u64);
        let bytes = (0..send).map(|_| rng.bits().to_le_bytes()[7]).collect();
        Self { bytes, wanted, reads: Duration::ZERO }
    }

    /// What the peer says of these bytes.
    pub(crate) fn expected(&self) -> String {
        summary(&self.bytes)
    }

    /// Runs `end` until everything arrived in both directions. Returns what came.
    pub(crate) fn run(&self, end: &mut dyn End, line: &mut Line) -> Vec<u8> {
        let (mut written, mut received) = (0, Vec::new());
        let (mut next_turn, mut next_read) = (Duration::ZERO, Duration::ZERO);
        let mut buffer = [0; 2_048];
        while received.len() < self.wanted || written < self.bytes.len() || !end.is_acknowledged() {
            line.listen();
            let now = Instant::now();
            let time = now - line.start;
            let there = &mut line.there;
            let mut sink = |datagram: &[u8]| there.write(now, datagram.len(), || datagram.to_vec());
            while let Some(datagram) = line.back.read(now) {
                end.input(time, &datagram, &mut sink);
            }
            if time >= next_read {
                while let Some(length) = end.read(&mut buffer) {
                    received.extend_from_slice(&buffer[..length]);
                }
                next_read = time + self.reads;
            }
            written += end.write(time, &self.bytes[written..], &mut sink);
            if time >= next_turn {
                next_turn = end.turn(time, &mut sink);
            }
            line.speak();
            let done = (written, received.len());
            assert!(time < PATIENCE, "{done:?} of {} and {}", self.bytes.len(), self.wanted);
        }
        received
    }
}

/// The number of bytes and their hash, as the peer says it.
pub(crate) fn summary(bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} {hash}", bytes.len())
}
