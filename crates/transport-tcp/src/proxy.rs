//! Outgoing proxies: CONNECT of HTTP/1.1 (RFC 9110 section 9.3.6), SOCKS 5 (RFC 1928, user and
//! password by RFC 1929), SOCKS 4 and its extension 4a. The bytes after the proxy's answer belong
//! to the server and may follow at once. So the code reads no byte beyond the answer.

use std::fmt;
use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use httparse::{EMPTY_HEADER, Response, Status};
use net::resolve::Lookups;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use transport::CarrierError;

/// The longest head of an HTTP proxy's answer, in bytes.
const HEAD: usize = 8 << 10;

/// The largest number of header fields in the head.
const FIELDS: usize = 64;

/// Addresses of a server's name that a proxy is asked for, in turn. Each needs a connection of its
/// own, and all share the time of one dial.
const PLACES: usize = 4;

/// Who looks up the name of the server behind a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolvedBy {
    /// The client. The proxy gets an address.
    Client,
    /// The proxy.
    Proxy,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// CONNECT of HTTP/1.1. The proxy resolves the server's name.
    Http,
    /// SOCKS version 4, which carries IPv4 addresses; for a proxy that resolves names its extension
    /// 4a, which carries the host as text.
    Socks4(ResolvedBy),
    /// SOCKS version 5.
    Socks5(ResolvedBy),
}

/// A server behind a proxy.
#[derive(Clone)]
pub struct Via {
    /// The protocol of the proxy.
    pub kind: ProxyKind,
    /// The server's name, or its address without brackets.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// User and password for the proxy, for SOCKS each of at most 255 bytes. SOCKS 4 has no
    /// password.
    pub credentials: Option<(String, String)>,
}

/// The longest name of a way to log in that is told: the longest registered name has 24 bytes (RFC
/// 9110 section 16.4.1).
const WAY: usize = 24;

/// The ways to log in that an HTTP proxy offers (RFC 9110 section 11.7.1), at most 8.
fn ways(fields: &[httparse::Header<'_>]) -> Vec<String> {
    let is_offer = |name: &str| {
        name.eq_ignore_ascii_case("proxy-authenticate")
            || name.eq_ignore_ascii_case("www-authenticate")
    };
    let mut found = Vec::<String>::new();
    for field in fields.iter().filter(|field| is_offer(field.name)) {
        let mut is_quoted = false;
        // Commas part the ways, and also the parameters of one way.
        let parts = field.value.split(|&byte| {
            is_quoted ^= byte == b'"';
            byte == b',' && !is_quoted
        });
        for part in parts {
            let word = part.trim_ascii().split(|byte| byte.is_ascii_whitespace()).next();
            let is_name = |word: &&[u8]| {
                let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
                (1..=WAY).contains(&word.len()) && word.iter().all(is_of_name)
            };
            let Some(word) = word.filter(is_name) else { continue };
            let word = String::from_utf8_lossy(word).into_owned();
            if found.len() < 8 && !found.contains(&word) {
                found.push(word);
            }
        }
    }
    found
}

/// What an HTTP proxy wants that refuses for want of credentials, and what helps.
fn wants(ways: &[String], has_credentials: bool, code: u16) -> String {
    let has_basic = ways.is_empty() || ways.iter().any(|way| way.eq_ignore_ascii_case("basic"));
    if !has_basic {
        let ways = ways.join(" or ");
        return format!(
            "the proxy asks for {ways} ({code}), and tunnel knows Basic alone; a proxy on this \
             machine that logs in by {ways} helps (cntlm, px), or a rule of the proxy that lets this \
             machine through"
        );
    }
    if has_credentials {
        return format!("the proxy refuses the user or the password ({code})");
    }
    format!("the proxy wants a user and a password ({code}): http://user:password@…")
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Via")
            .field("kind", &self.kind)
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Via {
    /// Makes a connection to the server over connections to the proxy that `connect` makes. An
    /// address of the server that the proxy does not reach is followed by the next address.
    pub(crate) async fn reach(
        &self,
        connect: impl AsyncFn() -> Result<TcpStream, CarrierError>,
    ) -> Result<TcpStream, CarrierError> {
        let mut first = None;
        for place in self.places().await? {
            let mut stream = connect().await?;
            match self.open(&mut stream, place).await {
                Ok(()) => return Ok(stream),
                Err(error) if error.is_network() => first = first.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        let none = || network(io::ErrorKind::NotFound, format!("{} has no address", self.host));
        Err(first.unwrap_or_else(none))
    }

    /// What the proxy is asked for, in turn. `None` is the host as it is written.
    async fn places(&self) -> Result<Vec<Option<IpAddr>>, CarrierError> {
        let by_name = match self.kind {
            ProxyKind::Socks4(ResolvedBy::Client) => "socks4a",
            ProxyKind::Socks5(ResolvedBy::Client) => "socks5h",
            ProxyKind::Http
            | ProxyKind::Socks4(ResolvedBy::Proxy)
            | ProxyKind::Socks5(ResolvedBy::Proxy) => {
                return Ok(vec![None]);
            }
        };
        let host = &self.host;
        let found = Lookups::of_servers().resolve(host).await.map_err(|error| {
            let kind = error.kind();
            let hint = format!("with {by_name}:// the proxy looks the name up");
            network(kind, format!("cannot resolve {host}: {error}; {hint}"))
        })?;
        let is_carried = |ip: &IpAddr| match self.kind {
            ProxyKind::Socks4(_) => ip.is_ipv4(),
            ProxyKind::Http | ProxyKind::Socks5(_) => true,
        };
        let places: Vec<_> = found.into_iter().filter(is_carried).take(PLACES).map(Some).collect();
        if places.is_empty() {
            return Err(wrong(format!(
                "{host} has no IPv4 address, and socks4:// carries no other; use socks5:// or {by_name}://"
            )));
        }
        Ok(places)
    }

    /// Asks the proxy at the other end of `stream` for a connection to the server.
    async fn open(
        &self,
        stream: &mut TcpStream,
        place: Option<IpAddr>,
    ) -> Result<(), CarrierError> {
        match self.kind {
            ProxyKind::Http => self.connect(stream).await,
            ProxyKind::Socks4(_) => self.socks4(stream, place).await,
            ProxyKind::Socks5(_) => self.socks5(stream, place).await,
        }
    }

    async fn connect(&self, stream: &mut TcpStream) -> Result<(), CarrierError> {
        let place = match self.host.parse() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]:{}", self.port),
            Ok(IpAddr::V4(_)) | Err(_) => format!("{}:{}", self.host, self.port),
        };
        let credentials = self.credentials.as_ref().map_or_else(String::new, |(user, password)| {
            let pair = STANDARD.encode(format!("{user}:{password}"));
            format!("Proxy-Authorization: Basic {pair}\r\n")
        });
        let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{credentials}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() >= HEAD {
                return Err(wrong("the proxy's answer is longer than 8 KiB"));
            }
            head.push(byte(stream).await?);
            // An answer that is not HTTP fails at once; the code need not read 8 KiB of it.
            if !b"HTTP/1.".starts_with(&head[..head.len().min(7)]) {
                return Err(wrong("the proxy does not speak HTTP; is it socks5://?"));
            }
        }
        let mut fields = [EMPTY_HEADER; FIELDS];
        let mut response = Response::new(&mut fields);
        match response.parse(&head) {
            Ok(Status::Complete(_)) => {}
            Ok(Status::Partial) | Err(_) => return Err(wrong("the proxy's answer is not HTTP")),
        }
        match response.code.unwrap_or_default() {
            200..=299 => Ok(()),
            // tinyproxy answers 401 to a wrong password.
            code @ (401 | 407) => {
                let ways = ways(response.headers);
                Err(wrong(wants(&ways, self.credentials.is_some(), code)))
            }
            403 | 405 => Err(wrong("the proxy does not allow this server or port (403)")),
            // tinyproxy answers 500 when it cannot connect.
            code @ (404 | 408 | 500..=599) => Err(network(
                io::ErrorKind::HostUnreachable,
                format!("the proxy does not reach {place} ({code})"),
            )),
            code => Err(wrong(format!("the proxy answered {code}"))),
        }
    }

    /// Speaks SOCKS 4 (Ying-Da Lee, "SOCKS: A protocol for TCP proxy across firewalls"), or 4a,
    /// whose address 0.0.0.1 says that the host follows as text.
    async fn socks4(
        &self,
        stream: &mut TcpStream,
        place: Option<IpAddr>,
    ) -> Result<(), CarrierError> {
        let mut request = vec![4, 1];
        request.extend(self.port.to_be_bytes());
        let host = match place {
            Some(IpAddr::V4(ip)) => {
                request.extend(ip.octets());
                None
            }
            Some(IpAddr::V6(_)) => return Err(wrong("socks4:// carries IPv4 alone")),
            None => {
                request.extend([0, 0, 0, 1]);
                Some(&self.host)
            }
        };
        let user = self.credentials.as_ref().map_or("", |(user, _)| user.as_str());
        for text in [Some(user), host.map(String::as_str)].into_iter().flatten() {
            if text.contains('\0') {
                return Err(CarrierError::Config("SOCKS 4 has no room for a zero byte".into()));
            }
            request.extend(text.as_bytes());
            request.push(0);
        }
        stream.write_all(&request).await?;
        // The version of the answer is 0. Some proxies repeat that of the request.
        if !matches!(byte(stream).await?, 0 | 4) {
            return Err(wrong("the proxy does not speak SOCKS 4; is it http:// or socks5://?"));
        }
        let [reply, ..] = take::<7>(stream).await?;
        let to = place.map_or_else(|| self.host.clone(), |ip| ip.to_string());
        let to = format!("{to}:{}", self.port);
        match reply {
            90 => Ok(()),
            91 => Err(network(
                io::ErrorKind::Other,
                format!("the proxy does not reach {to}, or does not allow it ({reply})"),
            )),
            92 | 93 => Err(wrong(format!(
                "the proxy refuses the user ({reply}): it asks this machine for the user by ident \
                 (RFC 1413)"
            ))),
            _ => Err(wrong(format!("the proxy answered {reply}"))),
        }
    }

    async fn socks5(
        &self,
        stream: &mut TcpStream,
        place: Option<IpAddr>,
    ) -> Result<(), CarrierError> {
        // The methods offered: no authentication, and with credentials also user and password.
        let hello: &[u8] = if self.credentials.is_some() { &[5, 2, 0, 2] } else { &[5, 1, 0] };
        stream.write_all(hello).await?;
        if byte(stream).await? != 5 {
            return Err(wrong("the proxy does not speak SOCKS 5; is it http://?"));
        }
        match byte(stream).await? {
            0 => {}
            2 => self.authenticate(stream).await?,
            _ if self.credentials.is_some() => {
                return Err(wrong(
                    "the proxy takes no user and password; it may ask for GSSAPI (Kerberos), which \
                     tunnel does not speak",
                ));
            }
            _ => return Err(wrong("the proxy wants credentials: socks5://user:password@…")),
        }
        let mut request = vec![5, 1, 0];
        match place.or_else(|| self.host.parse().ok()) {
            Some(IpAddr::V4(ip)) => {
                request.push(1);
                request.extend(ip.octets());
            }
            Some(IpAddr::V6(ip)) => {
                request.push(4);
                request.extend(ip.octets());
            }
            None => {
                request.push(3);
                put(&mut request, &self.host)?;
            }
        }
        request.extend(self.port.to_be_bytes());
        stream.write_all(&request).await?;
        let [version, reply, _, kind] = take::<4>(stream).await?;
        if version != 5 {
            return Err(wrong("the proxy does not speak SOCKS 5"));
        }
        if reply != 0 {
            return Err(self.refused(reply));
        }
        // The rest of the answer is the proxy's own address, which is not used.
        let length = match kind {
            1 => 4,
            4 => 16,
            3 => usize::from(byte(stream).await?),
            _ => return Err(wrong("the proxy answered with an unknown kind of address")),
        };
        let mut rest = [0; 255 + 2];
        read(stream, &mut rest[..length + 2]).await
    }

    async fn authenticate(&self, stream: &mut TcpStream) -> Result<(), CarrierError> {
        let Some((user, password)) = &self.credentials else {
            return Err(wrong("the proxy wants credentials that it did not ask for"));
        };
        let mut request = vec![1];
        put(&mut request, user)?;
        put(&mut request, password)?;
        stream.write_all(&request).await?;
        match take::<2>(stream).await? {
            [_, 0] => Ok(()),
            _ => Err(wrong("the proxy refused user and password")),
        }
    }

    /// The error for a reply code (RFC 1928 section 6).
    fn refused(&self, reply: u8) -> CarrierError {
        let place = format!("{}:{}", self.host, self.port);
        let (kind, why) = match reply {
            2 => return wrong(format!("the proxy does not allow {place}")),
            3 => (io::ErrorKind::NetworkUnreachable, "the network is unreachable"),
            4 => (io::ErrorKind::HostUnreachable, "the host is unreachable"),
            5 => (io::ErrorKind::ConnectionRefused, "connection refused"),
            6 => (io::ErrorKind::TimedOut, "it timed out"),
            _ => (io::ErrorKind::Other, "it failed"),
        };
        network(kind, format!("the proxy does not reach {place}: {why} ({reply})"))
    }
}

fn wrong(text: impl Into<String>) -> CarrierError {
    CarrierError::Http(text.into())
}

fn network(kind: io::ErrorKind, text: String) -> CarrierError {
    io::Error::new(kind, text).into()
}

/// Appends the length of `text` in one byte, then `text`.
fn put(request: &mut Vec<u8>, text: &str) -> Result<(), CarrierError> {
    let length = u8::try_from(text.len())
        .map_err(|_| CarrierError::Config("longer than 255 bytes: SOCKS has no room".into()))?;
    request.push(length);
    request.extend(text.as_bytes());
    Ok(())
}

async fn byte(stream: &mut TcpStream) -> Result<u8, CarrierError> {
    Ok(take::<1>(stream).await?[0])
}

async fn take<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N], CarrierError> {
    let mut bytes = [0; N];
    read(stream, &mut bytes).await?;
    Ok(bytes)
}

async fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<(), CarrierError> {
    match stream.read_exact(bytes).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(network(
            io::ErrorKind::UnexpectedEof,
            "the proxy closed the connection before it answered".into(),
        )),
        Err(error) => Err(error.into()),
    }
}
