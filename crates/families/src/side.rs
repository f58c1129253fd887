//! The listeners of a server, over all families.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use config::{Common, Listen, ServerConfig};
use tls::Identity;
use transport_quic::StunServer;

use super::mux::{MuxCarriers, MuxSide};
use super::{Bound, FAMILIES, Listeners, Setup};

/// The common part of all listeners of a server.
#[derive(Clone, Debug)]
pub struct ServerSide {
    has_tls: bool,
    /// The pin of the certificate for new connections; `None` without TLS.
    pin: Arc<Mutex<Option<String>>>,
    /// The families that have listeners.
    families: Vec<(&'static [&'static str], Arc<dyn Listeners>)>,
    /// The carriers of `mux://` listeners, if there are any.
    mux: Option<MuxSide>,
    stun: Arc<StunServer>,
}

impl ServerSide {
    /// Reads the certificate authorities for clients, and the data in `state` that families keep.
    /// Without an identity there is no TLS.
    pub fn new(
        config: &ServerConfig,
        identity: Option<&Identity>,
        state: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let stun = Arc::<StunServer>::default();
        let setup = Setup { config, identity, state, stun: &stun };
        let is_wanted = |names: &[&str]| {
            config.listen.iter().any(|at| names.contains(&at.endpoint.scheme.name))
        };
        let wanted = FAMILIES.into_iter().filter(|family| is_wanted(family.schemes()));
        let families = wanted.map(|family| Ok((family.schemes(), family.listeners(&setup)?)));
        let families = families.collect::<anyhow::Result<_>>()?;
        let has_mux = config.listen.iter().any(|listen| listen.mux.is_some());
        let mux = has_mux.then(|| MuxSide::new(&setup)).transpose()?;
        let pin = Arc::new(Mutex::new(pin_of(identity)));
        Ok(Self { has_tls: identity.is_some(), pin, families, mux, stun })
    }

    /// The pin of the certificate for new connections; `None` without TLS.
    pub fn pin(&self) -> Option<String> {
        self.pin.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The STUN server at the ports of `quic://`.
    pub const fn stun(&self) -> &Arc<StunServer> {
        &self.stun
    }

    /// Whether one of the listeners speaks TLS.
    pub const fn has_tls(&self) -> bool {
        self.has_tls
    }

    /// Prepares new settings for the existing listeners. Calling the result applies the settings
    /// and cannot fail.
    pub fn renew(
        &self,
        config: &ServerConfig,
        identity: Option<&Identity>,
    ) -> anyhow::Result<impl FnOnce() + use<>> {
        let setup = Setup { config, identity, state: None, stun: &self.stun };
        let renewals = self.families.iter().map(|(_, listeners)| listeners.renew(&setup));
        let mux = self.mux.iter().map(|mux| mux.renew(&setup));
        let renewals = renewals.chain(mux).collect::<anyhow::Result<Vec<_>>>()?;
        let (pin, new) = (Arc::clone(&self.pin), pin_of(identity));
        Ok(move || {
            renewals.into_iter().for_each(|renew| renew());
            *pin.lock().unwrap_or_else(PoisonError::into_inner) = new;
        })
    }

    /// The carriers of a `mux://` listener.
    pub fn carriers(&self, listen: &Listen) -> Option<MuxCarriers> {
        self.mux.as_ref().map(|mux| mux.carriers(listen))
    }

    /// Binds the port, with one socket for each worker.
    pub fn bind(&self, listen: &Listen, common: &Common, workers: usize) -> anyhow::Result<Bound> {
        let name = listen.endpoint.scheme.name;
        let found = self.families.iter().find(|(names, _)| names.contains(&name));
        let (_, listeners) = found.with_context(|| format!("{name}:// has no transport"))?;
        listeners.bind(listen, common, workers)
    }
}

fn pin_of(identity: Option<&Identity>) -> Option<String> {
    identity.map(|identity| identity.pin().to_string())
}
