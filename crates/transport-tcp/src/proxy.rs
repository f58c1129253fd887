//! Outgoing proxies: CONNECT of HTTP/1.1 (RFC 9110 section 9.3.6) and SOCKS 5 (RFC 1928, user and
//! password by RFC 1929). The bytes after the proxy's answer belong to the server and may follow at
//! once. So the code reads no byte beyond the answer.

use std::fmt;
use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use httparse::{EMPTY_HEADER, Response, Status};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use transport::CarrierError;

/// The longest head of an HTTP proxy's answer, in bytes.
const HEAD: usize = 8 << 10;

/// The largest number of header fields in the head.
const FIELDS: usize = 64;

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyKind {
    /// CONNECT of HTTP/1.1.
    Http,
    /// SOCKS version 5.
    Socks5,
}

/// A server behind a proxy. The proxy resolves the server's name.
#[derive(Clone)]
pub struct Via {
    /// The protocol of the proxy.
    pub kind: ProxyKind,
    /// The server's name, or its address without brackets.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// User and password for the proxy, each of at most 255 bytes.
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
    /// Asks the proxy at the other end of `stream` for a connection to the server.
    pub(crate) async fn open(&self, stream: &mut TcpStream) -> Result<(), CarrierError> {
        match self.kind {
            ProxyKind::Http => self.connect(stream).await,
            ProxyKind::Socks5 => self.socks(stream).await,
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

    async fn socks(&self, stream: &mut TcpStream) -> Result<(), CarrierError> {
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
        match self.host.parse() {
            Ok(IpAddr::V4(ip)) => {
                request.push(1);
                request.extend(ip.octets());
            }
            Ok(IpAddr::V6(ip)) => {
                request.push(4);
                request.extend(ip.octets());
            }
            Err(_) => {
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
