//! Decodes the tree to the model: what concerns several keys, entries or sections at once.

mod auth;
pub(crate) mod balancer;
mod broadcast;
pub(crate) mod client;
mod cluster;
mod doors;
mod exit;
mod files;
mod fit;
pub(crate) mod found;
mod http;
mod listen;
mod local;
mod paths;
mod private;
mod public;
mod redirects;
pub(crate) mod server;
mod servers;
mod service;
mod spread;
mod target;
mod target_tls;
mod via;
mod visit;

pub(crate) use client::forward_of;
pub(crate) use service::{long, services_of};
pub use target::connect_target;
