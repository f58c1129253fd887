//! Enrolment as data: what is asked for, and what a server gives for it.

mod code;
mod reach;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use code::Code;
pub use reach::{PLACEHOLDER, urls};

/// How long a code is good.
pub const GOOD_FOR: Duration = Duration::from_secs(10 * 60);

/// What a client may publish where nothing is said of it: any port that needs no privilege. Whoever
/// holds its
/// token or its code was given it by the owner of the server. Forwards into the server's network
/// stay denied, as for every client whose configuration does not allow them.
pub const PORTS: &str = "1024-65535";

/// Who is to come in, and what it may do then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The client's name.
    pub name: String,
    /// As `allow.tcp` and `allow.forward`.
    #[serde(default)]
    pub allow_tcp: Vec<String>,
    #[serde(default)]
    pub allow_forward: Vec<String>,
}

impl Order {
    /// With the rights that a person gave, or those of [`PORTS`].
    pub fn new(name: &str, allow_tcp: &[String], allow_forward: &[String]) -> Self {
        let allow_tcp =
            if allow_tcp.is_empty() { vec![PORTS.to_owned()] } else { allow_tcp.to_vec() };
        Self { name: name.to_owned(), allow_tcp, allow_forward: allow_forward.to_vec() }
    }

    /// Its rights as flags of a command line, each with a blank in front.
    pub fn flags(&self) -> String {
        let both = [("--allow-tcp", &self.allow_tcp), ("--allow-forward", &self.allow_forward)];
        let each = |(flag, list): (&str, &Vec<String>)| -> String {
            list.iter().map(|right| format!(" {flag} '{right}'")).collect()
        };
        if self.is_default() { String::new() } else { both.map(each).concat() }
    }

    /// Whether nothing was said about its rights.
    pub fn is_default(&self) -> bool {
        self.allow_forward.is_empty() && self.allow_tcp == [PORTS]
    }
}

/// What a server gives for an [`Order`]: all of a [`Code`] that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The one-time secret.
    pub secret: String,
    /// Of the server's certificate, if it has one; and whether it has made that itself.
    pub pin: Option<String>,
    pub self_signed: bool,
    /// Its listeners as they are bound: `tls://[::]:7000`.
    pub listen: Vec<String>,
}

impl Opened {
    /// The code, and what to do with it. `servers`: how the client reaches this machine, if
    /// somebody knows better than the listeners.
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

    /// The code itself.
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
