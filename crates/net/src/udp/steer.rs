//! Steers each datagram to the worker that its connection id names, regardless of its source
//! address. So a client keeps its connection when a NAT assigns it another port.
//!
//! By default the kernel chooses by a hash of the addresses: with four sockets, three of four
//! connections were lost after an address change. A classic BPF program returns the index of the
//! socket instead (`SO_ATTACH_REUSEPORT_CBPF`, Linux 4.5). The program sees only the UDP payload.

use std::io;
use std::net::UdpSocket;

use nix::libc::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_B, BPF_DIV, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET,
    BPF_K, BPF_LD, BPF_LEN, BPF_MISC, BPF_MOD, BPF_RET, BPF_TAX, BPF_TXA, BPF_W, sock_filter,
    sock_fprog,
};
use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};

/// The highest bit of the first byte: a long header (RFC 8999 section 5.1).
const LONG: u32 = 0x80;
/// The offset of the id in a long header, after the flags, the version (4 bytes) and the id length.
const ID_OF_LONG: u32 = 6;
/// The offset of the id in a short header, after the flags.
const ID_OF_SHORT: u32 = 1;
/// No socket has this index; the kernel then chooses by its hash.
const NOBODY: u32 = u32::MAX;

/// The length of the ids of a server. A client chooses a longer id for its first packets.
const ID_LENGTH: u32 = 8;
/// The offset of the id length in a long header.
const LENGTH_OF_LONG: u32 = 5;
/// The fixed bit, which is set in the first byte of QUIC short headers but not of STUN (RFC 9443).
const FIXED: u32 = 0x40;
/// The first byte of a Hello of `kcp://`: the client has chosen the id that follows.
const HELLO: u32 = 0x40;

/// How a datagram identifies its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By the connection id of QUIC (RFC 9000 section 17).
    Quic,
    /// By the eight bytes after the first byte, for packets of `kcp://`.
    Kcp,
}

/// The steering of the datagrams of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steered<'a> {
    pub(super) form: Form,
    /// The number of sockets of a slot.
    pub(super) workers: usize,
    /// The slots in the order of the sockets in the group.
    pub(super) slots: &'a [u8],
    /// The slots whose ids are in use.
    pub(super) live: &'a [u8],
    /// The slot of new clients, and of ids that are not in use.
    pub(super) serving: u8,
}

impl Steered<'_> {
    /// The index of the first socket of a slot.
    fn base(&self, slot: u8) -> u32 {
        let nth = self.slots.iter().position(|one| *one == slot).unwrap_or(0);
        u32::try_from(nth * self.workers).unwrap_or(0)
    }

    /// Jump offsets count from the next instruction. A load beyond the end would return 0, which is
    /// the index of a socket, so the program checks the length first. The byte is taken modulo the
    /// number of workers: ids of the server name a socket by a byte of its slot, but the client
    /// chooses the first id of a connection.
    fn program(&self) -> Vec<sock_filter> {
        let workers = u32::try_from(self.workers).unwrap_or(1).max(1);
        let mapped = self.live.iter().filter(|slot| self.slots.contains(slot));
        let mapped: Vec<(u32, u32)> =
            mapped.map(|slot| (u32::from(*slot), self.base(*slot))).collect();
        let serving = self.base(self.serving);
        let nobody = if self.slots.len() > 1 { serving } else { NOBODY };
        let byte_at = |at| step(BPF_LD | BPF_B | BPF_ABS, at);
        let to_worker = |base| {
            [
                step(BPF_ALU | BPF_MOD | BPF_K, workers),
                step(BPF_ALU | BPF_ADD | BPF_K, base),
                step(BPF_RET | BPF_A, 0),
            ]
        };
        let begin = match self.form {
            Form::Quic => 16,
            Form::Kcp => 9,
        };
        // Each slot takes five instructions, with two before the slots and one after them.
        let new = begin + 2 + 5 * u32::try_from(mapped.len()).unwrap_or(0) + 1;
        let goto = |here: u32, there: u32| step(BPF_JMP | BPF_JA, there - here - 1);
        let mut all = vec![
            /* 0 */ step(BPF_LD | BPF_W | BPF_LEN, 0),
            /* 1 */
            jump(BPF_JMP | BPF_JGE | BPF_K, ID_OF_LONG + 1, 1, 0), // long enough: to 3
            /* 2 */ step(BPF_RET | BPF_K, nobody),
            /* 3 */ byte_at(0),
        ];
        match self.form {
            Form::Quic => all.extend([
                /* 4 */
                jump(BPF_JMP | BPF_JSET | BPF_K, LONG, 0, 2), // a short header: to 7
                /* 5 */ byte_at(LENGTH_OF_LONG),
                /* 6 */
                jump(BPF_JMP | BPF_JEQ | BPF_K, ID_LENGTH, 3, 5), // to 10, to 12
                /* 7 */ jump(BPF_JMP | BPF_JSET | BPF_K, FIXED, 0, 6), // STUN: to 14
                /* 8 */ byte_at(ID_OF_SHORT),
                /* 9 */ goto(9, begin),
                /* 10 */ byte_at(ID_OF_LONG),
                /* 11 */ goto(11, begin),
                /* 12 */ byte_at(ID_OF_LONG),
                /* 13 */ goto(13, new),
                /* 14 */ byte_at(ID_OF_SHORT),
                /* 15 */ goto(15, new),
            ]),
            Form::Kcp => all.extend([
                /* 4 */ jump(BPF_JMP | BPF_JEQ | BPF_K, HELLO, 2, 0), // to 7
                /* 5 */ byte_at(ID_OF_SHORT),
                /* 6 */ goto(6, begin),
                /* 7 */ byte_at(ID_OF_SHORT),
                /* 8 */ goto(8, new),
            ]),
        }
        all.extend([
            step(BPF_MISC | BPF_TAX, 0),
            step(BPF_ALU | BPF_DIV | BPF_K, workers), // the slot
        ]);
        for (slot, base) in mapped {
            all.push(jump(BPF_JMP | BPF_JEQ | BPF_K, slot, 0, 4)); // to the next slot
            all.push(step(BPF_MISC | BPF_TXA, 0));
            all.extend(to_worker(base));
        }
        all.push(step(BPF_MISC | BPF_TXA, 0));
        all.extend(to_worker(serving));
        all
    }
}

/// Steers datagrams among the sockets of the group of `member`.
pub(super) fn steer(member: &UdpSocket, steered: &Steered<'_>) -> io::Result<()> {
    attach(member, &mut steered.program())
}

/// Replaces the program of the group of `member`.
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
    /// Ports that an address hash would spread.
    const CLIENTS: u8 = 64;

    fn short(id: u8) -> Vec<u8> {
        [&[0x43, id][..], &[0xAA; 30]].concat()
    }

    fn long(id: u8) -> Vec<u8> {
        [&[0xC3, 0, 0, 0, 1, 8, id][..], &[0xAA; 30]].concat()
    }

    /// The sockets that received the sent datagrams, one client each. Loopback delivers within the
    /// send call.
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
