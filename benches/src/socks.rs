//! The visitor's side of SOCKS5 (RFC 1928), without a password.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Asks the proxy at the other end of `stream` for a connection to `target`.
///
/// # Errors
/// [`io::ErrorKind::ConnectionRefused`]: the proxy refuses. [`io::ErrorKind::InvalidData`]: the
/// answer is none of SOCKS5.
pub async fn ask(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: SocketAddr,
) -> io::Result<()> {
    stream.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    stream.read_exact(&mut method).await?;
    if method != [5, 0] {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut request = vec![5, 1, 0];
    match target {
        SocketAddr::V4(target) => {
            request.push(1);
            request.extend(target.ip().octets());
        }
        SocketAddr::V6(target) => {
            request.push(4);
            request.extend(target.ip().octets());
        }
    }
    request.extend(target.port().to_be_bytes());
    stream.write_all(&request).await?;
    let mut reply = [0; 4];
    stream.read_exact(&mut reply).await?;
    let address = match reply {
        [5, 0, 0, 1] => 4,
        [5, 0, 0, 4] => 16,
        [5, _, _, _] if reply[1] != 0 => return Err(io::ErrorKind::ConnectionRefused.into()),
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    let mut rest = [0; 16 + 2];
    stream.read_exact(&mut rest[..address + 2]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a proxy that sends `answers` whatever it is asked.
    fn asked(answers: &[u8], target: &str) -> (io::Result<()>, Vec<u8>) {
        crate::runtime().unwrap().block_on(async {
            let (mut visitor, mut proxy) = tokio::io::duplex(256);
            proxy.write_all(answers).await.unwrap();
            proxy.shutdown().await.unwrap();
            let outcome = ask(&mut visitor, target.parse().unwrap()).await;
            drop(visitor);
            let mut said = Vec::new();
            proxy.read_to_end(&mut said).await.unwrap();
            (outcome, said)
        })
    }

    #[test]
    fn the_target_is_named_and_a_refusal_is_an_error() {
        let good = [5, 0, 5, 0, 0, 1, 127, 0, 0, 1, 0, 80];
        let (outcome, said) = asked(&good, "192.0.2.1:258");
        outcome.unwrap();
        assert_eq!(said, [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 1, 1, 2]);
        assert_eq!(asked(&good, "[::1]:1").1.len(), 3 + 4 + 16 + 2);
        for (answers, kind) in [
            (&[5, 0, 5, 2, 0, 1][..], io::ErrorKind::ConnectionRefused),
            (&[5, 0xff], io::ErrorKind::InvalidData),
            (b"HTTP/1.1 400", io::ErrorKind::InvalidData),
            (&good[..11], io::ErrorKind::UnexpectedEof),
        ] {
            assert_eq!(asked(answers, "192.0.2.1:1").0.unwrap_err().kind(), kind);
        }
    }
}
