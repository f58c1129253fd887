//! Descriptors that were passed to this process at start, by number.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::unistd::close;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::SOCKETS;
use crate::handover::bound::TABLE;
use crate::handover::send;

/// Takes the descriptors with these numbers, which this process has not opened itself: must be
/// called before anything else opens a descriptor. Each becomes a descriptor with another number
/// that is not inherited by children; the number itself is closed. `None`: the number is not open.
///
/// # Errors
/// There are too many numbers, or this process has no descriptor left.
pub fn take_numbers(numbers: Range<RawFd>) -> io::Result<Vec<(RawFd, Option<OwnedFd>)>> {
    if numbers.len() > SOCKETS {
        return Err(io::Error::other(format!("more than {SOCKETS} sockets")));
    }
    // All are checked before this function opens a descriptor, which may get one of the numbers.
    let open = |number: &RawFd| fs::symlink_metadata(format!("{TABLE}/{number}")).is_ok();
    let numbers: Vec<_> = numbers.map(|number| (number, open(&number))).collect();
    // A raw number cannot become an `OwnedFd` in safe code: sending it through a socket yields one.
    let (ours, theirs) = UnixStream::pair()?;
    let take = |number: RawFd| -> io::Result<OwnedFd> {
        send(&ours, &[number], b's')?;
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [io::IoSliceMut::new(&mut byte)];
        recvmsg(&theirs, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let taken = ancillary.drain().find_map(|item| {
            let RecvAncillaryMessage::ScmRights(mut taken) = item else { return None };
            taken.next()
        });
        let taken = taken.ok_or_else(|| io::Error::other("no descriptor is left"))?;
        close(number)?;
        Ok(taken)
    };
    let all = numbers.into_iter();
    all.map(|(number, is_open)| Ok((number, is_open.then(|| take(number)).transpose()?))).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    use super::*;

    #[test]
    fn a_number_becomes_a_descriptor_that_no_child_inherits() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        fcntl_setfd(&socket, FdFlags::empty()).unwrap();
        let number = socket.into_raw_fd();
        let mut taken = take_numbers(number..number + 1).unwrap();
        let taken = taken.pop().unwrap().1.unwrap();
        assert_ne!(taken.as_raw_fd(), number);
        assert_eq!(fcntl_getfd(&taken).unwrap(), FdFlags::CLOEXEC);
        assert_eq!(TcpListener::from(taken).local_addr().unwrap(), at);
    }

    #[test]
    fn a_number_that_is_not_open_is_told_and_too_many_are_refused() {
        // The limit of descriptors is lower.
        let number = RawFd::MAX - 1;
        let taken = take_numbers(number..number + 1).unwrap();
        assert!(matches!(taken.as_slice(), [(n, None)] if *n == number));
        assert!(take_numbers(3..RawFd::MAX).is_err());
    }
}
