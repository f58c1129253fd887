//! Programs that measure the tunnel: the load programs of the binary `load`, and the rigs of the
//! micro-benchmarks in `micro/`.
//!
//! | module | what |
//! |---|---|
//! | [`bulk`] | bytes per second |
//! | [`requests`] | requests per second and their latency, over lasting connections |
//! | [`connections`] | new connections per second |
//! | [`echo`] | the latency of one byte, alone or beside a bulk transfer |
//! | [`pulse`] | the latency of requests at fixed times, late answers or not |
//! | [`idle`] | thousands of connections without traffic |
//! | [`storm`] | thousands of clients that log in at the same time |
//! | [`herd`], `turns` | the clients of `storm`, and turns for their dials |
//! | [`udp`] | datagrams per second and their loss; the server at the far end as well |
//! | [`origin`] | the servers at the far end: echo, sink, source |
//! | [`bridge`] | a WebSocket for each visitor: measures a reverse proxy without a tunnel |
//! | [`histogram`] | latencies in bounded memory |
//! | [`http`] | the part of HTTP/1.1 that a GET needs |
//! | [`failures`] | failures, counted by kind |
//! | [`options`] | `--name value` options and their errors |
//! | [`descriptors`] | the limit of open descriptors |
//! | [`server`] | the server under test, and how to connect to it |
//! | [`socks`] | the greeting of SOCKS5 |
//! | [`sources`] | the source addresses of connections |
//! | [`rig`] | parts of the tunnel itself, for `micro/` and the test of allocations |
//! | `crew` | tasks that start together and end at a known time |
//! | `run` | the runtime |
//! | [`report`] | the line of JSON |
//!
//! A program is a function from its options to its report, on one thread, because the load must be
//! cheaper than the system under load. Each program ends at its time, whatever the target does. A
//! request without an answer by then counts as an error.

pub mod bridge;
pub mod bulk;
pub mod connections;
mod crew;
pub mod descriptors;
pub mod echo;
pub mod failures;
pub mod herd;
pub mod histogram;
pub mod http;
pub mod idle;
pub mod options;
pub mod origin;
pub mod pulse;
pub mod report;
pub mod requests;
pub mod rig;
mod run;
pub mod server;
pub mod socks;
pub mod sources;
pub mod storm;
mod turns;
pub mod udp;

pub use run::runtime;
