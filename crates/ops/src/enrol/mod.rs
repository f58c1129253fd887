//! Enrolment as data: the order of a user, and the answer of a server.

mod code;
mod reach;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use code::{Code, ShownCode};
pub use reach::{PLACEHOLDER, encrypted, urls};
use reach::{at, ends_tls, named};

/// The validity of a code.
pub const GOOD_FOR: Duration = Duration::from_secs(10 * 60);

/// The TCP and UDP ports that a client may publish if the order names no ports. The range is far
/// from the ports of usual services: a client that publishes 8080 or 5432 could impersonate a
/// program of the server that is not running. Forwards into the server's network stay denied, as
/// for every client whose configuration does not allow them.
pub const PORTS: &str = "10000-10999";

/// A client and rights for it: the order for a code, or for additional rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The client's name.
    pub name: String,
    /// The rights, in the form of `allow.tcp` (`allow_tcp`), `allow.udp` (`allow_udp`),
    /// `allow.forward` (`allow_forward`), `allow.http` (`allow_http`) and `allow.tls` (`allow_tls`)
    /// in the configuration.
    #[serde(default)]
    pub allow_tcp: Vec<String>,
    /// A daemon of an earlier version, which carries no UDP, refuses an order with this key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_udp: Vec<String>,
    #[serde(default)]
    pub allow_forward: Vec<String>,
    /// A daemon of an earlier version, which has no rights to hosts, refuses an order with this
    /// key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_http: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_tls: Vec<String>,
    /// Servers to which the server may lead the client, in the form of `allow.via`. A daemon of an
    /// earlier version refuses an order with this key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_via: Vec<String>,
    /// Private services of other clients, in the form of `allow.visit`. A daemon of an earlier
    /// version refuses an order with this key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_visit: Vec<String>,
    /// Whether services of the client may share their addresses with those of other clients, as
    /// `allow.shared`. A daemon of an earlier version refuses an order with this key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_shared: bool,
    /// Whether the code only renews the token of an enrolled client, without rights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renew: bool,
}

impl Order {
    /// The refusal of an order with both rights and the renewal of a token.
    pub const RENEWAL_WITH_RIGHTS: &str = "a renewed token keeps the rights of the client (hint: \
                                           for more rights: tunnel allow NAME --tcp PORTS)";

    /// Makes an order with the given rights. Without ports of TCP and of UDP the client may publish
    /// [`PORTS`] of both.
    pub fn new(name: &str, [tcp, udp]: [&[String]; 2], allow_forward: &[String]) -> Self {
        let is_default = tcp.is_empty() && udp.is_empty();
        let ports = |given: &[String]| match is_default {
            true => vec![PORTS.to_owned()],
            false => given.to_vec(),
        };
        Self {
            name: name.to_owned(),
            allow_tcp: ports(tcp),
            allow_udp: ports(udp),
            allow_forward: allow_forward.to_vec(),
            ..Self::default()
        }
    }

    /// Adds rights to hosts: for `http://` and `https://` names (`http`), and for `tls://` names.
    #[must_use]
    pub fn with_hosts(self, http: &[String], tls: &[String]) -> Self {
        Self { allow_http: http.to_vec(), allow_tls: tls.to_vec(), ..self }
    }

    /// Makes an order for a new token of an enrolled client.
    pub fn renewal(name: &str) -> Self {
        Self { name: name.to_owned(), renew: true, ..Self::default() }
    }

    /// The rights as command-line flags, each preceded by a space; empty for the default rights.
    pub fn flags(&self) -> String {
        let all = [
            ("--allow-tcp", &self.allow_tcp),
            ("--allow-udp", &self.allow_udp),
            ("--allow-http", &self.allow_http),
            ("--allow-tls", &self.allow_tls),
            ("--allow-forward", &self.allow_forward),
            ("--allow-via", &self.allow_via),
            ("--allow-visit", &self.allow_visit),
        ];
        let each = |(flag, list): (&str, &Vec<String>)| -> String {
            list.iter().map(|right| format!(" {flag} '{right}'")).collect()
        };
        if self.is_default() {
            return String::new();
        }
        let shared = if self.allow_shared { " --allow-shared" } else { "" };
        all.map(each).concat() + shared
    }

    /// The rights that the order names.
    pub fn rights(&self) -> Allowed {
        Allowed {
            tcp: self.allow_tcp.clone(),
            udp: self.allow_udp.clone(),
            http: self.allow_http.clone(),
            tls: self.allow_tls.clone(),
            forward: self.allow_forward.clone(),
            via: self.allow_via.clone(),
            visit: self.allow_visit.clone(),
            shared: self.allow_shared,
        }
    }

    /// Whether the order has the default rights.
    pub fn is_default(&self) -> bool {
        let others = [
            &self.allow_forward,
            &self.allow_http,
            &self.allow_tls,
            &self.allow_via,
            &self.allow_visit,
        ];
        let ports = [&self.allow_tcp, &self.allow_udp];
        ports.iter().all(|ports| **ports == [PORTS])
            && others.iter().all(|rights| rights.is_empty())
            && !self.allow_shared
    }

    /// Whether the order names no right.
    pub fn is_without_rights(&self) -> bool {
        self.rights() == Allowed::default()
    }
}

/// All rights of a client to ports (`tcp`, `udp`), to hosts (`http`, `tls`), to targets on the
/// server's side (`forward`), to other servers (`via`), to private services of other clients
/// (`visit`), and to share addresses with other clients (`shared`), after rights were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    pub tcp: Vec<String>,
    #[serde(default)]
    pub udp: Vec<String>,
    #[serde(default)]
    pub http: Vec<String>,
    #[serde(default)]
    pub tls: Vec<String>,
    pub forward: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub visit: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl Allowed {
    /// The hosts as names that a service may have.
    pub fn hosts(&self) -> Vec<String> {
        let http = self.http.iter().map(|host| format!("http://{host}"));
        http.chain(self.tls.iter().map(|host| format!("tls://{host}"))).collect()
    }

    /// Everything that may be published, as one text.
    fn public(&self) -> String {
        let udp = self.udp.iter().map(|ports| format!("udp://{ports}")).collect();
        [self.tcp.clone(), udp, self.hosts()].concat().join(", ")
    }

    /// The rights in the texts of a [`Code`].
    pub fn of_code(code: &Code) -> Self {
        let texts = |text: &Option<String>| -> Vec<String> {
            text.iter().flat_map(|text| text.split(", ")).map(str::to_owned).collect()
        };
        let mut all = Self { forward: texts(&code.reach), ..Self::default() };
        for text in texts(&code.may) {
            match text.split_once("://") {
                Some(("udp", ports)) => all.udp.push(ports.to_owned()),
                Some(("http", host)) => all.http.push(host.to_owned()),
                Some(("tls", host)) => all.tls.push(host.to_owned()),
                Some(_) | None => all.tcp.push(text),
            }
        }
        all
    }
}

impl fmt::Display for Allowed {
    /// Shows the rights as the end of a sentence about a client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports = |ports: &[String]| match ports {
            [port] if port.bytes().all(|b| b.is_ascii_digit()) => format!("port {port}"),
            ports => format!("ports {}", ports.join(", ")),
        };
        let ports: Vec<_> = match (self.tcp.as_slice(), self.udp.as_slice()) {
            ([], []) => Vec::new(),
            (tcp, []) => vec![ports(tcp)],
            (tcp, udp) if tcp == udp => vec![format!("{} of TCP and UDP", ports(tcp))],
            ([], udp) => vec![format!("UDP {}", ports(udp))],
            (tcp, udp) => vec![ports(tcp), format!("UDP {}", ports(udp))],
        };
        let public: Vec<_> = ports.into_iter().chain(self.hosts()).collect();
        if public.is_empty() {
            f.write_str("may publish nothing")?;
        } else {
            write!(f, "may publish {}", public.join(", "))?;
        }
        if !self.forward.is_empty() {
            write!(f, " and may reach {} on the server's side", self.forward.join(", "))?;
        }
        if !self.via.is_empty() {
            write!(f, " and may go via the server to {}", self.via.join(", "))?;
        }
        if !self.visit.is_empty() {
            write!(f, " and may visit {}", self.visit.join(", "))?;
        }
        if self.shared {
            f.write_str(" and may share its addresses with other clients")?;
        }
        Ok(())
    }
}

/// The answer of a server to an [`Order`]: the parts of a [`Code`] that the server knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The one-time secret.
    pub secret: String,
    /// The pin of the server's certificate, if there is one (`pin`), and whether the server
    /// generated the certificate itself (`self_signed`).
    pub pin: Option<String>,
    pub self_signed: bool,
    /// The URLs of the bound listeners: `tls://[::]:7000`.
    pub listen: Vec<String>,
    /// The URLs for clients in `public_url`; absent without the key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub public: Vec<String>,
}

impl Opened {
    /// The code with instructions for the user. `servers`: the URLs at which the client reaches
    /// this machine; when empty, the URLs come from `public_url`, or else from the listeners.
    pub fn text(self, order: &Order, servers: &[String]) -> String {
        self.code(order, servers).told(order)
    }

    /// The code itself; `servers` as for [`Self::text`]. A host without a scheme is reached at the
    /// first listener, with TLS if there is one.
    pub fn code(self, order: &Order, servers: &[String]) -> Code {
        let urls = match (servers, self.public.as_slice()) {
            ([], []) => urls(&self.listen),
            ([], public) => encrypted(public.to_vec()),
            (servers, _) => servers.iter().map(|server| at(server, &self.listen)).collect(),
        };
        let is_web_socket = |url: &String| url.starts_with("wss://");
        let proxied = urls.iter().any(is_web_socket) && !ends_tls(&self.listen);
        let Self { secret, pin, self_signed, .. } = self;
        let text = |rights: String| (!rights.is_empty()).then_some(rights);
        let (may, reach) = (text(order.rights().public()), text(order.allow_forward.join(", ")));
        let (name, renew) = (order.name.clone(), order.renew);
        let names = BTreeMap::new();
        let others = Vec::new();
        Code { name, secret, pin, self_signed, renew, proxied, may, reach, urls, names, others }
    }
}

impl Code {
    /// The code with instructions for the user.
    pub fn told(&self, order: &Order) -> String {
        let (name, rights) = (&order.name, order.rights());
        let reached: Vec<_> = self.each().flat_map(|code| &code.urls).cloned().collect();
        let reached = reached.join(", ");
        let example =
            self.urls.first().map_or_else(|| "tls://NAME:7000".to_owned(), |url| named(url));
        let minutes = GOOD_FOR.as_secs() / 60;
        if order.renew {
            return format!(
                "On the machine of client `{name}`, once and within {minutes} minutes, in the \
                 folder of its client.yaml\n(for another file, add --config FILE):\n\n  \
                 tunnel client --enroll {}\n\n\
                 The file gets a new token. The rights and limits of the client stay as they are. \
                 The old token\nis valid until the first log-in with the new token.",
                self.text()
            );
        }
        let publish = publish(&rights);
        let dials = if self.others.is_empty() {
            format!(
                "It will dial {reached}; if that is not how it reaches this machine, say\n\
                 --server {example} here or there."
            )
        } else {
            format!(
                "It will dial {reached}; the first server that answers has its services\n\
                 (use: failover). The other servers know its rights there."
            )
        };
        format!(
            "On the other machine, once and within {minutes} minutes:\n\n  \
             tunnel client --enroll {}\n\n\
             Client `{name}` {rights}.\n\
             For more rights, now or later, on this machine: tunnel allow {name} --tcp PORTS\n\
             {publish}\n\
             {dials}",
            self.text()
        )
    }
}

/// The line about the options that a client adds to its command. A host that the client may publish
/// serves as the example, if there is one.
fn publish(rights: &Allowed) -> String {
    let is_whole = |host: &&String| !host.starts_with('/') && !host.contains('*');
    match rights.http.iter().find(is_whole) {
        Some(host) => {
            format!("Add what to publish, like --publish http://{host}=3000 or --publish 10022=22")
        }
        None => "Add what to publish, like --publish 3000 or --publish 10022=22".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_to_hosts_are_told_and_come_through_a_code() {
        let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let order = Order::new("home", [&[], &[]], &[])
            .with_hosts(&list(&["*.home.example.com", "app.example.com"]), &list(&["vpn.example"]));
        assert_eq!(
            order.flags(),
            " --allow-tcp '10000-10999' --allow-udp '10000-10999' --allow-http '*.home.example.com' --allow-http \
             'app.example.com' --allow-tls 'vpn.example'"
        );
        let said = "may publish ports 10000-10999 of TCP and UDP, http://*.home.example.com, \
                    http://app.example.com, tls://vpn.example";
        assert_eq!(order.rights().to_string(), said);
        let opened = Opened {
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs".into(),
            pin: None,
            self_signed: false,
            listen: vec!["mux://192.0.2.5:443/t".into()],
            public: Vec::new(),
        };
        let text = opened.clone().text(&order, &[]);
        assert!(text.contains(said) && text.contains("--publish http://app.example.com=3000"));
        assert!(text.ends_with("--server tls://NAME:443 here or there."), "{text}");
        let code = opened.code(&order, &[]);
        assert_eq!(Allowed::of_code(&Code::read(&code.text()).unwrap()), order.rights());
        assert_eq!(code.urls, ["tls://192.0.2.5:443"]);
        let hosts = Allowed { http: list(&["a.example"]), ..Allowed::default() };
        assert_eq!(hosts.to_string(), "may publish http://a.example");
        // An order without rights to hosts is one that an earlier daemon takes.
        let json = serde_json::to_string(&Order::new("home", [&[], &[]], &[])).unwrap();
        assert!(!json.contains("http") && !json.contains("tls"), "{json}");
    }

    #[test]
    fn rights_are_shown_as_flags_unless_nothing_was_said() {
        assert_eq!(Order::new("a", [&[], &[]], &[]).flags(), "");
        let order = Order::new("a", [&["80".into()], &[]], &["10.0.0.0/8:*".into()]);
        assert_eq!(order.flags(), " --allow-tcp '80' --allow-forward '10.0.0.0/8:*'");
        let order = Order::new("a", [&[], &["53".into()]], &[]);
        assert_eq!(order.flags(), " --allow-udp '53'");
        assert_eq!(order.rights().to_string(), "may publish UDP port 53");
        let order = Order::new("a", [&["80".into()], &["53".into(), "54".into()]], &[]);
        assert_eq!(order.rights().to_string(), "may publish port 80, UDP ports 53, 54");
        let order = Order { allow_shared: true, ..Order::new("a", [&[], &[]], &[]) };
        assert_eq!(
            order.flags(),
            " --allow-tcp '10000-10999' --allow-udp '10000-10999' --allow-shared"
        );
        assert_eq!(
            order.rights().to_string(),
            "may publish ports 10000-10999 of TCP and UDP and may share its addresses with other clients"
        );
        let only = Order { name: "a".into(), allow_shared: true, ..Order::default() };
        assert!(!only.is_without_rights());
    }

    #[test]
    fn the_public_urls_take_the_place_of_the_listeners_and_a_proxy_has_its_own_certificate() {
        let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let order = Order::new("home", [&[], &[]], &[]);
        let code = |listen: &[&str], public: &[&str], servers: &[&str]| {
            let opened = Opened {
                secret: "q7Xb2LmZ0aKc9RtYv4WnPs".into(),
                pin: Some("sha256:AAAA".into()),
                self_signed: true,
                listen: list(listen),
                public: list(public),
            };
            let code = opened.code(&order, &list(servers));
            (code.urls, code.proxied)
        };
        let behind = ["ws://127.0.0.1:7080/t", "tls://[::]:7000"];
        let public = ["ws://a.example:80/t", "wss://a.example:443/t", "tls://a.example:7000"];
        assert_eq!(code(&behind, &public, &[]), (list(&public[1..]), true));
        assert_eq!(code(&behind, &public[..1], &[]), (list(&public[..1]), false));
        assert_eq!(code(&behind, &public, &["quic://b"]), (list(&["quic://b"]), false));
        assert_eq!(code(&behind, &[], &["wss://b/t"]), (list(&["wss://b/t"]), true));
        let own = ["mux://[::]:443/t"];
        assert_eq!(code(&own, &public[1..2], &[]), (list(&public[1..2]), false));
        // What an earlier daemon answers is read.
        let earlier = r#"{"secret":"s","pin":null,"self_signed":false,"listen":["tls://a:1"]}"#;
        let earlier: Opened = serde_json::from_str(earlier).unwrap();
        assert_eq!(earlier.code(&order, &[]).urls, ["tls://a:1"]);
    }

    #[test]
    fn a_host_alone_is_reached_at_the_port_of_the_listener() {
        let listen = ["tcp://127.0.0.1:7001", "wss://[::]:7443/t"].map(str::to_owned);
        let opened = Opened {
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs".into(),
            pin: None,
            self_signed: false,
            public: Vec::new(),
            listen: listen.to_vec(),
        };
        let servers = ["a.example", "[2001:db8::1]", "a.example:80", "quic://b"].map(str::to_owned);
        let code = opened.code(&Order::new("home", [&[], &[]], &[]), &servers);
        let expected = [
            "wss://a.example:7443/t",
            "wss://[2001:db8::1]:7443/t",
            "tls://a.example:80",
            "quic://b",
        ];
        assert_eq!(code.urls, expected);
    }

    #[test]
    fn the_server_and_the_code_tell_the_rights_of_the_order() {
        let opened = || Opened {
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs".into(),
            pin: None,
            self_signed: false,
            listen: vec!["tls://192.0.2.5:7000".into()],
            public: Vec::new(),
        };
        for (tcp, forward, said) in [
            (&[][..], &[][..], "Client `home` may publish ports 10000-10999 of TCP and UDP.\n"),
            (&["80"], &[], "Client `home` may publish port 80.\n"),
            (&["80", "90"], &["a:1"], "may publish ports 80, 90 and may reach a:1 on the server's"),
        ] {
            let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
            let order = Order::new("home", [&list(tcp), &[]], &list(forward));
            let text = opened().text(&order, &[]);
            assert!(text.contains(said), "{text}");
            assert!(text.contains(": tunnel allow home --tcp PORTS\n"), "{text}");
            assert!(text.ends_with("--server tls://NAME:7000 here or there."), "{text}");
            let code = text.split_whitespace().find(|word| word.starts_with("enroll1.")).unwrap();
            let code = Code::read(code).unwrap();
            assert_eq!(code.may, Some(order.rights().public()));
            assert_eq!(code.reach, (!forward.is_empty()).then(|| forward.join(", ")));
        }
        for (listen, hint) in [
            ("tls://192.0.2.5:7443", "--server tls://NAME:7443 here"),
            ("quic://[2001:db8::1]:7001", "--server quic://NAME:7001 here"),
            ("wss://192.0.2.5:443/tunnel", "--server wss://NAME:443/tunnel here"),
        ] {
            let opened = Opened { listen: vec![listen.into()], ..opened() };
            let text = opened.text(&Order::new("home", [&[], &[]], &[]), &[]);
            assert!(text.contains(hint), "{text}");
        }
        let none = Allowed::default().to_string();
        assert_eq!(none, "may publish nothing");
    }
}
