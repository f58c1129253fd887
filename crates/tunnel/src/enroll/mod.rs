//! `tunnel enroll`: a new client logs in with a one-time code, and nobody has to copy a
//! configuration.
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
//! `kept` stores the clients of the server, and `redeem` is the client's side; `renew` is its part
//! for a client that gets a new token. The code itself is in `ops::enrol`.

mod extend;
mod kept;
mod redeem;
mod renew;

pub(crate) use kept::{Kept, NOBODY};
pub(crate) use redeem::redeem;

/// A text as a quoted YAML scalar, written as a JSON string, which YAML accepts. `${` is escaped,
/// so that the configuration does not expand environment variables.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace("${", "$${")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_expands_to_itself() {
        assert_eq!(quoted("a\"b\n${HOME} $x"), r#""a\"b\n$${HOME} $x""#);
    }
}
