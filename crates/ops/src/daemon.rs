//! The traits of a running daemon: the questions and commands that it accepts, and the role that
//! its frame drives.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use config::Common;
use config::edit::Operation;

use crate::enrol::{Opened, Order};
use crate::measure::Meter;
use crate::reload::Reloaded;
use crate::shown::{self, Shown};
use crate::status::{Status, Streams};

/// The error of a command that only a server can carry out.
const NOT_A_SERVER: &str = "this is a client; clients are let in where `tunnel server` runs";

/// A future that may be sent; the control socket runs beside the workers.
pub type SendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A running daemon, as the control socket and the admin API see it.
pub trait Daemon: Send + Sync {
    /// Whether all workers answer within `limit`.
    fn alive(&self, _limit: Duration) -> SendFuture<'_, bool> {
        Box::pin(std::future::ready(true))
    }

    /// Asks the workers. The caller sets a deadline.
    fn status(&self) -> SendFuture<'_, Status>;

    /// At most `limit` of its streams, of one service if it is named.
    fn streams(&self, _service: Option<String>, _limit: usize) -> SendFuture<'_, Streams> {
        Box::pin(std::future::ready(Streams::default()))
    }

    /// Resets a stream on both sides. False: no stream has this number.
    fn kill(&self, _link: u64, _stream: u32) -> SendFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Reads the configuration again and applies what has changed. The error says what is wrong;
    /// nothing has changed then.
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!("its configuration is read at its start only: restart it") })
    }

    /// The configuration's file.
    fn configuration(&self) -> anyhow::Result<Shown> {
        anyhow::bail!(shown::NONE)
    }

    /// Changes the configuration's file and puts it in force. After an error neither has changed.
    fn amend(&self, _operations: Vec<Operation>) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!(shown::NONE) })
    }

    /// A code by which a new client comes in.
    fn enroll(&self, _order: Order) -> SendFuture<'_, anyhow::Result<Opened>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Puts a client out that came in by a code. Says whether there was one.
    fn revoke(&self, _name: String) -> SendFuture<'_, anyhow::Result<bool>> {
        Box::pin(async { anyhow::bail!(NOT_A_SERVER) })
    }

    /// Whoever can measure its links.
    fn meter(&self) -> Option<&dyn Meter> {
        None
    }
}

/// What runs between start and end: the wiring of a server or of a client.
pub trait Role: Daemon {
    /// One line for `systemctl status` and the log: what it serves.
    fn summary(&self) -> String;

    /// Whether it lets a client of this name in.
    fn knows(&self, _name: &str) -> bool {
        false
    }

    /// Whether a start with this text in the place of the configuration's file would be good.
    fn check(&self, _text: String) -> anyhow::Result<()> {
        anyhow::bail!(shown::NONE)
    }

    /// Of what is in force.
    fn common(&self) -> Common;

    /// The certificates and keys that it was given.
    fn certificates(&self) -> Vec<PathBuf>;

    /// Reads these again, for connections from now on. After an error those of before stay.
    fn renew(&self) -> SendFuture<'_, anyhow::Result<()>>;

    /// Closes the listeners at once, lets streams finish, and is ready when the last one did.
    /// Dropped at the deadline.
    fn drain(&self) -> SendFuture<'_, ()>;

    /// Cuts what is left, tells the peers, and stops the workers.
    fn close(&self) -> SendFuture<'_, ()>;
}
