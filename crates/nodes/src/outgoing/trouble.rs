//! Why a node is not reached, as text: the reason, and what helps.

use cluster::names::NodeId;
use link::GreetError;
use link::client::DialError;
use proto::greeting::{GreetingError, Refusal};
use transport::CarrierError;

use crate::names::certificate_name;

/// Why a dial failed.
pub(super) struct DialTrouble {
    pub(super) text: String,
    /// The next attempt will fail as well.
    pub(super) lasts: bool,
}

/// The reason of a failed attempt of node `own` to reach `node`. `is_plain`: over `tcp://`.
pub(super) fn of(
    own: &NodeId,
    node: &NodeId,
    (error, is_plain): (&DialError, bool),
) -> DialTrouble {
    let (ours, theirs) = (certificate_name(own), certificate_name(node));
    let text = match error {
        DialError::Carrier(CarrierError::Certificate(text)) => Some(format!(
            "{text}; at this address must be node {node}, with the certificate of `{theirs}`"
        )),
        DialError::Carrier(CarrierError::PinMismatch { .. }) => {
            Some(format!("{error}; the record of node {node} has the pin of another key"))
        }
        DialError::Greet(GreetError::Greeting(GreetingError::Unproven)) if is_plain => {
            Some(format!(
                "what answers does not prove the secret of the cluster; at this address must be node \
             {node}, with the `cluster.secret` of this node"
            ))
        }
        DialError::Greet(greet) => match greet.refusal() {
            Some(Refusal::BadCredential) if is_plain => Some(format!(
                "the proof of this node is refused; at this address must be node {node}, with the \
                 `cluster.secret` of this node"
            )),
            Some(Refusal::CertificateName | Refusal::BadCredential) => Some(format!(
                "node {node} refuses the certificate of this node: its name must be `{ours}`"
            )),
            Some(Refusal::Denied) => Some(format!(
                "node {node} has the name of this node: two nodes need two names and certificates"
            )),
            Some(Refusal::Limit) => {
                Some(format!("node {node} has as many links of this node as it takes"))
            }
            Some(Refusal::Unavailable) => Some(format!("node {node} is stopping")),
            Some(_) | None => None,
        },
        DialError::Carrier(_) => None,
    };
    let passes = matches!(
        error,
        DialError::Greet(greet)
            if matches!(greet.refusal(), Some(Refusal::Limit | Refusal::Unavailable))
    );
    let lasts = error.is_refusal() && !passes;
    DialTrouble { text: text.unwrap_or_else(|| error.to_string()), lasts }
}

/// The reason where a node of an older version has answered.
pub(super) fn too_old(node: &NodeId) -> String {
    format!("node {node} runs a version without links between nodes; update it")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_reason_names_the_certificate_that_is_wanted_and_whether_waiting_helps() {
        let [own, node] = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        let refused =
            |refusal| DialError::Greet(GreetError::Greeting(GreetingError::Refused(refusal)));
        let unproven = DialError::Greet(GreetError::Greeting(GreetingError::Unproven));
        for (error, text) in [
            (refused(Refusal::BadCredential), "the proof of this node is refused"),
            (unproven, "does not prove the secret of the cluster"),
        ] {
            let trouble = of(&own, &node, (&error, true));
            assert!(trouble.text.contains(text), "{}", trouble.text);
            assert!(trouble.lasts, "{text}");
        }
        let wrong = CarrierError::Certificate("its certificate is that of node:c".to_owned());
        let silent = io::Error::new(io::ErrorKind::TimedOut, "no answer").into();
        for (error, text, lasts) in [
            (DialError::Carrier(wrong), "that of node:c; at this address must be node b", true),
            (refused(Refusal::CertificateName), "its name must be `node:a`", true),
            (refused(Refusal::Denied), "has the name of this node", true),
            (refused(Refusal::Limit), "as many links of this node", false),
            (refused(Refusal::Unavailable), "is stopping", false),
            (DialError::Carrier(silent), "no answer", false),
        ] {
            let trouble = of(&own, &node, (&error, false));
            assert!(trouble.text.contains(text), "{}", trouble.text);
            assert_eq!(trouble.lasts, lasts, "{text}");
        }
    }
}
