//! The directory of a single server: a table in memory, and the file of the chosen ports. The lock
//! is held for map lookups, never while a port is opened or a file is written.

use std::collections::btree_map::BTreeMap;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::file::PortsFile;
use super::{
    Answer, Away, Blob, BlobName, ClaimRequest, Claimed, Directory, Generation, Key, Owner, Put,
    Release, Revision, Subject, Topic, Whereabouts,
};
use crate::about::Marks;

/// The directory of a server that shares its clients with no other server.
#[derive(Debug)]
pub(crate) struct Local {
    table: Mutex<Claims>,
    ports: Mutex<Blob>,
    file: Arc<PortsFile>,
    /// The revision of the chosen ports.
    changed: watch::Sender<Revision>,
    /// A directory in memory always answers.
    answers: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct Claims {
    held: HashMap<Key, (Owner, Generation)>,
    /// The owners of all claims of a client, by its name.
    of_client: HashMap<Arc<str>, BTreeMap<Generation, Owner>>,
    /// The number of claims so far.
    claims: u64,
}

impl Claims {
    fn claim(&mut self, ClaimRequest { key, owner, expected, .. }: ClaimRequest) -> Claimed {
        if let Some((by, generation)) = self.held.get(&key) {
            let (by, generation) = (by.clone(), *generation);
            if expected != Some(generation) {
                return Claimed::Taken { by, generation };
            }
            self.forget(&by, generation);
        }
        self.claims += 1;
        let generation = Generation(self.claims);
        let of_client = self.of_client.entry(Arc::clone(&owner.client)).or_default();
        of_client.insert(generation, owner.clone());
        self.held.insert(key, (owner, generation));
        Claimed::Held(generation)
    }

    fn release(&mut self, Release { key, generation }: &Release) {
        if self.held.get(key).is_some_and(|(_, latest)| latest == generation)
            && let Some((owner, generation)) = self.held.remove(key)
        {
            self.forget(&owner, generation);
        }
    }

    /// Removes a claim from the claims of its client.
    fn forget(&mut self, owner: &Owner, generation: Generation) {
        if let Some(claims) = self.of_client.get_mut(&owner.client) {
            claims.remove(&generation);
            if claims.is_empty() {
                self.of_client.remove(&owner.client);
            }
        }
    }

    fn whereabouts(&self, subject: &Subject) -> Option<Whereabouts> {
        match subject {
            Subject::Key(key) => {
                let (owner, generation) = self.held.get(key)?;
                Some(Whereabouts { owners: vec![owner.clone()], generation: *generation })
            }
            Subject::Client(client) => {
                let claims = self.of_client.get(client)?;
                let (generation, _) = claims.last_key_value()?;
                let mut seen = HashSet::new();
                let owners = claims.values().rev().filter(|owner| seen.insert(*owner)).cloned();
                Some(Whereabouts { owners: owners.collect(), generation: *generation })
            }
        }
    }
}

impl Local {
    /// Ports that the server chooses are stored in the directory `state`, or else kept in memory
    /// while this process runs.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        let (file, bytes) = PortsFile::read(state);
        // A file that is absent or empty is a blob that was never stored.
        let revision = Revision(u64::from(!bytes.is_empty()));
        Self {
            table: Mutex::default(),
            ports: Mutex::new(Blob { revision, bytes }),
            file,
            changed: watch::Sender::new(revision),
            answers: watch::Sender::default(),
        }
    }

    /// Writes the recorded ports now.
    #[cfg(test)]
    pub(crate) fn flush(&self) {
        self.file.write();
    }

    fn table(&self) -> MutexGuard<'_, Claims> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blob(&self, name: BlobName) -> MutexGuard<'_, Blob> {
        match name {
            BlobName::Ports => self.ports.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Directory for Local {
    fn marks(&self) -> Option<&Marks> {
        None
    }

    fn claim(&self, batch: Vec<ClaimRequest>) -> Answer<'_, Vec<Claimed>> {
        Box::pin(async move {
            self.file.write_again();
            let mut table = self.table();
            batch.into_iter().map(|request| table.claim(request)).collect()
        })
    }

    fn release(&self, batch: Vec<Release>) {
        let mut table = self.table();
        batch.iter().for_each(|release| table.release(release));
    }

    fn whereabouts(
        &self,
        batch: Vec<Subject>,
    ) -> Answer<'_, Result<Vec<Option<Whereabouts>>, Away>> {
        Box::pin(async move {
            let table = self.table();
            Ok(batch.iter().map(|subject| table.whereabouts(subject)).collect())
        })
    }

    fn follow(&self, topic: Topic) -> watch::Receiver<Revision> {
        match topic {
            Topic::Answers => self.answers.subscribe(),
            Topic::Blob(BlobName::Ports) => self.changed.subscribe(),
        }
    }

    fn get(&self, name: BlobName) -> Answer<'_, Result<Blob, Away>> {
        Box::pin(async move { Ok(self.blob(name).clone()) })
    }

    fn put(&self, name: BlobName, expected: Revision, bytes: Bytes) -> Answer<'_, Put> {
        Box::pin(async move {
            let mut blob = self.blob(name);
            if blob.revision != expected {
                return Put::Changed;
            }
            let revision = Revision(expected.0 + 1);
            *blob = Blob { revision, bytes: bytes.clone() };
            // The lock is held, so that the file and its followers get the versions in order.
            self.file.store(bytes);
            self.changed.send_replace(revision);
            Put::Done(revision)
        })
    }
}
