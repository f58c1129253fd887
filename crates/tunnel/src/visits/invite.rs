//! The side of the client that provides the private service: makes codes, lists the visitors that
//! were invited by codes, and revokes them.

use ops::command::{ListVisitors, Uninvite};
use ops::term;
use ops::visit::{Invitation, InviteOrder, InvitedVisitor};

use crate::cli::{ClientArgs, VisitArgs, Which};
use crate::instances::ask;

/// Runs the command. Returns the arguments of a client that should start, if the command is the
/// visitor's.
pub(crate) fn command(args: &VisitArgs) -> anyhow::Result<Option<ClientArgs>> {
    if let Some(code) = &args.code {
        return super::visit(args, code);
    }
    let daemon = &args.daemon;
    let which = Which { config: daemon.config.clone(), control: daemon.control.clone() };
    if let Some(visitor) = &args.revoke {
        revoke(&which, visitor, args.json)?;
    } else if args.list {
        list(&ask(&which, ListVisitors {})?, args.json)?;
    } else {
        let order = InviteOrder {
            service: args.new.clone().unwrap_or_default(),
            visitor: args.existing.clone().or_else(|| args.name.clone()),
            existing: args.existing.is_some(),
        };
        let invitation = ask(&which, order)?;
        if args.json {
            term::out(serde_json::to_string_pretty(&invitation)?)?;
        } else {
            term::out(text(&invitation, args.existing.is_some()))?;
        }
    }
    Ok(None)
}

fn text(invitation: &Invitation, is_client: bool) -> String {
    let Invitation { service, visitor, code, valid_seconds, left_to_do, authority } = invitation;
    let minutes = valid_seconds / 60;
    let own = service.split_once('/').map_or(service.as_str(), |(_, service)| service);
    let where_to = if is_client {
        format!(
            "On the machine of client `{visitor}`, in the folder of its client.yaml\n(for another file, add --config FILE), within {minutes} minutes:"
        )
    } else {
        format!("On the visitor's machine, once and within {minutes} minutes:")
    };
    // The visitor must fill in the argument with a file of that machine.
    let trust = authority.as_ref().map_or_else(String::new, |file| {
        format!(
            "\n\nThe server's certificate is of an authority that other machines do not know. Add --ca FILE\n\
             with a copy of {file}, or --pin PIN with the pin that\n`tunnel clients` prints on the server."
        )
    });
    let left = left_to_do.as_ref().map_or_else(String::new, |left| {
        format!(
            "\n\nThe server did not give the right ({left}); on its machine: tunnel allow {visitor} \
             --visit {service}"
        )
    });
    format!(
        "{where_to}\n\n  tunnel visit {code}\n\n\
         Client `{visitor}` may visit {service}, and nothing else by this code. Add --listen 2222 for\n\
         the port at which the visitor's machine has `{own}`. The code is a secret.\n\
         To end the visits: tunnel visit --revoke {visitor}{trust}{left}"
    )
}

fn list(visitors: &[InvitedVisitor], json: bool) -> anyhow::Result<()> {
    if json {
        term::out(serde_json::json!({ "visitors": visitors }))?;
    } else if visitors.is_empty() {
        term::out("no visitor came by a code")?;
    }
    for InvitedVisitor { service, visitor, valid_seconds } in visitors.iter().filter(|_| !json) {
        let state = valid_seconds.map_or_else(
            || "has come".to_owned(),
            |left| format!("has not come; the code is valid for {}", ops::status::duration(left)),
        );
        term::out(format_args!("{visitor} visits {service}: {state}"))?;
    }
    Ok(())
}

fn revoke(which: &Which, visitor: &str, json: bool) -> anyhow::Result<()> {
    let done = ask(which, Uninvite { visitor: visitor.to_owned() })?;
    if done.services.is_empty() {
        anyhow::bail!("no visitor `{visitor}` came by a code (hint: tunnel visit --list)");
    }
    if json {
        term::out(serde_json::to_string_pretty(&done)?)?;
        return Ok(());
    }
    term::out(format_args!("{visitor} can no longer visit {}", done.services.join(", ")))?;
    if let Some(left) = done.left_to_do {
        term::out(format_args!("On the server, the right is still there: {left}"))?;
    }
    Ok(())
}
