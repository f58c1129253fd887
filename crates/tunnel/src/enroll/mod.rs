//! `tunnel enroll`: a new client comes in by a one-time code instead of a configuration that somebody
//! copies.
//!
//! ```text
//!   server                                        the other machine
//!   tunnel enroll home -> a code, 10 minutes      tunnel client --enroll CODE
//!        |                                             |
//!        |  <---- greeting with the code ------------  |
//!   keeps what verifies the token    (both compute     writes client.yaml with the token,
//!   in state_dir/clients/home.yaml    the same one)    and starts
//! ```
//!
//! `code` is what is carried over by hand, `kept` what the server keeps, `redeem` the client's part.

mod code;
mod kept;
mod redeem;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::reach;
pub(crate) use code::Code;
pub(crate) use kept::{Kept, NOBODY};
pub(crate) use redeem::redeem;

/// How long a code is good.
pub(crate) const GOOD_FOR: Duration = Duration::from_secs(10 * 60);

/// What a client may publish where nothing is said of it: any port that needs no privilege. Whoever holds its
/// token or its code was given it by the owner of the server. Forwards into the server's network stay
/// denied, as for every client whose configuration does not allow them.
pub(crate) const PORTS: &str = "1024-65535";

/// Who is to come in, and what it may do then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// The client's name.
    pub(crate) name: String,
    /// As `allow.tcp` and `allow.forward`.
    #[serde(default)]
    pub(crate) allow_tcp: Vec<String>,
    #[serde(default)]
    pub(crate) allow_forward: Vec<String>,
}

impl Order {
    /// With the rights that a person gave, or those of [`PORTS`].
    pub(crate) fn new(name: &str, allow_tcp: &[String], allow_forward: &[String]) -> Self {
        let allow_tcp =
            if allow_tcp.is_empty() { vec![PORTS.to_owned()] } else { allow_tcp.to_vec() };
        Self { name: name.to_owned(), allow_tcp, allow_forward: allow_forward.to_vec() }
    }

    /// Its rights as flags of a command line, each with a blank in front.
    pub(crate) fn flags(&self) -> String {
        let both = [("--allow-tcp", &self.allow_tcp), ("--allow-forward", &self.allow_forward)];
        let each = |(flag, list): (&str, &Vec<String>)| -> String {
            list.iter().map(|right| format!(" {flag} '{right}'")).collect()
        };
        if self.is_default() { String::new() } else { both.map(each).concat() }
    }

    /// Whether nothing was said about its rights.
    pub(crate) fn is_default(&self) -> bool {
        self.allow_forward.is_empty() && self.allow_tcp == [PORTS]
    }
}

/// What a server gives for an [`Order`]: all of a [`Code`] that it knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// The one-time secret.
    pub(crate) secret: String,
    /// Of the server's certificate, if it has one; and whether it has made that itself.
    pub(crate) pin: Option<String>,
    pub(crate) self_signed: bool,
    /// Its listeners as they are bound: `tls://[::]:7000`.
    pub(crate) listen: Vec<String>,
}

impl Opened {
    /// The code, and what to do with it. `servers`: how the client reaches this machine, if somebody
    /// knows better than the listeners.
    pub(crate) fn text(self, name: &str, servers: &[String]) -> String {
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
    pub(crate) fn code(self, name: &str, servers: &[String]) -> Code {
        let urls = if servers.is_empty() { reach::urls(&self.listen) } else { servers.to_vec() };
        let Self { secret, pin, self_signed, .. } = self;
        Code { name: name.to_owned(), secret, pin, self_signed, urls }
    }
}

/// A text as one of YAML: a string of JSON is that, too. What the configuration would expand from the
/// environment stays as it is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace("${", "$${")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_expands_to_itself() {
        assert_eq!(quoted("a\"b\n${HOME} $x"), r#""a\"b\n$${HOME} $x""#);
    }

    #[test]
    fn rights_are_shown_as_flags_unless_nothing_was_said() {
        assert_eq!(Order::new("a", &[], &[]).flags(), "");
        let order = Order::new("a", &["80".into()], &["10.0.0.0/8:*".into()]);
        assert_eq!(order.flags(), " --allow-tcp '80' --allow-forward '10.0.0.0/8:*'");
    }
}
