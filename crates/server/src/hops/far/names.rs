//! The names of clients of other nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::names::{Key, Space};
use node::names::{self, NameSeeker, Sought};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::FarServices;
use super::place::{FarPlace, Looked};

/// The interval at which names are reviewed whose terms may turn visitors away, and the most names
/// of an interval: reads of the directory that cost etcd 3 % of a core.
const REVIEW: Duration = Duration::from_secs(1);
const REVIEWED: usize = 500;

/// The longest time for which a visitor waits for answers about a name: the engine has 1 s, and the
/// other nodes have 1 s more.
const PATIENCE: Duration = Duration::from_millis(2_500);

impl NameSeeker for FarServices {
    fn seek(&self, names: Vec<(names::Space, Arc<str>)>) -> Sought<'_> {
        Box::pin(async move {
            let Some(own) = self.own.upgrade() else { return };
            // The work is a task, because a visitor may leave while an entrance is being opened.
            let work = self.runtime.spawn(async move { own.seek_all(names).await });
            // A visitor that waits no longer finds the name absent.
            let _ = timeout(PATIENCE, work).await;
        })
    }
}

impl FarServices {
    /// Reviews the names whose terms may turn visitors away, until the node ends.
    pub(in crate::hops) async fn review_names(self: Arc<Self>) {
        loop {
            sleep(REVIEW).await;
            let guarded: Vec<_> = {
                let resources = self.resources();
                let names = resources.iter().filter(|(key, _)| matches!(key, Key::Host(..)));
                names.map(|(_, it)| it).filter(|it| it.is_guarded()).cloned().collect()
            };
            for (nth, part) in guarded.chunks(REVIEWED).enumerate() {
                if nth > 0 {
                    sleep(REVIEW).await;
                }
                let mut reviews = JoinSet::new();
                for resource in part {
                    let resource = Arc::clone(resource);
                    reviews.spawn(async move { resource.review().await });
                }
                while reviews.join_next().await.is_some() {}
            }
        }
    }

    /// Looks for names, which are questions of one batch, and opens the entrances of the closest
    /// name of each space.
    async fn seek_all(self: Arc<Self>, names: Vec<(names::Space, Arc<str>)>) {
        let mut questions = JoinSet::new();
        for (nth, (space, name)) in names.into_iter().enumerate() {
            let own = Arc::clone(&self);
            let space = match space {
                names::Space::Http => Space::Http,
                names::Space::Tls => Space::Tls,
            };
            questions.spawn(async move {
                let key = Key::Host(space, name);
                let looked = own.ground.look_up(&key).await;
                (nth, space, key, looked)
            });
        }
        let mut found: HashMap<Space, (usize, Key, FarPlace)> = HashMap::new();
        while let Some(answer) = questions.join_next().await {
            let Ok((nth, space, key, Looked::At(place))) = answer else { continue };
            let is_closer = found.get(&space).is_none_or(|(other, ..)| nth < *other);
            if is_closer {
                found.insert(space, (nth, key, place));
            }
        }
        for (_, key, place) in found.into_values() {
            self.resource(&key).lead(place).await;
        }
    }
}
