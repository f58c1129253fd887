//! End-to-end tests: the built binary runs in separate processes, with third-party software on both
//! sides. Each test has its own folder, ports and processes. If a test fails, the output of its
//! processes is shown. A test waits for a condition, with a deadline of at least five times the
//! expected time.
//!
//! `harness` contains the helpers, and every other module covers one topic.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "in a test a panic is the verdict, and figures are for people"
)]

mod activation;
mod addresses;
mod admin;
mod announced;
mod api_commands;
mod auth_hook;
mod balance;
mod balancer;
mod certificates;
mod cli;
mod clients;
mod clocks;
mod cluster;
mod completions;
mod config_api;
mod console;
mod counters;
mod demo;
mod doors;
mod enrol;
mod errors;
mod exempt;
mod exhausted;
mod exits;
mod fallback;
mod farewell;
mod floods;
mod folder;
mod forgery;
mod fronts;
mod harness;
mod heavy;
mod http_proxy;
mod import;
mod inherited;
mod install;
mod journal;
mod lists;
mod log_files;
mod manager;
mod measure;
mod mixed;
mod mtls;
mod names;
mod narrow;
mod notified;
mod other_user;
mod outputs;
mod own;
mod pages;
mod peer;
mod private;
mod private_certificates;
mod private_workers;
mod proxies;
mod public_url;
mod quic;
mod rates;
mod real_software;
mod reload;
mod reload_client;
mod rights;
mod secrets;
mod servers;
mod sessions;
mod set_up;
mod shared;
mod slow;
mod smoke;
mod spread;
mod sticky;
mod strangers;
mod supervised;
mod survival;
mod taken;
mod targets;
mod timeouts;
mod told;
mod udp;
mod unix_sockets;
mod unsent;
mod upgrade;
mod upgrade_chain;
mod upgrade_node;
mod upgrade_refused;
mod vanish;
mod via;
mod visit;
mod visitors;
mod ways;
mod web_socket;
mod webrtc;
mod wireshark;
