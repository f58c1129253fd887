//! The links of this node to other nodes: made by dialling, for the streams of this node's visitors
//! and for the messages of its cluster.

mod follow;
mod keeper;
mod news;
mod owner;
mod paths;
mod post;
mod remote;
mod trouble;

use std::rc::Rc;
use std::sync::Arc;

use node::session::Worker;

use crate::shared::Shared;

pub(crate) use follow::follow;
pub(crate) use paths::in_order;
pub(crate) use remote::Remote;

/// Makes no more links. Each link ends with its last stream.
pub(crate) async fn leave(shared: &Arc<Shared>) {
    let remotes = shared.remotes();
    remotes.iter().for_each(|remote| remote.stop());
    for handle in shared.handles.iter() {
        let remotes = remotes.clone();
        let leave = move |worker: &Rc<Worker>| {
            for remote in &remotes {
                let links = worker.state.links_of(remote.session.id);
                links.iter().for_each(|(_, link)| link.go_away());
            }
        };
        // A worker that has stopped has no links.
        let _ = handle.call(leave).await;
    }
}
