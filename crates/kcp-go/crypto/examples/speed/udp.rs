//! Two ends on two threads, over UDP by the loopback interface, in batches (GSO and GRO).

use std::io::{ErrorKind, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Failure;
use crate::end::{Case, End, Random};
use crate::figures::{Figures, Watch};

const WRITE: usize = 256 << 10;
const BUFFER: usize = 4 << 20;
/// The most bytes that one call sends or receives as one run of datagrams.
const RUN: usize = 64 << 10;

struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    peer: SocketAddr,
    buffers: Vec<Vec<u8>>,
    /// A run of datagrams of `segment` bytes, the last of which may be shorter.
    run: Vec<u8>,
    segment: usize,
    count: usize,
    /// A datagram behind a run that it does not fit.
    next: Vec<u8>,
    random: Random,
}

impl Socket {
    fn new(socket: UdpSocket, peer: SocketAddr) -> Result<Self, Failure> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        state.set_send_buffer_size(UdpSockRef::from(&socket), BUFFER)?;
        state.set_recv_buffer_size(UdpSockRef::from(&socket), BUFFER)?;
        let buffers = vec![vec![0; RUN]; BATCH_SIZE];
        let (run, next) = (Vec::with_capacity(RUN), Vec::new());
        Ok(Self {
            socket,
            state,
            peer,
            buffers,
            run,
            segment: 0,
            count: 0,
            next,
            random: Random::default(),
        })
    }

    /// Sends what the end has, until the socket is full.
    fn send(&mut self, end: &mut End) -> Result<(), Failure> {
        let now = Instant::now();
        loop {
            self.gather(end, now);
            if self.run.is_empty() {
                return Ok(());
            }
            let segment_size = (self.count > 1).then_some(self.segment);
            let transmit = Transmit {
                destination: self.peer,
                ecn: None,
                contents: &self.run,
                segment_size,
                src_ip: None,
            };
            match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
                Ok(()) => {
                    self.run.clear();
                    self.count = 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Fills the run with datagrams, unless one is waiting.
    fn gather(&mut self, end: &mut End, now: Instant) {
        if !self.run.is_empty() {
            return;
        }
        let most = self.state.max_gso_segments();
        if !self.next.is_empty() {
            std::mem::swap(&mut self.run, &mut self.next);
            (self.segment, self.count) = (self.run.len(), 1);
        }
        while self.count < most && self.run.len() + crate::end::MTU <= RUN - 100 {
            let start = self.run.len();
            let Some(length) = end.poll_transmit(now, &mut self.random, &mut self.run) else {
                return;
            };
            if self.count == 0 {
                self.segment = length;
            }
            if length > self.segment {
                self.next.clear();
                self.next.extend_from_slice(&self.run[start..]);
                self.run.truncate(start);
                return;
            }
            self.count += 1;
            if length < self.segment {
                return;
            }
        }
    }

    /// Waits for datagrams, for the timer, or for room, and handles what arrived.
    fn receive(&mut self, end: &mut End) -> Result<(), Failure> {
        if !self.read(end)? {
            let now = Instant::now();
            let wait = end.timeout().map_or(Duration::from_millis(50), |at| at.duration_since(now));
            let wait = Timespec::try_from(wait.min(Duration::from_millis(50)))?;
            let wants =
                if self.run.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT };
            poll(&mut [PollFd::new(&self.socket, wants)], Some(&wait))?;
            self.read(end)?;
        }
        let now = Instant::now();
        if end.timeout().is_some_and(|at| at <= now) {
            end.handle_timeout(now);
        }
        Ok(())
    }

    /// Handles what has arrived; whether there was anything.
    fn read(&mut self, end: &mut End) -> Result<bool, Failure> {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let socket = UdpSockRef::from(&self.socket);
        let mut slices: Vec<_> = self.buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let count = match self.state.recv(socket, &mut slices, &mut metas) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let now = Instant::now();
        for (meta, buffer) in metas.iter().zip(&mut self.buffers).take(count) {
            for datagram in buffer[..meta.len].chunks_mut(meta.stride.max(1)) {
                end.handle_datagram(now, datagram);
            }
        }
        Ok(count > 0)
    }
}

/// Sends for `time` from one end to the other.
pub(crate) fn run(case: Case, time: Duration) -> Result<Figures, Failure> {
    let sockets =
        [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
    let [a, b] = sockets;
    let (at_a, at_b) = (a.local_addr()?, b.local_addr()?);
    let (mut a, mut b) = (Socket::new(a, at_b)?, Socket::new(b, at_a)?);
    let now = Instant::now();
    let [mut sender, mut receiver] = End::pair(case, now)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let is_over_too = Arc::clone(&is_over);
    let source = Bytes::from(vec![0x5a; WRITE]);
    let thread = std::thread::spawn(move || -> Result<_, String> {
        while !is_over_too.load(Ordering::Relaxed) {
            sender.fill(Instant::now(), &source);
            a.send(&mut sender).map_err(|error| error.to_string())?;
            a.receive(&mut sender).map_err(|error| error.to_string())?;
        }
        Ok(sender.counters())
    });
    let mut watch = Watch::new(time);
    while watch.goes_on(receiver.read()) {
        b.send(&mut receiver)?;
        b.receive(&mut receiver)?;
    }
    is_over.store(true, Ordering::Relaxed);
    let counters = thread.join().map_err(|_| "the sender failed")??;
    Ok(watch.figures(counters))
}
