//! The visitor's side of SOCKS5 (RFC 1928), without a password.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time limit of each answer: the server dials before the last one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the proxy at the other end of `visitor` for a connection to `target`, an IPv4 address.
pub(super) fn ask(mut visitor: &TcpStream, target: SocketAddr) -> io::Result<()> {
    let SocketAddr::V4(target) = target else { return Err(io::ErrorKind::Unsupported.into()) };
    visitor.set_read_timeout(Some(PATIENCE))?;
    visitor.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    visitor.read_exact(&mut method)?;
    let mut request = vec![5, 1, 0, 1];
    request.extend(target.ip().octets());
    request.extend(target.port().to_be_bytes());
    visitor.write_all(&request)?;
    // The bound address of a proxy may be of either family; that of an IPv4 target is IPv4.
    let mut reply = [0; 10];
    visitor.read_exact(&mut reply)?;
    visitor.set_read_timeout(None)?;
    match (method, &reply[..4]) {
        ([5, 0], [5, 0, 0, 1]) => Ok(()),
        _ => Err(io::Error::other(format!("the proxy answers {method:?}, {reply:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_refusal_is_an_error() {
        for (code, is_good) in [(0, true), (5, false)] {
            let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = proxy.local_addr().unwrap();
            let answers = thread::spawn(move || {
                let mut visitor = proxy.accept().unwrap().0;
                let mut greeting = [0; 3];
                visitor.read_exact(&mut greeting).unwrap();
                visitor.write_all(&[5, 0]).unwrap();
                let mut request = [0; 10];
                visitor.read_exact(&mut request).unwrap();
                visitor.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
                request
            });
            let visitor = TcpStream::connect(address).unwrap();
            let outcome = ask(&visitor, "192.0.2.1:258".parse().unwrap());
            assert_eq!(outcome.is_ok(), is_good);
            assert_eq!(answers.join().unwrap(), [5, 1, 0, 1, 192, 0, 2, 1, 1, 2]);
        }
    }
}
