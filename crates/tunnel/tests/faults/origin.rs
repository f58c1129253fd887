//! What a process of a client publishes: an origin that says which process it belongs to.
//!
//! | the visitor sends | the origin |
//! |---|---|
//! | `GET /NONCE HTTP/1.1` | answers with `NONCE CLIENT GENERATION` and ends |
//! | `V NONCE` and the end of the line | answers with the same line and ends |
//! | `E` and the end of the line | sends each byte back, and the end of the stream too |
//! | `R` and the end of the line | resets the connection after the next byte |
//! | a record of TLS, and then one of the above | ignores the record |
//! | a datagram `V NONCE` | answers with a datagram |
//! | a datagram `E…` | sends it back |

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::thread;

use testkit::cage::within;
use testkit::stage::Origin;
use testkit::wire::reset_on_drop;

/// The longest first line of a visitor.
const LINE: usize = 256;

/// The origin of a process. It runs as long as the test, so it outlives the process of the client.
pub(crate) struct OfProcess {
    pub(crate) tcp: u16,
    pub(crate) udp: u16,
}

impl OfProcess {
    /// An origin on this host for a process of a client.
    pub(crate) fn start(host: &str, client: &str, generation: u64) -> Self {
        let says = format!("{client} {generation}");
        let of_udp = says.clone();
        within(host, || {
            let origin = Origin::start(move |stream| drop(serve(stream, &says)));
            Self { tcp: origin.port(), udp: datagrams(of_udp) }
        })
    }
}

fn datagrams(says: String) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buf = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buf) {
            let asked = &buf[..length];
            let answer = match asked.strip_prefix(b"V ") {
                Some(nonce) => [nonce, b" ", says.as_bytes()].concat(),
                None => asked.to_vec(),
            };
            drop(socket.send_to(&answer, from));
        }
    });
    port
}

/// Reads to the end of a line, which is not a part of it.
fn line(stream: &mut TcpStream, first: Option<u8>) -> io::Result<String> {
    let mut line: Vec<u8> = first.into_iter().collect();
    let mut byte = [0];
    while line.len() < LINE {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        line.push(byte[0]);
    }
    Err(io::ErrorKind::InvalidData.into())
}

fn serve(mut stream: TcpStream, says: &str) -> io::Result<()> {
    let mut first = [0];
    stream.read_exact(&mut first)?;
    let mut asked = if first[0] == 0x16 {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let mut record = vec![0; u16::from_be_bytes([head[2], head[3]]).into()];
        stream.read_exact(&mut record)?;
        line(&mut stream, None)?
    } else {
        line(&mut stream, Some(first[0]))?
    };
    if let Some(rest) = asked.strip_prefix("GET /").or_else(|| asked.strip_prefix("POST /")) {
        let nonce = rest.split(' ').next().unwrap_or_default().to_owned();
        let mut length = 0;
        while !asked.is_empty() {
            asked = line(&mut stream, None)?;
            let field = asked.to_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        if length > 0 {
            return send_back(&mut stream, length);
        }
        let body = format!("{nonce} {says}");
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes())?;
    } else if let Some(nonce) = asked.strip_prefix("V ") {
        stream.write_all(format!("{nonce} {says}\n").as_bytes())?;
    } else if asked == "R" {
        stream.read_exact(&mut first)?;
        reset_on_drop(&stream);
        return Ok(());
    } else {
        io::copy(&mut stream.try_clone()?, &mut stream)?;
    }
    stream.shutdown(Shutdown::Write)
}

/// Answers a request with its own body.
fn send_back(stream: &mut TcpStream, length: u64) -> io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    io::copy(&mut stream.try_clone()?.take(length), stream)?;
    stream.shutdown(Shutdown::Write)
}
