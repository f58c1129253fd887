//! `--server URL [--pin P|--ca FILE]`: a server, and a dialer for it over any transport.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use config::Scheme;
use net::udp::Buffers;
use tls::{Trust, client_config, server_name};
use transport::Dialer;
use transport_kcp::{KcpDialer, KcpSettings};
use transport_quic::{QuicDialer, QuicSettings};
use transport_tcp::{Speech, TcpDialer, TlsClient};
use transport_ws::{Request, WsDialer};

use crate::options::{Usage, Words, parse_address};

/// The longest silence of a WebSocket; no measurement is silent for that long.
pub(crate) const STILL: Duration = Duration::from_secs(25);

/// The buffers of each `quic://` socket: thousands of clients log in, and none sends much data.
const SMALL: Buffers = Buffers { receive: 64 << 10, send: 64 << 10 };

/// The server to connect to.
#[derive(Clone, Debug)]
pub struct Server {
    /// The URL with the transport, `wss://127.0.0.1:7000/tunnel`.
    pub url: String,
    /// The server's address.
    pub address: SocketAddr,
    /// The dialer for the server's transport.
    pub dialer: Rc<dyn Dialer>,
}

impl Server {
    /// Takes the three options.
    pub fn read(words: &mut Words) -> Result<Self, Usage> {
        let url = words.text("--server").ok_or_else(|| Usage("--server is missing".to_owned()))?;
        let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
        let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address = parse_address("--server SCHEME://A", address)?;
        let trust = trust(words.text("--pin").as_deref(), words.text("--ca"))?;
        let dialer = dialer(scheme, address, path, trust)?;
        Ok(Self { url, address, dialer })
    }
}

fn trust(pin: Option<&str>, authority: Option<String>) -> Result<Option<Trust>, Usage> {
    match (pin, authority) {
        (None, None) => Ok(None),
        (Some(pin), None) => {
            let pin = pin.parse().map_err(|e| Usage(format!("--pin {pin}: {e}")))?;
            Ok(Some(Trust::Pins(vec![pin])))
        }
        (None, Some(file)) => Ok(Some(Trust::Authority(file.into()))),
        (Some(_), Some(_)) => Err(Usage("--pin or --ca, not both".to_owned())),
    }
}

/// A dialer for `scheme`. `path` is the path of a WebSocket, else empty. `trust` is for schemes
/// with TLS.
///
/// # Errors
/// The arguments do not fit together, or the scheme is unknown.
pub fn dialer(
    scheme: &str,
    address: SocketAddr,
    path: &str,
    trust: Option<Trust>,
) -> Result<Rc<dyn Dialer>, Usage> {
    let Some(row) = Scheme::named(scheme) else {
        let names: Vec<_> = Scheme::ALL.iter().map(|row| row.name).collect();
        return Err(Usage(format!("--server wants {}, not `{scheme}`", names.join(", "))));
    };
    let speech = if row.http { Speech::Http } else { Speech::Tunnel };
    let tls = match (row.tls, trust) {
        (false, None) => None,
        (true, Some(trust)) => Some(tls_client(address, &trust, speech)?),
        (true, None) => return Err(Usage(format!("{scheme}:// wants --pin or --ca"))),
        (false, Some(_)) => return Err(Usage(format!("{scheme}:// has neither --pin nor --ca"))),
    };
    if let ("quic", "", Some(TlsClient { config, name })) = (row.name, path, &tls) {
        let tls = transport_quic::TlsClient { config: config.clone(), name: name.clone() };
        // The MTU of an Internet path: probing for loopback's 16 KiB costs more than the rest of a
        // log-in.
        let settings = QuicSettings { mtu: 1_452, ..QuicSettings::default() };
        let dialer = QuicDialer::new(&tls, settings, SMALL);
        return Ok(Rc::new(dialer.map_err(|e| wrong(&e))?));
    }
    if let ("kcp", "", Some(TlsClient { config, name })) = (row.name, path, &tls) {
        let tls = transport_kcp::TlsClient { config: config.clone(), name: name.clone() };
        let settings = KcpSettings { mtu: 1_452, ..KcpSettings::default() };
        return Ok(Rc::new(KcpDialer::new(&tls, settings, SMALL)));
    }
    let inner = TcpDialer::new(tls).speaking(speech);
    match (speech, path) {
        (Speech::Tunnel, "") => Ok(Rc::new(inner)),
        (Speech::Tunnel, _) => Err(Usage(format!("{scheme}:// has no path"))),
        (Speech::Http, path) => {
            let path = if path.is_empty() { "/" } else { path };
            let request = Request::new(path, &address.to_string(), &[]).map_err(|e| wrong(&e))?;
            Ok(Rc::new(WsDialer::new(inner, request, STILL)))
        }
    }
}

fn tls_client(address: SocketAddr, trust: &Trust, speech: Speech) -> Result<TlsClient, Usage> {
    let config = client_config(trust, None, &[speech.alpn()]).map_err(|e| wrong(&e))?;
    let name = server_name(&address.ip().to_string()).map_err(|e| wrong(&e))?;
    Ok(TlsClient { config, name })
}

fn wrong(error: &dyn std::fmt::Display) -> Usage {
    Usage(format!("--server: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Server, Usage> {
        let words = text.split_whitespace().map(ToOwned::to_owned);
        Server::read(&mut Words::read(words, &[]).unwrap())
    }

    #[test]
    fn the_scheme_chooses_the_transport() {
        let pin = "--pin sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        for (words, wanted) in [
            ("--server tcp://127.0.0.1:7000".to_owned(), transport_tcp::TCP),
            (format!("--server tls://127.0.0.1:7000 {pin}"), transport_tcp::TLS),
            (format!("--server quic://127.0.0.1:7000 {pin}"), transport_quic::QUIC),
            (format!("--server kcp://127.0.0.1:7000 {pin}"), transport_kcp::KCP),
            ("--server ws://127.0.0.1:7000/a/b".to_owned(), transport_ws::WS),
            (format!("--server wss://127.0.0.1:7000 {pin}"), transport_ws::WSS),
        ] {
            let server = read(&words).unwrap();
            assert_eq!(server.dialer.transport(), wanted, "{words}");
            assert_eq!(server.address, ([127, 0, 0, 1], 7000).into());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (words, wanted) in [
            ("", "--server is missing"),
            (
                "--server nope://127.0.0.1:1",
                "--server wants tls, quic, kcp, wss, ws, tcp, not `nope`",
            ),
            ("--server wss://127.0.0.1:1/", "wss:// wants --pin or --ca"),
            ("--server ws://127.0.0.1:1 --ca f", "ws:// has neither --pin nor --ca"),
            ("--server tcp://127.0.0.1:1/p", "tcp:// has no path"),
            ("--server ws://name:1/p", "--server SCHEME://A wants an address"),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{words}: {error}");
        }
    }
}
