//! One question about the SRV records of a service.

use std::time::Duration;

use config::{FoundServer, SrvName};
use net::resolve::{Lookups, ServiceRecord, in_order};

use super::trouble::Trouble;

/// A service in DNS. The order of its servers is drawn again only when its records change: a client
/// whose preference changed with each answer would change its servers for no reason.
#[derive(Debug)]
pub(super) struct Services {
    name: SrvName,
    /// The last records, sorted, and the order that was drawn for them.
    former: (Vec<ServiceRecord>, Vec<(String, u16)>),
}

impl Services {
    pub(super) fn new(name: SrvName) -> Self {
        Self { name, former: Default::default() }
    }

    pub(super) const fn name(&self) -> &SrvName {
        &self.name
    }

    /// The hosts and ports of the servers in order of preference, and the time for which the answer
    /// is valid.
    pub(super) async fn ask(&mut self) -> Result<(Vec<(String, u16)>, Duration), Trouble> {
        let found = Lookups::of_servers().services(self.name.as_str()).await;
        let found = found.map_err(Trouble::LookUp)?;
        Ok((self.ordered(found.records, draw), found.ttl))
    }

    /// Puts the records into an order. `draw` returns a random number from 0 to its argument.
    fn ordered(
        &mut self,
        mut records: Vec<ServiceRecord>,
        draw: impl FnMut(u32) -> u32,
    ) -> Vec<(String, u16)> {
        let key = |record: &ServiceRecord| {
            (record.priority, record.weight, record.target.clone(), record.port)
        };
        records.sort_by_cached_key(key);
        if self.former.0 != records {
            let place = |record: ServiceRecord| (record.target, record.port);
            let places = in_order(records.clone(), draw).into_iter().map(place).collect();
            self.former = (records, places);
        }
        self.former.1.clone()
    }
}

/// A random number from 0 to `most`.
fn draw(most: u32) -> u32 {
    let number = u64::from_ne_bytes(link::random()) % (u64::from(most) + 1);
    u32::try_from(number).unwrap_or(most)
}

/// The servers as an answer of an API, in which form they are kept.
pub(super) fn as_answer(servers: &[FoundServer]) -> String {
    let paths = servers.iter().flat_map(|server| &server.paths);
    let urls: Vec<_> = paths.map(|path| path.endpoint.to_string()).collect();
    serde_json::json!({ "servers": urls }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, port: u16, target: &str) -> ServiceRecord {
        ServiceRecord { priority, weight: 1, port, target: target.to_owned() }
    }

    #[test]
    fn the_order_is_drawn_again_only_when_the_records_change() {
        let mut services = Services::new("_tunnel._tcp.example.com".parse().unwrap());
        let three = [record(2, 7, "c"), record(1, 7, "a"), record(1, 7, "b")];
        let first = services.ordered(three.to_vec(), |most| most);
        let place = |host: &str| (host.to_owned(), 7);
        assert_eq!(first, [place("b"), place("a"), place("c")]);
        let mut turned = three.to_vec();
        turned.reverse();
        assert_eq!(services.ordered(turned, |_| panic!("drawn again")), first);
        let two = services.ordered(three[..2].to_vec(), |_| 0);
        assert_eq!(two, [place("a"), place("c")]);
    }

    #[test]
    fn a_random_number_is_within_its_bounds() {
        for most in [0, 1, 5, u32::MAX] {
            for _ in 0..100 {
                assert!(draw(most) <= most);
            }
        }
    }
}
