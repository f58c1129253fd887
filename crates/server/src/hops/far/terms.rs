//! The terms of services that are not in the directory of the cluster: passwords and secret header
//! fields never reach it, and long lists do not fit. A node that has the client tells them over the
//! link between the two nodes. They are kept as long as the claim has the same fence, which changes
//! with the terms.

use cluster::names::NodeId;
use cluster::record::Holding;
use proto::NodeQuestion;
use proto::control::ServiceSpec;

use super::ground::FarGround;
use crate::about;

impl FarGround {
    /// Asks the nodes that have the client for the services of the claim with this fence, one after
    /// the other. `None`: none of them gives an answer, or the client does not hold the claim any
    /// more. A node at which the client has not registered yet what the record says, does not know
    /// the claim.
    pub(super) async fn ask_terms(&self, claim: u64, record: &Holding) -> Option<Vec<ServiceSpec>> {
        let client = record.client.as_str();
        let mut homes = record.holders();
        let answers =
            |node: &NodeId| self.nodes.session(node).is_some_and(|session| session.answers());
        homes.sort_by_key(|home| !answers(&home.node));
        for home in homes {
            let node = &home.node;
            let question = NodeQuestion::Terms { client: client.parse().ok()?, claim };
            let Some(answer) = self.ask(node, question).await else { continue };
            match about::read(answer) {
                Ok(services) => return Some(services),
                Err(error) => {
                    tracing::debug!(%client, %node, %error, "no terms of a service: {error}");
                }
            }
        }
        None
    }
}
