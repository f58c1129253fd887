//! Enrolment as data: the order of a person, and the answer of a server.

mod code;
mod reach;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use code::Code;
pub use reach::{PLACEHOLDER, encrypted, urls};

/// The validity of a code.
pub const GOOD_FOR: Duration = Duration::from_secs(10 * 60);

/// The ports that a client may publish when the order names no rights: every port that needs no
/// privilege. A person who has the token or the code of such a client got it from the owner of the
/// server. Forwards into the server's network stay denied, as for every client whose configuration
/// does not allow them.
pub const PORTS: &str = "1024-65535";

/// The order for a code: the new client and its rights.
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
}

impl Order {
    /// Makes an order with the given rights. Without `allow_tcp` the client may publish [`PORTS`].
    pub fn new(name: &str, allow_tcp: &[String], allow_forward: &[String]) -> Self {
        let allow_tcp =
            if allow_tcp.is_empty() { vec![PORTS.to_owned()] } else { allow_tcp.to_vec() };
        Self { name: name.to_owned(), allow_tcp, allow_forward: allow_forward.to_vec() }
    }

    /// The rights as command-line flags, each with a space in front; empty for the default rights.
    pub fn flags(&self) -> String {
        let both = [("--allow-tcp", &self.allow_tcp), ("--allow-forward", &self.allow_forward)];
        let each = |(flag, list): (&str, &Vec<String>)| -> String {
            list.iter().map(|right| format!(" {flag} '{right}'")).collect()
        };
        if self.is_default() { String::new() } else { both.map(each).concat() }
    }

    /// Whether the order has the default rights.
    pub fn is_default(&self) -> bool {
        self.allow_forward.is_empty() && self.allow_tcp == [PORTS]
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
    pub fn text(self, name: &str, servers: &[String]) -> String {
        let code = self.code(name, servers);
        let reached = code.urls.join(", ");
        let minutes = GOOD_FOR.as_secs() / 60;
        format!(
            "On the other machine, once and within {minutes} minutes:\n\n  \
             tunnel client --enroll {}\n\n\
             Add what to publish, like --publish tcp://:10022=tcp://127.0.0.1:22\n\
             It will dial {reached}; if that is not how it reaches this machine, say\n\
             --server tls://NAME:7000 here or there.",
            code.text()
        )
    }

    /// The code itself; `servers` as for [`Self::text`].
    pub fn code(self, name: &str, servers: &[String]) -> Code {
        let urls = if servers.is_empty() { urls(&self.listen) } else { servers.to_vec() };
        let Self { secret, pin, self_signed, .. } = self;
        Code { name: name.to_owned(), secret, pin, self_signed, urls }
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
}
