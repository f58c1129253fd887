//! `tunnel install` and `tunnel uninstall`: an instance as a unit of systemd.
//!
//! `instance` is an installed instance, and `place` where instances are installed. `secrets`
//! removes the secrets from a configuration. `state` finds the previous state. `gather` collects
//! all parts of an instance, `plan` writes them, `verify` checks the result, and `remove` removes
//! the instance. `version` compares the installed program with this one.

mod gather;
mod instance;
mod place;
mod plan;
mod remove;
mod secrets;
mod state;
mod verify;
mod version;

use std::cell::Cell;

use ops::term;

use crate::cli::InstallArgs;
pub(crate) use instance::names;
use instance::template;
use place::{command, has_systemd, may_write, root, run};
pub(crate) use remove::uninstall;

/// Installs an instance.
pub(crate) fn install(args: &InstallArgs) -> anyhow::Result<()> {
    may_write(&args.place)?;
    let (plan, instance) = gather::plan(args)?;
    let (root, unit) = (root(&args.place), instance.unit.as_str());
    for note in &plan.notes {
        term::err(format_args!("note: {note}"));
    }
    for warning in &plan.warnings {
        term::err(format_args!("warning: {warning}"));
    }
    // systemd knows the unit only if its file exists.
    let stop = args.force
        && has_systemd(&args.place)
        && plan::below(&root, &template(instance.side)).exists();
    let stop = stop.then(|| command(&["systemctl", "stop", unit]));
    if args.place.dry_run {
        if let Some(stop) = stop {
            term::out(format_args!("$ {}", stop.join(" ")))?;
        }
        term::out(plan.text().trim_end())?;
        return Ok(());
    }
    let is_stopped = Cell::new(false);
    let before = || {
        if args.force {
            run(stop.as_slice(), &args.place)?;
            is_stopped.set(stop.is_some());
            state::refuse_running(&root, &instance.name, unit)?;
        }
        Ok(())
    };
    let written = plan.write(&root, args.force, before);
    let written = written.and_then(|changed| verify::verify(&root, &instance).map(|()| changed));
    let changed = written.inspect_err(|_| {
        if is_stopped.get() {
            term::err(format_args!("note: the unit was stopped: systemctl start {unit}"));
        }
    })?;
    let printed = term::out(if changed {
        format!("{unit} is installed")
    } else {
        format!("{unit}: already installed")
    });
    // The unit is started even if the reader of the output has gone.
    run(&plan.commands, &args.place)?;
    Ok(printed?)
}
