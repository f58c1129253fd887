//! Cases that wait for minutes of wall-clock time or depend on the speed of the machine. `cargo
//! xtask test slow` runs them.

mod absent;
mod carriers;
mod cluster;
mod limits;
mod pages;
mod paths;
mod rates;
mod rest;
mod roaming;
mod servers;
mod systemd;
mod two_paths;
mod upgrades;
mod vanish;
