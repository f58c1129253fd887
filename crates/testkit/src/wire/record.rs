//! A relay that records its traffic as a pcap file: IP packets with the bytes that each end has
//! sent. The recording depends neither on privileges nor on how the system splits and joins
//! packets.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::stage::LONG;

/// `LINKTYPE_RAW`: packets begin with the IP header.
const RAW: u32 = 101;

/// The addresses of the ends in the recording (RFC 5737), which the relay has on loopback.
const CLIENT: [u8; 4] = [192, 0, 2, 1];
const SERVER: [u8; 4] = [192, 0, 2, 2];

/// The maximum length of a TCP segment in the recording, in bytes.
const SEGMENT: usize = 32_000;

/// The protocol numbers in the IP header.
const TCP: u8 = 6;
const UDP: u8 = 17;

const SYN: u8 = 2;
const ACK: u8 = 16;
const PUSH: u8 = 8;
const FIN: u8 = 1;

/// The packets that have passed.
#[derive(Debug, Default)]
struct Packets(Vec<u8>, u32);

impl Packets {
    /// Appends an IP packet without checksums, a millisecond after the previous packet.
    fn add(&mut self, protocol: u8, is_up: bool, body: &[u8]) {
        let (from, to) = if is_up { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let length = u16::try_from(20 + body.len()).expect("a packet of IP");
        let mut packet = vec![0x45, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        packet.extend(from);
        packet.extend(to);
        packet.extend_from_slice(body);
        self.1 += 1;
        let stored = u32::from(length);
        for word in [self.1 / 1_000, self.1 % 1_000 * 1_000, stored, stored] {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(packet);
    }
}

/// A TCP connection in the recording.
struct Line {
    packets: Arc<Mutex<Packets>>,
    /// The port of the client, which distinguishes connections, and the port of the server.
    ports: [u16; 2],
    /// The next sequence numbers of the client and of the server.
    next: Mutex<[u32; 2]>,
}

impl Line {
    fn add(&self, is_up: bool, flags: u8, payload: &[u8]) {
        let mut next = self.next.lock().unwrap();
        let (own, peer) = if is_up { (0, 1) } else { (1, 0) };
        let mut body = Vec::with_capacity(20 + payload.len());
        body.extend(self.ports[own].to_be_bytes());
        body.extend(self.ports[peer].to_be_bytes());
        body.extend(next[own].to_be_bytes());
        body.extend(if flags & ACK == 0 { 0 } else { next[peer] }.to_be_bytes());
        // A header of five words, the flags, the window, no checksum, no urgent bytes.
        body.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        body.extend_from_slice(payload);
        let counted = u32::from(flags & (SYN | FIN) != 0);
        next[own] = next[own].wrapping_add(counted + u32::try_from(payload.len()).unwrap());
        self.packets.lock().unwrap().add(TCP, is_up, &body);
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, is_up: bool) {
        let mut block = vec![0; SEGMENT];
        while let Ok(length @ 1..) = from.read(&mut block) {
            // Recorded before the bytes are forwarded, so that an answer follows its request.
            self.add(is_up, PUSH | ACK, &block[..length]);
            if to.write_all(&block[..length]).is_err() {
                break;
            }
        }
        self.add(is_up, FIN | ACK, &[]);
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// A relay in front of a loopback port. It runs as long as the process.
#[derive(Debug)]
pub struct Recorder {
    packets: Arc<Mutex<Packets>>,
    port: u16,
}

impl Recorder {
    /// Records TCP connections to `target`.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn of_tcp(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let packets = Arc::<Mutex<Packets>>::default();
        let own = Arc::clone(&packets);
        thread::spawn(move || {
            for visitor in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let ports = [visitor.peer_addr().unwrap().port(), target];
                let line = Line { packets: Arc::clone(&own), ports, next: Mutex::new([1_000; 2]) };
                line.add(true, SYN, &[]);
                line.add(false, SYN | ACK, &[]);
                line.add(true, ACK, &[]);
                let _ = (visitor.set_nodelay(true), server.set_nodelay(true));
                let (line, up) = (Arc::new(line), (visitor.try_clone(), server.try_clone()));
                let (Ok(from), Ok(to)) = up else { continue };
                let upwards = Arc::clone(&line);
                thread::spawn(move || upwards.copy(from, to, true));
                thread::spawn(move || line.copy(server, visitor, false));
            }
        });
        Self { packets, port }
    }

    /// Records datagrams to `target` and their answers.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn of_udp(target: u16) -> Self {
        let socket = Arc::new(UdpSocket::bind(("127.0.0.1", 0)).unwrap());
        let port = socket.local_addr().unwrap().port();
        let packets = Arc::<Mutex<Packets>>::default();
        let own = Arc::clone(&packets);
        thread::spawn(move || {
            let mut ways: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
            let mut block = vec![0; 65_536];
            while let Ok((length, from)) = socket.recv_from(&mut block) {
                let way = ways.entry(from).or_insert_with(|| {
                    let way = Arc::new(UdpSocket::bind(("127.0.0.1", 0)).unwrap());
                    way.connect(("127.0.0.1", target)).unwrap();
                    let (way_back, socket) = (Arc::clone(&way), Arc::clone(&socket));
                    let packets = Arc::clone(&own);
                    thread::spawn(move || answers(&way_back, &socket, from, target, &packets));
                    way
                });
                datagram(&own, true, [from.port(), target], &block[..length]);
                // A closed server port answers with ICMP.
                let _ = way.send(&block[..length]);
            }
        });
        Self { packets, port }
    }

    /// The port at which the client dials the server.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Writes the recorded packets.
    ///
    /// # Errors
    /// The errors of the file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        // The magic of microseconds, version 2.4, no time zone, no accuracy, the longest packet.
        let mut file = Vec::from(0xa1b2_c3d4_u32.to_le_bytes());
        file.extend([2, 0, 4, 0]);
        for word in [0, 0, 65_535, RAW] {
            file.extend(u32::to_le_bytes(word));
        }
        file.extend_from_slice(&self.packets.lock().unwrap().0);
        std::fs::write(path, file)
    }
}

fn answers(
    way: &UdpSocket,
    socket: &UdpSocket,
    client: SocketAddr,
    target: u16,
    packets: &Mutex<Packets>,
) {
    let mut block = vec![0; 65_536];
    way.set_read_timeout(Some(LONG)).unwrap();
    loop {
        match way.recv(&mut block) {
            Ok(length) => {
                datagram(packets, false, [target, client.port()], &block[..length]);
                let _ = socket.send_to(&block[..length], client);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(_) => return,
        }
    }
}

fn datagram(packets: &Mutex<Packets>, is_up: bool, ports: [u16; 2], payload: &[u8]) {
    let length = u16::try_from(8 + payload.len()).expect("a datagram");
    let mut body = Vec::with_capacity(usize::from(length));
    for word in [ports[0], ports[1], length, 0] {
        body.extend(word.to_be_bytes());
    }
    body.extend_from_slice(payload);
    packets.lock().unwrap().add(UDP, is_up, &body);
}
