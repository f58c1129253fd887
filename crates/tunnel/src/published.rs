//! `tunnel publish`, `tunnel unpublish` and `tunnel forward`: change a running client.

use ops::lists::ListChange;
use ops::{WrongConfig, term};

use crate::cli::{ForwardArgs, PublishArgs, UnpublishArgs, Which};
use crate::instances::{ask_waiting, tell};
use crate::service_options::{add_target_options, read_options, warning};

/// Publishes services of the running client.
pub(crate) fn publish(args: &PublishArgs) -> anyhow::Result<()> {
    let publish = args.services.clone();
    let mut options = read_options(&args.options, args.name.clone())?;
    if publish.is_empty() && args.target.are_given() {
        let why = "--host-rewrite, --target-ca and --insecure are for services of this command";
        return Err(WrongConfig::one(format!("{why} (hint: name their addresses)")).into());
    }
    add_target_options(&mut options, &args.target)?;
    if let Some(warning) = warning(&args.options) {
        term::err(format_args!("warning: {warning}"));
    }
    let change = ListChange { publish, options, save: args.save, ..ListChange::default() };
    change_lists(&args.which, args.json, change)
}

/// Withdraws services and closes forwards of the running client.
pub(crate) fn unpublish(args: &UnpublishArgs) -> anyhow::Result<()> {
    let without = args.names.clone();
    let change = ListChange { without, save: args.save, ..ListChange::default() };
    change_lists(&args.which, args.json, change)
}

/// Opens forwards of the running client.
pub(crate) fn forward(args: &ForwardArgs) -> anyhow::Result<()> {
    let forward = args.forwards.clone();
    let change = ListChange { forward, save: args.save, ..ListChange::default() };
    change_lists(&args.which, args.json, change)
}

fn change_lists(which: &Which, json: bool, change: ListChange) -> anyhow::Result<()> {
    let what = "waiting for the client and its server to apply the change";
    tell(&ask_waiting(which, what, change)?, json)
}
