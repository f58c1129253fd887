//! The names by which nodes prove who they are. The certificate of node `fra1` has the name
//! `node:fra1`, which no certificate of a client has, because names of clients have no colon. The
//! greeting has the name `fra1`.

use cluster::names::NodeId;
use proto::greeting::{NAME_MAX, Name};

/// The first part of the name in the certificate of a node.
const PREFIX: &str = "node:";

/// The most bytes of the name of a node: the common name of a certificate has 64 (`ub-common-name`
/// in RFC 5280, appendix A.1).
const LONGEST: usize = NAME_MAX - PREFIX.len();

/// A node cannot have links by this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadNodeName;

impl std::fmt::Display for BadNodeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the name of a node is 1 to {LONGEST} of the characters A-Z a-z 0-9 . _ -")
    }
}

impl std::error::Error for BadNodeName {}

/// The name of the certificate of a node.
pub(crate) fn certificate_name(node: &NodeId) -> String {
    format!("{PREFIX}{node}")
}

/// The name in the greeting of a node.
pub(crate) fn greeting_name(node: &NodeId) -> Result<Name, BadNodeName> {
    let is_short = node.as_str().len() <= LONGEST;
    Name::new(node.as_str()).ok().filter(|_| is_short).ok_or(BadNodeName)
}

/// The name of the node whose certificate has this name. `None`: the certificate is of no node.
pub(crate) fn proved(certificate: &str) -> Option<Name> {
    let name = certificate.strip_prefix(PREFIX)?;
    Name::new(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_proves_the_name_of_a_node_and_no_certificate_of_a_client_does() {
        let node = NodeId::new("fra-1.example").unwrap();
        let name = greeting_name(&node).unwrap();
        assert_eq!(proved(&certificate_name(&node)), Some(name));
        for other in ["fra-1.example", "", "node:", "node:a b", "node:node:a", "Node:a", "node.a"] {
            assert_eq!(proved(other), None, "{other}");
        }
        // What a client can be called.
        assert!(Name::new("node:fra-1.example").is_err());
    }

    #[test]
    fn the_name_of_a_node_fits_into_the_common_name_of_a_certificate() {
        let of = |length: usize| NodeId::new(&"n".repeat(length)).unwrap();
        assert!(greeting_name(&of(LONGEST)).is_ok());
        assert_eq!(certificate_name(&of(LONGEST)).len(), 64);
        assert_eq!(greeting_name(&of(LONGEST + 1)), Err(BadNodeName));
        assert_eq!(greeting_name(&NodeId::new("a b").unwrap()), Err(BadNodeName));
    }
}
