//! The program that the kernel runs for each datagram of a group of sockets: classic BPF
//! (`SO_ATTACH_REUSEPORT_CBPF`), which returns the index of a socket.
//!
//! ```text
//!   version ──4──> hash of the address ──┐
//!           ──6──> hash of the address ──┴──> mix with the port ──> decision tree over the buckets
//! ```
//!
//! The program sees the UDP payload, and through `SKF_NET_OFF` the packet from its IP header on. A
//! dual-stack socket receives packets of both families.

use nix::libc::{
    BPF_ABS, BPF_ALU, BPF_B, BPF_H, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD,
    BPF_LDX, BPF_MEM, BPF_MISC, BPF_MSH, BPF_MUL, BPF_RET, BPF_RSH, BPF_ST, BPF_TAX, BPF_W, BPF_X,
    BPF_XOR, SKF_NET_OFF, sock_filter,
};

use super::Buckets;
use super::buckets::{FINISH, SHIFT, SPREAD};
use crate::udp::steer::{jump, step};

/// The offset of the IP header in a load instruction.
const IP: u32 = SKF_NET_OFF as u32;

/// Offset of the source address: RFC 791 section 3.1, RFC 8200 section 3.
const SOURCE_OF_V4: u32 = 12;
const SOURCE_OF_V6: u32 = 8;

/// The length of the IPv6 header, in bytes; the source port is the first field of UDP (RFC 768).
const HEAD_OF_V6: u32 = 40;

/// No socket has this index; the kernel then chooses by its own hash.
const NOBODY: u32 = u32::MAX;

/// The program for an assignment.
pub(super) fn program(buckets: &Buckets) -> Vec<sock_filter> {
    let v4 = hash_of_v4();
    let v6 = hash_of_v6();
    let over_v6 = v6.len() as u32;
    let mut all = vec![
        step(BPF_LD | BPF_B | BPF_ABS, IP),
        step(BPF_ALU | BPF_RSH | BPF_K, 4),
        jump(BPF_JMP | BPF_JEQ | BPF_K, 4, 2, 0), // over the next two: IPv4
        // After this and the return: IPv4, and its final jump.
        jump(BPF_JMP | BPF_JEQ | BPF_K, 6, 2 + v4.len() as u8, 0),
        step(BPF_RET | BPF_K, NOBODY),
    ];
    all.extend(v4);
    all.push(step(BPF_JMP | BPF_JA, over_v6));
    all.extend(v6);
    all.extend([
        step(BPF_ALU | BPF_XOR | BPF_X, 0),
        step(BPF_ALU | BPF_MUL | BPF_K, FINISH),
        step(BPF_ALU | BPF_RSH | BPF_K, SHIFT),
    ]);
    decide(&buckets.runs(), &mut all);
    all
}

/// Leaves the hash of the address in X and the source port in A. The header may have options, so
/// its length is loaded.
fn hash_of_v4() -> [sock_filter; 6] {
    [
        step(BPF_LD | BPF_W | BPF_ABS, IP + SOURCE_OF_V4),
        step(BPF_ALU | BPF_MUL | BPF_K, SPREAD),
        step(BPF_ST, 0),
        step(BPF_LDX | BPF_B | BPF_MSH, IP),
        step(BPF_LD | BPF_H | BPF_IND, IP),
        step(BPF_LDX | BPF_W | BPF_MEM, 0),
    ]
}

/// As [`hash_of_v4`], for the fixed header only.
fn hash_of_v6() -> Vec<sock_filter> {
    let mut steps = Vec::new();
    for word in 0..4 {
        steps.push(step(BPF_LD | BPF_W | BPF_ABS, IP + SOURCE_OF_V6 + 4 * word));
        if word > 0 {
            steps.push(step(BPF_ALU | BPF_XOR | BPF_X, 0));
        }
        steps.push(step(BPF_ALU | BPF_MUL | BPF_K, SPREAD));
        steps.push(step(BPF_MISC | BPF_TAX, 0));
    }
    steps.push(step(BPF_LD | BPF_H | BPF_ABS, IP + HEAD_OF_V6));
    steps
}

/// Returns the worker of the bucket in A, by bisection of the runs. A tree of 64 runs has 127
/// instructions, so a jump over its left half fits into a byte.
fn decide(runs: &[(usize, u8)], all: &mut Vec<sock_filter>) {
    match runs {
        [] => all.push(step(BPF_RET | BPF_K, NOBODY)),
        [(_, worker)] => all.push(step(BPF_RET | BPF_K, u32::from(*worker))),
        _ => {
            let (left, right) = runs.split_at(runs.len() / 2);
            let first_right = right.first().map_or(0, |&(bucket, _)| bucket as u32);
            let over_left = (2 * left.len() - 1) as u8;
            all.push(jump(BPF_JMP | BPF_JGE | BPF_K, first_right, over_left, 0));
            decide(left, all);
            decide(right, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::BUCKETS;
    use super::*;

    #[test]
    fn the_largest_program_is_as_long_as_its_jumps_allow() {
        let all = program(&Buckets::even(2));
        assert_eq!(all.len(), 5 + 6 + 1 + 16 + 3 + 2 * BUCKETS - 1);
    }
}
