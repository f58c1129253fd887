//! The checked model. All values have been checked, so the users of the model need no further
//! checks.
//!
//! * `server`, `client`, `balancer`: a file of each role. `common` are the keys that all roles
//!   have, with `admin`, `log`, `quic` and `kcp`.
//! * `servers`, `path`, `service`, `forward`: the entries of a client's file, with `public`
//!   addresses, `spread` over several targets, and `check` of their health.
//!   `dial_options`: what their dials are like.
//! * `private`, `visits`, `p2p`: private services of clients, and ways between clients.
//! * `doors`: the public addresses that all clients of a server share. `cluster`: a server that is
//!   one of several nodes.
//! * `credentials`: tokens, certificates, fields of HTTP. `change`: which keys a reload changes.

pub(crate) mod acme;
pub(crate) mod admin;
pub(crate) mod balancer;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod common;
pub(crate) mod credentials;
pub(crate) mod dial_options;
pub(crate) mod doors;
pub(crate) mod entry;
pub(crate) mod forward;
pub(crate) mod found;
pub(crate) mod kcp;
pub(crate) mod limits;
pub(crate) mod log;
pub(crate) mod p2p;
pub(crate) mod path;
pub(crate) mod private;
pub(crate) mod public;
pub(crate) mod quic;
pub(crate) mod server;
pub(crate) mod servers;
pub(crate) mod service;
pub(crate) mod spread;
pub(crate) mod times;
pub(crate) mod udp;
pub(crate) mod visits;

pub use acme::{Acme, AcmeBinding, AcmeDns};
pub use admin::{Admin, WebOrigin};
pub use balancer::{Balancer, ProxyConfig};
pub use change::{Change, Changed};
pub use check::{Check, DatagramCheck};
pub use client::ClientConfig;
pub(crate) use client::KeptLists;
pub use cluster::{Cluster, ClusterDirectory, ClusterPeers, EtcdUser, NodeTls};
pub use common::{Common, FormerLimits, Otlp};
pub use credentials::{Field, KeyPair, Token};
pub use dial_options::DialOptions;
pub use doors::{Http, Mux, Pages, TlsRoutes, TlsVersion};
pub use forward::Forward;
pub use found::{FoundServer, FoundServers, PathDefaults, ServersFrom, SrvName};
pub use kcp::{Kcp, KcpCongestion, KcpFec, KcpPreset};
pub use log::{AccessLog, LogFile, LogFormat, LogLevel, RequestFormat, RequestLog};
pub(crate) use p2p::ServerP2p;
pub use p2p::{P2p, P2pWebrtc, STUN_PORT, ServerWebrtc, StunAddress};
pub(crate) use path::PathTls;
pub use path::{Choose, Path, PathSpread, Trust};
pub use private::{
    Demand, PeerPath, PeerTls, Private, Proof, Visit, VisitRight, VisitRights, Visitor,
};
pub use public::Public;
pub use quic::{Congestion, Quic};
pub use server::{AcceptProxy, ClientGrant, HttpAuth, Listen, Rights, ServerConfig, ServerTls};
pub(crate) use server::{AnyClient, Auth};
pub(crate) use servers::SERVERS_MAX;
pub use servers::{Policy, ServerPaths};
pub(crate) use service::PRIVATE;
pub use service::{
    Exit, Files, FlowLimits, ProxyProtocol, Service, TargetTls, UserFile, VisitorLists,
};
pub use spread::{Spread, Weighted};
pub(crate) use spread::{TARGETS_MAX, WEIGHT_MAX};
