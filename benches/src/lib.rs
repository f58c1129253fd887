//! What measures the tunnel: the load programs of the binary `load`, and the rigs of the
//! micro-benchmarks in `micro/`.
//!
//! | module | what |
//! |---|---|
//! | [`bulk`] | how many bytes per second go through |
//! | [`requests`] | requests per second and their latency over connections that stay |
//! | [`connections`] | new connections per second |
//! | [`echo`] | the latency of one byte, alone or beside a bulk transfer |
//! | [`idle`] | very many connections that do nothing |
//! | [`storm`] | very many clients that log in at once; [`herd`] is the clients |
//! | [`origin`] | the servers at the far end: echo, sink, source |
//! | [`bridge`] | a WebSocket for each visitor: what a reverse proxy passes without a tunnel |
//! | [`histogram`] | latencies in bounded memory |
//! | [`http`] | as much of HTTP/1.1 as a GET needs |
//! | [`failures`] | what went wrong, counted by kind |
//! | [`options`] | `--name value`, and the complaint about nonsense |
//! | [`descriptors`] | the limit of open descriptors |
//! | [`server`] | a server of ours, and how to connect to it |
//! | [`sources`] | from which addresses to connect |
//! | [`rig`] | parts of the tunnel itself, for `micro/` and the test of allocations |
//! | `crew` | tasks that start together and end in time |
//! | `run` | the runtime |
//! | [`report`] | the line of JSON |
//!
//! A program is a function from its options to its report, on one thread: the load has to be
//! cheaper than what it loads. Each ends at its time, whatever the target does; what was not
//! answered by then counts as an error.

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
pub mod report;
pub mod requests;
pub mod rig;
mod run;
pub mod server;
pub mod sources;
pub mod storm;
mod turns;

pub use run::runtime;
