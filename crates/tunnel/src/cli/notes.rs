//! Texts behind the help of the commands about a cluster.

/// `tunnel cluster clients`.
pub(super) const CLUSTER_CLIENTS_NOTE: &str = "\
The list has the clients that have a link to any node, in the order of their names. The node that is
asked reads it from the directory of the cluster, 200 clients at most; `--after` reads on.

Examples:
  tunnel cluster clients
  tunnel cluster clients office- --limit 20";

/// `tunnel cluster rekey`.
pub(super) const REKEY_NOTE: &str = "\
Change of the secret, while the nodes run:
  1. cluster.secret: [OLD, NEW] at all nodes, which restart in turn
  2. cluster.secret: [NEW, OLD] at all nodes, in the same way
  3. tunnel cluster rekey, at any node, until OLD is needed no more
  4. cluster.secret: NEW at all nodes

The command changes nothing that the new secret has sealed: it may be broken off and repeated. It
fails if the former secret is still needed.";

/// `tunnel cluster dns`.
pub(super) const DNS_EXAMPLES: &str = "\
Example:
  tunnel cluster dns tunnel.example.com app.example.com --ttl 60

The addresses are those of `cluster.clients` of each node. A name there is looked up on this machine.
A node that is asking its clients to go gets no record.";
