//! evproxy: a JSON file with plain proxies, which become a file of `tunnel proxy`.

use config::edit::Value;

use crate::Options;
use crate::address::{at, host_port, local, public};
use crate::plan::{Keys, Plan, rate, set, text, texts};
use crate::section::{Book, Read, Section};
use crate::table::{Row, already, to};
use crate::tree::Node;

pub(super) const ROWS: &[Row] = &[
    to("WorkerNum", "`workers`"),
    already("ProxyConfig[].Type", "TCP is the only kind"),
    to("ProxyConfig[].BindAddr", "`proxies[].listen`"),
    to("ProxyConfig[].UpstreamAddrs", "`proxies[].target`, with `balance: source_hash` as there"),
    already("ProxyConfig[].UpstreamCheckInterval", "evproxy does not read it from a file"),
    to("ProxyConfig[].ConcurrentLimit", "`proxies[].limits.connections`"),
    to("ProxyConfig[].ReadSpeed", "`proxies[].limits.up`, in MiB"),
    to("ProxyConfig[].WriteSpeed", "`proxies[].limits.down`, in MiB"),
    to("ProxyConfig[].DialTimeout", "`proxies[].timeouts.dial`"),
    to("ProxyConfig[].WriteTimeout", "`proxies[].timeouts.flush`"),
];

pub(super) fn fits(root: &Node) -> bool {
    root.has("ProxyConfig")
}

pub(super) fn map(sources: &[Read], _options: &Options, book: &Book, plan: &mut Plan) {
    for source in sources {
        let section = source.section(book);
        let proxies = section.sections("ProxyConfig");
        if proxies.is_empty() {
            continue;
        }
        let proxy = plan.proxy.get_or_insert_default();
        proxy.sources.push(source.name.clone());
        if let Some(workers) = section.number::<u16>("WorkerNum")
            && (1..=1024).contains(&workers)
        {
            set(&mut proxy.keys, "workers", Value::Number(workers.to_string()));
        }
        proxy.entries.extend(proxies.iter().filter_map(entry));
    }
}

/// An entry of `proxies`.
fn entry(section: &Section<'_>) -> Option<Keys> {
    if section.text("Type").is_some_and(|kind| kind != "tcp") {
        section.lacks_all("the kind of this proxy is not known; no entry is written", "");
        return None;
    }
    let bound = section.text("BindAddr").and_then(host_port);
    let upstreams = section.texts("UpstreamAddrs");
    let targets = upstreams.iter().map(|upstream| {
        let (host, port) = host_port(upstream)?;
        Some(format!("tcp://{}", at(local(&host), port)))
    });
    let targets: Option<Vec<String>> = targets.collect();
    let (Some((host, port)), Some(targets)) = (bound, targets.filter(|all| !all.is_empty())) else {
        section.lacks_all("an address is missing or wrong; no entry is written", "`target`");
        return None;
    };
    let mut keys = vec![
        ("listen".to_owned(), text(public("tcp", &host, port))),
        ("target".to_owned(), texts(&targets)),
    ];
    if targets.len() > 1 {
        set(&mut keys, "balance", text("source_hash"));
    }
    if let Some(limit) = section.number::<u64>("ConcurrentLimit").filter(|limit| *limit > 0) {
        set(&mut keys, "limits.connections", Value::Number(limit.to_string()));
    }
    for (theirs, ours) in [("ReadSpeed", "limits.up"), ("WriteSpeed", "limits.down")] {
        let speed = section.number::<u32>(theirs).and_then(|mib| rate(u64::from(mib) << 20));
        if let Some(speed) = speed {
            set(&mut keys, ours, speed);
        }
    }
    for (theirs, ours) in [("DialTimeout", "timeouts.dial"), ("WriteTimeout", "timeouts.flush")] {
        if let Some(seconds) = section.number::<u32>(theirs).filter(|n| (1..86_400).contains(n)) {
            set(&mut keys, ours, text(format!("{seconds}s")));
        }
    }
    Some(keys)
}
