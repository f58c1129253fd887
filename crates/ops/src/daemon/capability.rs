//! The capabilities of a daemon that the control socket and the admin API use.

use std::os::unix::net::UnixStream;
use std::time::Instant;

use config::Target;
use serde::{Deserialize, Serialize};

use super::SendFuture;
use crate::busy::{self, BusyStreams};
use crate::clients::{self, Applied, Change, Details, Held, HoldOrder};
use crate::enrol::{Opened, Order};
use crate::glance::Seen;
use crate::lists::ListChange;
use crate::log::Lines;
use crate::reload::Reloaded;
use crate::requests::{RequestDetail, RequestFilter, SeenRequests};
use crate::revision::{Checked, NewConfig};
use crate::share::{ShareOrder, Shared, Sharing, Visits};
use crate::shown::Shown;
use crate::status::{Restarted, StreamNumber, Streams};
use crate::visit::{Invitation, InviteOrder, InvitedVisitor, Uninvited};

/// The links that are dialled after [`Traffic::reconnect`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reconnected {
    /// The number of links that had a carrier.
    pub links: u64,
    /// The number of links of a client that had no carrier.
    pub looking: u64,
}

/// The payload bytes of all services, forwards and listeners of a proxy that are there.
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

    /// The busiest streams and flows since the last look with `seen`, at most `most`. The caller
    /// sets a deadline. By default they are found among 5,000 streams.
    fn busiest<'a>(&'a self, seen: &'a mut Seen, most: usize) -> SendFuture<'a, BusyStreams> {
        Box::pin(async move {
            let before = seen.take::<busy::Notes>();
            let looked_at = if most == 0 { 0 } else { busy::SEEN };
            let all = self.streams(None, looked_at).await;
            let (found, notes) = BusyStreams::among(all, Instant::now(), before.as_ref(), most);
            seen.keep(notes);
            found
        })
    }

    /// Ends the carriers of the links to a peer, or of all links. The client of each link dials
    /// anew, and the streams go on. Links of a client without a carrier are dialled at once.
    fn reconnect(&self, peer: Option<String>) -> SendFuture<'_, Reconnected>;

    /// The bytes that all visitors have moved. This is cheap: streams and links are not looked at.
    fn carried(&self) -> SendFuture<'_, Carried>;

    /// Resets a stream on both sides, or ends a flow. False: there is none of this number.
    fn kill(&self, number: StreamNumber) -> SendFuture<'_, bool>;
}

/// The daemons of `tunnel run`.
pub trait Supervision: Send + Sync {
    /// Ends all daemons, or the daemon `name`, and starts them again. The future is ready when the
    /// daemons have been asked. With `now` the remaining streams are reset.
    ///
    /// # Errors
    /// There is no daemon of this name. The message is for a person.
    fn restart(&self, name: Option<String>, now: bool)
    -> SendFuture<'_, anyhow::Result<Restarted>>;
}

/// The configuration of a daemon.
pub trait Settings: Send + Sync {
    /// Reads the configuration again and applies the changes.
    ///
    /// # Errors
    /// The problem with the configuration; nothing has changed then.
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>>;

    /// The configuration file without its secrets.
    ///
    /// # Errors
    /// The daemon was started without a configuration file, or the file cannot be shown.
    fn configuration(&self) -> anyhow::Result<Shown>;

    /// Says what a change of the configuration file would do. Nothing changes.
    ///
    /// # Errors
    /// There is no file, or a test of a patch found something else. Problems of the changed file
    /// are no error.
    fn foresee(&self, change: NewConfig) -> SendFuture<'_, anyhow::Result<Checked>>;

    /// Changes the configuration file and applies it. After an error neither has changed. `tag` is
    /// the entity tag of the file for which the change was made.
    ///
    /// # Errors
    /// [`Stale`](crate::revision::Stale): the file has another tag.
    fn amend(
        &self,
        change: NewConfig,
        tag: Option<String>,
    ) -> SendFuture<'_, anyhow::Result<Reloaded>>;

    /// Puts the text before the last change of [`Self::amend`] back, and applies it. After an error
    /// nothing has changed.
    ///
    /// # Errors
    /// There was no change, or the file has changed since.
    fn undo(&self) -> SendFuture<'_, anyhow::Result<Reloaded>>;
}

/// A link to the web console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleLink {
    /// The URL with the key: whoever opens it first gets in.
    pub url: String,
    /// For how many seconds the key is valid.
    pub valid_seconds: u64,
}

/// The web console of a daemon.
pub trait Console: Send + Sync {
    /// Makes a link that is good once.
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
    /// The text is no filter. The message is for a person.
    fn change(&self, filter: &str) -> Result<(), String>;

    /// The newest lines, at most `limit`, whose number is greater than `after`.
    fn lines(&self, after: u64, limit: usize) -> Lines;
}

/// The visitors of a client's private services that came by codes.
pub trait Visitors: Send + Sync {
    /// Makes a code for a visitor.
    fn invite(&self, order: InviteOrder) -> SendFuture<'_, anyhow::Result<Invitation>>;

    /// Lists the visitors that came by codes, and those that may still come.
    fn all(&self) -> SendFuture<'_, anyhow::Result<Vec<InvitedVisitor>>>;

    /// Makes the tokens of a visitor void, and takes its right away at the server. No service: no
    /// visitor of this name came by a code.
    fn uninvite(&self, visitor: String) -> SendFuture<'_, anyhow::Result<Uninvited>>;
}

/// The codes of a server that let new clients in.
pub trait Enrolment: Send + Sync {
    /// Makes a code that lets a new client in.
    fn enroll(&self, order: Order) -> SendFuture<'_, anyhow::Result<Opened>>;

    /// Removes a client that was enrolled by a code. Returns whether there was such a client or
    /// code.
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

    /// Puts a client on hold, or ends its hold. Both outlive a restart. Returns the hold in force.
    ///
    /// # Errors
    /// The server knows no such client, there is no hold to end, or the order makes no sense.
    fn hold(&self, order: HoldOrder) -> SendFuture<'_, anyhow::Result<Option<Held>>>;
}

/// The services and forwards of a client.
pub trait Lists: Send + Sync {
    /// Changes the services and forwards. The change outlives a restart. After an error nothing has
    /// changed.
    fn change(&self, change: ListChange) -> SendFuture<'_, anyhow::Result<Reloaded>>;
}

/// Targets that a client shares for the time of a command.
pub trait Sharer: Send + Sync {
    /// Publishes a service until the second value is dropped, and tells `visits` what its visitors
    /// do. The service is in no file, and a reload leaves it as it is.
    ///
    /// # Errors
    /// The reason why the service is not published. Nothing has changed then.
    fn share(
        &self,
        order: ShareOrder,
        visits: Visits,
    ) -> SendFuture<'_, anyhow::Result<(Shared, Sharing)>>;
}

/// The last requests of visitors of a client's services that keep them. Each answer waits at most
/// for a short lock.
pub trait Requests: Send + Sync {
    /// The kept requests that the filter takes, without secrets.
    fn list(&self, filter: &RequestFilter) -> SeenRequests;

    /// The requests that have changed since a revision, and the revision now. A connection that has
    /// switched to another protocol is among them as long as it lasts. 0 asks for all.
    fn since(&self, revision: u64) -> (SeenRequests, u64);

    /// A request in full, with its secrets or without; `None`: it is not kept any more.
    fn one(&self, id: u64, secrets: bool) -> Option<RequestDetail>;

    /// Sends a request to its target again, and waits for the end of the response, at most 30 s.
    /// `None`: the request is not kept any more. The result is the new request, without secrets.
    ///
    /// # Errors
    /// The request cannot be sent again, or the target did not answer. The message is for a person.
    fn replay(&self, id: u64) -> SendFuture<'_, anyhow::Result<Option<RequestDetail>>>;
}

/// Connections of a client to targets on the side of its server.
pub trait Connector: Send + Sync {
    /// Connects a local socket with a target on the server's side, a TCP address or a Unix socket.
    /// As soon as the target is connected, the daemon writes [`CONNECTED`] to the socket, carries
    /// the bytes of both directions from then on, and the future is ready. The other end of the
    /// socket sends nothing before that line.
    ///
    /// # Errors
    /// The reason why there is no connection. Nothing was written to the socket then.
    ///
    /// [`CONNECTED`]: crate::connect::CONNECTED
    fn connect(&self, target: Target, socket: UnixStream) -> SendFuture<'_, anyhow::Result<()>>;
}
