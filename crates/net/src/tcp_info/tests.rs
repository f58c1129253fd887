//! Tests with captured answers of a kernel (Linux 6.18), with truncated, changed and invented
//! answers, and with the running kernel.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use proptest::prelude::*;

use super::message::{self, Answer};
use super::*;

fn connection(local: &str, remote: &str) -> Ends {
    Ends { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The answer to request 7: a connection over loopback that has lost nothing.
const REPLY: &str = "
    98010000 14000000 07000000 57500000 02010000 a732c825 7f000001 00000000 00000000 00000000 7f000001 00000000
    00000000 00000000 00000000 02000000 00000000 00000000 00000000 00000000 00000000 68540000 05000800 00000000
    08000f00 00000000 0c001500 01000000 00000000 06001600 52000000 1c010200 01000000 0007aa01 e01c0300 00000000
    008a0000 18020000 00000000 00000000 00000000 00000000 00000000 08000000 00000000 08000000 08000000 ffff0000
    d7ff0000 1f000000 11000000 ffffff7f 0b000000 cbff0000 03000000 00000000 d7ff0000 00000000 c4157839 06000000
    ffffffff ffffffff e9030000 00000000 00000000 00000000 03000000 02000000 00000000 0a000000 00000000 01000000
    004092d2 00000000 00000000 00000000 00000000 00000000 00000000 00000000 02000000 00000000 e8030000 00000000
    00000000 00000000 00000000 00000000 00000000 00140100 00000100 00000000 00000000 00000000 00000000 00000000
    00000000 00000000 00000000 00000000 00000000 00000000";

/// The answer to request 9: `ENOENT`, followed by the header of the request.
const NO_SUCH: &str = "
    24000000 02000001 09000000 57500000 feffffff 48000000 14000100 09000000 00000000";

const NEAR: &str = "127.0.0.1:42802";
const FAR: &str = "127.0.0.1:51237";

/// The offset of `tcp_info` in [`REPLY`].
const INFO: usize = 88 + 8 + 8 + 12 + 8 + 4;

fn reply(bytes: &[u8]) -> Info {
    let answer = message::answer(bytes, connection(NEAR, FAR), 7);
    let Answer::Reply { cookie: 2, info } = answer else { panic!("{answer:?}") };
    info
}

#[test]
#[cfg(target_endian = "little")]
fn a_question_is_what_the_kernel_expects() {
    let asked = message::question(connection(NEAR, FAR), 7);
    let expected = "
        48000000 14000100 07000000 00000000 02 06 02 00 ffffffff a732 c825
        7f000001 00000000 00000000 00000000 7f000001 00000000 00000000 00000000
        00000000 ffffffff ffffffff";
    assert_eq!(asked[..], unhex(expected)[..]);
    // An IPv6 socket that speaks IPv4.
    let mapped = connection("[::ffff:127.0.0.1]:42802", "[::ffff:127.0.0.1]:51237");
    assert_eq!(message::question(mapped, 7), asked);
    let local: SocketAddr = "[fe80::1%3]:1".parse().unwrap();
    let scoped = Ends { local, remote: "[fe80::2]:2".parse().unwrap() };
    let expected = "
        48000000 14000100 07000000 00000000 0a 06 02 00 ffffffff 0001 0002
        fe800000 00000000 00000000 00000001 fe800000 00000000 00000000 00000002
        03000000 ffffffff ffffffff";
    assert_eq!(message::question(scoped, 7)[..], unhex(expected)[..]);
}

#[test]
#[cfg(target_endian = "little")]
fn an_answer_gives_the_figures_of_this_connection_only() {
    let mut bytes = unhex(REPLY);
    let figures = Info {
        unacked_segments: Some(0),
        last_ack_millis: Some(8),
        acked_bytes: Some(1001), // 1,000 bytes and the SYN
        sent_segments: Some(1),
        retransmitted_segments: Some(0),
        retransmitted_bytes: Some(0),
        lost_segments: Some(0),
        unsent_bytes: Some(0),
        window_segments: Some(11),
        bytes_per_second: Some(3_532_800_000),
        rtt_micros: Some(31),
    };
    assert_eq!(reply(&bytes), figures);
    for (at, value) in [(32, 1_u8), (100, 2), (144, 3), (156, 4), (208, 5)] {
        bytes[INFO + at] = value;
    }
    let figures = Info {
        sent_segments: Some(4),
        retransmitted_segments: Some(2),
        retransmitted_bytes: Some(5),
        lost_segments: Some(1),
        unsent_bytes: Some(3),
        ..figures
    };
    assert_eq!(reply(&bytes), figures);

    let answer = |bytes: &[u8], near, far, n| message::answer(bytes, connection(near, far), n);
    assert_eq!(answer(&bytes, NEAR, FAR, 8), Answer::Strange);
    assert_eq!(answer(&bytes, NEAR, "127.0.0.1:51238", 7), Answer::Nothing);
    assert_eq!(answer(&bytes, "127.0.0.1:42803", FAR, 7), Answer::Nothing);
    assert_eq!(answer(&unhex(NO_SUCH), NEAR, FAR, 9), Answer::Refused(2));
    // A socket that listens where the connection was.
    bytes[17] = 10;
    assert_eq!(answer(&bytes, NEAR, FAR, 7), Answer::Nothing);
}

/// The size of `tcp_info`: 104 bytes in Linux 2.6.37, 136 in 4.2, about 192 in 4.9.
#[test]
#[cfg(target_endian = "little")]
fn what_an_older_kernel_does_not_tell_is_absent_and_not_zero() {
    let cut = |length: usize| {
        let mut bytes = unhex(REPLY);
        bytes.truncate(INFO + length);
        let all = u32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&all.to_ne_bytes());
        bytes[INFO - 4..INFO - 2]
            .copy_from_slice(&u16::try_from(length + 4).unwrap().to_ne_bytes());
        reply(&bytes)
    };
    let oldest = cut(104);
    assert_eq!(oldest.retransmitted_segments, Some(0));
    assert_eq!((oldest.unsent_bytes, oldest.sent_segments), (None, None));
    assert_eq!(cut(148).unsent_bytes, Some(0));
    assert_eq!(cut(147).unsent_bytes, None);
    let older = cut(192);
    assert_eq!((older.sent_segments, older.retransmitted_bytes), (Some(1), None));
    assert_eq!(cut(0), Info::default());
}

proptest! {
    #[test]
    fn no_bytes_do_any_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600), n in any::<u32>()) {
        let _ = message::answer(&bytes, connection(NEAR, FAR), n);
    }

    #[test]
    fn no_answer_that_was_tampered_with_does_any_harm(
        changes in proptest::collection::vec((0..408_usize, any::<u8>()), 0..8),
        length in 0..=408_usize,
    ) {
        let mut bytes = unhex(REPLY);
        for (at, value) in changes {
            bytes[at] = value;
        }
        let _ = message::answer(&bytes[..length], connection(NEAR, FAR), 7);
    }
}

fn pair() -> (TcpStream, TcpStream) {
    between("127.0.0.1:0", Ipv4Addr::LOCALHOST.into()).unwrap()
}

fn between(listen: &str, to: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(listen)?;
    let near = TcpStream::connect((to, listener.local_addr()?.port()))?;
    Ok((near, listener.accept()?.0))
}

#[test]
fn connections_of_ipv6_are_found_and_those_of_ipv4_at_a_socket_of_ipv6() {
    let mut kernel = Kernel::open().unwrap();
    let (near, _far) = pair();
    if kernel.ask(ends(&near)).unwrap().is_none() {
        return; // a kernel without tcp_diag
    }
    let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    for (listen, to) in [("[::1]:0", v6), ("[::]:0", v6), ("[::]:0", v4)] {
        let Ok((near, far)) = between(listen, to) else {
            continue; // a machine without IPv6
        };
        let cookies = [&near, &far].map(|end| kernel.ask(ends(end)).unwrap().unwrap().0);
        assert_ne!(cookies[0], cookies[1], "{listen} {to}");
    }
}

fn ends(stream: &TcpStream) -> Ends {
    Ends { local: stream.local_addr().unwrap(), remote: stream.peer_addr().unwrap() }
}

#[test]
fn bytes_that_a_far_end_does_not_take_are_told_and_its_answers_to_probes_as_well() {
    let (mut near, _far) = pair();
    let mut kernel = Kernel::open().unwrap();
    let Some((_, idle)) = kernel.ask(ends(&near)).unwrap() else {
        return; // a kernel without tcp_diag
    };
    assert_eq!((idle.unacked_segments, idle.unsent_bytes), (Some(0), Some(0)));
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65_536]).is_ok() {}
    let (_, full) = kernel.ask(ends(&near)).unwrap().unwrap();
    assert!(full.unsent_bytes > Some(0), "{full:?}");
    assert!(full.last_ack_millis < Some(10_000), "{full:?}");
}
