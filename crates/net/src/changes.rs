//! Changes of the interfaces, addresses and routes of this machine, as the kernel announces them
//! (rtnetlink(7)). A laptop that goes from Ethernet to Wi-Fi causes ten or more announcements
//! within a second, which are one change here.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until, timeout_at};

/// The groups of announcements: interfaces (`RTMGRP_LINK`), addresses (`RTMGRP_IPV4_IFADDR`,
/// `RTMGRP_IPV6_IFADDR`) and routes (`RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_ROUTE`).
const GROUPS: u32 = 0x1 | 0x10 | 0x100 | 0x40 | 0x400;

/// A change is complete when the kernel has announced nothing for this time.
const QUIET: Duration = Duration::from_millis(250);

/// The longest time from the first announcement of a change to its report.
const LONGEST: Duration = Duration::from_secs(1);

/// The minimum time between two reports: on a machine with many containers, interfaces come and go
/// all the time.
const APART: Duration = Duration::from_secs(1);

/// The minimum time between two reports that an address is gone.
const LOSSES_APART: Duration = Duration::from_millis(100);

/// The buffer size of one read. The headers alone matter, so a longer announcement may be cut.
const READ: usize = 4 << 10;

/// The size of the header of an announcement (`struct nlmsghdr`, netlink(7)).
const HEADER: usize = 16;

/// The kind of an announcement that an address is gone (`RTM_DELADDR`, rtnetlink(7)).
const ADDRESS_GONE: u16 = 21;

/// The maximum number of reads at once, so that a flood of announcements does not keep the worker.
const READS: usize = 64;

/// A report about the network of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkChange {
    /// An address is gone. The change may go on: [`NetworkChange::Complete`] follows.
    AddressGone,
    /// The change is over for now.
    Complete,
}

/// The announcements of the kernel.
#[derive(Debug)]
pub struct NetworkChanges {
    netlink: AsyncFd<OwnedFd>,
    /// The first announcement of the present change.
    first: Option<Instant>,
    /// The time of the last report of a complete change.
    reported: Option<Instant>,
    /// The time of the last report that an address is gone.
    gone: Option<Instant>,
}

impl NetworkChanges {
    /// Subscribes to the announcements. Must be called in a Tokio runtime.
    ///
    /// # Errors
    /// The process may not open a netlink socket, as in some containers.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is `NETLINK_ROUTE`.
        let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&netlink, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self { netlink: watched(netlink)?, first: None, reported: None, gone: None })
    }

    /// Waits for the next report. The announcements before the first call are part of it. A future
    /// that is dropped loses no announcement.
    ///
    /// # Errors
    /// The socket has failed.
    pub async fn next(&mut self) -> io::Result<NetworkChange> {
        loop {
            let Some(first) = self.first else {
                let is_gone = self.heard().await?;
                self.first = Some(Instant::now());
                if is_gone && self.may_report_loss() {
                    return Ok(NetworkChange::AddressGone);
                }
                continue;
            };
            let earliest = self.reported.map_or(first, |reported| first.max(reported + APART));
            let latest = earliest.max(first + LONGEST);
            let quiet = (Instant::now() + QUIET).min(latest);
            match timeout_at(quiet, self.heard()).await {
                Ok(heard) => {
                    if heard? && self.may_report_loss() {
                        return Ok(NetworkChange::AddressGone);
                    }
                }
                Err(_) => {
                    sleep_until(earliest).await;
                    self.first = None;
                    self.reported = Some(Instant::now());
                    return Ok(NetworkChange::Complete);
                }
            }
        }
    }

    /// Whether the last report that an address is gone is long ago. The caller reports now.
    fn may_report_loss(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.gone.is_none_or(|last| now >= last + LOSSES_APART);
        if is_due {
            self.gone = Some(now);
        }
        is_due
    }

    /// Waits for announcements. Returns whether an address is gone.
    async fn heard(&self) -> io::Result<bool> {
        let mut buffer = [0; READ];
        loop {
            let mut ready = self.netlink.readable().await?;
            let (mut heard, mut is_gone) = (false, false);
            for _ in 0..READS {
                match recv(self.netlink.get_ref(), &mut buffer[..], RecvFlags::DONTWAIT) {
                    Ok((bytes, _)) => {
                        heard = true;
                        is_gone |= is_address_gone(buffer.get(..bytes).unwrap_or_default());
                    }
                    // The queue was full, and announcements are lost: an address may be gone, too.
                    Err(Errno::NOBUFS) => (heard, is_gone) = (true, true),
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if heard {
                return Ok(is_gone);
            }
        }
    }
}

/// Whether one of these announcements says that an address is gone. Any input is safe.
fn is_address_gone(mut rest: &[u8]) -> bool {
    while let Some(header) = rest.first_chunk::<HEADER>() {
        let [a, b, c, d, kind @ ..] = header;
        if u16::from_ne_bytes([kind[0], kind[1]]) == ADDRESS_GONE {
            return true;
        }
        let length = usize::try_from(u32::from_ne_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
        if length < HEADER {
            return false;
        }
        rest = rest.get(length.saturating_add(3) / 4 * 4..).unwrap_or_default();
    }
    false
}

/// Registers the socket with the runtime.
#[expect(deprecated, reason = "the other call is unsafe, and an `OwnedFd` keeps its promise")]
fn watched(netlink: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(netlink, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An announcement of this kind with four bytes of content.
    fn announcement(kind: u16) -> Vec<u8> {
        let mut bytes = 20_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(20, 0);
        bytes
    }

    #[test]
    fn an_address_that_is_gone_is_found_among_announcements_and_in_no_nonsense() {
        let (new, gone) = (announcement(20), announcement(ADDRESS_GONE));
        assert!(is_address_gone(&gone));
        assert!(!is_address_gone(&new));
        assert!(is_address_gone(&[&new[..], &gone].concat()));
        assert!(!is_address_gone(&gone[..15]));
        assert!(!is_address_gone(&[0; 64]), "a length of 0");
        assert!(!is_address_gone(&[0xff; 64]), "a length beyond the bytes");
    }

    #[tokio::test]
    async fn a_machine_whose_network_stays_has_no_change() {
        let Ok(mut changes) = NetworkChanges::open() else { return };
        // Another program may change the network of this machine meanwhile.
        let quiet = Duration::from_millis(50);
        let all = async {
            for _ in 0..20 {
                if tokio::time::timeout(quiet, changes.next()).await.is_err() {
                    return true;
                }
            }
            false
        };
        assert!(all.await);
    }
}
