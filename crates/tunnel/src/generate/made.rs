//! The results of `generate certs`.

use tls::{HostName, Issued};

/// The issued certificates.
#[derive(Debug)]
pub(super) struct Made {
    /// The authority, if it is new.
    pub(super) authority: Option<Issued>,
    /// The last day of the authority.
    pub(super) ends: String,
    pub(super) server: Option<(Vec<HostName>, Issued)>,
    pub(super) clients: Vec<(String, Issued)>,
}
