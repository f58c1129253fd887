//! The enrolled clients of the demo's server: in memory, because the demo writes no file.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::bail;
use config::ClientGrant;
use ops::WrongConfig;
use ops::clients::Change;
use ops::enrol::Order;
use proto::greeting::{Name, StoredCredential};
use server::Enrolled;
use zeroize::Zeroizing;

use super::kept::{checked, granted};

/// A store of clients that ends with the process. Each client has only the token of its code: the
/// server of the demo has no control socket, over which a new token or other rights could be
/// requested.
#[derive(Debug, Default)]
pub(crate) struct Fleeting(Mutex<HashMap<String, ClientGrant>>);

impl Fleeting {
    fn clients(&self) -> MutexGuard<'_, HashMap<String, ClientGrant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Enrolled for Fleeting {
    fn has(&self, name: &Name) -> bool {
        self.clients().contains_key(name.as_str())
    }

    fn check(&self, order: &Order, public_bind: IpAddr) -> Result<Name, WrongConfig> {
        checked(order, public_bind)
    }

    fn write(
        &self,
        order: &Order,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant> {
        let grant = granted(order, credential, public_bind)?;
        self.clients().insert(grant.name.clone(), grant.clone());
        Ok(grant)
    }

    fn renew(&self, name: &Name, _: &StoredCredential, _: IpAddr) -> anyhow::Result<ClientGrant> {
        bail!("the demo gives client `{name}` no new token")
    }

    fn settle(
        &self,
        name: &Name,
        credential: &StoredCredential,
        _: IpAddr,
    ) -> anyhow::Result<Option<ClientGrant>> {
        let clients = self.clients();
        let Some(grant) = clients.get(name.as_str()) else { return Ok(None) };
        let known = grant.tokens.iter().map(|token| StoredCredential::of(token.secret.reveal()));
        let known = known.collect::<Result<Vec<_>, _>>()?;
        Ok(known.contains(credential).then(|| grant.clone()))
    }

    fn change(&self, change: &Change, _: IpAddr) -> anyhow::Result<ClientGrant> {
        bail!("the demo changes no right of client `{}`", change.name())
    }

    fn remove(&self, name: &Name) -> io::Result<bool> {
        Ok(self.clients().remove(name.as_str()).is_some())
    }

    fn entry(&self, _: &Name) -> anyhow::Result<Option<Zeroizing<String>>> {
        bail!("the server of the demo is no node of a cluster")
    }

    fn adopt(&self, _: &Name, _: &str, _: IpAddr) -> anyhow::Result<ClientGrant> {
        bail!("the server of the demo is no node of a cluster")
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_client_is_kept_with_the_rights_of_its_code_and_the_token_of_its_code_alone() {
        let bind: IpAddr = Ipv4Addr::LOCALHOST.into();
        let store = Fleeting::default();
        let order = Order {
            name: "guest".to_owned(),
            allow_visit: vec!["demo/web".to_owned()],
            ..Order::default()
        };
        let name = store.check(&order, bind).unwrap();
        let [own, other] =
            [1, 2].map(|n| StoredCredential { stored_key: [n; 32], server_key: [n; 32] });
        assert!(!store.has(&name) && store.settle(&name, &own, bind).unwrap().is_none());
        let grant = store.write(&order, &own, bind).unwrap();
        let rights = &grant.rights;
        assert!(rights.visit.permit("demo", "web") && !rights.visit.permit("demo", "ssh"));
        assert!(!rights.tcp.permits(bind, 10_000) && grant.enrolled);
        assert_eq!(store.settle(&name, &own, bind).unwrap(), Some(grant));
        assert_eq!(store.settle(&name, &other, bind).unwrap(), None);
        assert!(store.renew(&name, &other, bind).is_err() && store.has(&name));
        let wrong = Order { allow_visit: vec!["demo".to_owned()], ..order };
        assert!(store.check(&wrong, bind).is_err());
        assert!(store.remove(&name).unwrap() && !store.has(&name));
    }
}
