//! The serving part of a daemon, as the frame of the daemon drives it.

use std::path::PathBuf;
use std::sync::Arc;

use config::{Changed, ClientConfig, Common, Kept};
use net::inherited::Place;
use proto::control::InviteAction;
use proto::greeting::Name;

use super::{Daemon, SendFuture};
use crate::clients::{self, Applied, Change, Details, Held, HoldOrder};
use crate::reload::Reloaded;
use crate::share::Visits;
use crate::visit::Visited;

/// The effects of a configuration: warnings, and the keys that differ from the configuration in
/// force.
pub type Foreseen = (Vec<String>, Vec<Changed>);

/// The serving part of a daemon: a server, a client or a proxy.
pub trait Serving: Daemon {
    /// A summary in one line, for `systemctl status` and the log.
    fn summary(&self) -> String;

    /// The common part of the configuration in force.
    fn common(&self) -> Common;

    /// Reads the configuration again and applies the changes.
    ///
    /// # Errors
    /// The problem of the configuration; nothing was changed.
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>>;

    /// Checks whether a start with `text` as the configuration file would succeed. Returns the
    /// warnings, and the keys that differ from the configuration in force.
    ///
    /// # Errors
    /// The problem of the text.
    fn check(&self, text: String) -> anyhow::Result<Foreseen>;

    /// The files of users of `basic_auth` that a client reads besides its configuration.
    fn user_files(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Reads the files of users again, and publishes the changes.
    ///
    /// # Errors
    /// The problem of a file; nothing was changed.
    fn renew_users(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { Ok(Reloaded::default()) })
    }

    /// Its certificates.
    fn certificates(&self) -> &dyn Certificates;

    /// The entries of the clients of a server.
    fn entries(&self) -> Option<&dyn Entries> {
        None
    }

    /// The services and forwards of a client.
    fn lists_in_force(&self) -> Option<&dyn ListsInForce> {
        None
    }

    /// The connection of a client to its server for invitations.
    fn inviter(&self) -> Option<&dyn Inviter> {
        None
    }

    /// Closes the listeners at once and lets streams finish. The future completes when the last
    /// stream has ended. The caller drops the future at the deadline.
    fn drain(&self) -> SendFuture<'_, ()>;

    /// Whether a listener at this address may appear later: one of a service of a client.
    fn will_listen(&self, place: &Place) -> bool {
        let _ = place;
        false
    }

    /// The state that the next generation of this daemon needs. Writes the state that it reads from
    /// the state directory, unless this is `again`: a repeated handover after a next generation
    /// that has died, and that has written later than this process.
    fn handover_state(&self, again: bool) -> SendFuture<'_, Option<String>> {
        let _ = again;
        Box::pin(async { None })
    }

    /// The state that changes until the next generation serves. The next generation gets it
    /// ([`inherit`](Self::inherit)) right before that, and this process changes the state no more,
    /// unless it is to [keep](Self::keep_heirloom) it: a server leaves its place in a cluster.
    fn heirloom(&self) -> SendFuture<'_, Option<String>> {
        Box::pin(async { None })
    }

    /// The next generation does not serve, so what [`heirloom`](Self::heirloom) has left is that of
    /// this process.
    fn keep_heirloom(&self) -> SendFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Serves from now on, with what the previous generation has left. Called once, in a process
    /// that has a previous generation.
    fn inherit(&self, heirloom: Option<String>) -> SendFuture<'_, ()> {
        drop(heirloom);
        Box::pin(async {})
    }

    /// Completes when this process can replace the former generation of the daemon: a client has
    /// logged in and published its services.
    fn takes_over(&self) -> SendFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Hands everything over to the next generation, which has the listeners: closes them here,
    /// asks the peers for links to the next generation, and lets streams finish. The future
    /// completes when the last stream has ended. `successor` completes when the next generation
    /// [takes over](Self::takes_over).
    fn hand_over<'a>(&'a self, successor: SendFuture<'a, ()>) -> SendFuture<'a, ()> {
        Box::pin(async {
            drop(successor);
            self.drain().await;
        })
    }

    /// Notifies the peers, ends the remaining streams, and stops the workers.
    fn close(&self) -> SendFuture<'_, ()>;
}

/// The connection of a client to its server for invitations.
pub trait Inviter: Send + Sync {
    /// Queries the server. Returns the secret of the one-time code of a new client.
    ///
    /// # Errors
    /// A readable line: the refusal of the server, or a missing answer.
    fn ask(
        &self,
        visitor: Name,
        service: Name,
        action: InviteAction,
    ) -> SendFuture<'_, anyhow::Result<Option<String>>>;

    /// The name of the server that is queried.
    fn server(&self) -> String;

    /// Completes when a visitor of a private service has logged in.
    fn visited(&self) -> SendFuture<'_, Visited>;
}

/// The certificates of a daemon.
pub trait Certificates: Send + Sync {
    /// The files of the configured certificates and keys.
    fn files(&self) -> Vec<PathBuf>;

    /// Reads the certificates again, for new connections. After an error the previous certificates
    /// stay in force.
    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>>;
}

/// The entries of the clients of a server.
pub trait Entries: Send + Sync {
    /// Whether a client of this name is configured or was enrolled.
    fn knows(&self, name: &str) -> bool;

    /// Lists all clients that the server knows.
    fn all(&self) -> clients::Clients;

    /// One client in full; `None`: the server knows no client of this name.
    fn one(&self, name: String) -> SendFuture<'_, Option<Details>>;

    /// Changes the entry of a client that was enrolled by a code, and applies the change. `None`:
    /// no such client was enrolled.
    fn change_enrolled(&self, change: Change) -> SendFuture<'_, anyhow::Result<Option<Applied>>>;

    /// Ends the links of a client, as described at [`Clients::kick`](crate::Clients::kick).
    fn kick(&self, name: String) -> SendFuture<'_, bool>;

    /// Puts a client on hold, or ends its hold, as described at
    /// [`Clients::hold`](crate::Clients::hold).
    fn hold(&self, order: HoldOrder) -> SendFuture<'_, anyhow::Result<Option<Held>>>;

    /// Applies only the entry of the changed client in `text`, a configuration file. Returns the
    /// rights and limits of the client.
    fn apply(&self, change: Change, text: String) -> SendFuture<'_, anyhow::Result<Applied>>;
}

/// The services and forwards of a client that are in force.
pub trait ListsInForce: Send + Sync {
    /// The configuration in force.
    fn config(&self) -> Arc<ClientConfig>;

    /// Applies a change. After an error nothing has changed. A service of the change that the
    /// server refuses is dropped again; [`Reloaded::refused`] has its name.
    fn apply(&self, change: Kept) -> SendFuture<'_, anyhow::Result<Reloaded>>;

    /// Reports the actions of the visitors of the service of this name to `visits`, from its next
    /// publication until the reader leaves.
    fn observe(&self, service: &str, visits: Visits);
}
