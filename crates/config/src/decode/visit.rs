//! Which visitors may use a service (`allow_from`, `deny_from`), and how its target learns the
//! visitor's address (`proxy_protocol`).

use std::sync::Arc;

use proto::{NETWORKS_MAX, Network};

use super::{Cx, Section, unknown, values};
use crate::model::{ProxyProtocol, VisitorLists};
use crate::yaml::At;
use crate::{BadValue, Host, Local, Net};

/// Decodes `allow_from` and `deny_from`. The result is incomplete only after a problem was
/// reported.
pub(super) fn visitors(s: &Section<'_>) -> VisitorLists {
    let allow_from = networks(s, "allow_from");
    if allow_from.as_ref().is_some_and(|list| list.is_empty())
        && let Some(item) = s.key("allow_from")
    {
        let bad = BadValue::new("an empty list lets nobody visit");
        s.cx.warn(item.at(), &item.path, bad.hint("[0.0.0.0/0, \"::/0\"] lets everybody visit"));
    }
    VisitorLists { allow_from, deny_from: networks(s, "deny_from") }
}

fn networks(s: &Section<'_>, key: &str) -> Option<Arc<[Network]>> {
    let items = s.cx.one_or_list(&s.key(key)?);
    if items.len() > NETWORKS_MAX {
        let bad = BadValue::new(format!("more than {NETWORKS_MAX} networks"));
        s.bad(key, bad.hint("join neighbouring networks, or use a firewall for long lists"));
        return None;
    }
    Some(items.iter().filter_map(|item| s.cx.value(item, network)).collect())
}

fn network(text: &str) -> Result<Network, BadValue> {
    text.parse::<Net>().map(Net::network).map_err(|bad| match text.parse() {
        // The addresses of a name change without a change of this file.
        Ok(Host::Name(name)) => {
            BadValue::new(format!("`{name}` is a host name; visitors are listed by address"))
                .hint("for example 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32")
        }
        Ok(Host::Scoped(_)) => crate::endpoint::no_zone(text, "visitors are listed by address"),
        Ok(Host::Ip(_)) | Err(_) => bad,
    })
}

/// Decodes `accept_proxy` of a listener of this machine.
pub(super) fn accept_proxy(s: &Section<'_>, listen: Option<&Local>) -> bool {
    let accepts = s.value("accept_proxy", values::switch) == Some(true);
    if accepts && let Some(listen @ Local::Unix { .. }) = listen {
        let bad =
            BadValue::new(format!("the visitors of {listen} have no address to be trusted by"));
        s.bad("accept_proxy", bad.hint("remove the key, or listen on tcp://127.0.0.1:port"));
    }
    accepts
}

/// Reports that the list of load balancers whose headers a listener accepts is empty.
pub(super) fn nobody_announces(cx: &Cx<'_>, at: At) {
    let bad = BadValue::new("`accept_proxy` has no effect without `trusted_proxies`");
    let hint = "name the load balancers: trusted_proxies: [10.0.0.5]";
    cx.problem(at, "trusted_proxies", bad.hint(hint));
}

/// Decodes `proxy_protocol`.
pub(super) fn proxy_protocol(s: &Section<'_>) -> Option<ProxyProtocol> {
    s.value("proxy_protocol", |text| match text {
        "v1" => Ok(ProxyProtocol::V1),
        "v2" => Ok(ProxyProtocol::V2),
        _ => Err(unknown(&format!("version `{text}` of the PROXY protocol"), text, &["v1", "v2"])),
    })
}
