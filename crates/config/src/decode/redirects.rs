//! Redirects between the services of one file that form a loop.

use std::collections::HashMap;

use crate::model::{Public, Service};
use crate::section::{Cx, Item, Section};
use crate::{BadValue, NameKind};

/// Browsers follow 20 redirects (the Fetch standard, section 4.4).
const FOLLOWED: usize = 20;

/// A URL of an exact host at the usual port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Url {
    kind: NameKind,
    host: String,
    path: String,
}

/// Reports the services whose redirects form a loop. Hosts below a wildcard are left out: they may
/// belong to another client.
pub(super) fn check<'s>(cx: &Cx<'_>, entries: impl Iterator<Item = (Item, &'s [Service])> + Clone) {
    let mut all = Names::new();
    for service in entries.clone().flat_map(|(_, services)| services) {
        for public in &service.public {
            if let Public::Name { kind, host } = public {
                all.entry((kind.scheme(), host)).or_default().push(service);
            }
        }
    }
    for (item, services) in entries {
        let starts = services.iter().filter(|service| service.terms.http.redirect.is_some());
        let mut starts = starts.flat_map(|service| {
            let path = service.terms.http.path.as_deref().unwrap_or("/");
            let url = |public: &Public| match public {
                Public::Name { kind, host } => {
                    Some(Url { kind: *kind, host: host.clone(), path: path.to_owned() })
                }
                Public::Tcp { .. } | Public::Udp { .. } => None,
            };
            service.public.iter().filter_map(url)
        });
        if let Some(start) = starts.find(|start| is_endless(&all, start)) {
            let (scheme, host) = (start.kind.scheme(), &start.host);
            let bad =
                BadValue::new(format!("visitors of {scheme}://{host} are redirected for ever"));
            let hint = "the address leads back to a host of this file that redirects";
            if let Some(s) = Section::quiet(cx, item) {
                s.bad("redirect", bad.hint(hint));
            }
        }
    }
}

/// The services by name.
type Names<'s> = HashMap<(&'static str, &'s str), Vec<&'s Service>>;

fn is_endless(all: &Names<'_>, start: &Url) -> bool {
    let mut at = start.clone();
    for _ in 0..FOLLOWED {
        match step(all, &at) {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// The URL to which the server redirects a visitor of this URL.
fn step(all: &Names<'_>, at: &Url) -> Option<Url> {
    let path = |service: &&&Service| service.terms.http.path.as_ref().map_or(0, String::len);
    let takes = |service: &&&Service| {
        service.terms.http.path.as_ref().is_none_or(|path| is_below(path, &at.path))
    };
    let of = |kind: NameKind| {
        all.get(&(kind.scheme(), &*at.host))?.iter().filter(takes).max_by_key(path)
    };
    let service = match (of(at.kind), at.kind) {
        (Some(service), _) => service,
        (None, NameKind::Http) => {
            of(NameKind::Https).filter(|service| !service.terms.http.no_https_redirect)?;
            return Some(Url { kind: NameKind::Https, ..at.clone() });
        }
        (None, NameKind::Https | NameKind::Tls) => return None,
    };
    read(&service.terms.http.redirect.as_ref()?.location(&at.host, &at.path, None))
}

fn is_below(prefix: &str, path: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads the target address of a redirect. `None`: the address has a port of its own.
fn read(location: &str) -> Option<Url> {
    let (scheme, rest) = location.split_once("://")?;
    let (kind, port) = match scheme {
        "https" => (NameKind::Https, ":443"),
        _ => (NameKind::Http, ":80"),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.strip_suffix(port).unwrap_or(authority);
    let path = path.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/");
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    (!host.contains(':')).then(|| Url { kind, host, path: path.to_owned() })
}
