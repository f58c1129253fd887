//! Each fault of a path, seen from both ends.

use std::io::{ErrorKind, Read, Write};

use super::*;
use crate::netem::Rng;

/// Long enough for an immediate event.
const SOON: Duration = Duration::from_secs(10);

/// Long enough to conclude that nothing comes.
const QUIET: Duration = Duration::from_millis(300);

/// A wire and the two sockets at its ends.
fn stretched() -> (Wire, TcpStream, TcpStream) {
    let (wire, listener) = to_listener();
    let (near, far) = connected(&wire, &listener);
    (wire, near, far)
}

fn to_listener() -> (Wire, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (Wire::to(listener.local_addr().unwrap().port()), listener)
}

fn connected(wire: &Wire, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let near = TcpStream::connect(wire.address()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(SOON)).unwrap();
    }
    let (mut near, mut far) = (near, far);
    passes(&mut near, &mut far);
    passes(&mut far, &mut near);
    (near, far)
}

fn passes(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"word").unwrap();
    let mut word = [0; 4];
    to.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"word");
}

fn is_quiet(socket: &mut TcpStream) {
    socket.set_read_timeout(Some(QUIET)).unwrap();
    let error = socket.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    socket.set_read_timeout(Some(SOON)).unwrap();
}

/// The address belongs to this test alone, and a hundredth of its ports is taken.
#[test]
fn a_port_that_is_taken_for_datagrams_is_not_chosen() {
    let anywhere = SocketAddr::from(([127, 0, 77, 1], 0));
    let taken: Vec<_> = (0..300).map(|_| UdpSocket::bind(anywhere).unwrap()).collect();
    for _ in 0..600 {
        let (listener, datagrams) = bind_both(anywhere).unwrap();
        assert_eq!(listener.local_addr().unwrap(), datagrams.local_addr().unwrap());
    }
    let occupied = taken[0].local_addr().unwrap();
    assert_eq!(bind_both(occupied).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn a_reset_is_a_reset_at_both_ends() {
    let (wire, mut near, mut far) = stretched();
    assert_eq!(wire.suffer(Trouble::Reset(Reach::All)), 1);
    for socket in [&mut near, &mut far] {
        assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
}

#[test]
fn a_close_is_an_end_at_both_ends() {
    let (wire, mut near, mut far) = stretched();
    wire.suffer(Trouble::Close(Reach::All));
    for socket in [&mut near, &mut far] {
        assert_eq!(socket.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn what_the_ends_do_themselves_passes_as_what_it_is() {
    let (_wire, near, mut far) = stretched();
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0, "half-closed");
    let (mut near, mut far) = (near, far);
    passes(&mut far, &mut near);
    let (_wire, near, mut far) = stretched();
    reset_on_drop(&near);
    drop(near);
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn one_of_several_connections_can_be_meant() {
    let (wire, listener) = to_listener();
    let mut pairs: Vec<_> = (0..3).map(|_| connected(&wire, &listener)).collect();
    assert_eq!(wire.suffer(Trouble::Reset(Reach::One(4))), 1);
    assert_eq!(pairs[1].0.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    for index in [0, 2] {
        let (near, far) = &mut pairs[index];
        passes(near, far);
    }
}

#[test]
fn a_stall_delays_and_loses_nothing() {
    let (wire, mut near, mut far) = stretched();
    wire.suffer(Trouble::Stall(QUIET * 3));
    near.write_all(b"late").unwrap();
    is_quiet(&mut far);
    let mut late = [0; 4];
    far.read_exact(&mut late).unwrap();
    assert_eq!(&late, b"late");
}

#[test]
fn a_trickle_brings_every_byte_by_itself_and_ends() {
    let (wire, mut near, mut far) = stretched();
    wire.suffer(Trouble::Trickle(QUIET));
    near.write_all(&[7; 1 << 20]).unwrap();
    let mut all = vec![0; 1 << 20];
    far.read_exact(&mut all).unwrap();
    assert!(all.iter().all(|&byte| byte == 7));
}

#[test]
fn a_swallowing_path_tells_nobody_that_the_other_end_is_gone() {
    for (way, up, down) in
        [(Way::Both, false, false), (Way::Up, false, true), (Way::Down, true, false)]
    {
        let (wire, mut near, mut far) = stretched();
        wire.suffer(Trouble::Swallow(Reach::All, way));
        if up {
            passes(&mut near, &mut far)
        } else {
            near.write_all(b"lost").unwrap()
        }
        if down {
            passes(&mut far, &mut near)
        } else {
            far.write_all(b"lost").unwrap()
        }
        if !up {
            is_quiet(&mut far);
        }
        if !down {
            is_quiet(&mut near);
        }
        if way == Way::Both {
            drop(near);
            is_quiet(&mut far);
            far.write_all(b"still nobody answers").unwrap();
            is_quiet(&mut far);
        }
        assert_eq!(wire.suffer(Trouble::Reset(Reach::All)), 0, "it is out of reach");
    }
}

#[test]
fn entry_can_be_refused_or_silent_while_others_go_on() {
    let (wire, listener) = to_listener();
    let (mut near, mut far) = connected(&wire, &listener);
    wire.entry(Entry::Refused);
    let refused = TcpStream::connect(wire.address()).and_then(|mut socket| socket.read(&mut [0]));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionReset);
    wire.entry(Entry::Silent);
    let mut silent = TcpStream::connect(wire.address()).unwrap();
    silent.write_all(b"hello?").unwrap();
    is_quiet(&mut silent);
    passes(&mut near, &mut far);
    wire.entry(Entry::Open);
    assert_eq!(silent.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    connected(&wire, &listener);
}

#[test]
fn a_seed_draws_the_same_troubles_again() {
    let draw = |seed| Trouble::each(&mut Rng::new(seed));
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    assert!((0..1000).all(|seed| draw(seed)[2].lasts() < Duration::from_secs(9)));
}

/// A wire and the two sockets of a conversation over UDP.
struct Talk {
    wire: Wire,
    near: UdpSocket,
    far: UdpSocket,
}

impl Talk {
    fn new() -> Self {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let wire = Wire::to(far.local_addr().unwrap().port());
        far.set_read_timeout(Some(QUIET)).unwrap();
        let near = Self::near(&wire);
        Self { wire, near, far }
    }

    fn near(wire: &Wire) -> UdpSocket {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.connect(wire.address()).unwrap();
        near.set_read_timeout(Some(QUIET)).unwrap();
        near
    }

    /// Sends `bytes` bytes and returns the address they came from, or `None` if they did not
    /// arrive.
    fn up(&self, bytes: usize) -> Option<SocketAddr> {
        self.near.send(&vec![7; bytes]).unwrap();
        let (n, from) = self.far.recv_from(&mut [0; 4096]).ok()?;
        assert_eq!(n, bytes);
        Some(from)
    }

    /// Answers with `bytes` bytes.
    fn down(&self, to: SocketAddr, bytes: usize) -> bool {
        self.far.send_to(&vec![8; bytes], to).unwrap();
        self.near.recv(&mut [0; 4096]).is_ok_and(|n| n == bytes)
    }
}

#[test]
fn datagrams_pass_both_ways_and_from_another_port_when_a_nat_forgets() {
    let talk = Talk::new();
    let port = talk.up(100).unwrap();
    assert!(talk.down(port, 50));
    talk.wire.rebind().unwrap();
    let other = talk.up(100).unwrap();
    assert_ne!(other, port);
    assert!(talk.down(other, 50));
    assert!(!talk.down(port, 50), "the old port is nobody's");
}

#[test]
fn long_datagrams_are_lost_both_ways_and_so_are_as_many_as_wanted() {
    let talk = Talk::new();
    let port = talk.up(1_500).unwrap();
    talk.wire.longest_datagram(1_252);
    assert!(talk.up(1_253).is_none() && talk.up(1_252).is_some());
    assert!(!talk.down(port, 1_253) && talk.down(port, 1_252));
    talk.wire.lose(1_000);
    assert!(talk.up(1).is_none());
}

#[test]
fn datagrams_of_a_long_path_are_late_and_in_order() {
    const DELAY: Duration = Duration::from_millis(20);
    let talk = Talk::new();
    talk.wire.delay(DELAY);
    let begin = Instant::now();
    (1..=100).for_each(|bytes| drop(talk.near.send(&vec![7; bytes])));
    let mut port = None;
    for bytes in 1..=100 {
        let (n, from) = talk.far.recv_from(&mut [0; 4096]).unwrap();
        assert_eq!(n, bytes);
        port = Some(from);
    }
    assert!(begin.elapsed() >= DELAY);
    assert!(talk.down(port.unwrap(), 50) && begin.elapsed() >= 2 * DELAY);
}

#[test]
fn what_resets_a_connection_makes_a_conversation_vanish_and_the_next_passes() {
    let mut talk = Talk::new();
    let port = talk.up(1).unwrap();
    assert_eq!(talk.wire.suffer(Trouble::Reset(Reach::All)), 1);
    assert!(talk.up(1).is_none() && !talk.down(port, 1));
    talk.near = Talk::near(&talk.wire);
    assert!(talk.up(1).is_some());
    talk.wire.entry(Entry::Silent);
    assert!(talk.up(1).is_some(), "those that there are go on");
    talk.near = Talk::near(&talk.wire);
    assert!(talk.up(1).is_none());
}
