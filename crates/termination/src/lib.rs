//! TLS that ends at the server: certificates by name, the handshake with visitors, and ACME (RFC
//! 8555), by which the server orders the certificates of published names itself.
//!
//! * `settings`: the settings of the server.
//! * `certificates`: the certificates that are presented to visitors, and the choice among them by
//!   name. A handshake reads the table without a lock.
//! * `terminator`: the interface for workers and reloads; `stream`: a terminated connection.
//! * `challenge`: the response to the challenge of the order in progress. `checks` answers the
//!   authority with it, or with the response of another node.
//! * `ledger`: the published names, and which of them is ordered next. Pure: the time is an
//!   argument.
//! * `store`: the files of the account and of the certificates.
//! * `look_ups`: certificates of other nodes of a cluster, for visitors of this node.
//! * `shared`: what the nodes of a cluster share, sealed with their secret: certificates, accounts,
//!   responses to challenges, keys of session tickets.
//! * `acme`: orders. `http` is its client, `account` its account, `order` one order, `hook` the
//!   program
//!   of dns-01, `visible` the wait for its record, `renewal` the renewal information, `common`
//!   the rules among the nodes of a cluster, and `driver` runs orders one after the other.
//!
//! No type of rustls or of the ACME library is part of the interface.

mod acme;
mod certificates;
mod challenge;
mod checks;
mod ledger;
mod look_ups;
mod settings;
mod shared;
mod store;
mod stream;
mod terminator;
mod turns;

pub use checks::AwaitedCheck;
pub use ledger::Wanted;
pub use settings::{Acme, Binding, Dns, Doors, Files, MinVersion, Settings, Unusable, Wait};
pub use shared::{
    ANSWERED, CommonSecret, ExpectedValue, OrderTurn, PutOutcome, Resealed, SharedPlace,
    SharedStore, StoreAway, StoreFuture, StoredValue, Unsealed,
};
pub use stream::{Alpn, TlsIo};
pub use terminator::{
    CertificateSource, Cover, HELD, NameStatus, Prepared, Terminator, UNSENT_MOST,
};

/// The target of audit log lines, as `logging::AUDIT`. This crate does not know `logging`.
const AUDIT: &str = "audit";

/// The current second since 1970 by the wall clock. Only the dates of certificates are compared
/// with it; pauses use the monotonic clock.
fn wall() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Text of the certificate authority in a form that a log line and a terminal can show: without
/// control characters, at most 300 characters.
fn plain(text: &str) -> String {
    const MAX: usize = 300;
    let cut: String = text.chars().take(MAX).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{}{more}", proto::text::escaped(&cut))
}
