//! The terms of services that are not in the directory of the cluster: passwords and secret header
//! fields never reach it, and long lists do not fit. The node that has the client tells them over
//! the link between the two nodes. They are kept as long as the claim has the same number, which
//! changes with the terms.

use cluster::names::Generation;
use cluster::record::Holding;
use proto::NodeQuestion;
use proto::control::ServiceSpec;

use super::ground::FarGround;
use crate::about;

impl FarGround {
    /// Asks the node that has the client for the services of a claim. `None`: it gives no answer,
    /// or the client does not hold the claim any more.
    pub(super) async fn ask_terms(
        &self,
        Generation(claim): Generation,
        record: &Holding,
    ) -> Option<Vec<ServiceSpec>> {
        let (client, node) = (&record.client, &record.node);
        let question = NodeQuestion::Terms { client: client.as_str().parse().ok()?, claim };
        match about::read(self.ask(node, question).await?) {
            Ok(services) => Some(services),
            Err(error) => {
                tracing::debug!(%client, %node, %error, "no terms of a service: {error}");
                None
            }
        }
    }
}
