//! Tests of two pumps with a link in memory between them, and real sockets at both ends. The
//! program runs a second time with every byte as a page.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and its visitors are threads that may sleep"
)]

mod carry;
mod ends;
mod flow;
mod held_http;
mod http;
mod lane;
mod layered;
mod layered_http;
mod life;
mod link;
mod proxy;
mod retry;
mod rig;
#[path = "../straight.rs"]
mod straight;
mod unix;
