//! `tunnel enroll`: a new client comes in by a one-time code instead of a configuration that
//! somebody copies.
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
//! `kept` is what the server keeps, `redeem` the client's part; the code itself is in `ops::enrol`.

mod kept;
mod redeem;

pub(crate) use kept::{Kept, NOBODY};
pub(crate) use redeem::redeem;

/// A text as one of YAML: a string of JSON is that, too. What the configuration would expand from
/// the environment stays as it is.
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
}
