//! Tests that load the machine or observe it for a long time: thousands of visitors and clients,
//! small memory budgets, idle time. `cargo xtask test` runs them as a separate step, in CI or by
//! name.

mod herd;
mod homecoming;
mod neighbours;
mod paths;
mod pressure;
mod quiet;
mod sources;
mod viewer;
mod visits;
