//! The traits of a running daemon: [`Daemon`] for commands and queries, [`Role`] for the daemon's
//! frame.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use config::edit::Operation;
use config::{Common, Kept, Lists, Target};

use crate::clients::{Applied, Change, Clients, Details};
use crate::enrol::{Opened, Order};
use crate::lists::ListChange;
use crate::measure::Meter;
use crate::reload::Reloaded;
use crate::shown::{self, Shown};
use crate::status::{Status, StreamNumber, Streams};

/// The error of a command that only a server can carry out.
const NOT_A_SERVER: &str =
    "this is a client; clients are let in, and get their rights, where `tunnel server` runs";

/// The error of a command that only a client can carry out.
const NOT_A_CLIENT: &str =
    "this is a server; services and forwards are added where `tunnel client` runs";

/// The error of a connection that only a client can make.
const NO_OTHER_SIDE: &str = "this is a server; its side is reached from where `tunnel client` runs";

/// A future that may move between threads, because the control socket runs beside the workers.
pub type SendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A running daemon, as the control socket and the admin API see it.
pub trait Daemon: Send + Sync {
    /// Whether all workers answer within `limit`.
    fn alive(&self, _limit: Duration) -> SendFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    /// Collects the status from the workers. The caller sets a deadline.
    fn status(&self) -> SendFuture<'_, Status>;

    /// Lists at most `limit` streams and flows. `_service` restricts the list to one service.
    fn streams(&self, _service: Option<String>, _limit: usize) -> SendFuture<'_, Streams> {
        Box::pin(std::future::ready(Streams::default()))
    }

    /// Resets a stream on both sides, or ends a flow. False: there is none of this number.
    fn kill(&self, _number: StreamNumber) -> SendFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Reads the configuration again and applies the changes.
    ///
    /// # Errors
    /// The problem with the configuration; nothing has changed then.
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!("its configuration is read at its start only: restart it") })
    }

    /// The configuration as the admin API shows it.
    ///
    /// # Errors
    /// The daemon was started without a configuration file, or the file cannot be shown.
    fn configuration(&self) -> anyhow::Result<Shown> {
        anyhow::bail!(shown::NONE)
    }

    /// Changes the configuration file and applies it. After an error neither has changed.
    fn amend(&self, _operations: Vec<Operation>) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!(shown::NONE) })
    }

    /// Makes a code that lets a new client in. Only a server can make codes.
    fn enroll(&self, _order: Order) -> SendFuture<'_, anyhow::Result<Opened>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Removes a client that was enrolled by a code. Returns whether there was such a client or
    /// code.
    fn revoke(&self, _name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Changes the entry of a client of the configuration file, or of a client that was enrolled by
    /// a code, and applies the change. Returns all rights and limits of the client. After an error
    /// nothing has changed.
    fn change_client(&self, _change: Change) -> SendFuture<'_, anyhow::Result<Applied>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Lists all clients that the server knows.
    fn clients(&self) -> SendFuture<'_, anyhow::Result<Clients>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// One client in full; `None`: the server knows no client of this name.
    fn client(&self, _name: String) -> SendFuture<'_, anyhow::Result<Option<Details>>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Changes the services and forwards of a client. The change outlives a restart. After an error
    /// nothing has changed.
    fn change_lists(&self, _change: ListChange) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!(NOT_A_CLIENT) })
    }

    /// Connects a local socket with a target on the server's side, a TCP address or a Unix socket.
    /// As soon as the target is connected, the daemon writes [`CONNECTED`] to the socket, carries
    /// the bytes of both directions from then on, and the future is ready. The other end of the
    /// socket sends nothing before that line.
    ///
    /// # Errors
    /// The reason why there is no connection. Nothing was written to the socket then.
    ///
    /// [`CONNECTED`]: crate::connect::CONNECTED
    fn connect(&self, _target: Target, _socket: UnixStream) -> SendFuture<'_, anyhow::Result<()>> {
        Box::pin(async { anyhow::bail!(NO_OTHER_SIDE) })
    }

    /// The measurements of the links; `None` when the daemon cannot measure.
    fn meter(&self) -> Option<&dyn Meter> {
        None
    }
}

/// The part of a daemon that serves: a server or a client.
pub trait Role: Daemon {
    /// A summary in one line, for `systemctl status` and the log.
    fn summary(&self) -> String;

    /// Whether a client of this name is configured or was enrolled.
    fn knows(&self, _name: &str) -> bool {
        false
    }

    /// Checks whether a start with `_text` as the configuration file would succeed.
    ///
    /// # Errors
    /// The problem with the text.
    fn check(&self, _text: String) -> anyhow::Result<()> {
        anyhow::bail!(shown::NONE)
    }

    /// Changes the entry of a client that was enrolled by a code, and applies the change. `None`: no
    /// such client was enrolled.
    fn change_enrolled(&self, _change: Change) -> SendFuture<'_, anyhow::Result<Option<Applied>>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Applies the entry of the changed client in `_text`, a configuration file, and nothing else of
    /// it.
    /// Returns the rights and limits of the client.
    fn apply_client(
        &self,
        _change: Change,
        _text: String,
    ) -> SendFuture<'_, anyhow::Result<Applied>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// The services and forwards of a client in force, and its `id_prefix`.
    fn lists(&self) -> Option<(Lists, Option<String>)> {
        None
    }

    /// Applies a change of a client's services and forwards. After an error nothing has changed.
    fn apply_lists(&self, _change: Kept) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!(NOT_A_CLIENT) })
    }

    /// The common part of the configuration in force.
    fn common(&self) -> Common;

    /// The files of the configured certificates and keys.
    fn certificates(&self) -> Vec<PathBuf>;

    /// Reads the certificates again, for new connections. After an error the previous certificates
    /// stay in force.
    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>>;

    /// Closes the listeners at once and lets streams finish. The future is ready when the last
    /// stream has ended. The caller drops the future at the deadline.
    fn drain(&self) -> SendFuture<'_, ()>;

    /// Tells the peers, ends the remaining streams, and stops the workers.
    fn close(&self) -> SendFuture<'_, ()>;
}
