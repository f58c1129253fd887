//! The public addresses of services, by the servers that publish them: services at different
//! servers may have the same address, because each server has listeners and names of its own.

use std::collections::BTreeMap;

use crate::Over;
use crate::model::{Public, Service};
use crate::names::{NameKind, Names};
use crate::taken::{Bind, Clash, Taken};

/// The occupied public addresses.
#[derive(Debug, Default)]
pub(crate) struct PublishedAt(BTreeMap<Vec<String>, SameServers>);

/// The addresses of the services that name the same servers; none: all servers.
#[derive(Debug, Default)]
struct SameServers {
    tcp: Taken,
    udp: Taken,
    names: Names,
}

impl SameServers {
    const fn ports(&self, over: Over) -> &Taken {
        match over {
            Over::Tcp => &self.tcp,
            Over::Udp => &self.udp,
        }
    }
}

impl PublishedAt {
    fn own(&mut self, servers: &[String]) -> &mut SameServers {
        self.0.entry(servers.to_vec()).or_default()
    }

    /// The groups of which a server has services at these servers as well.
    fn met(&self, servers: &[String]) -> impl Iterator<Item = &SameServers> {
        let meets = |of: &[String]| {
            of.is_empty() || servers.is_empty() || of.iter().any(|server| servers.contains(server))
        };
        self.0.iter().filter(move |(of, _)| meets(of)).map(|(_, group)| group)
    }

    /// Occupies a port at these servers and returns the conflict, if there is one.
    pub(crate) fn take(
        &mut self,
        servers: &[String],
        (over, bind, port): (Over, Bind, u16),
    ) -> Option<Clash> {
        let clash = self.clash(servers, (over, bind, port));
        let own = self.own(servers);
        let taken = match over {
            Over::Tcp => &mut own.tcp,
            Over::Udp => &mut own.udp,
        };
        let _ = taken.take(bind, port);
        clash
    }

    fn clash(&self, servers: &[String], (over, bind, port): (Over, Bind, u16)) -> Option<Clash> {
        self.met(servers).find_map(|group| group.ports(over).clash(bind, port))
    }

    /// Occupies a name at these servers for the requests below `path`. Returns whether the name was
    /// free.
    pub(crate) fn take_name(
        &mut self,
        servers: &[String],
        (kind, host): (NameKind, &str),
        path: Option<&str>,
    ) -> bool {
        let is_free = !self.has_name(servers, (kind, host), path);
        let _ = self.own(servers).names.take(kind, host, path);
        is_free
    }

    fn has_name(
        &self,
        servers: &[String],
        (kind, host): (NameKind, &str),
        path: Option<&str>,
    ) -> bool {
        self.met(servers).any(|group| group.names.has(kind, host, path))
    }

    /// Occupies all addresses of a service, which was compared with the others already.
    pub(crate) fn add(&mut self, service: &Service) {
        let path = service.terms.http.path.as_deref();
        for public in &service.public {
            match public {
                Public::Tcp { bind, port } => {
                    let place = (Over::Tcp, Bind::of(*bind), *port);
                    let _ = self.take(&service.servers, place);
                }
                Public::Udp { bind, port } => {
                    let place = (Over::Udp, Bind::of(*bind), *port);
                    let _ = self.take(&service.servers, place);
                }
                Public::Name { kind, host } => {
                    let _ = self.take_name(&service.servers, (*kind, host), path);
                }
            }
        }
    }

    /// Whether an address of the service is occupied at one of its servers.
    pub(crate) fn has_one_of(&self, service: &Service) -> bool {
        let (servers, path) = (&service.servers, service.terms.http.path.as_deref());
        let is_taken = |public: &Public| match public {
            Public::Tcp { bind, port } => {
                self.clash(servers, (Over::Tcp, Bind::of(*bind), *port)).is_some()
            }
            Public::Udp { bind, port } => {
                self.clash(servers, (Over::Udp, Bind::of(*bind), *port)).is_some()
            }
            Public::Name { kind, host } => self.has_name(servers, (*kind, host), path),
        };
        service.public.iter().any(is_taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_at_the_servers_that_two_services_share() {
        let servers = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (all, fra, nyc) = (servers(&[]), servers(&["fra"]), servers(&["nyc"]));
        let both = servers(&["nyc", "fra"]);
        let port = (Over::Tcp, Bind::Public, 80);
        for (first, second, clashes) in [
            (&fra, &nyc, false),
            (&fra, &fra, true),
            (&fra, &both, true),
            (&both, &nyc, true),
            (&all, &nyc, true),
            (&nyc, &all, true),
        ] {
            let mut places = PublishedAt::default();
            assert_eq!(places.take(first, port), None);
            assert_eq!(places.take(second, (Over::Udp, Bind::Public, 80)), None);
            assert_eq!(places.take(second, port).is_some(), clashes, "{first:?} {second:?}");
            let name = (NameKind::Http, "a.example");
            assert!(places.take_name(first, name, None));
            assert_eq!(!places.take_name(second, name, None), clashes, "{first:?} {second:?}");
        }
    }
}
