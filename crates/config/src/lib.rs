//! Configuration: a YAML text or command line flags in, a model that cannot be wrong out, and every
//! problem at once in between.
//!
//! * `yaml`: text to a tree with positions; size, depth and aliases bounded
//! * `flags`: command line flags as pieces of that tree
//! * `decode`: tree to values; [`keys`] holds which keys exist
//! * `model`: the checked types
//! * [`edit`]: a text changed in place, comments kept; and as JSON without secrets
//! * [`sample`]: commented files for `tunnel generate config`
//!
//! Pure: the environment and token files come in through [`Sources`]. Every key is described in
//! `REFERENCE.md`.

mod decode;
pub mod edit;
mod endpoint;
mod flags;
mod fuzz;
mod hosts;
mod load;
mod model;
mod net;
mod otlp;
mod problem;
mod proxy;
mod rights;
pub mod sample;
mod scheme;
mod secret;
mod units;
mod yaml;

pub use decode::{Sources, keys};
pub use endpoint::{Endpoint, Host, Local, Target};
pub use flags::{ClientFlags, ServerFlags};
#[doc(hidden)]
pub use fuzz::{fuzz, fuzz_edit};
pub use hosts::{HostRight, HostRights};
pub use load::{Loaded, Role, Text, is_yaml, load_client, load_grant, load_server, locate, scalar};
pub use model::{
    Admin, Change, Changed, ClientConfig, ClientGrant, Common, Congestion, Field, Forward,
    HttpAuth, KeyPair, LogFile, LogFormat, LogLevel, Otlp, Path, Priority, Public, Quic, Rights,
    ServerConfig, ServerTls, Service, Timeouts, Token, Trust,
};
pub use net::Net;
pub use otlp::Collector;
pub use problem::{BadValue, Problem};
pub use proxy::{Proxy, ProxyKind};
pub use rights::{ForwardRight, ForwardRights, PortRight, PortRights};
pub use scheme::{Over, Scheme};
pub use secret::Secret;
pub use units::{Size, Span};
pub use yaml::FILE_MAX;
