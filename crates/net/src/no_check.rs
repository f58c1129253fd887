//! A socket option for tests.

use nix::libc;
use nix::sys::socket::sockopt::SetBool;

/// Sends without checksums, so that the kernel refuses to segment.
#[derive(Clone, Debug)]
pub(crate) struct NoCheck;

nix::setsockopt_impl!(NoCheck, libc::SOL_SOCKET, libc::SO_NO_CHECK, bool, SetBool);
