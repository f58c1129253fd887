//! Certificates that other nodes of a cluster have ordered: a visitor that asks for one has it
//! looked up.

use std::time::Duration;

use tokio::time::timeout;

use crate::certificates::{Shown, wildcard_of};
use crate::shared::{FoundValue, LookedUp, PATIENCE, SealedStore, SharedPlace};
use crate::terminator::{Live, Terminator};
use crate::wall;

/// The pause between two look-ups of a name without a valid certificate.
const ABSENT: Duration = Duration::from_secs(2);

/// The pause between two look-ups of a name whose certificate is valid and was not renewed.
const OLD: Duration = Duration::from_secs(600);

impl Terminator {
    /// Looks a certificate up that another node may have ordered, if this node has none that is
    /// valid and not due for its renewal. Returns why a certificate of the store is not used.
    pub(crate) async fn look_up(&self, live: &Live, host: &str) -> Option<String> {
        let shared = self.shared()?;
        live.authority_for(host)?;
        let known = self.certificates.find(host).filter(|shown| shown.is_valid(wall()));
        if known.as_ref().is_some_and(|it| it.file.is_some() || it.renewal() > wall()) {
            return None;
        }
        if shared.flights.has(host) {
            let _ = timeout(PATIENCE, shared.flights.end(host)).await;
            return None;
        }
        let pause = if known.is_some() { OLD } else { ABSENT };
        let flight = shared.flights.begin(host)?;
        let looked_up = self.certificates.looked_up.get_or_init(LookedUp::default);
        if !looked_up.begins(host, pause) || !shared.certificates.allows() {
            return None;
        }
        let looked = timeout(PATIENCE, ask_store(shared, live, host, looked_up)).await;
        drop(flight);
        looked.ok().flatten()
    }
}

/// Asks the store for the certificates of a name and of its wildcard.
async fn ask_store(
    shared: &SealedStore,
    live: &Live,
    host: &str,
    looked_up: &LookedUp<Shown>,
) -> Option<String> {
    let hosts: Vec<_> = std::iter::once(host.to_owned()).chain(wildcard_of(host)).collect();
    let places = hosts.iter().map(|host| SharedPlace::Certificate(host.as_str().into()));
    let found = match shared.read(places.collect()).await {
        Ok(found) => found,
        Err(away) => return Some(away.to_string()),
    };
    let mut why = None;
    for (host, found) in hosts.iter().zip(found) {
        let Some(found) = found else { continue };
        match of_store(live, host, &found) {
            Ok(shown) => looked_up.keep(host, shown),
            Err(error) => why = Some(format!("the certificate in the cluster: {error}")),
        }
    }
    why
}

/// The certificate in a value of the store.
fn of_store(live: &Live, host: &str, found: &FoundValue) -> Result<Shown, String> {
    let opened = found.opened.as_ref().map_err(ToString::to_string)?;
    let authority = live.authority_for(host).ok_or("no account orders this name")?;
    authority.store.of_text(host, &opened.plain).map_err(|error| error.to_string())
}
