//! The part of the descriptor table that visitors and targets may use. The rest is reserved for
//! connections between client and server, the control socket, name resolution and files.
//!
//! A new descriptor gets the lowest free number (open(2)). The number of a visitor's socket
//! therefore shows how full the table is, and the check costs no system call.
//!
//! ```text
//!   0 ............................... ceiling ............ wall ............ limit
//!     visitors and targets            | one each           | no unauthenticated
//!                                     | per accept loop    | connections
//! ```

use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// The descriptor numbers that sockets of visitors and targets may have. The default has no limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    ceiling: RawFd,
    wall: RawFd,
}

impl Default for Room {
    fn default() -> Self {
        Self { ceiling: RawFd::MAX, wall: RawFd::MAX }
    }
}

/// The position of a socket's descriptor number relative to the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The table has room for more sockets.
    Inside,
    /// The socket is the last one for now.
    Last,
    /// The table has no room for the socket.
    Beyond,
}

impl Room {
    /// Limits descriptor numbers to values below `ceiling`. Each accept loop may exceed the ceiling
    /// by one socket, whose number must be below `wall`.
    #[must_use]
    pub fn below(ceiling: u32, wall: u32) -> Self {
        let number = |n| RawFd::try_from(n).unwrap_or(RawFd::MAX);
        Self { ceiling: number(ceiling), wall: number(wall.max(ceiling)) }
    }

    /// The number of descriptors below the ceiling.
    pub(crate) fn ceiling(self) -> u32 {
        u32::try_from(self.ceiling).unwrap_or(0)
    }

    /// Whether the descriptor number of this socket is below the ceiling.
    #[must_use]
    pub fn holds(self, socket: &impl AsFd) -> bool {
        self.place(socket) == Position::Inside
    }

    pub(crate) fn place(self, socket: &impl AsFd) -> Position {
        match socket.as_fd().as_raw_fd() {
            number if number < self.ceiling => Position::Inside,
            number if number < self.wall => Position::Last,
            _ => Position::Beyond,
        }
    }

    /// Whether a descriptor number below the ceiling is free. The check costs two system calls, so
    /// only loops that wait already and rare events use it.
    #[must_use]
    pub fn is_there(self) -> bool {
        eventfd(0, EventfdFlags::CLOEXEC).is_ok_and(|probe| self.place(&probe) == Position::Inside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_how_full_the_table_is() {
        let probe = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let number = u32::try_from(probe.as_raw_fd()).unwrap();
        assert_eq!(Room::default().place(&probe), Position::Inside);
        assert_eq!(Room::below(number + 1, 0).place(&probe), Position::Inside);
        assert_eq!(Room::below(number, number + 1).place(&probe), Position::Last);
        assert_eq!(Room::below(0, number).place(&probe), Position::Beyond);
        assert!(Room::default().is_there());
        assert!(!Room::below(0, u32::MAX).is_there());
    }
}
