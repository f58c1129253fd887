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

/// The buffer size of one read. The content does not matter, so a longer announcement may be cut.
const READ: usize = 4 << 10;

/// The maximum number of reads at once, so that a flood of announcements does not keep the worker.
const READS: usize = 64;

/// The announcements of the kernel.
#[derive(Debug)]
pub struct NetworkChanges {
    netlink: AsyncFd<OwnedFd>,
    /// The time of the last report.
    reported: Option<Instant>,
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
        Ok(Self { netlink: watched(netlink)?, reported: None })
    }

    /// Waits for the next change. The announcements before the first call are part of it.
    ///
    /// # Errors
    /// The socket has failed.
    pub async fn next(&mut self) -> io::Result<()> {
        self.heard().await?;
        let first = Instant::now();
        let earliest = self.reported.map_or(first, |reported| first.max(reported + APART));
        let latest = earliest.max(first + LONGEST);
        loop {
            let quiet = (Instant::now() + QUIET).min(latest);
            match timeout_at(quiet, self.heard()).await {
                Ok(heard) => heard?,
                Err(_) => break,
            }
        }
        sleep_until(earliest).await;
        self.reported = Some(Instant::now());
        Ok(())
    }

    /// Waits for announcements and drops them.
    async fn heard(&self) -> io::Result<()> {
        let mut buffer = [0; READ];
        loop {
            let mut ready = self.netlink.readable().await?;
            let mut heard = false;
            for _ in 0..READS {
                match recv(self.netlink.get_ref(), &mut buffer[..], RecvFlags::DONTWAIT) {
                    // The queue was full, and announcements are lost: that is a change, too.
                    Ok(_) | Err(Errno::NOBUFS) => heard = true,
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if heard {
                return Ok(());
            }
        }
    }
}

/// Registers the socket with the runtime.
#[expect(deprecated, reason = "the other call is unsafe, and an `OwnedFd` keeps its promise")]
fn watched(netlink: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(netlink, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

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
