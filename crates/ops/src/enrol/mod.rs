//! Enrolment as data: the order of a person, and the answer of a server.

mod code;
mod reach;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use code::Code;
use reach::at;
use reach::named;
pub use reach::{PLACEHOLDER, encrypted, urls};

/// The validity of a code.
pub const GOOD_FOR: Duration = Duration::from_secs(10 * 60);

/// The ports that a client may publish when the order names no rights. The range is far from the
/// ports of usual services: a client that publishes 8080 or 5432 could pretend to be a program of
/// the server that is not running. Forwards into the server's network stay denied, as for every
/// client whose configuration does not allow them.
pub const PORTS: &str = "10000-10999";

/// A client and rights for it: the order for a code, or for more rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The client's name.
    pub name: String,
    /// The rights, in the form of `allow.tcp` (`allow_tcp`) and `allow.forward` (`allow_forward`)
    /// in the configuration.
    #[serde(default)]
    pub allow_tcp: Vec<String>,
    #[serde(default)]
    pub allow_forward: Vec<String>,
    /// The code gives a client that is enrolled already a new token, and no rights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renew: bool,
}

impl Order {
    /// The refusal of rights beside the renewal of a token.
    pub const RENEWAL_WITH_RIGHTS: &str = "a renewed token keeps the rights of the client (hint: \
                                           for more rights: tunnel allow NAME --tcp PORTS)";

    /// Makes an order with the given rights. Without `allow_tcp` the client may publish [`PORTS`].
    pub fn new(name: &str, allow_tcp: &[String], allow_forward: &[String]) -> Self {
        let allow_tcp =
            if allow_tcp.is_empty() { vec![PORTS.to_owned()] } else { allow_tcp.to_vec() };
        Self {
            name: name.to_owned(),
            allow_tcp,
            allow_forward: allow_forward.to_vec(),
            renew: false,
        }
    }

    /// Makes an order for a new token of a client that is enrolled already.
    pub fn renewal(name: &str) -> Self {
        Self { name: name.to_owned(), renew: true, ..Self::default() }
    }

    /// The rights as command-line flags, each with a space in front; empty for the default rights.
    pub fn flags(&self) -> String {
        let both = [("--allow-tcp", &self.allow_tcp), ("--allow-forward", &self.allow_forward)];
        let each = |(flag, list): (&str, &Vec<String>)| -> String {
            list.iter().map(|right| format!(" {flag} '{right}'")).collect()
        };
        if self.is_default() { String::new() } else { both.map(each).concat() }
    }

    /// The rights that the order names.
    pub fn rights(&self) -> Allowed {
        Allowed { tcp: self.allow_tcp.clone(), forward: self.allow_forward.clone() }
    }

    /// Whether the order has the default rights.
    pub fn is_default(&self) -> bool {
        self.allow_forward.is_empty() && self.allow_tcp == [PORTS]
    }
}

/// All rights of a client to ports (`tcp`) and to targets on the server's side (`forward`), after
/// rights were added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    pub tcp: Vec<String>,
    pub forward: Vec<String>,
}

impl fmt::Display for Allowed {
    /// Shows the rights as the end of a sentence about a client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tcp.as_slice() {
            [] => f.write_str("may publish nothing")?,
            [port] if port.bytes().all(|b| b.is_ascii_digit()) => {
                write!(f, "may publish port {port}")?;
            }
            ports => write!(f, "may publish ports {}", ports.join(", "))?,
        }
        if self.forward.is_empty() {
            return Ok(());
        }
        write!(f, " and may reach {} on the server's side", self.forward.join(", "))
    }
}

/// The answer of a server to an [`Order`]: the parts of a [`Code`] that the server knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The one-time secret.
    pub secret: String,
    /// The pin of the server's certificate, if there is one (`pin`), and whether the server made
    /// the certificate itself (`self_signed`).
    pub pin: Option<String>,
    pub self_signed: bool,
    /// The URLs of the bound listeners: `tls://[::]:7000`.
    pub listen: Vec<String>,
}

impl Opened {
    /// The code with instructions for a person. `servers`: the URLs under which the client reaches
    /// this machine; when empty, the URLs come from the listeners.
    pub fn text(self, order: &Order, servers: &[String]) -> String {
        let code = self.code(order, servers);
        let (name, rights) = (&order.name, order.rights());
        let reached = code.urls.join(", ");
        let example =
            code.urls.first().map_or_else(|| "tls://NAME:7000".to_owned(), |url| named(url));
        let minutes = GOOD_FOR.as_secs() / 60;
        if order.renew {
            return format!(
                "On the machine of client `{name}`, once and within {minutes} minutes, in the \
                 folder of its client.yaml\n(for another file, add --config FILE):\n\n  \
                 tunnel client --enroll {}\n\n\
                 The file gets a new token. The rights and limits of the client stay as they are. \
                 The old token\nis valid until the first log-in with the new token.",
                code.text()
            );
        }
        format!(
            "On the other machine, once and within {minutes} minutes:\n\n  \
             tunnel client --enroll {}\n\n\
             Client `{name}` {rights}.\n\
             For more rights, now or later, on this machine: tunnel allow {name} --tcp PORTS\n\
             Add what to publish, like --publish 3000 or --publish 10022=22\n\
             It will dial {reached}; if that is not how it reaches this machine, say\n\
             --server {example} here or there.",
            code.text()
        )
    }

    /// The code itself; `servers` as for [`Self::text`]. A host without a scheme is reached at the
    /// first listener, with TLS if there is one.
    pub fn code(self, order: &Order, servers: &[String]) -> Code {
        let urls = if servers.is_empty() {
            urls(&self.listen)
        } else {
            servers.iter().map(|server| at(server, &self.listen)).collect()
        };
        let Self { secret, pin, self_signed, .. } = self;
        let text = |rights: &[String]| (!rights.is_empty()).then(|| rights.join(", "));
        let (may, reach) = (text(&order.allow_tcp), text(&order.allow_forward));
        let (name, renew) = (order.name.clone(), order.renew);
        Code { name, secret, pin, self_signed, renew, may, reach, urls }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_shown_as_flags_unless_nothing_was_said() {
        assert_eq!(Order::new("a", &[], &[]).flags(), "");
        let order = Order::new("a", &["80".into()], &["10.0.0.0/8:*".into()]);
        assert_eq!(order.flags(), " --allow-tcp '80' --allow-forward '10.0.0.0/8:*'");
    }

    #[test]
    fn a_host_alone_is_reached_at_the_port_of_the_listener() {
        let listen = ["tcp://127.0.0.1:7001", "wss://[::]:7443/t"].map(str::to_owned);
        let opened = Opened {
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs".into(),
            pin: None,
            self_signed: false,
            listen: listen.to_vec(),
        };
        let servers = ["a.example", "[2001:db8::1]", "a.example:80", "quic://b"].map(str::to_owned);
        let code = opened.code(&Order::new("home", &[], &[]), &servers);
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
        };
        for (tcp, forward, said) in [
            (&[][..], &[][..], "Client `home` may publish ports 10000-10999.\n"),
            (&["80"], &[], "Client `home` may publish port 80.\n"),
            (&["80", "90"], &["a:1"], "may publish ports 80, 90 and may reach a:1 on the server's"),
        ] {
            let list = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
            let order = Order::new("home", &list(tcp), &list(forward));
            let text = opened().text(&order, &[]);
            assert!(text.contains(said), "{text}");
            assert!(text.contains(": tunnel allow home --tcp PORTS\n"), "{text}");
            assert!(text.ends_with("--server tls://NAME:7000 here or there."), "{text}");
            let code = text.split_whitespace().find(|word| word.starts_with("enroll1.")).unwrap();
            let code = Code::read(code).unwrap();
            assert_eq!(code.may, Some(order.allow_tcp.join(", ")));
            assert_eq!(code.reach, (!forward.is_empty()).then(|| forward.join(", ")));
        }
        for (listen, hint) in [
            ("tls://192.0.2.5:7443", "--server tls://NAME:7443 here"),
            ("quic://[2001:db8::1]:7001", "--server quic://NAME:7001 here"),
            ("wss://192.0.2.5:443/tunnel", "--server wss://NAME:443/tunnel here"),
        ] {
            let opened = Opened { listen: vec![listen.into()], ..opened() };
            let text = opened.text(&Order::new("home", &[], &[]), &[]);
            assert!(text.contains(hint), "{text}");
        }
        let none = Allowed::default().to_string();
        assert_eq!(none, "may publish nothing");
    }
}
