//! Whether the target and the settings of a service fit the addresses at which its visitors arrive.

use std::iter;

use super::public::Address;
use super::spread::Listed;
use super::target::Targets;
use crate::model::Public;
use crate::section::Section;
use crate::{BadValue, NameKind, Over, Target};

/// Keys that concern the streams of a service.
const STREAM_TIMES: &[&str] = &["idle", "idle_up", "idle_down", "half_close", "total", "flush"];

/// Keys that concern the flows of a service.
const FLOW_TIMES: &[&str] = &["flow", "flow_unanswered"];

/// The protocol of the visitors: UDP if all of them come over UDP.
pub(super) fn visitors(public: &[Public]) -> Over {
    let is_udp = |public: &Public| public.over() == Over::Udp;
    if !public.is_empty() && public.iter().all(is_udp) { Over::Udp } else { Over::Tcp }
}

/// Whether each port of the public ranges has a port of the target, or the target has no range.
/// Otherwise a problem was reported.
pub(super) fn has_right_width(
    s: &Section<'_>,
    target: &Targets,
    entries: &[Option<Address>],
) -> bool {
    let mut ranges = entries.iter().map(|entry| entry.as_ref().and_then(Address::ports));
    let is_as_wide = match ranges.next() {
        Some(Some((first, last))) => {
            last - first == target.width() && ranges.all(|range| range == Some((first, last)))
        }
        Some(None) | None => false,
    };
    let fits = target.width() == 0 || is_as_wide;
    if !fits {
        s.bad("target", BadValue::new("the target's range is not as wide as the public one"));
    }
    fits
}

/// Reports targets and settings that do not fit the public addresses.
pub(super) fn fit(s: &Section<'_>, targets: &Listed, public: &[Public]) {
    let of = |over: Over| public.iter().find(|public| public.over() == over);
    let (tcp, udp) = (of(Over::Tcp), of(Over::Udp));
    let target = &targets.first;
    let all = iter::once(target).chain(targets.others.iter().map(|(target, _)| target));
    if let Some(bad) = all.into_iter().find_map(|target| unfit(target, public, (tcp, udp))) {
        s.bad("target", bad);
        // Further mismatches follow from the target.
        return;
    }
    let own = match target {
        Targets::Ports(..)
        | Targets::One(
            Target::Unix(_)
            | Target::Https { .. }
            | Target::H2c { .. }
            | Target::Tls { .. }
            | Target::Redirect(_),
        ) => None,
        Targets::One(target) => Some(target.to_string()),
    };
    let health = s.checked("health");
    if let Some(own) = &own {
        for key in ["proxy_protocol", "health"] {
            let why = format!(": {own} is served by the client itself");
            s.no_effect(key, &why, "remove the key");
        }
    } else if let Some(udp) = udp {
        let why = format!(" at {udp}");
        let alone = "publish the port of UDP as another service, without the key";
        s.no_effect("proxy_protocol", &why, if tcp.is_some() { alone } else { "remove the key" });
        if tcp.is_none() {
            if health.as_ref().is_none_or(|health| !health.has("udp")) {
                let hint =
                    "a target of UDP accepts no connection: `health: { udp: dns }` sends a query";
                s.no_effect("health", &why, hint);
            }
            let hint = "remove the key: it is for connections over TCP";
            s.no_effect("tcp_keepalive", &why, hint);
        }
    }
    if let Some(health) = health.as_ref().filter(|_| udp.is_some() && tcp.is_none()) {
        health.no_effect("path", ": requests over HTTP come over TCP", "remove the key");
    }
    if let Some(health) = health.as_ref().filter(|_| tcp.is_some() && udp.is_none()) {
        let hint = "remove the key: the check then connects";
        health.no_effect("udp", ": no visitor of the service comes over UDP", hint);
    }
    if let Some(health) = health.filter(|health| health.has("path"))
        && let Targets::One(h2c @ Target::H2c { .. }) = target
    {
        let bad = BadValue::new(format!("{h2c} speaks HTTP/2 alone, and checks speak HTTP/1.1"));
        health.bad("path", bad.hint("remove the key: the check then connects"));
    }
    let Some(timeouts) = s.checked("timeouts") else { return };
    let (keys, hint) = match (tcp, udp) {
        (Some(_), None) => (FLOW_TIMES, "it is for udp:// addresses: remove it"),
        (None, Some(_)) => (STREAM_TIMES, "`flow` and `flow_unanswered` are the times of UDP"),
        (Some(_), Some(_)) | (None, None) => return,
    };
    let at = public.first().map(ToString::to_string).unwrap_or_default();
    keys.iter().for_each(|key| timeouts.no_effect(key, &format!(" at {at}"), hint));
}

/// The error for a service whose target is the service of another client.
pub(super) fn of_another(target: &Targets) -> BadValue {
    let shown = match target {
        Targets::One(target) => target.to_string(),
        Targets::Ports(..) => String::new(),
    };
    BadValue::new(format!("{shown} is a private service of another client, and no target here"))
        .hint("it is the `target` of a forward, where programs of this machine connect")
}

/// The reason why a target does not fit the addresses.
fn unfit(
    target: &Targets,
    public: &[Public],
    (tcp, udp): (Option<&Public>, Option<&Public>),
) -> Option<BadValue> {
    let bad = |why: String, hint: String| Some(BadValue::new(why).hint(hint));
    if let Targets::One(Target::Private(_)) = target {
        return Some(of_another(target));
    }
    let name = public.iter().find(|public| matches!(public, Public::Name { .. }));
    let tls = |public: &&Public| matches!(public, Public::Name { kind: NameKind::Tls, .. });
    match (target, tcp, udp) {
        (Targets::Ports(Some(Over::Udp), host, port, _), Some(tcp), None) => bad(
            format!("visitors of {tcp} come over TCP, and the target is UDP"),
            format!("publish it at udp://:{port}, or write tcp://{host}:{port}"),
        ),
        (Targets::Ports(Some(Over::Tcp), host, port, _), None, Some(udp)) => bad(
            format!("visitors of {udp} come over UDP, and the target is TCP"),
            format!("publish it at tcp://:{port}, or write udp://{host}:{port}"),
        ),
        (Targets::One(Target::Unix(_)), _, Some(udp)) => bad(
            format!("visitors of {udp} come over UDP, which a Unix socket does not take"),
            "write udp://host:port, or publish it at tcp://".to_owned(),
        ),
        (Targets::One(target @ (Target::Socks5 | Target::HttpProxy)), _, Some(udp)) => bad(
            format!("visitors of {udp} come over UDP, and {target} is reached over TCP"),
            "publish it at tcp://:1080".to_owned(),
        ),
        (Targets::One(target @ (Target::Socks5 | Target::HttpProxy)), ..) if name.is_some() => bad(
            format!("{target} has a port of its own and no name"),
            "publish it at tcp://:1080".to_owned(),
        ),
        (Targets::One(target @ (Target::Https { .. } | Target::H2c { .. })), _, Some(udp)) => bad(
            format!("visitors of {udp} come over UDP, and {target} is reached over TCP"),
            "publish it at https:// and a name".to_owned(),
        ),
        (
            Targets::One(target @ (Target::Https { host, port } | Target::H2c { host, port })),
            ..,
        ) => {
            let tls = public.iter().find(tls)?;
            bad(
                format!("visitors of {tls} speak TLS, which the target {target} does not expect"),
                format!(
                    "publish it at https://, where the server ends the TLS; or write \
                     tcp://{host}:{port}, which gets the TLS of the visitors"
                ),
            )
        }
        (Targets::One(Target::Files(_)), _, Some(udp)) => bad(
            format!("visitors of {udp} come over UDP, and files are served over HTTP"),
            "publish them at http:// or https:// and a name, or at tcp://:8080".to_owned(),
        ),
        (Targets::One(Target::Files(_)), ..) => {
            let tls = public.iter().find(tls)?;
            bad(
                format!("visitors of {tls} speak TLS, and the client serves files over HTTP"),
                "publish them at https://, where the server ends the TLS".to_owned(),
            )
        }
        _ => None,
    }
}
