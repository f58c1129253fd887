//! SOCKS5 and HTTP CONNECT at both ends of a link in memory, with real sockets.

mod associate;
mod exit;
mod forward;
mod rig;
mod waits;
