//! The worker of each peer of a UDP port. Only the workers with a link of the port's session can
//! use a datagram, and an existing flow stays on one worker. The kernel therefore chooses the
//! socket by a hash of the peer's address and port:
//!
//! ```text
//!   peer ──bucket_of──> one of 64 buckets ──Buckets──> worker = index of the socket in its group
//!          (program.rs: the same in the kernel)
//! ```
//!
//! [`Buckets`] is the assignment, a plain value. [`Steering`] holds it for one port, counts the
//! live flows of each bucket, and attaches a new program when the assignment changes.

mod buckets;
mod program;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

pub use buckets::{BUCKETS, Buckets, bucket_of};

use super::steer::attach;

/// A UDP port for flows: a socket for each worker, and the steering among them.
#[derive(Debug)]
pub struct FlowGroup {
    /// The sockets by worker index. They must be closed together: when a socket of a group closes,
    /// the last socket takes its index.
    pub sockets: Vec<UdpSocket>,
    /// The steering, shared by the workers.
    pub steering: Arc<Steering>,
}

/// Creates `count` non-blocking sockets on `address`, as [`super::udp_group`] does, and spreads the
/// peers evenly over all of them. If the kernel cannot steer, a warning is logged, and peers may
/// reach workers without a link.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`]: another socket has the port. [`io::ErrorKind::InvalidInput`]:
/// `count` exceeds [`super::MAX_GROUP`].
pub fn flow_group(address: SocketAddr, count: usize) -> io::Result<FlowGroup> {
    let sockets = super::share(address, count)?;
    crate::handover::note(&sockets);
    let steering = Steering::of(&sockets)?;
    if let Err(error) = steering.attach(&steering.lock()) {
        tracing::warn!(
            %error, %address,
            "the kernel does not steer the datagrams of {address} to workers by their sender: {error}; \
             give every worker a link (connections)"
        );
    }
    Ok(FlowGroup { sockets, steering: Arc::new(steering) })
}

/// The assignment of the peers of one port to its workers, and the number of live flows.
#[derive(Debug)]
pub struct Steering {
    state: Mutex<State>,
    live: [AtomicU32; BUCKETS],
    begun: Instant,
    /// The time, in milliseconds since `begun`, from which on no datagram that came before the last
    /// move of a bucket waits in a socket.
    settled: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// A duplicate descriptor of a socket of the group. `None`: the group has one socket, or the
    /// port is closed.
    member: Option<UdpSocket>,
    buckets: Buckets,
    /// The buckets that have moved and are not settled.
    moved: [bool; BUCKETS],
}

/// The longest time, in milliseconds, that a datagram waits in the socket of a worker.
const SETTLES: u64 = 5_000;

impl Steering {
    fn of(sockets: &[UdpSocket]) -> io::Result<Self> {
        let member = match sockets {
            [first, _, ..] => Some(first.try_clone()?),
            [] | [_] => None,
        };
        let buckets = Buckets::even(sockets.len());
        let live = [const { AtomicU32::new(0) }; BUCKETS];
        let state = Mutex::new(State { member, buckets, moved: [false; BUCKETS] });
        Ok(Self { state, live, begun: Instant::now(), settled: AtomicU64::new(0) })
    }

    /// Assigns the peers to the workers in `usable`, as [`Buckets::assign`] does. Workers without a
    /// socket of the port are ignored. A peer can open a flow on its new worker at once; the old
    /// worker ends the old flow when it is idle.
    ///
    /// Must be called when a worker gets or loses its links of the session, and periodically:
    /// buckets whose flows have ended can then move to workers with few buckets.
    ///
    /// # Errors
    /// The kernel refused the program; the assignment is unchanged.
    pub fn assign(&self, usable: &[usize]) -> io::Result<()> {
        let mut state = self.lock();
        // A flow that begins from now on sees this time, or its count is seen below.
        let now = self.now();
        let settled = self.settled.swap(now + SETTLES, Ordering::SeqCst);
        let live = std::array::from_fn(|bucket| self.live(bucket));
        let mut next = state.buckets.clone();
        if !next.assign(usable, &live) {
            self.settled.store(settled, Ordering::SeqCst);
            return Ok(());
        }
        let before = std::mem::replace(&mut state.buckets, next);
        if let Err(error) = self.attach(&state) {
            state.buckets = before;
            self.settled.store(settled, Ordering::SeqCst);
            return Err(error);
        }
        if settled <= now {
            state.moved = [false; BUCKETS];
        }
        for bucket in 0..BUCKETS {
            state.moved[bucket] |= state.buckets.worker(bucket) != before.worker(bucket);
        }
        Ok(())
    }

    /// The assignment in force.
    #[must_use]
    pub fn buckets(&self) -> Buckets {
        self.lock().buckets.clone()
    }

    /// The number of live flows of a bucket, on all workers.
    #[must_use]
    pub fn live(&self, bucket: usize) -> u32 {
        self.live.get(bucket).map_or(0, |live| live.load(Ordering::SeqCst))
    }

    /// Records that a flow of `peer` begins on a worker. False: the bucket of the peer has just
    /// moved to another worker, and nothing is recorded. The datagram has waited in the socket of
    /// the former worker meanwhile. A flow on that worker would get no later datagram, and a target
    /// would see the peer at two addresses.
    ///
    /// Later a worker takes what the kernel gives it: the kernel may have another assignment, of
    /// another process at the port, or take other bytes for the port ([`bucket_of`]).
    #[must_use]
    pub fn enter(&self, peer: SocketAddr, worker: usize) -> bool {
        let bucket = bucket_of(peer);
        let Some(live) = self.live.get(bucket) else { return true };
        live.fetch_add(1, Ordering::SeqCst);
        let is_left = self.now() < self.settled.load(Ordering::SeqCst) && {
            let state = self.lock();
            state.moved.get(bucket) == Some(&true) && state.buckets.worker(bucket) != worker
        };
        if is_left {
            live.fetch_sub(1, Ordering::SeqCst);
        }
        !is_left
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Records that a flow of `peer` has ended.
    pub fn leave(&self, peer: SocketAddr) {
        if let Some(live) = self.live.get(bucket_of(peer)) {
            live.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Closes the descriptor of the port, so that the port is free when the sockets of the workers
    /// are closed. Later calls of [`Self::assign`] change nothing in the kernel.
    pub fn close(&self) {
        self.lock().member = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn attach(&self, state: &State) -> io::Result<()> {
        match &state.member {
            Some(member) => attach(member, &mut program::program(&state.buckets)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::*;

    /// The socket that receives the datagrams of `visitor`. Loopback delivers within the send call.
    fn receiver(group: &FlowGroup, visitor: &UdpSocket, to: SocketAddr) -> usize {
        visitor.send_to(b"x", to).unwrap();
        let got: Vec<usize> = (0..group.sockets.len())
            .filter(|&index| group.sockets[index].recv(&mut [0; 8]).is_ok())
            .collect();
        assert_eq!(got.len(), 1, "one socket got it");
        got[0]
    }

    /// Sends from many ports of `from` and compares the socket that received each datagram with the
    /// bucket's worker, under several assignments.
    fn check(bind: &str, from: IpAddr) {
        let Ok(group) = flow_group(bind.parse().unwrap(), 4) else {
            return println!("no {bind} on this machine");
        };
        let to = SocketAddr::new(from, group.sockets[0].local_addr().unwrap().port());
        for usable in [&[0, 1, 2, 3][..], &[2], &[0, 3], &[1, 2, 3]] {
            group.steering.assign(usable).unwrap();
            let buckets = group.steering.buckets();
            let mut met = [false; BUCKETS];
            for _ in 0..200 {
                let visitor = UdpSocket::bind((from, 0)).unwrap();
                let bucket = bucket_of(visitor.local_addr().unwrap());
                met[bucket] = true;
                assert_eq!(receiver(&group, &visitor, to), buckets.worker(bucket), "{bind} {from}");
                assert!(usable.contains(&buckets.worker(bucket)));
            }
            assert!(met.iter().filter(|&&met| met).count() > BUCKETS / 2, "ports are spread");
        }
    }

    #[test]
    fn the_kernel_chooses_the_worker_that_the_bucket_names() {
        check("127.0.0.1:0", Ipv4Addr::LOCALHOST.into());
        check("0.0.0.0:0", Ipv4Addr::new(127, 3, 2, 1).into());
        check("[::1]:0", Ipv6Addr::LOCALHOST.into());
        check("[::]:0", Ipv6Addr::LOCALHOST.into());
        check("[::]:0", Ipv4Addr::new(127, 0, 0, 9).into());
    }

    #[test]
    fn datagrams_of_all_lengths_go_the_same_way() {
        let group = flow_group("127.0.0.1:0".parse().unwrap(), 4).unwrap();
        let to = group.sockets[0].local_addr().unwrap();
        let visitor = UdpSocket::bind("127.0.0.1:0").unwrap();
        let worker = group.steering.buckets().worker(bucket_of(visitor.local_addr().unwrap()));
        for length in [0, 1, 1_400, 9_000, 65_507] {
            visitor.send_to(&vec![0; length], to).unwrap();
            assert_eq!(group.sockets[worker].recv(&mut vec![0; 65_507]).unwrap(), length);
        }
    }

    #[test]
    fn a_bucket_with_flows_keeps_its_worker_and_an_empty_one_moves() {
        let group = flow_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let steering = &group.steering;
        steering.assign(&[0]).unwrap();
        let peer: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        assert!(steering.enter(peer, 0));
        assert_eq!(steering.live(bucket_of(peer)), 1);
        steering.assign(&[0, 1]).unwrap();
        let buckets = steering.buckets();
        assert_eq!(buckets.worker(bucket_of(peer)), 0);
        assert_eq!((0..BUCKETS).filter(|&bucket| buckets.worker(bucket) == 1).count(), 32);
        steering.leave(peer);
        assert_eq!(steering.live(bucket_of(peer)), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_former_worker_begins_no_flow_until_a_move_is_settled() {
        let group = flow_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let steering = &group.steering;
        let peers = (1..200).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let of = |worker: usize| {
            let buckets = steering.buckets();
            peers.clone().find(|peer| buckets.worker(bucket_of(*peer)) == worker).unwrap()
        };
        let moves = of(1);
        // Before a move, a worker takes what the kernel gives it.
        assert!(steering.enter(moves, 0));
        steering.leave(moves);
        steering.assign(&[0]).unwrap();
        assert!(!steering.enter(moves, 1));
        assert_eq!(steering.live(bucket_of(moves)), 0);
        let stays = peers.clone().find(|peer| bucket_of(*peer).is_multiple_of(2)).unwrap();
        assert!(steering.enter(stays, 1), "this bucket has not moved");
        // An assignment without a move takes nothing back.
        steering.assign(&[0]).unwrap();
        assert!(!steering.enter(moves, 1) && steering.enter(moves, 0));
        tokio::time::advance(std::time::Duration::from_millis(SETTLES)).await;
        assert!(steering.enter(moves, 1));
    }

    #[test]
    fn a_closed_port_is_free_and_its_steering_harmless() {
        let FlowGroup { sockets, steering } =
            flow_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        let address = sockets[0].local_addr().unwrap();
        assert_eq!(flow_group(address, 2).unwrap_err().kind(), ErrorKind::AddrInUse);
        steering.close();
        drop(sockets);
        steering.assign(&[1]).unwrap();
        flow_group(address, 2).unwrap();
    }

    #[test]
    fn one_worker_needs_no_program() {
        let group = flow_group("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        group.steering.assign(&[0]).unwrap();
        group.steering.assign(&[]).unwrap();
        let visitor = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(group.steering.enter(visitor.local_addr().unwrap(), 0));
        assert_eq!(receiver(&group, &visitor, group.sockets[0].local_addr().unwrap()), 0);
    }
}
