//! `tunnel upgrade`: asks running daemons to continue in a new process.

use std::env;

use anyhow::{Context, bail};
use control::Instance;
use ops::state::Places;
use ops::term::{self, Waiting};
use ops::upgrade::{UpgradeOrder, Upgraded};

use crate::cli::UpgradeArgs;
use crate::input::absolute;
use crate::instances;

/// Upgrades the daemon that the arguments select, or all daemons of this program.
pub(crate) fn upgrade(args: &UpgradeArgs) -> anyhow::Result<()> {
    let binary = args.binary.as_deref().map(absolute).transpose()?;
    let timeout_millis = u64::try_from(args.timeout.as_millis()).unwrap_or(u64::MAX);
    let order = UpgradeOrder { binary, only: None, timeout_millis };
    if args.all {
        return upgrade_all(&order, args.json);
    }
    let instance = instances::find(&args.which)?;
    if !args.json {
        term::err("upgrading: the new process reads its configuration and checks itself");
    }
    let waiting = Waiting::begin("waiting for the new process");
    let upgraded = control::ask(&instance, order);
    drop(waiting);
    match upgraded? {
        Some(upgraded) => tell(&upgraded, args.json),
        None => Ok(()),
    }
}

/// Upgrades each running daemon that was started from the file of this command, as the installer of
/// a package does.
fn upgrade_all(order: &UpgradeOrder, json: bool) -> anyhow::Result<()> {
    let own = env::current_exe().context("the path of this program")?;
    let order = UpgradeOrder { only: Some(own.clone()), ..order.clone() };
    let found = control::running(&Places::of_process());
    let (mut failed, mut count) = (Vec::new(), 0);
    for path in &found.live {
        let waiting = Waiting::begin(&format!("upgrading the daemon of {}", path.display()));
        let upgraded =
            Instance::connect(path).and_then(|instance| control::ask(&instance, order.clone()));
        drop(waiting);
        match upgraded {
            Ok(None) => {}
            Ok(Some(upgraded)) => {
                count += 1;
                tell(&upgraded, json)?;
            }
            // The error names the socket.
            Err(why) => failed.push(why),
        }
    }
    for denied in &found.denied {
        failed.push(denied.clone().into());
    }
    if count == 0 && failed.is_empty() && !json {
        term::out(format_args!("no daemon of {} is running", own.display()))?;
    }
    for why in &failed {
        term::err(format_args!("not upgraded: {why:#}"));
    }
    if !failed.is_empty() {
        let count = term::count(u64::try_from(failed.len()).unwrap_or(u64::MAX), "daemon");
        bail!(
            "{count} not upgraded: each goes on as before, and a restart gives it the new program"
        );
    }
    Ok(())
}

fn tell(upgraded: &Upgraded, json: bool) -> anyhow::Result<()> {
    if json {
        term::out(serde_json::to_string(upgraded)?)?;
        return Ok(());
    }
    let Upgraded { pid, version, former_pid, former_version, streams, parent } = upgraded;
    term::out(format_args!(
        "process {pid} (version {version}) serves in the place of process {former_pid} (version \
         {former_version})"
    ))?;
    if *parent {
        term::out(format_args!(
            "process {former_pid} stays as the parent of process {pid}: the program that has started \
             it may wait for its end"
        ))?;
    }
    match streams {
        0 => {}
        1 => term::out(format_args!("1 stream goes on in process {former_pid} until it ends"))?,
        many => {
            term::out(format_args!("{many} streams go on in process {former_pid} until they end"))?
        }
    }
    Ok(())
}
