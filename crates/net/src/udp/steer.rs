//! Each datagram goes to the worker that its connection id names, from whatever address it comes. A
//! client keeps its connection when a NAT gives it another port.
//!
//! By default the kernel chooses by a hash of the addresses: with four sockets, three of four
//! connections were lost after a change of address. A program of classic BPF returns the index of
//! the socket instead (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.5). The program sees the payload of UDP
//! alone.

use std::io;
use std::net::UdpSocket;

use nix::libc::{
    BPF_A, BPF_ABS, BPF_ALU, BPF_B, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LEN, BPF_MOD,
    BPF_RET, BPF_W, sock_filter, sock_fprog,
};
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};

/// The highest bit of the first byte: a long header (RFC 8999 section 5.1).
const LONG: u32 = 0x80;
/// Offset of the first byte of the id in a long header: flags, four bytes of version, length of the
/// id.
const ID_OF_LONG: u32 = 6;
/// Offset of the first byte of the id in a short header: flags.
const ID_OF_SHORT: u32 = 1;
/// No socket has this index; the kernel then chooses by its hash.
const NOBODY: u32 = u32::MAX;

/// Jumps count from the next instruction. A load beyond the end would return 0, which is the index
/// of a worker, so the program checks the length first. The byte counts modulo the number of
/// workers: ids of the server name a worker by a smaller number, but the client chooses the first
/// id of a connection.
const fn program(workers: u32) -> [sock_filter; 11] {
    [
        /* 0 */ step(BPF_LD | BPF_W | BPF_LEN, 0),
        /* 1 */
        jump(BPF_JMP | BPF_JGE | BPF_K, ID_OF_LONG + 1, 1, 0), // long enough: to 3
        /* 2 */ step(BPF_RET | BPF_K, NOBODY),
        /* 3 */ step(BPF_LD | BPF_B | BPF_ABS, 0),
        /* 4 */ jump(BPF_JMP | BPF_JSET | BPF_K, LONG, 0, 3), // a short header: to 8
        /* 5 */ step(BPF_LD | BPF_B | BPF_ABS, ID_OF_LONG),
        /* 6 */ step(BPF_ALU | BPF_MOD | BPF_K, workers),
        /* 7 */ step(BPF_RET | BPF_A, 0),
        /* 8 */ step(BPF_LD | BPF_B | BPF_ABS, ID_OF_SHORT),
        /* 9 */ step(BPF_ALU | BPF_MOD | BPF_K, workers),
        /* 10 */ step(BPF_RET | BPF_A, 0),
    ]
}

/// Steers datagrams among the group of `workers` sockets that `member` belongs to.
pub(super) fn steer(member: &UdpSocket, workers: u32) -> io::Result<()> {
    attach(member, &mut program(workers))
}

/// Replaces the program of the group that `member` belongs to.
pub(super) fn attach(member: &UdpSocket, program: &mut [sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let described = sock_fprog { len, filter: program.as_mut_ptr() };
    setsockopt(member, AttachReusePortCbpf, &described).map_err(io::Error::from)
}

pub(super) const fn step(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

pub(super) const fn jump(code: u32, k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: code as u16, jt: yes, jf: no, k }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

    use super::super::udp_group;

    const WORKERS: usize = 4;
    /// Ports that the hash of addresses would spread.
    const CLIENTS: u8 = 64;

    fn short(id: u8) -> Vec<u8> {
        [&[0x43, id][..], &[0xAA; 30]].concat()
    }

    fn long(id: u8) -> Vec<u8> {
        [&[0xC3, 0, 0, 0, 1, 8, id][..], &[0xAA; 30]].concat()
    }

    /// Which sockets got what was sent, one client each. Loopback delivers within the call that
    /// sends.
    fn arrived(localhost: std::net::IpAddr, datagrams: &[Vec<u8>]) -> Option<Vec<usize>> {
        let group = udp_group(SocketAddr::from((localhost, 0)), WORKERS).ok()?;
        let to = group[0].local_addr().unwrap();
        let receiver = |sent: &Vec<u8>| {
            let client = std::net::UdpSocket::bind((localhost, 0)).unwrap();
            client.send_to(sent, to).unwrap();
            let mut got: Vec<usize> = (0..WORKERS)
                .filter(|&index| group[index].recv(&mut [0; 64]).is_ok_and(|n| n == sent.len()))
                .collect();
            assert_eq!(got.len(), 1, "one socket got it");
            got.remove(0)
        };
        Some(datagrams.iter().map(receiver).collect())
    }

    fn localhosts() -> [std::net::IpAddr; 2] {
        [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
    }

    #[test]
    fn a_datagram_arrives_at_the_socket_that_its_id_names() {
        for localhost in localhosts() {
            for header in [short, long] {
                let datagrams: Vec<_> =
                    (0..CLIENTS).map(|client| header(client.wrapping_mul(37))).collect();
                let Some(got) = arrived(localhost, &datagrams) else { continue };
                let named: Vec<_> =
                    (0..CLIENTS).map(|c| usize::from(c.wrapping_mul(37)) % WORKERS).collect();
                assert_eq!(got, named, "{localhost}");
            }
        }
    }

    #[test]
    fn a_datagram_without_an_id_goes_where_its_address_says() {
        for localhost in localhosts() {
            for datagram in [vec![0x43, 0], vec![], vec![0x43, 1, 0, 0, 0, 0]] {
                let datagrams = vec![datagram; CLIENTS.into()];
                let Some(got) = arrived(localhost, &datagrams) else { continue };
                let spread = BTreeSet::from_iter(got);
                assert_eq!(spread.len(), WORKERS, "{localhost}, {:?}", datagrams[0]);
            }
        }
    }
}
