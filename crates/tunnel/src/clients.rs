//! `tunnel enroll`, `allow` and `clients`: the clients of a running server.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use ops::clients::{HOLD_PAGE_MAX, HoldOrder, LimitOrder, render, render_details};
use ops::command::{Allow, Deny, Enroll, Kick, ListClients, Locate, Revoke, ShowClient};
use ops::enrol::{Code, Order};
use ops::term::{self, Screen};
use ops::{WrongConfig, qr};

use crate::cli::{ClientsArgs, ClientsCommand, EnrollArgs, HoldArgs, LimitArgs, RightsArgs, Which};
use crate::enroll::LINE_MAX;
use crate::input::first_line;
use crate::instances::ask;

/// Prints an enrolment code for a new client or for the new token of an enrolled client, or removes
/// a client that was enrolled by a code.
pub(crate) fn enroll(args: &EnrollArgs) -> anyhow::Result<()> {
    let EnrollArgs { name, allow_forward, server, renew, revoke: out, which, json, .. } = args;
    if let Some(name) = out {
        return revoke(which, name, *json);
    }
    let ports = [args.allow_tcp.as_slice(), &args.allow_udp];
    let (http, tls) = (&args.allow_http, &args.allow_tls);
    let (via, visit) = (&args.allow_via, &args.allow_visit);
    let rights = [ports[0], ports[1], allow_forward, http, tls, via, visit];
    let order = match renew {
        Some(_) if args.allow_shared || rights.iter().any(|rights| !rights.is_empty()) => {
            let text = format!("--renew: {}", Order::RENEWAL_WITH_RIGHTS);
            return Err(WrongConfig::one(text).into());
        }
        Some(name) => Order::renewal(name),
        None => Order {
            allow_via: via.clone(),
            allow_visit: visit.clone(),
            allow_shared: args.allow_shared,
            ..Order::new(name.as_deref().unwrap_or_default(), ports, allow_forward)
                .with_hosts(http, tls)
        },
    };
    // Wrong codes are refused before the server makes another.
    let others = others(&args.add, &order.name)?;
    let mut code = ask(which, Enroll(order.clone()))?.code(&order, server);
    code.join(others).map_err(|why| WrongConfig::one(format!("--add: {why}")))?;
    if *json {
        term::out(serde_json::to_string_pretty(&code.shown())?)?;
    } else {
        let qr = if args.qr {
            let lines = qr::lines(&code.command());
            Some(lines.context("the code is too long for a QR code")?)
        } else {
            None
        };
        term::out(code.told(&order))?;
        if let Some(qr) = qr {
            term::out(format_args!("\n{qr}"))?;
        }
    }
    Ok(())
}

/// The codes of further servers. They stay in this process: the server that makes another code
/// does not see them.
fn others(texts: &[String], name: &str) -> Result<Vec<Code>, WrongConfig> {
    let wrong = |why: String| WrongConfig::one(format!("--add: {why}"));
    let mut all = Vec::new();
    for text in texts {
        let line = if text == "-" { first_line(LINE_MAX) } else { Ok(text.clone()) };
        let line = line.map_err(|why| wrong(format!("{why:#}")))?;
        let code = Code::read(&line).map_err(wrong)?;
        if code.name != name {
            return Err(wrong(format!("a code of client `{}`, not of `{name}`", code.name)));
        }
        all.push(code);
    }
    Ok(all)
}

fn revoke(which: &Which, name: &str, json: bool) -> anyhow::Result<()> {
    if !ask(which, Revoke { name: name.to_owned() })? {
        bail!("no client `{name}` has come in by a code");
    }
    if json {
        term::out(serde_json::json!({ "name": name, "removed": true }))?;
    } else {
        term::out(format_args!("client {name} removed: its connections end"))?;
    }
    Ok(())
}

/// Adds rights to a client, and prints all its rights.
pub(crate) fn allow(args: &RightsArgs) -> anyhow::Result<()> {
    let all = ask(&args.which, Allow(order_of(args)))?;
    Ok(term::out(format_args!("client `{}` {all}", args.name))?)
}

/// Removes rights from a client, and prints the remaining rights.
pub(crate) fn deny(args: &RightsArgs) -> anyhow::Result<()> {
    let left = ask(&args.which, Deny(order_of(args)))?;
    Ok(term::out(format_args!("client `{}` {left}", args.name))?)
}

fn order_of(args: &RightsArgs) -> Order {
    let RightsArgs { name, tcp, udp, http, tls, forward, via, visit, shared, which: _ } = args;
    let order = Order {
        name: name.clone(),
        allow_tcp: tcp.clone(),
        allow_udp: udp.clone(),
        allow_forward: forward.clone(),
        allow_via: via.clone(),
        allow_visit: visit.clone(),
        allow_shared: *shared,
        ..Order::default()
    };
    order.with_hosts(http, tls)
}

/// Lists the clients of the server, or shows or changes one of them.
pub(crate) fn clients(args: &ClientsArgs) -> anyhow::Result<()> {
    let ClientsArgs { command, which, json, wide } = args;
    match command {
        None => {
            let clients = ask(which, ListClients {})?;
            term::show(&clients, *json, |clients| render(clients, Screen::of_stdout(*wide)))
        }
        Some(ClientsCommand::Show { name, which, json, wide }) => {
            let Some(client) = ask(which, ShowClient { name: name.clone() })? else {
                // A server that is no node says so, and that is no answer to the question.
                let places = ask(which, Locate { name: name.clone() }).unwrap_or_default();
                let place = places.iter().find(|place| place.what.starts_with("client "));
                let nodes = place.map(|place| place.nodes.iter().map(|node| node.name.as_str()));
                if let Some(nodes) = nodes.map(|nodes| nodes.collect::<Vec<_>>().join(", ")) {
                    bail!("client `{name}` is connected to {nodes} (hint: ask that node)");
                }
                bail!("the server knows no client `{name}` (hint: `tunnel clients` lists all)");
            };
            term::show(&client, *json, |client| render_details(client, Screen::of_stdout(*wide)))
        }
        Some(ClientsCommand::Allow(args)) => allow(args),
        Some(ClientsCommand::Limit(args)) => limit(args),
        Some(ClientsCommand::Hold(args)) => hold(args),
        Some(ClientsCommand::Kick { name, which }) => {
            if !ask(which, Kick { name: name.clone() })? {
                bail!("no client `{name}` is connected");
            }
            Ok(term::out(format_args!("client {name} is disconnected, and may log in again"))?)
        }
        Some(ClientsCommand::Revoke { name, which }) => revoke(which, name, false),
    }
}

/// Puts a client on hold, or ends its hold.
fn hold(args: &HoldArgs) -> anyhow::Result<()> {
    let HoldArgs { name, page, retry_after, off, which } = args;
    let order = HoldOrder {
        name: name.clone(),
        page: page.as_deref().map(read_page).transpose()?,
        retry_after: retry_after.clone(),
        off: *off,
    };
    order.retry_after()?;
    match ask(which, order)? {
        Some(held) => term::out(format_args!("client `{name}` is on hold {held}"))?,
        None => term::out(format_args!("client `{name}` is not on hold any more"))?,
    }
    Ok(())
}

/// Reads the page of a hold. The file is read here, because the daemon may run as another user.
fn read_page(path: &Path) -> anyhow::Result<String> {
    let shown = path.display();
    let failed = |why: String| WrongConfig::one(format!("{shown}: {why}"));
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let (mut text, most) = (String::new(), HOLD_PAGE_MAX as u64);
    file.take(most + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() > HOLD_PAGE_MAX {
        let why = format!("the page of a hold has at most {} KiB", HOLD_PAGE_MAX >> 10);
        return Err(failed(why).into());
    }
    Ok(text)
}

/// Changes limits of a client, and prints all its limits.
fn limit(args: &LimitArgs) -> anyhow::Result<()> {
    let LimitArgs { name, streams, new_per_second, up, down, ports, hosts, which } = args;
    if [streams, new_per_second, up, down, ports, hosts].iter().all(|one| one.is_none()) {
        let text =
            "a limit is missing: --streams, --new-per-second, --up, --down, --ports or --hosts";
        return Err(WrongConfig::one(text.to_owned()).into());
    }
    let order = LimitOrder {
        name: name.clone(),
        streams: streams.clone(),
        new_per_second: new_per_second.clone(),
        up: up.clone(),
        down: down.clone(),
        ports: ports.clone(),
        hosts: hosts.clone(),
    };
    Ok(term::out(format_args!("client `{name}`: {}", ask(which, order)?))?)
}
