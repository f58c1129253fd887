//! The certificates by which two clients prove themselves to each other, instead of a token. They
//! are read when the client starts, at a reload, and when one of their files has changed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use config::{ClientConfig, PeerTls};
use tls::PeerMaterial;

type Loaded = HashMap<PeerTls, Arc<PeerMaterial>>;

/// The certificates in force.
#[derive(Debug, Default)]
pub struct Materials(ArcSwap<Loaded>);

/// Certificates that are read but not in force yet.
#[derive(Debug)]
pub struct Read(Loaded);

/// Reads the certificates that the configuration names.
///
/// # Errors
/// The file and its problem.
pub fn read(config: &ClientConfig) -> anyhow::Result<Read> {
    let mut loaded = Loaded::new();
    for (key, tls) in config.peer_tls() {
        if loaded.contains_key(tls) {
            continue;
        }
        let own = config.identity_of(tls).with_context(|| format!("{key}: no certificate"))?;
        let material = PeerMaterial::load(&tls.ca, &own.cert, &own.key).context(key)?;
        loaded.insert(tls.clone(), Arc::new(material));
    }
    Ok(Read(loaded))
}

/// The files of the certificates.
pub fn files(config: &ClientConfig) -> Vec<PathBuf> {
    let all = config.peer_tls().flat_map(|(_, tls)| {
        let own = config.identity_of(tls).into_iter().flat_map(|pair| [&pair.cert, &pair.key]);
        std::iter::once(&tls.ca).chain(own)
    });
    all.cloned().collect()
}

impl Materials {
    pub fn new(read: Read) -> Self {
        Self(ArcSwap::from_pointee(read.0))
    }

    /// Replaces the certificates, for new links.
    pub fn replace(&self, read: Read) {
        self.0.store(Arc::new(read.0));
    }

    /// The certificates of an entry of the configuration in force.
    pub fn of(&self, tls: &PeerTls) -> Option<Arc<PeerMaterial>> {
        self.0.load().get(tls).cloned()
    }
}
