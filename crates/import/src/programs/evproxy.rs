//! evproxy: a JSON file with plain proxies. Server and client run on one machine here.

use config::edit::Value;

use crate::Options;
use crate::address::{at, host_port, local, public};
use crate::plan::{Path, Plan, Service, set, text};
use crate::section::{Book, Read, Section};
use crate::table::{Row, already, lacks, to};
use crate::tree::Node;

const RATE: &str = "this version limits no rate";

pub(super) const ROWS: &[Row] = &[
    to("WorkerNum", "`workers`"),
    already("ProxyConfig[].Type", "TCP is the only kind"),
    to("ProxyConfig[].BindAddr", "`services[].public`"),
    to("ProxyConfig[].UpstreamAddrs", "`services[].target`, with `balance: source_hash` as there"),
    already("ProxyConfig[].UpstreamCheckInterval", "evproxy does not read it from a file"),
    to(
        "ProxyConfig[].ConcurrentLimit",
        "`clients[].limits.streams` on the server, where the file has one proxy",
    ),
    lacks("ProxyConfig[].ReadSpeed", RATE, "`priority: bulk`"),
    lacks("ProxyConfig[].WriteSpeed", RATE, "`priority: bulk`"),
    to("ProxyConfig[].DialTimeout", "`services[].timeouts.dial`"),
    to("ProxyConfig[].WriteTimeout", "`services[].timeouts.flush`"),
];

pub(super) fn fits(root: &Node) -> bool {
    root.has("ProxyConfig")
}

pub(super) fn map(sources: &[Read], options: &Options, book: &Book, plan: &mut Plan) {
    for source in sources {
        let section = source.section(book);
        let proxies = section.sections("ProxyConfig");
        if proxies.is_empty() {
            continue;
        }
        plan.server.sources.push(source.name.clone());
        plan.server.listen = vec!["tls://127.0.0.1:7000".to_owned()];
        let wanted = options.name.as_deref().filter(|_| plan.clients.is_empty());
        let client = plan.client(wanted, &source.name);
        client.servers.push(Path::new("tls", "127.0.0.1", 7000));
        if let Some(workers) = section.number::<u16>("WorkerNum")
            && (1..=1024).contains(&workers)
        {
            set(&mut client.keys, "workers", Value::Number(workers.to_string()));
        }
        let only = proxies.len() == 1;
        for proxy in proxies {
            let limit = proxy.number::<u64>("ConcurrentLimit").filter(|limit| *limit > 0);
            match limit {
                Some(limit) if only => {
                    set(&mut client.rights.limits, "streams", Value::Number(limit.to_string()));
                }
                Some(_) => proxy.note_at(
                    "ConcurrentLimit",
                    "a limit is one of the client, and this file has several proxies",
                    "`clients[].limits.streams` of the server",
                ),
                None => {}
            }
            if let Some(service) = service(&proxy) {
                client.publish(service);
            }
        }
    }
}

fn service(section: &Section<'_>) -> Option<Service> {
    if section.text("Type").is_some_and(|kind| kind != "tcp") {
        section.lacks_all("the kind of this proxy is not known; no service is written", "");
        return None;
    }
    let bound = section.text("BindAddr").and_then(host_port);
    let upstreams = section.texts("UpstreamAddrs");
    let targets = upstreams.iter().map(|upstream| {
        let (host, port) = host_port(upstream)?;
        Some(format!("tcp://{}", at(local(&host), port)))
    });
    let targets: Option<Vec<String>> = targets.collect();
    let (Some((host, port)), Some([first, others @ ..])) = (bound, targets.as_deref()) else {
        section.lacks_all("an address is missing or wrong; no service is written", "`target`");
        return None;
    };
    let mut service = Service::new(format!("tcp-{port}"), first, public("tcp", &host, port));
    if !others.is_empty() {
        service.others = others.to_vec();
        service.set("balance", text("source_hash"));
    }
    for (theirs, ours) in [("DialTimeout", "timeouts.dial"), ("WriteTimeout", "timeouts.flush")] {
        if let Some(seconds) = section.number::<u32>(theirs).filter(|n| (1..86_400).contains(n)) {
            service.set(ours, text(format!("{seconds}s")));
        }
    }
    Some(service)
}
