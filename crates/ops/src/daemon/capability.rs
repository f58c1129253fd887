//! The capabilities of a daemon that the control socket and the admin API use.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use config::Target;
use serde::{Deserialize, Serialize};

use super::SendFuture;
use crate::busy::{self, BusyStreams};
use crate::clients::{self, Applied, Change, Details, Held, HoldOrder};
use crate::cluster::{ClusterClients, ClusterPlace, RekeyStep, WantedClients};
use crate::delta::Cursor;
use crate::enrol::{Opened, Order};
use crate::lists::ListChange;
use crate::log::Lines;
use crate::moving::MovedLinks;
use crate::reload::Reloaded;
use crate::requests::{RequestDetail, RequestFilter, SeenRequests};
use crate::revision::{Checked, NewConfig};
use crate::share::{ShareOrder, Shared, Sharing, Visits};
use crate::shown::Shown;
use crate::status::{Restarted, StreamNumber, Streams};
use crate::visit::{Invitation, InviteOrder, InvitedVisitor, Uninvited};

/// The links that reconnect after [`Traffic::reconnect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reconnected {
    /// The number of links that had a carrier.
    pub links: u64,
    /// The number of links of a client that had no carrier.
    pub looking: u64,
}

/// The payload bytes of all present services, forwards and listeners of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// From visitors to targets.
    pub bytes_in: u64,
    /// From targets to visitors.
    pub bytes_out: u64,
}

/// The streams and flows of a daemon.
pub trait Traffic: Send + Sync {
    /// Lists at most `limit` streams and flows. `service` restricts the list to one service.
    fn streams(&self, service: Option<String>, limit: usize) -> SendFuture<'_, Streams>;

    /// The busiest streams and flows since the previous query with `cursor`, at most `most`. The
    /// caller sets a deadline. By default they are found among 5,000 streams.
    fn busiest<'a>(&'a self, cursor: &'a mut Cursor, most: usize) -> SendFuture<'a, BusyStreams> {
        Box::pin(async move {
            let before = cursor.take::<busy::Notes>();
            let looked_at = if most == 0 { 0 } else { busy::SEEN };
            let all = self.streams(None, looked_at).await;
            let (found, notes) = BusyStreams::among(all, Instant::now(), before.as_ref(), most);
            cursor.keep(notes);
            found
        })
    }

    /// Ends the carriers of the links to a peer, or of all links. The client of each link
    /// reconnects, and the streams continue. Links of a client without a carrier are dialled at
    /// once.
    fn reconnect(&self, peer: Option<String>) -> SendFuture<'_, Reconnected>;

    /// The bytes that all visitors have moved. This is cheap: streams and links are not visited.
    fn carried(&self) -> SendFuture<'_, Carried>;

    /// Resets a stream on both sides, or ends a flow. False: there is no stream or flow of this
    /// number.
    fn kill(&self, number: StreamNumber) -> SendFuture<'_, bool>;
}

/// The cluster of which a server is a node.
pub trait ClusterView: Send + Sync {
    /// Where a client, the host of a service, or a port is: every subject that this name fits.
    ///
    /// # Errors
    /// The server is no node, or the cluster does not answer.
    fn locate(&self, name: String) -> SendFuture<'_, anyhow::Result<Vec<ClusterPlace>>>;

    /// Whether the server is a node.
    fn is_node(&self) -> bool;

    /// The nodes, as this node sees them; `None`: the server is no node.
    fn nodes(&self) -> SendFuture<'_, Option<crate::status::Cluster>>;

    /// A page of the clients that have links to any node.
    ///
    /// # Errors
    /// The server is no node, or the directory does not answer.
    fn clients(&self, wanted: WantedClients) -> SendFuture<'_, anyhow::Result<ClusterClients>>;

    /// A step of a change of the secret: seals what is behind `after` anew with the first secret of
    /// this node, up to 512 values. The first step has an empty `after`.
    ///
    /// # Errors
    /// The server is no node or has no secret, another node cannot open what this node seals, or
    /// the directory does not answer.
    fn rekey(&self, after: String) -> SendFuture<'_, anyhow::Result<RekeyStep>>;
}

/// The paths of the links of a client.
pub trait Mover: Send + Sync {
    /// Moves all links to the path `to`, or each link to the path behind its present path. Each
    /// link gets its new connection before the old connection ends, and the streams continue.
    ///
    /// # Errors
    /// The client has no such path, or no link. The message is readable text.
    fn move_links(&self, to: Option<String>) -> SendFuture<'_, anyhow::Result<MovedLinks>>;
}

/// The daemons of `tunnel run`.
pub trait Supervision: Send + Sync {
    /// Ends all daemons, or the daemon `name`, and starts them again. The future completes when the
    /// daemons were notified. With `now` the remaining streams are reset.
    ///
    /// # Errors
    /// There is no daemon of this name. The message is readable text.
    fn restart(&self, name: Option<String>, now: bool)
    -> SendFuture<'_, anyhow::Result<Restarted>>;
}

/// The configuration of a daemon.
pub trait Settings: Send + Sync {
    /// Reloads the configuration and applies the changes.
    ///
    /// # Errors
    /// The problem of the configuration; nothing was changed.
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>>;

    /// The configuration file without its secrets.
    ///
    /// # Errors
    /// The daemon was started without a configuration file, or the file cannot be shown.
    fn configuration(&self) -> anyhow::Result<Shown>;

    /// Reports the effects of a change of the configuration file. Nothing changes.
    ///
    /// # Errors
    /// There is no file, or a test of a patch found a different value. Problems of the changed file
    /// are not errors.
    fn foresee(&self, change: NewConfig) -> SendFuture<'_, anyhow::Result<Checked>>;

    /// Changes the configuration file and applies it. After an error neither has changed. `tag` is
    /// the entity tag of the file for which the change was made.
    ///
    /// # Errors
    /// [`Stale`](crate::revision::Stale): the file has a different tag.
    fn amend(
        &self,
        change: NewConfig,
        tag: Option<String>,
    ) -> SendFuture<'_, anyhow::Result<Reloaded>>;

    /// Restores the text before the last change of [`Self::amend`], and applies it. After an error
    /// nothing has changed.
    ///
    /// # Errors
    /// There was no change, or the file has changed since.
    fn undo(&self) -> SendFuture<'_, anyhow::Result<Reloaded>>;
}

/// A link to the web console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleLink {
    /// The URL with the key: it admits the first browser that opens it.
    pub url: String,
    /// The validity of the key, in seconds.
    pub valid_seconds: u64,
}

/// The web console of a daemon.
pub trait Console: Send + Sync {
    /// Makes a link that is valid once.
    ///
    /// # Errors
    /// The daemon has no listener of the admin API.
    fn link(&self) -> anyhow::Result<ConsoleLink>;
}

/// The log of a daemon.
pub trait Log: Send + Sync {
    /// The filter in force.
    fn filter(&self) -> String;

    /// Sets the filter, until the next reload or start.
    ///
    /// # Errors
    /// The text is not a filter. The message is readable text.
    fn change(&self, filter: &str) -> Result<(), String>;

    /// The newest lines, at most `limit`, whose number is greater than `after`.
    fn lines(&self, after: u64, limit: usize) -> Lines;
}

/// The visitors of a client's private services that were invited by codes.
pub trait Visitors: Send + Sync {
    /// Makes a code for a visitor.
    fn invite(&self, order: InviteOrder) -> SendFuture<'_, anyhow::Result<Invitation>>;

    /// Lists the visitors that were invited by codes, whether or not they have logged in.
    fn all(&self) -> SendFuture<'_, anyhow::Result<Vec<InvitedVisitor>>>;

    /// Invalidates the tokens of a visitor, and removes its right at the server. An empty result:
    /// no visitor of this name was invited by a code.
    fn uninvite(&self, visitor: String) -> SendFuture<'_, anyhow::Result<Uninvited>>;
}

/// The codes with which new clients enrol at a server.
pub trait Enrolment: Send + Sync {
    /// Makes a code with which a new client enrols.
    fn enroll(&self, order: Order) -> SendFuture<'_, anyhow::Result<Opened>>;

    /// Removes a client that was enrolled by a code. Returns whether such a client or code existed.
    fn revoke(&self, name: String) -> SendFuture<'_, anyhow::Result<bool>>;
}

/// The clients of a server.
pub trait Clients: Send + Sync {
    /// Lists all clients that the server knows.
    fn all(&self) -> SendFuture<'_, anyhow::Result<clients::Clients>>;

    /// One client in full; `None`: the server knows no client of this name.
    fn one(&self, name: String) -> SendFuture<'_, anyhow::Result<Option<Details>>>;

    /// Changes the entry of a client of the configuration file, or of a client that was enrolled by
    /// a code, and applies the change. Returns all rights and limits of the client. After an error
    /// nothing has changed.
    fn change(&self, change: Change) -> SendFuture<'_, anyhow::Result<Applied>>;

    /// Ends the links of a client, with their streams. The client may log in again. False: it is
    /// not connected.
    fn kick(&self, name: String) -> SendFuture<'_, anyhow::Result<bool>>;

    /// Puts a client on hold, or ends its hold. Both survive a restart. Returns the hold in force.
    ///
    /// # Errors
    /// The server knows no such client, there is no hold to end, or the order is contradictory.
    fn hold(&self, order: HoldOrder) -> SendFuture<'_, anyhow::Result<Option<Held>>>;
}

/// The services and forwards of a client.
pub trait Lists: Send + Sync {
    /// Changes the services and forwards. The change survives a restart. After an error nothing has
    /// changed.
    fn change(&self, change: ListChange) -> SendFuture<'_, anyhow::Result<Reloaded>>;
}

/// Targets that a client shares for the duration of a command.
pub trait Sharer: Send + Sync {
    /// Publishes a service until the second value is dropped, and reports the actions of its
    /// visitors to `visits`. The service is in no file, and a reload does not affect it.
    ///
    /// # Errors
    /// The reason why the service is not published. Nothing was changed in this case.
    fn share(
        &self,
        order: ShareOrder,
        visits: Visits,
    ) -> SendFuture<'_, anyhow::Result<(Shared, Sharing)>>;
}

/// The latest requests of visitors of those services of a client that record them. Each answer
/// waits at most for a short lock.
pub trait Requests: Send + Sync {
    /// The recorded requests that match the filter, without secrets.
    fn list(&self, filter: &RequestFilter) -> SeenRequests;

    /// The requests that have changed since a revision, and the current revision. A connection that
    /// has switched to another protocol is included as long as it lasts. 0 returns all requests.
    fn since(&self, revision: u64) -> (SeenRequests, u64);

    /// A request in full, with or without its secrets; `None`: it is no longer kept.
    fn one(&self, id: u64, secrets: bool) -> Option<RequestDetail>;

    /// Sends a request to its target again, and waits for the end of the response, at most 30 s.
    /// `None`: the request is no longer kept. The result is the new request, without secrets.
    ///
    /// # Errors
    /// The request cannot be sent again, or the target did not respond. The message is readable
    /// text.
    fn replay(&self, id: u64) -> SendFuture<'_, anyhow::Result<Option<RequestDetail>>>;
}

/// Connections of a client to targets on the side of its server.
pub trait Connector: Send + Sync {
    /// Connects a local socket to a target on the server's side, a TCP address or a Unix socket. As
    /// soon as the target is connected, the daemon writes [`CONNECTED`] to the socket and copies
    /// the bytes of both directions from then on, and the future completes. The other end of the
    /// socket sends nothing before that line.
    ///
    /// # Errors
    /// The reason for the failed connection. Nothing was written to the socket in this case.
    ///
    /// [`CONNECTED`]: crate::connect::CONNECTED
    fn connect(&self, target: Target, socket: UnixStream) -> SendFuture<'_, anyhow::Result<()>>;
}
