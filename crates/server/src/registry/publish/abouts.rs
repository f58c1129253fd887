//! What other servers need to know of the services of a registration.

use std::collections::HashMap;
use std::sync::Arc;

use config::Over;

use crate::directory::{Class, Key};

/// What other servers need to know of the services at each resource of a registration.
#[derive(Debug, Default)]
pub(super) struct Abouts {
    /// By resource.
    pub(super) at: HashMap<Key, Arc<str>>,
    /// By service, for ports that the server chooses.
    pub(super) chosen: HashMap<(String, Over, Class), Arc<str>>,
}

impl Abouts {
    /// The services at a resource.
    pub(super) fn at(&self, key: &Key) -> Arc<str> {
        self.at.get(key).map_or_else(|| "".into(), Arc::clone)
    }

    /// The service at a port of this class that the server chooses.
    pub(super) fn of_chosen(&self, service: &str, over: Over, class: Class) -> Arc<str> {
        let known = self.chosen.get(&(service.to_owned(), over, class));
        known.map_or_else(|| "".into(), Arc::clone)
    }
}
