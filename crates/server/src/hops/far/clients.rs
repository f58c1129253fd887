//! The clients of other nodes that have private services: they are looked for when a client of this
//! node visits them.

use cluster::names::{ClientName, Generation};
use cluster::node::{Located, Subject};
use proto::greeting::Name;

use super::FarServices;
use crate::private::{FarWay, FindsAbroad, Seeking};

impl FindsAbroad for FarServices {
    fn find(&self, client: &Name) -> Seeking<'_> {
        let subject = subject(client);
        Box::pin(async move {
            match self.ground.places.find(subject?).await {
                Located::There { generation: Generation(generation), record, .. } => {
                    let sessions = self.ground.sessions(&record);
                    let instance = record.instance.0;
                    Some(FarWay { sessions, instance, generation })
                }
                Located::Here(_) | Located::Nowhere | Located::Held { .. } | Located::Away => None,
            }
        })
    }

    fn moved(&self, client: &Name, generation: u64) {
        if let Some(subject) = subject(client) {
            self.ground.places.refused(subject, Generation(generation));
        }
    }
}

fn subject(client: &Name) -> Option<Subject> {
    ClientName::new(client.as_str()).ok().map(Subject::Client)
}
