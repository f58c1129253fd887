//! Limits the number of sockets to the targets of flows in this process.
//!
//! Each socket takes one of the descriptors that visitors and targets share ([`Room`]), and a local
//! port that no other UDP socket of the machine can use meanwhile (ip(7), `ip_local_port_range`),
//! so a part of both is reserved for connections, name resolution and QUIC. Anybody can begin a
//! flow, even with a spoofed address, so flows without an answer from the target may use only a
//! part of the rest.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;

use crate::Room;

/// Three quarters of the default ephemeral ports of Linux, 32,768 to 60,999. The machine's setting
/// is in a file that the systemd units hide; where the range is smaller, the system refuses a
/// socket and the flow is refused.
const PORTS: u32 = 28_232 / 4 * 3;

/// The number of sockets to targets in this process; [`PENDING`] counts those without an answer.
static LIVE: AtomicU32 = AtomicU32::new(0);
static PENDING: AtomicU32 = AtomicU32::new(0);

/// The permit for one socket. Dropping it returns the permit.
#[derive(Debug)]
pub(super) struct Port {
    is_pending: Cell<bool>,
}

/// The maximum number of sockets of all flows, and of flows without an answer. A quarter of the
/// descriptors is reserved for connections.
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
    /// The limit of descriptors (EMFILE) or of ports (EAGAIN, as from connect(2) of a UDP socket)
    /// is reached.
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

    /// Records that the target has answered.
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
