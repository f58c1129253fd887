//! `cargo bench -p benches`: the time and the allocations of the hot parts, each measured alone.
//!
//! The benchmarks use divan, because its profiler counts allocations in the same runs that it
//! times, and it needs no unsafe code in this project. criterion does not count allocations, and it
//! brings plots that nobody uses here. `cargo bench -p benches -- links` runs the benchmarks whose
//! names contain `links`.

mod aead;
mod control;
mod frame;
mod gf256;
mod greeting;
mod http;
mod links;

use divan::AllocProfiler;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}
