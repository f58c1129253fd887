//! SOCKS5 and HTTP proxies at both ends of a link in memory, with real sockets.

mod associate;
mod exit;
mod forward;
mod requests;
mod rig;
mod waits;
