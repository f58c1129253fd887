//! The two lists of a client, services and forwards. They come from the file, from flags, and from
//! commands to the running client. A later list adds to an earlier list.

use std::collections::BTreeSet;

use proto::control::{MESSAGE_MAX, SERVICES_MAX};

use crate::address::local;
use crate::model::{Forward, Public, Service};
use crate::names::{NameKind, expand, is_own, public_name};
use crate::published::PublishedAt;
use crate::taken::{Bind, Taken};
use crate::{BadValue, Local};

/// The largest number of public addresses of a client. With 16 bytes for each address, they fill
/// the message that registers them.
pub(crate) const PUBLISHED_MAX: usize = MESSAGE_MAX / 16;

/// The address of a forward's listener in its long form; `None` if the text is no such address.
#[must_use]
pub fn listen_address(text: &str) -> Option<String> {
    local(text, 0).ok().map(|local| local.to_string())
}

/// Services and forwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Services with unique names.
    pub services: Vec<Service>,
    /// Forwards with unique addresses.
    pub forwards: Vec<Forward>,
}

/// Lists that a running client received by commands, with the entries of the file that these lists
/// remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The entries to add.
    pub lists: Lists,
    /// Names of services and addresses of forwards that are removed. If an entry of a command and
    /// an entry of the file have the same name, the entry of the command is removed.
    pub without: Vec<String>,
    /// The change is also made in the configuration file: no shadowed entry waits for an added or a
    /// removed entry.
    pub saved: bool,
}

impl Lists {
    /// Whether both lists are empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.services.is_empty() && self.forwards.is_empty()
    }

    /// The number of services and forwards.
    pub(crate) const fn len(&self) -> usize {
        self.services.len() + self.forwards.len()
    }

    /// Adds `later`. An entry of `later` replaces each entry that has its name, one of its ports or
    /// its address. A service that gives only its address and its target takes over the other
    /// settings of the replaced entry, because `allow_from` must not get lost. Returns the replaced
    /// entries.
    pub fn add(&mut self, mut later: Self) -> Self {
        for service in later.services.iter_mut().filter(|service| service.is_short()) {
            let own = Places::of(std::slice::from_ref(service));
            if let Some(before) = self.services.iter().find(|before| own.are_of(before)) {
                service.take_settings(before);
            }
        }
        let lost = self.clear_places_of(&later);
        self.services.extend(later.services);
        self.forwards.extend(later.forwards);
        lost
    }

    /// Removes, and returns, each entry that has a name, port or address of an entry of `others`.
    pub(crate) fn clear_places_of(&mut self, others: &Self) -> Self {
        let places = Places::of(&others.services);
        let services = self.services.extract_if(.., |service| places.are_of(service)).collect();
        let is_placed = |own: &Forward| others.forwards.iter().any(|at| is_same_place(own, at));
        let forwards = self.forwards.extract_if(.., |own| is_placed(own)).collect();
        Self { services, forwards }
    }

    /// The name of the service at this host name (`http://app.example.com`), if it has no other
    /// public address.
    #[must_use]
    pub fn service_at(&self, what: &str) -> Option<&str> {
        let (kind, host) = public_name(what)?.ok()?;
        let name = [Public::Name { kind, host }];
        let found = self.services.iter().find(|service| service.public == name)?;
        Some(&found.name)
    }

    /// Removes the service of this name, or the forward that listens at this address. Returns
    /// whether there was one.
    pub fn remove(&mut self, what: &str) -> bool {
        let before = self.len();
        self.services.retain(|service| service.name != what);
        self.forwards.retain(|forward| forward.listen.to_string() != what);
        self.len() < before
    }

    /// Replaces `{name}` by the label of `client`.
    ///
    /// # Errors
    /// The client has no label, or a name would be published twice.
    pub(crate) fn expand(&mut self, client: &str) -> Result<(), BadValue> {
        let public = |service: &mut Service| -> Result<(), BadValue> {
            for public in &mut service.public {
                if let Public::Name { host, .. } = public {
                    *host = expand(host, client)?;
                }
            }
            Ok(())
        };
        let own = |public: &Public| matches!(public, Public::Name { host, .. } if is_own(host));
        if !self.services.iter().flat_map(|service| &service.public).any(own) {
            return Ok(());
        }
        self.services.iter_mut().try_for_each(public)?;
        let mut names = PublishedAt::default();
        for service in &self.services {
            let path = service.terms.http.path.as_deref();
            for public in &service.public {
                if let Public::Name { kind, host } = public
                    && !names.take_name(&service.servers, (*kind, host), path)
                {
                    return Err(twice(public));
                }
            }
        }
        Ok(())
    }

    /// Checks the sizes of the lists.
    ///
    /// # Errors
    /// There are more services or public addresses than one registration holds.
    pub fn check(&self) -> Result<(), BadValue> {
        let published: usize = self.services.iter().map(|service| service.public.len()).sum();
        too_many(self.services.len(), published).map_or(Ok(()), Err)
    }
}

/// The error for more services or public addresses than one registration holds.
pub(crate) fn too_many(services: usize, published: usize) -> Option<BadValue> {
    let (what, most) = if services > SERVICES_MAX {
        ("services", SERVICES_MAX)
    } else if published > PUBLISHED_MAX {
        ("public addresses", PUBLISHED_MAX)
    } else {
        return None;
    };
    let bad = BadValue::new(format!("more than {most} {what}"));
    Some(bad.hint("each port of a range is one"))
}

/// The names and public addresses of services.
pub(crate) struct Places {
    names: BTreeSet<String>,
    public: PublishedAt,
}

impl Places {
    pub(crate) fn of(services: &[Service]) -> Self {
        let names = services.iter().map(|service| service.name.clone()).collect();
        let mut public = PublishedAt::default();
        services.iter().for_each(|service| public.add(service));
        Self { names, public }
    }

    /// Whether the service has one of the names or addresses.
    pub(crate) fn are_of(&self, service: &Service) -> bool {
        self.names.contains(&service.name) || self.public.has_one_of(service)
    }
}

/// Whether two forwards cannot listen at the same time.
pub(crate) fn is_same_place(one: &Forward, other: &Forward) -> bool {
    if let (Local::Unix { address: one, .. }, Local::Unix { address: other, .. }) =
        (&one.listen, &other.listen)
    {
        return one == other;
    }
    let (Some((over, one)), Some((of_other, other))) = (one.listen.socket(), other.listen.socket())
    else {
        return false;
    };
    if one.link().is_some() && other.link().is_some() {
        return over == of_other && one == other && one.port() != 0;
    }
    let mut taken = Taken::default();
    let _ = taken.take(Bind::Ip(one.ip()), one.port());
    over == of_other && taken.clash(Bind::Ip(other.ip()), other.port()).is_some()
}

/// The error for a second service with this name.
pub(crate) fn twice(name: &Public) -> BadValue {
    let bad = BadValue::new(format!("{name} is published twice"));
    match name {
        Public::Name { kind: NameKind::Http, .. } => {
            bad.hint("keep one of them, or give each another `path`")
        }
        Public::Name { kind: NameKind::Https | NameKind::Tls, .. } => {
            bad.hint("keep one of them: https:// and tls:// of one host are one name")
        }
        Public::Tcp { .. } | Public::Udp { .. } => bad.hint("keep one of them"),
    }
}

/// The error for a service whose target is the admin API.
pub(crate) fn publishes_admin(service: &Service) -> BadValue {
    let bad = format!("service {}: it would publish the admin API of this daemon", service.name);
    BadValue::new(bad).hint(
        "reach the API by `ssh -L 7070:127.0.0.1:7070`, or behind a reverse proxy with TLS: \
         `admin: { hosts, origin }`",
    )
}

/// The error for an exit that any visitor may use.
pub(crate) fn open_to_all(service: &Service) -> BadValue {
    let bad = format!("service {}: everybody could use the {} exit", service.name, service.target);
    BadValue::new(bad).hint(
        "add `basic_auth: \"user:password\"`, or `allow_from:` with the networks of its visitors, \
         or publish it at loopback of the server: tcp://127.0.0.1:1080",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Text, load_kept};
    use crate::section::Sources;

    fn kept(text: &str) -> Kept {
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        load_kept(Text { name: "kept", text }, None, &sources).unwrap().config
    }

    fn shown(lists: &Lists) -> String {
        let services = lists.services.iter().map(|service| {
            let public: Vec<_> = service.public.iter().map(ToString::to_string).collect();
            format!("{} {} {}", service.name, public.join(" "), service.target)
        });
        let forwards = lists.forwards.iter().map(|f| f.to_string().replace(" -> ", " "));
        services.chain(forwards).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_entry_in_the_place_of_another_keeps_who_may_visit() {
        let lists = |text: &str| kept(&format!("services: [{text}]\n")).lists;
        let file = "{ name: ssh, public: 22, target: 22, allow_from: 10.0.0.0/8, proxy_protocol: v2, \
                    timeouts: { idle: 1h } }";
        for later in ["{ name: ssh, public: 23, target: 24 }", "'22=24'"] {
            let mut now = lists(file);
            now.add(lists(later));
            let [service] = &now.services[..] else { panic!("{now:?}") };
            let (of_file, new) = (&lists(file).services[0], &lists(later).services[0]);
            let expected = Service {
                name: new.name.clone(),
                public: new.public.clone(),
                target: new.target.clone(),
                kept: true,
                ..of_file.clone()
            };
            assert_eq!(*service, expected);
        }
        let mut now = lists(file);
        now.add(lists("{ name: ssh, public: 22, target: 24, deny_from: 10.1.0.0/16 }"));
        assert_eq!(now.services[0].visitors.allow_from, None, "it has lists of its own");
    }

    /// A longer time for a service must not cost its password.
    #[test]
    fn options_of_a_command_change_these_settings_alone() {
        let lists = |text: &str| kept(&format!("services: [{text}]\n")).lists;
        let mut now = lists(
            "{ name: app, public: 'http://a.example', target: 1, basic_auth: 'u:p', deny_from: \
             10.0.0.0/8, hsts: 1d, until: 2026-12-01T18:00:00Z }",
        );
        let app = |now: &Lists| now.services[0].clone();
        let before = app(&now);
        now.add(lists(
            "{ public: 'http://a.example', target: 2, allow_from: 192.0.2.0/24, \
             until: 2026-12-02T18:00:00Z }",
        ));
        let after = app(&now);
        assert_eq!(after.terms, before.terms);
        assert_eq!(after.visitors.deny_from, before.visitors.deny_from);
        assert!(after.visitors.allow_from.is_some());
        assert_eq!(after.until.unwrap().to_string(), "2026-12-02T18:00:00Z");
        now.add(lists("{ public: 'http://a.example', target: 2, basic_auth: 'v:q' }"));
        assert_eq!(app(&now).terms.http.basic_auth, ["v:q"]);
        assert_eq!(app(&now).visitors, after.visitors);
        assert_eq!(app(&now).until, None, "published without an end");
        let mut other = before.clone();
        assert!(before.is_in(&app(&lists(
            "{ name: b, public: 'http://a.example', target: 1, \
            basic_auth: 'u:p', deny_from: 10.0.0.0/8, hsts: 1d }"
        ))));
        other.terms.http.basic_auth = vec!["x:y".to_owned()];
        assert!(!other.is_in(&before), "another password");
    }

    #[test]
    fn a_later_entry_takes_the_place_of_the_one_with_its_host_and_path() {
        let lists = |text: &str| kept(&format!("services: {text}\n")).lists;
        let mut now = lists(
            "[{ name: app, public: 'http://a.example', target: 1, basic_auth: 'u:p' }, \
              { name: api, public: 'http://a.example', target: 2, path: /api }, \
              { name: vpn, public: 'tls://v.example', target: 3 }, \
              { name: two, public: ['http://b.example', 'https://b.example'], target: 4 }]",
        );
        now.add(lists("['http://A.example=8080', 'https://v.example=http://10.0.0.1']"));
        assert_eq!(
            shown(&now),
            "api http://a.example tcp://localhost:2\n\
             two http://b.example https://b.example tcp://localhost:4\n\
             http-a.example http://a.example tcp://localhost:8080\n\
             https-v.example https://v.example tcp://10.0.0.1:80"
        );
        assert_eq!(
            now.services[2].terms.http.basic_auth,
            ["u:p"],
            "the password does not get lost"
        );
        assert_eq!(now.service_at("https://V.example"), Some("https-v.example"));
        for not in ["http://v.example", "http://b.example", "a.example", "http://a.example:80"] {
            assert_eq!(now.service_at(not), None, "{not}");
        }
        // The options of HTTP are of no use at a port, and `pass_through` is not with `https`.
        let mut now = lists("[{ name: a, public: 'http://a.example', target: 1, path: /x }]");
        now.add(lists("[{ name: a, public: 80, target: 1 }]"));
        assert!(now.services[0].terms.http.is_default());
        let mut now = lists("[{ name: a, public: 'http://a.b', target: 1, pass_through: true }]");
        now.add(lists("[{ name: a, public: ['http://a.b', 'https://a.b'], target: 1 }]"));
        assert!(!now.services[0].terms.http.pass_through);
    }

    #[test]
    fn ports_of_udp_and_tcp_are_two_places_and_settings_that_fit_no_more_are_dropped() {
        let lists = |text: &str| kept(&format!("services: {text}\n")).lists;
        let mut now = lists(
            "[{ name: dns, public: 53, target: 53, proxy_protocol: v1, health: {} }, \
              { name: both, public: ['tcp://:54', 'udp://:54'], target: 54, health: {} }, \
              { name: exit, public: 1080, target: socks5, basic_auth: 'u:p', allow: 'a:1' }]",
        );
        now.add(lists("['udp://:53=53', '54=9']"));
        assert_eq!(
            shown(&now),
            "dns tcp://:53 tcp://localhost:53\n\
             exit tcp://:1080 socks5\n\
             udp-53 udp://:53 udp://localhost:53\n\
             tcp-54 tcp://:54 tcp://localhost:9"
        );
        now.add(lists("[{ name: dns, public: 'udp://:55', target: 'udp://b:1' }]"));
        now.add(lists("[{ name: exit, public: 1081, target: http-proxy }]"));
        let exit = now.services.iter().find(|s| s.name == "exit").unwrap();
        assert_eq!(exit.exit.basic_auth[0].reveal(), "u:p", "who may use it does not get lost");
        let dns = now.services.iter().find(|s| s.name == "dns").unwrap();
        assert_eq!((dns.proxy_protocol, &dns.health), (None, &None));
        now.add(lists("[{ name: exit, public: 1081, target: 22 }]"));
        let exit = now.services.iter().find(|s| s.name == "exit").unwrap();
        assert_eq!(exit.exit, crate::Exit::default());

        let lists = |text: &str| kept(&format!("forwards: {text}\n")).lists;
        let mut now = lists("['1080=1', 'udp://127.0.0.1:53=53', 'udp://1080=9']");
        now.add(lists("['socks5://127.0.0.1:1080', 'udp://0.0.0.0:53=udp://b:53']"));
        assert_eq!(
            shown(&now),
            "udp://127.0.0.1:1080 udp://localhost:9\n\
             socks5://127.0.0.1:1080\n\
             udp://0.0.0.0:53 udp://b:53"
        );
        assert!(now.remove("socks5://127.0.0.1:1080"));
        for (text, long) in [
            ("socks5://1080", "socks5://127.0.0.1:1080"),
            ("http-proxy://[::1]:3128", "http-proxy://[::1]:3128"),
            ("udp://5300", "udp://127.0.0.1:5300"),
        ] {
            assert_eq!(listen_address(text).as_deref(), Some(long));
        }
    }

    #[test]
    fn a_later_entry_takes_the_place_of_those_with_its_name_or_port() {
        let mut lists = kept(
            "services:\n\
             - { name: ssh, public: 22, target: 22 }\n\
             - { name: range, public: 100-102, target: 100-102 }\n\
             - { name: two, public: [201, 202], target: 200 }\n\
             - { name: any, public: 'tcp://:0', target: 1 }\n\
             forwards:\n\
             - { listen: 5203, target: 5201 }\n\
             - { listen: 'tcp://127.0.0.2:5204', target: 5201 }\n\
             - { listen: 'unix:///a', target: 5201 }\n",
        )
        .lists;
        lists.add(
            kept(
                "services: ['101=7', '202=7', 'tcp://:0=1', { name: ssh, public: 23, target: 24 }]\n\
                 forwards: [{ listen: 'tcp://0.0.0.0:5204', target: 9 }, \
                            { listen: 'unix:///a', target: 9 }]\n",
            )
            .lists,
        );
        assert_eq!(
            shown(&lists),
            "range-100 tcp://:100 tcp://localhost:100\n\
             range-102 tcp://:102 tcp://localhost:102\n\
             any tcp://:0 tcp://localhost:1\n\
             tcp-101 tcp://:101 tcp://localhost:7\n\
             tcp-202 tcp://:202 tcp://localhost:7\n\
             tcp-1 tcp://:0 tcp://localhost:1\n\
             ssh tcp://:23 tcp://localhost:24\n\
             tcp://127.0.0.1:5203 tcp://localhost:5201\n\
             tcp://0.0.0.0:5204 tcp://localhost:9\n\
             unix:///a tcp://localhost:9"
        );
        assert!(lists.remove("ssh") && !lists.remove("ssh"));
        assert!(lists.remove("tcp://127.0.0.1:5203") && lists.remove("unix:///a"));
    }
}
