//! Visitors: each of them sends a number that no other visitor has, and says who has answered.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::judge::Served;

/// The ports that are the same at all nodes.
pub(crate) const HTTP: u16 = 8_080;
pub(crate) const TLS: u16 = 8_443;

/// Longer than a visitor waits at a node for a client that is away (10 s).
const PATIENCE: Duration = Duration::from_secs(15);

/// A visitor over UDP asks again after this time: datagrams get lost.
const AGAIN: Duration = Duration::from_millis(500);

/// How a visitor comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Http,
    Tcp,
    Sni,
    Udp,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Http, Kind::Tcp, Kind::Sni, Kind::Udp];

/// What a visitor asks for: a name, and a port of the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
}

impl Wanted {
    /// Where a visitor of this kind goes at a node with this address.
    pub(crate) fn at(self, kind: Kind, node: Ipv4Addr) -> SocketAddr {
        let port = match kind {
            Kind::Http => HTTP,
            Kind::Sni => TLS,
            Kind::Tcp | Kind::Udp => self.port,
        };
        SocketAddr::new(node.into(), port)
    }

    /// The name of the register of this kind of visitor.
    pub(crate) fn key(self, kind: Kind) -> String {
        match kind {
            Kind::Http => format!("http://{}", self.name),
            Kind::Sni => format!("tls://{}", self.name),
            Kind::Tcp => format!("tcp://:{}", self.port),
            Kind::Udp => format!("udp://:{}", self.port),
        }
    }
}

/// A number that no other visitor has.
fn nonce() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("n{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Visits a service at an address.
pub(crate) fn visit(kind: Kind, wanted: Wanted, to: SocketAddr) -> Result<Served, String> {
    let nonce = nonce();
    let answer = match kind {
        Kind::Http => http(wanted.name, to, &nonce),
        Kind::Tcp => stream(to, format!("V {nonce}\n").as_bytes()).map_err(|it| it.to_string()),
        Kind::Sni => {
            let hello = client_hello(wanted.name);
            stream(to, &[&hello, format!("V {nonce}\n").as_bytes()].concat())
                .map_err(|it| it.to_string())
        }
        Kind::Udp => datagram(to, &nonce).map_err(|it| it.to_string()),
    }?;
    let words: Vec<_> = answer.split_whitespace().collect();
    let [answered, client, generation] = words[..] else {
        return Err(format!("the answer {answer:?}"));
    };
    let Ok(generation) = generation.parse() else { return Err(format!("the answer {answer:?}")) };
    Ok(Served { client: client.to_owned(), generation, is_to_this: answered == nonce })
}

pub(crate) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn stream(to: SocketAddr, asked: &[u8]) -> io::Result<String> {
    let mut stream = connect(to)?;
    stream.write_all(asked)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn http(name: &str, to: SocketAddr, nonce: &str) -> Result<String, String> {
    let asked = format!("GET /{nonce} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    let answer = stream(to, asked.as_bytes()).map_err(|it| it.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the connection ended")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "200" { Ok(body.to_owned()) } else { Err(status.to_owned()) }
}

fn datagram(to: SocketAddr, nonce: &str) -> io::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(AGAIN))?;
    let (begun, mut buf) = (Instant::now(), [0; 1500]);
    loop {
        // A port where nobody listens is the error of the next call.
        let asked = socket.send(format!("V {nonce}").as_bytes());
        match asked.and_then(|_| socket.recv(&mut buf)) {
            Ok(length) => return Ok(String::from_utf8_lossy(&buf[..length]).into_owned()),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(error),
            Err(_) => {}
        }
    }
}

/// The first record of a TLS visitor of `name`: a ClientHello with its server name alone.
pub(crate) fn client_hello(name: &str) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let server_name = sized(&[&[0], &sized(name.as_bytes())[..]].concat());
    let extensions = sized(&[&[0, 0], &sized(&server_name)[..]].concat());
    let hello = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let handshake = [&[1, 0], &sized(&hello)[..]].concat();
    [&[22, 3, 1], &sized(&handshake)[..]].concat()
}
