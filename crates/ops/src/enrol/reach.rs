//! The addresses at which other machines reach this machine, as far as it can know.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use config::Scheme;

/// The host in a URL if this machine knows no address of its own that others can use.
pub const PLACEHOLDER: &str = "SERVER_ADDRESS";

/// The URLs at which a client reaches the listeners `listen`. For a listener on all addresses the
/// host is a guess. Listeners without TLS are named only where no listener has TLS.
pub fn urls(listen: &[String]) -> Vec<String> {
    let own = own_address();
    encrypted(listen.iter().map(|url| reachable(&dialled(url), own)).collect())
}

/// The URL by which a client reaches a listener. A listener for several transports is reached only
/// over TLS, which needs no path.
fn dialled(url: &str) -> String {
    let mux = url.strip_prefix(Scheme::MUX.name).and_then(|rest| rest.strip_prefix("://"));
    let Some(rest) = mux else { return url.to_owned() };
    let address = rest.split('/').next().unwrap_or(rest);
    format!("{}://{address}", Scheme::TLS.name)
}

/// The URLs with TLS, or all URLs where none has TLS. A client tries its servers in list order, so
/// a leading URL without TLS would always be used, and with a trailing URL without TLS an attacker
/// who blocks the others could read the traffic. A user who wants both lists both.
pub fn encrypted(urls: Vec<String>) -> Vec<String> {
    let has_tls = |url: &String| {
        let scheme = url.split_once("://").and_then(|(scheme, _)| Scheme::named(scheme));
        scheme.is_some_and(|scheme| scheme.tls)
    };
    if urls.iter().any(has_tls) { urls.into_iter().filter(has_tls).collect() } else { urls }
}

/// The URL at which a client reaches a listener.
fn reachable(url: &str, own: Option<IpAddr>) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let Ok(address) = address.parse::<SocketAddr>() else { return url.to_owned() };
    if !address.ip().is_unspecified() {
        return url.to_owned();
    }
    match own {
        Some(ip) => format!("{scheme}://{}{path}", SocketAddr::new(ip, address.port())),
        None => format!("{scheme}://{PLACEHOLDER}:{}{path}", address.port()),
    }
}

/// Whether TLS of WebSockets ends at one of the listeners, and not at a reverse proxy.
pub(super) fn ends_tls(listen: &[String]) -> bool {
    let scheme = |url: &String| url.split_once("://").map(|(scheme, _)| scheme.to_owned());
    let own = [Scheme::WSS.name, Scheme::MUX.name];
    listen.iter().filter_map(scheme).any(|scheme| own.contains(&scheme.as_str()))
}

/// The URL of a server as a user writes it. A host alone is reached at the first listener, with TLS
/// if there is one; a host with a port is `tls://`.
pub(super) fn at(server: &str, listen: &[String]) -> String {
    if server.contains("://") {
        return server.to_owned();
    }
    let has_port = server.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let first = encrypted(listen.iter().map(|url| dialled(url)).collect()).into_iter().next();
    match first {
        Some(url) if !has_port => named(&url).replacen("NAME", server, 1),
        Some(_) | None => format!("tls://{server}"),
    }
}

/// The URL with the placeholder `NAME` as its host.
pub(super) fn named(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port = address.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://NAME{port}{path}")
}

/// The source address of this machine for the default route. It is a guess, because there may be
/// NAT in front of the machine.
fn own_address() -> Option<IpAddr> {
    // Connecting a UDP socket queries the routing table and sends nothing. The remote addresses are
    // from the blocks for documentation (RFC 5737, RFC 3849), which only a default route covers.
    [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")].into_iter().find_map(
        |(local, remote)| {
            let socket = UdpSocket::bind(local).ok()?;
            socket.connect(remote).ok()?;
            let ip = socket.local_addr().ok()?.ip();
            (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_no_use_to_others_is_replaced() {
        let ip = |text: &str| Some(text.parse().unwrap());
        assert_eq!(reachable("tls://[::]:7000", ip("192.0.2.5")), "tls://192.0.2.5:7000");
        assert_eq!(reachable("tls://0.0.0.0:7000", ip("2001:db8::5")), "tls://[2001:db8::5]:7000");
        assert_eq!(reachable("wss://[::]:443/t", None), "wss://SERVER_ADDRESS:443/t");
        assert_eq!(reachable("tls://127.0.0.1:7000", ip("192.0.2.5")), "tls://127.0.0.1:7000");
    }

    #[test]
    fn a_plain_url_is_named_only_where_no_encrypted_one_is() {
        let left = |urls: &[&str]| encrypted(urls.iter().map(ToString::to_string).collect());
        let of_all =
            ["tcp://a:1", "tls://a:2", "ws://a:3/t", "quic://a:4", "wss://a:5/t", "kcp://a:6"];
        assert_eq!(left(&of_all), ["tls://a:2", "quic://a:4", "wss://a:5/t", "kcp://a:6"]);
        assert_eq!(left(&["tcp://a:1", "ws://a:3/t"]), ["tcp://a:1", "ws://a:3/t"]);
        // Someone else judges a text that is no URL.
        assert_eq!(left(&["x", "tls://a:2"]), ["tls://a:2"]);
        assert_eq!(left(&["x"]), ["x"]);
        let listen = ["tcp://127.0.0.1:1", "quic://127.0.0.1:2"].map(str::to_owned);
        assert_eq!(urls(&listen), ["quic://127.0.0.1:2"]);
        let mux = ["mux://127.0.0.1:443/tunnel", "ws://127.0.0.1:80"].map(str::to_owned);
        assert_eq!(urls(&mux), ["tls://127.0.0.1:443"]);
        assert_eq!(at("a.example", &mux), "tls://a.example:443");
    }
}
