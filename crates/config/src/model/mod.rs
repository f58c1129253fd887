//! The checked model. All values have been checked, so the users of the model need no further
//! checks.
//!
//! * `server`, `client`, `balancer`: a file of each role. `common` are the keys that all roles
//!   have, with `admin`, `log`, `quic` and `kcp`.
//! * `path`, `service`, `forward`: the entries of a client's file, with `public` addresses,
//!   `spread` over several targets, and `check` of their health.
//! * `private`, `visits`, `p2p`: private services of clients, and ways between clients.
//! * `doors`: the public addresses that all clients of a server share.
//! * `credentials`: tokens, certificates, fields of HTTP. `change`: which keys a reload changes.

mod admin;
mod balancer;
mod change;
mod check;
mod client;
mod common;
mod credentials;
mod doors;
mod forward;
mod kcp;
mod log;
mod p2p;
mod path;
mod private;
mod public;
mod quic;
mod server;
mod service;
mod spread;
mod visits;

pub use admin::{Admin, WebOrigin};
pub use balancer::{Balancer, ProxyConfig};
pub use change::{Change, Changed};
pub use check::{Check, DatagramCheck};
pub use client::ClientConfig;
pub use common::{Common, FormerLimits, Otlp};
pub use credentials::{Field, KeyPair, Token};
pub use doors::{Acme, AcmeBinding, AcmeDns, Http, Mux, Pages, TlsRoutes, TlsVersion};
pub use forward::Forward;
pub use kcp::{Kcp, KcpCongestion, KcpFec, KcpPreset};
pub use log::{AccessLog, LogFile, LogFormat, LogLevel, RequestFormat, RequestLog};
pub use p2p::{P2p, P2pWebrtc, ServerWebrtc, StunAddress};
pub use path::{Path, Trust};
pub use private::{
    Demand, PeerPath, PeerTls, Private, Proof, Visit, VisitRight, VisitRights, Visitor,
};
pub use public::Public;
pub use quic::{Congestion, Quic};
pub use server::{
    AcceptProxy, ClientGrant, HttpAuth, Listen, Rights, STUN_PORT, ServerConfig, ServerTls,
};
pub(crate) use service::PRIVATE;
pub use service::{
    Exit, Files, FlowLimits, ProxyProtocol, Service, TargetTls, UserFile, VisitorLists,
};
pub use spread::{Balance, Spread, Weighted};
pub(crate) use spread::{TARGETS_MAX, WEIGHT_MAX};
