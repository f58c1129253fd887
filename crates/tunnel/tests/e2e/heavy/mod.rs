//! Tests that fill the machine or watch it for long: thousands of visitors and clients, small
//! memories, idle time. `cargo xtask test` runs them as a step of their own, in CI or by name.

mod herd;
mod neighbours;
mod pressure;
mod quiet;
