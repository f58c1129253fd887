//! The client that `tunnel share` starts for its own duration if none runs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use control::Instance;
use ops::command::Stop;
use ops::state::Places;

use crate::cli::ShareArgs;
use crate::found;
use crate::supervise::SUPERVISOR;

/// The longest wait for the control socket: an enrolment queries the server, which may be far away.
const START: Duration = Duration::from_secs(30);

/// The interval of checks.
const LOOK: Duration = Duration::from_millis(50);

/// A client that ends with this value. If this process is killed, the client drains and ends.
#[derive(Debug)]
pub(super) struct OwnClient {
    process: Child,
    pub(super) socket: PathBuf,
}

/// The arguments of the client that the arguments of `tunnel share` describe. `None`: they describe
/// none.
fn arguments(args: &ShareArgs, here: Option<&Path>) -> Option<Vec<String>> {
    let mut all = vec!["client".to_owned()];
    let mut flag = |name: &str, value: &str| all.extend([name.to_owned(), value.to_owned()]);
    let file = args.which.config.as_deref().or(here).map(|path| path.display().to_string());
    if let Some(code) = &args.enroll {
        flag("--enroll", code);
        if let Some(file) = args.which.config.as_deref() {
            flag("--config", &file.display().to_string());
        }
    } else if !args.server.is_empty() {
        args.server.iter().for_each(|url| flag("--server", url));
        args.name.iter().for_each(|name| flag("--name", name));
        args.token_file.iter().for_each(|file| flag("--token-file", &file.display().to_string()));
        args.pin.iter().for_each(|pin| flag("--pin", pin));
    } else {
        flag("--config", &file?);
    }
    Some(all)
}

impl OwnClient {
    /// Starts the client, and waits until it accepts commands. `None`: the arguments and the
    /// working directory describe no client.
    pub(super) fn start(args: &ShareArgs) -> anyhow::Result<Option<Self>> {
        let here = found::here(found::CLIENT);
        let Some(arguments) = arguments(args, here.as_deref()) else { return Ok(None) };
        let folder = Places::of_process().runtime_dir()?;
        let number = std::process::id();
        let socket = folder.join(format!("client-share-{number}.sock"));
        let mut command = Command::new(env::current_exe().context("the file of this program")?);
        command.args(arguments).args(["--log-level", "error", "--control"]).arg(&socket);
        // Only the shared target: the services of the file belong to its own daemon.
        if args.enroll.is_none() {
            command.arg("--only");
        }
        command.env(SUPERVISOR, number.to_string()).stdin(Stdio::inherit()).stdout(Stdio::null());
        let process = command.spawn().context("starting a client")?;
        let mut own = Self { process, socket };
        own.wait()?;
        Ok(Some(own))
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + START;
        while Instant::now() < end {
            if Instance::connect(&self.socket).is_ok() {
                return Ok(());
            }
            self.lives()?;
            sleep(LOOK);
        }
        bail!("the client that this command has started takes no command")
    }

    /// Ends the client once its visitors have received their bytes, or after its `drain_timeout`.
    pub(super) fn drain(&mut self) {
        let begun =
            Instance::connect(&self.socket).and_then(|one| control::ask(&one, Stop { now: false }));
        if begun.is_ok() {
            drop(self.process.wait());
        }
    }

    /// An error if the client has ended. The client's own output has the reason.
    pub(super) fn lives(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the client that this command has started has ended ({status})");
        }
        Ok(())
    }
}

impl Drop for OwnClient {
    fn drop(&mut self) {
        // After the share has ended, nothing is left to drain.
        let stopped =
            Instance::connect(&self.socket).and_then(|one| control::ask(&one, Stop { now: true }));
        if stopped.is_err() {
            drop(self.process.kill());
        }
        drop(self.process.wait());
    }
}
