//! Configuration: turns a YAML text or command line flags into a checked model, or reports all
//! problems at once.
//!
//! | module | content |
//! |---|---|
//! | `role` | the role of a file |
//! | `load` | the way from texts and flags to a checked model |
//! | `yaml`, `mistakes` | text to a tree with positions, with bounds; a text that is not YAML, explained |
//! | `flags` | command line flags as parts of that tree |
//! | `key_table`, [`keys`] | the row of a key; all keys of the files |
//! | `section`, `values`, `words`, `secrecy` | reads the values of a map, with positions and hints |
//! | `files_read` | the files that a configuration names; each is read once |
//! | `problem` | a problem with file, line, column, key path and hint |
//! | `model` | the checked types: the keys of each map, how each value is read |
//! | `decode` | what concerns several keys, entries or sections at once |
//! | `lists`, `shadow` | services and forwards from file, flags and commands; which entry wins |
//! | `taken`, `published` | conflicts of listeners; public addresses by the servers that have them |
//! | `rights` | which ports a client may bind, and which targets it may reach |
//! | `hosts`, `names`, `international` | host names: rights, services by name, letters beyond ASCII |
//! | `private_service` | the name of a service of another client |
//! | `address`, `endpoint`, `scheme` | addresses of services and of servers; the table of transports |
//! | `public_url`, `proxy`, `otlp` | addresses of a server for others, of proxies, of a collector |
//! | `net`, `units`, `moment` | notations: networks, durations, sizes, rates, points in time |
//! | `htpasswd` | users of `basic_auth` with hashes of their passwords |
//! | `secret`, [`secrets`] | a text that is never printed; what a secret is |
//! | [`edit`] | edits a text in place, keeping comments; shows a text as JSON without secrets |
//! | [`sample`] | commented files for `tunnel generate config` |
//! | `found`, `json` | the servers that an API or DNS names, read by the rules of the file |
//! | `foreign` | a YAML text of another program as a plain tree |
//!
//! The crate is pure: the environment and token files come in through [`Sources`]. `REFERENCE.md`
//! describes every key.

// The derive of `config-derive` names this crate.
extern crate self as config;

mod address;
mod decode;
pub mod edit;
mod endpoint;
mod files_read;
mod flags;
mod foreign;
mod found;
mod hosts;
mod htpasswd;
mod international;
mod json;
mod key_table;
pub mod keys;
mod lists;
mod load;
mod mistakes;
mod model;
mod moment;
mod names;
mod net;
mod otlp;
mod private_service;
mod problem;
mod proxy;
mod public_url;
mod published;
#[cfg(test)]
mod reference;
mod rights;
mod role;
pub mod sample;
mod scheme;
mod secrecy;
mod secret;
pub mod secrets;
mod section;
mod shadow;
mod taken;
mod units;
mod values;
mod words;
mod yaml;

pub use address::{Local, LocalAddr, Target};
pub use decode::connect_target;
pub use endpoint::{Endpoint, Host, server_url};
pub use files_read::READ_MAX;
pub use flags::{ClientFlags, ProxyFlags, ServerFlags, ServiceOptions};
pub use foreign::{Foreign, ForeignValue, foreign};
pub use found::{FOUND_MAX, servers_of_answer, servers_of_records};
pub use hosts::{HostRight, HostRights};
pub use htpasswd::{htpasswd, is_hashed};
pub use lists::{Kept, Lists, listen_address};
pub use load::{
    Loaded, Text, has_keys, list_files, load_asked, load_client, load_grant, load_kept, load_lists,
    load_proxy, load_published, load_server, locate, scalar, text_of,
};
pub use model::{
    AcceptProxy, AccessLog, Acme, AcmeBinding, AcmeDns, Admin, Balancer, Change, Changed, Check,
    Choose, ClientConfig, ClientGrant, Cluster, ClusterDirectory, ClusterPeers, Common, Congestion,
    DatagramCheck, Demand, DialOptions, EtcdUser, Exit, Field, Files, FlowLimits, FormerLimits,
    Forward, FoundServer, FoundServers, Http, HttpAuth, Kcp, KcpCongestion, KcpFec, KcpPreset,
    KeyPair, Listen, LogFile, LogFormat, LogLevel, Mux, NodeTls, Otlp, P2p, P2pWebrtc, Pages, Path,
    PathDefaults, PathSpread, PeerPath, PeerTls, Policy, Private, Proof, ProxyConfig,
    ProxyProtocol, Public, Quic, RequestFormat, RequestLog, Rights, STUN_PORT, ServerConfig,
    ServerPaths, ServerTls, ServerWebrtc, ServersFrom, Service, Spread, SrvName, StunAddress,
    TargetTls, TlsRoutes, TlsVersion, Token, Trust, UserFile, Visit, VisitRight, VisitRights,
    Visitor, VisitorLists, WebOrigin, Weighted,
};
pub use moment::Moment;
pub use names::{NameKind, is_own_name, own_label};
pub use net::Net;
pub use otlp::Collector;
pub use private_service::PrivateService;
pub use problem::{BadValue, Problem};
pub use proxy::{Proxy, ProxyKind, ResolvedBy};
pub use public_url::{PublicNames, PublicUrls};
pub use rights::{CLIENT_PORTS, ForwardRight, ForwardRights, GUEST_PORTS, PortRight, PortRights};
pub use role::Role;
pub use scheme::{Over, Scheme};
pub use secret::Secret;
pub use section::Sources;
pub use shadow::Shadow;
pub use units::{Rate, Size, Span};
pub use yaml::FILE_MAX;
