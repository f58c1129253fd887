//! Hosts, ports and names as the other programs write them.

use std::net::{IpAddr, Ipv6Addr};

/// `host:port`, `[host]:port`, `:port` or `port`. A missing host is empty.
pub(crate) fn host_port(text: &str) -> Option<(String, u16)> {
    let text = text.trim();
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port),
        None => ("", text),
    };
    let port = port.parse().ok()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_host = |host: &str| !host.contains(['/', '@', ' ', '[', ']', ',']);
    let bare_v6 = host.contains(':') && host.parse::<Ipv6Addr>().is_err();
    (is_host(host) && !bare_v6).then(|| (host.to_owned(), port))
}

/// A host and a port as we write them.
pub(crate) fn at(host: &str, port: u16) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The address of a local target: a wildcard or an empty host means this machine.
pub(crate) fn local(host: &str) -> &str {
    if is_everywhere(host) { "127.0.0.1" } else { host }
}

/// Parses a host that is an address, possibly in brackets.
pub(crate) fn ip(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether a listener at this host covers all addresses of its machine.
pub(crate) fn is_everywhere(host: &str) -> bool {
    host.is_empty() || host == "*" || ip(host).is_some_and(|ip| ip.is_unspecified())
}

/// Whether only this machine can reach a listener at this host.
pub(crate) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || ip(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// The address for settings of ours that require a literal address.
pub(crate) fn bind(host: &str) -> &str {
    match host {
        "" | "*" => "[::]",
        "localhost" => "127.0.0.1",
        host => host,
    }
}

/// A published port: `tcp://:22`, or with the address where only that address is meant.
pub(crate) fn public(over: &str, host: &str, port: u16) -> String {
    // A host name is kept, and our own check refuses it: a listener at all addresses would be more
    // open.
    if is_everywhere(host) {
        format!("{over}://:{port}")
    } else {
        format!("{over}://{}", at(bind(host), port))
    }
}

/// A valid name made of any text.
pub(crate) fn name(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let name: String = text.chars().take(64).map(|c| if allowed(c) { c } else { '-' }).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// A label of a DNS name made of any text.
pub(crate) fn label(text: &str, otherwise: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = text.chars().take(63).map(allowed).collect();
    let label = label.trim_matches('-');
    if label.is_empty() { otherwise.to_owned() } else { label.to_owned() }
}

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// Path and query, with the slash, or empty.
    pub(crate) path: &'a str,
}

/// `scheme://[user@]host[:port][/path]`; without a scheme the scheme is empty.
pub(crate) fn url(text: &str) -> Option<Url<'_>> {
    let text = text.trim();
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    let (host, port) = match host_port(authority) {
        Some((host, port)) if authority.contains(':') => (host, Some(port)),
        _ => {
            let host = authority.trim_start_matches('[').trim_end_matches(']');
            let wrong = host.contains([' ', ',', '[', ']']);
            let odd = host.contains(':') && host.parse::<Ipv6Addr>().is_err();
            if wrong || odd {
                return None;
            }
            (host.to_owned(), None)
        }
    };
    Some(Url { scheme, host, port, path })
}

/// Whether a text is a DNS name with at least two labels, or `*.` and such a name.
pub(crate) fn is_name(host: &str) -> bool {
    let host = host.strip_prefix("*.").unwrap_or(host).trim_end_matches('.');
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253
        && host.contains('.')
        && host.split('.').all(label)
        && host.parse::<IpAddr>().is_err()
}

/// Converts seconds, or a Go duration (`90s`, `1m30s`, `500ms`), to a duration of ours.
pub(crate) fn span(text: &str) -> Option<String> {
    let millis = go_millis(text.trim())?;
    Some(if millis % 1000 == 0 { format!("{}s", millis / 1000) } else { format!("{millis}ms") })
}

fn go_millis(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<u64>() {
        return seconds.checked_mul(1000).filter(|millis| *millis < u64::from(u32::MAX));
    }
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let unit = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_lowercase()).len();
        let factor = match rest.get(..unit)? {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        rest = rest.get(unit..)?;
        sum = sum.checked_add(number.checked_mul(factor)?)?;
    }
    (!text.is_empty() && sum < u64::from(u32::MAX)).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_all_programs_are_read() {
        let pair = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(host_port("0.0.0.0:80"), pair("0.0.0.0", 80));
        assert_eq!(host_port(":80"), pair("", 80));
        assert_eq!(host_port("80"), pair("", 80));
        assert_eq!(host_port("[::1]:80"), pair("::1", 80));
        for wrong in ["", "a", "a:b", "a:99999", "http://a:80", "1:2:80x"] {
            assert_eq!(host_port(wrong), None, "{wrong}");
        }
        assert_eq!(public("tcp", "0.0.0.0", 80), "tcp://:80");
        assert_eq!(public("tcp", "[::]", 80), "tcp://:80");
        assert_eq!(public("tcp", "::1", 80), "tcp://[::1]:80");
        assert_eq!(public("tcp", "inner.example", 80), "tcp://inner.example:80");
        let parts = url("https://me:x@a.example/t?q").unwrap();
        assert_eq!((parts.scheme, parts.host.as_str(), parts.path), ("https", "a.example", "/t?q"));
        assert_eq!(url("ws://[::1]:80").unwrap().port, Some(80));
        assert_eq!(url("3000").unwrap().port, None);
    }

    #[test]
    fn durations_of_go_are_ours() {
        assert_eq!(span("90"), Some("90s".to_owned()));
        assert_eq!(span("1m30s"), Some("90s".to_owned()));
        assert_eq!(span("1500ms"), Some("1500ms".to_owned()));
        for wrong in ["", "x", "1d", "1.5s", "-1", "99999999999"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }
}
