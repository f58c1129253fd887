//! The directory of a single server: a table in memory, and the file of the chosen ports. The lock
//! is held for a map lookup, never while a port is opened.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ports::ChosenPorts;
use super::{Answer, Directory, Key, Port, Taken};

/// The directory of a server that shares its clients with no other server.
#[derive(Debug)]
pub(crate) struct Local {
    owners: Mutex<HashMap<Key, Arc<str>>>,
    ports: Arc<ChosenPorts>,
}

impl Local {
    /// Ports that the server chooses are stored in the directory `state`, or else kept in memory
    /// while this process runs.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        Self { owners: Mutex::default(), ports: ChosenPorts::new(state) }
    }

    /// Writes the recorded ports now.
    #[cfg(test)]
    pub(crate) fn flush(&self) {
        self.ports.flush();
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<Key, Arc<str>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory for Local {
    fn claim<'a>(&'a self, key: &'a Key, owner: &'a Arc<str>) -> Answer<'a, Result<(), Taken>> {
        let outcome = match self.owners().entry(key.clone()) {
            Entry::Occupied(_) => Err(Taken),
            Entry::Vacant(place) => {
                place.insert(Arc::clone(owner));
                Ok(())
            }
        };
        Box::pin(ready(outcome))
    }

    fn release(&self, key: &Key) {
        self.owners().remove(key);
    }

    fn locate<'a>(&'a self, key: &'a Key) -> Answer<'a, Option<Arc<str>>> {
        Box::pin(ready(self.owners().get(key).cloned()))
    }

    fn chosen<'a>(&'a self, client: &'a str, service: &'a str) -> Answer<'a, Vec<Port>> {
        Box::pin(ready(self.ports.of(client, service)))
    }

    fn chosen_by_others<'a>(
        &'a self,
        client: &'a str,
        service: &'a str,
    ) -> Answer<'a, HashSet<Port>> {
        Box::pin(ready(self.ports.of_others(client, service)))
    }

    fn note_chosen(&self, client: &str, service: &str, port: Port) {
        self.ports.note(client, service, port);
    }

    fn forget(&self, client: &str) {
        self.ports.forget(client);
    }

    fn save(&self) {
        self.ports.save();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use config::Over;

    use super::super::Claim;
    use super::*;

    #[tokio::test]
    async fn a_resource_has_one_owner_until_its_claim_ends() {
        let directory: Arc<dyn Directory> = Arc::new(Local::new(None));
        let [home, other] = ["home", "other"].map(Arc::<str>::from);
        let key = |over| Key::Port(over, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        let claim = async |over, owner| Claim::new(&directory, key(over), owner).await;
        let first = claim(Over::Tcp, &home).await.unwrap();
        assert_eq!(claim(Over::Tcp, &home).await.unwrap_err(), Taken);
        assert_eq!(claim(Over::Tcp, &other).await.unwrap_err(), Taken);
        assert!(claim(Over::Udp, &other).await.is_ok(), "another resource");
        assert_eq!(directory.locate(&key(Over::Tcp)).await.as_ref(), Some(&home));
        drop(first);
        assert_eq!(directory.locate(&key(Over::Tcp)).await, None);
        assert!(claim(Over::Tcp, &other).await.is_ok());
    }
}
