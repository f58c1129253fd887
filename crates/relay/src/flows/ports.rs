//! How many sockets the targets of flows may have in this process.
//!
//! Each socket takes a descriptor of those that visitors and targets share ([`Room`]), and a local
//! port that no other UDP socket of the machine can have meanwhile (ip(7), `ip_local_port_range`),
//! so connections, the lookups of names and QUIC need a part of them. Anybody can begin a flow,
//! also with a forged address, so the flows that their targets have not answered have a part of
//! that part.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::Room;

/// Three quarters of the ports that Linux has by default, 32,768 to 60,999. The setting of the
/// machine is in a file that the units for systemd hide; where it is smaller, the system refuses a
/// socket, which is a flow that is refused.
const PORTS: u32 = 28_232 / 4 * 3;

/// The sockets of this process, and those that the target has not answered.
static LIVE: AtomicU32 = AtomicU32::new(0);
static PENDING: AtomicU32 = AtomicU32::new(0);

/// The right to one socket. Dropping it returns the right.
#[derive(Debug)]
pub(super) struct Port {
    is_pending: Cell<bool>,
}

/// The sockets that all flows may have, and those that flows without an answer may have. A quarter
/// of the descriptors is out of their reach, for connections.
fn shares(room: Room) -> [u32; 2] {
    let room = room.ceiling();
    let most = PORTS.min(room - room / 4);
    [most, most.min(room / 2)]
}

fn take(count: &AtomicU32, most: u32) -> bool {
    let next = |live: u32| (live < most).then_some(live + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
}

impl Port {
    /// # Errors
    /// The targets of flows have as many sockets as they may have: of descriptors (EMFILE) or of
    /// ports (EAGAIN, as connect(2) of a socket of UDP says).
    pub(super) fn take(room: Room) -> Result<Self, Errno> {
        let [most, most_pending] = shares(room);
        let lack = if most < PORTS { Errno::MFILE } else { Errno::AGAIN };
        if !take(&PENDING, most_pending) {
            return Err(lack);
        }
        if !take(&LIVE, most) {
            PENDING.fetch_sub(1, Ordering::Relaxed);
            return Err(lack);
        }
        Ok(Self { is_pending: Cell::new(true) })
    }

    /// The target has answered.
    pub(super) fn answered(&self) {
        if self.is_pending.replace(false) {
            PENDING.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.answered();
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_leave_a_quarter_and_unanswered_ones_a_half() {
        for (room, expected) in
            [(960, [720, 480]), (18_976, [14_232, 9_488]), (1 << 20, [PORTS, PORTS]), (3, [3, 1])]
        {
            assert_eq!(shares(Room::below(room, room)), expected, "{room}");
        }
        assert_eq!(shares(Room::default()), [PORTS, PORTS]);
    }

    #[test]
    fn a_socket_comes_back_and_an_answer_makes_room_for_the_unanswered() {
        let room = Room::below(8, 8);
        let take = || Port::take(room).ok();
        let mut all: Vec<_> = std::iter::from_fn(take).collect();
        assert_eq!(all.len(), 4);
        all[0].answered();
        all[0].answered();
        all.extend(take());
        assert!(take().is_none());
        all.iter().for_each(Port::answered);
        all.extend(take());
        assert_eq!(all.len(), 6);
        all.iter().for_each(Port::answered);
        assert!(take().is_none(), "three quarters");
        all.pop();
        assert!(take().is_some());
    }
}
