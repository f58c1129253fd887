//! `cargo bench -p benches`: what the hot parts cost by themselves, and how often each allocates.
//! divan, because its profiler counts allocations in the very runs it times, and needs no unsafe
//! code of ours; criterion has no such count, and brings plots that nobody here asks for.
//! `cargo bench -p benches -- links` runs those whose name has `links` in it.

mod control;
mod frame;
mod greeting;
mod links;

use divan::AllocProfiler;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}
