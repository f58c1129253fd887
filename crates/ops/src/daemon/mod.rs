//! The interface of a running daemon. [`Daemon`] has the functions of every daemon, and lists the
//! capabilities of the daemon, each a small trait of its own. A capability that a role lacks does
//! not exist there, so no function has to answer "this is a client".
//!
//! | side | traits |
//! |---|---|
//! | control socket, admin API, signals | [`Daemon`] and `capability` |
//! | the frame of the daemon | [`Serving`] and `serving` |

mod capability;
mod serving;

use std::time::Duration;

use crate::delta::{Cursor, StatusDelta};
use crate::events::Events;
use crate::future::SendFuture;
use crate::measure::{Meter, SpeedTest};
use crate::nat::NatProbe;
use crate::role::Role;
use crate::status::Status;
use crate::targets::Targets;
use crate::tested::Tester;
use crate::upgrade::Upgrade;

pub use capability::{
    Carried, Clients, ClusterView, Connector, Console, ConsoleLink, Enrolment, Lists, Log, Mover,
    Reconnected, Requests, Settings, Sharer, Supervision, Traffic, Visitors,
};
pub use serving::{Certificates, Entries, Foreseen, Inviter, ListsInForce, Serving};

/// A running daemon, as the control socket and the admin API see it.
pub trait Daemon: Send + Sync {
    /// Its role.
    fn role(&self) -> Role;

    /// The role inside the frame of a daemon. What the frame has not itself, the role has.
    fn inner(&self) -> Option<&dyn Daemon> {
        None
    }

    /// Whether all workers answer within `limit`.
    fn alive(&self, limit: Duration) -> SendFuture<'_, bool> {
        match self.inner() {
            Some(role) => role.alive(limit),
            None => Box::pin(std::future::ready(true)),
        }
    }

    /// Collects the status from the workers. The caller sets a deadline.
    fn status(&self) -> SendFuture<'_, Status>;

    /// The status without the sessions, whose cost does not depend on their number.
    fn brief(&self) -> SendFuture<'_, Status> {
        Box::pin(async { Status { sessions: Vec::new(), ..self.status().await } })
    }

    /// The changes of the status and of the clients of a server since the previous query with
    /// `cursor`. The caller sets a deadline. It is designed for a query per second: a daemon with
    /// thousands of sessions reports only the changed sessions. By default a query reports
    /// everything.
    fn delta<'a>(&'a self, cursor: &'a mut Cursor) -> SendFuture<'a, StatusDelta> {
        let _ = cursor;
        Box::pin(async move {
            let clients = match self.clients() {
                Some(clients) => clients.all().await.ok().map(|all| all.list),
                None => None,
            };
            StatusDelta::whole(self.status().await, clients)
        })
    }

    /// The changes in it.
    fn events(&self) -> Option<&Events> {
        self.inner()?.events()
    }

    /// Its streams and flows.
    fn traffic(&self) -> Option<&dyn Traffic> {
        self.inner()?.traffic()
    }

    /// The round trips of its links.
    fn meter(&self) -> Option<&dyn Meter> {
        self.inner()?.meter()
    }

    /// The throughput of its links. Only a client measures it.
    fn speed_test(&self) -> Option<&dyn SpeedTest> {
        self.inner()?.speed_test()
    }

    /// The NATs and firewalls between a client and other clients.
    fn nat_probe(&self) -> Option<&dyn NatProbe> {
        self.inner()?.nat_probe()
    }

    /// Its configuration.
    fn settings(&self) -> Option<&dyn Settings> {
        None
    }

    /// The daemons that it supervises. Only `tunnel run` has them.
    fn supervision(&self) -> Option<&dyn Supervision> {
        None
    }

    /// Its log.
    fn log(&self) -> Option<&dyn Log> {
        None
    }

    /// Its web console.
    fn console(&self) -> Option<&dyn Console> {
        None
    }

    /// The codes with which new clients enrol. Only a server has them.
    fn enrolment(&self) -> Option<&dyn Enrolment> {
        None
    }

    /// The clients that a server knows.
    fn clients(&self) -> Option<&dyn Clients> {
        None
    }

    /// The cluster of which a server is a node, or the reason why it is none.
    fn cluster(&self) -> Option<&dyn ClusterView> {
        self.inner()?.cluster()
    }

    /// The services and forwards of a client.
    fn lists(&self) -> Option<&dyn Lists> {
        None
    }

    /// Targets that a client shares for the duration of a command.
    fn sharer(&self) -> Option<&dyn Sharer> {
        None
    }

    /// The requests of visitors that a client records for inspection.
    fn requests(&self) -> Option<&dyn Requests> {
        self.inner()?.requests()
    }

    /// The visitors of a client's private services that were invited by codes.
    fn visitors(&self) -> Option<&dyn Visitors> {
        None
    }

    /// Its change to another binary.
    fn upgrade(&self) -> Option<&dyn Upgrade> {
        None
    }

    /// Tests of its services.
    fn tester(&self) -> Option<&dyn Tester> {
        self.inner()?.tester()
    }

    /// The targets that it dials itself. A client and a proxy have them.
    fn targets(&self) -> Option<&dyn Targets> {
        self.inner()?.targets()
    }

    /// The paths of the links of a client.
    fn mover(&self) -> Option<&dyn Mover> {
        self.inner()?.mover()
    }

    /// Connections of a client to targets on the side of its server.
    fn connector(&self) -> Option<&dyn Connector> {
        self.inner()?.connector()
    }
}
