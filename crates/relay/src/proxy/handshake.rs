//! The handshake with a visitor until it has named its target, over a socket or over a stream.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use net::source::Source;
use proto::ResetCode;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::connect::Wish;
use super::socks5::{self, Command, Method, Reply};
use super::{Credentials, Decoded, Endpoint, Fault, ProxyKind, absolute, connect};

/// The time-out of the handshake, from its first byte. A program needs four round trips, which may
/// be slow.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);

/// The memory of a handshake, in bytes: the longest request header to an HTTP proxy, and the header
/// that is sent to its target.
pub(super) const MEMORY: u64 = 32 << 10;

/// The maximum number of SOCKS5 bytes to read ahead. The longest message has 513 bytes.
const AHEAD: usize = 1024;

/// The time for which bytes are read after a refusal. A socket closed with unread bytes is reset,
/// and the visitor would lose the answer.
const LINGER: Duration = Duration::from_secs(2);
const MOST_LINGERED: u64 = 256 << 10;

/// Many programs read no answer before they have sent the whole body of a request, so the body is
/// read and discarded for at most this time, as in nginx.
const LINGER_UPLOAD: Duration = Duration::from_secs(30);

/// The SOCKS4 reply that refuses a request.
const REFUSED_4: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];

/// The result of a handshake.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) asked: Asked,
    /// How the outcome is reported to the visitor.
    pub(crate) speech: Speech,
    /// Bytes that the visitor sent after its request. With [`Asked::Request`], they begin with the
    /// header for the target.
    pub(crate) rest: BytesMut,
}

/// What the visitor requests.
#[derive(Debug)]
pub(crate) enum Asked {
    Connect(Endpoint),
    /// The answer of a web server to one request.
    Request(Endpoint),
    /// A UDP socket; the port from which the visitor sends, or 0.
    Associate(u16),
}

/// The protocol of the answer to a visitor that named its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speech {
    Socks5,
    Http,
    /// The answer is that of the target, or a substitute. `is_head`: it has no body.
    Answer {
        is_head: bool,
    },
    /// These bytes once the target is connected, and nothing on a refusal: for a command of this
    /// program, which gets the refusal in another way.
    Ready(&'static [u8]),
}

impl Speech {
    /// The answer when the target is connected.
    pub(crate) fn success(self) -> Vec<u8> {
        match self {
            Self::Socks5 => socks5::reply(Reply::Succeeded, None),
            Self::Http => connect::ESTABLISHED.to_vec(),
            Self::Answer { .. } => Vec::new(),
            Self::Ready(line) => line.to_vec(),
        }
    }

    /// The answer when the target is not connected.
    pub(crate) fn refusal(self, code: ResetCode) -> Vec<u8> {
        match self {
            Self::Socks5 => socks5::reply(code.into(), None),
            Self::Http | Self::Answer { .. } => self.answer(connect::refusal(code)),
            Self::Ready(_) => Vec::new(),
        }
    }

    /// The page of an HTTP proxy, without its body if the method was HEAD.
    pub(super) fn answer(self, page: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Answer { is_head: true } => connect::without_body(page),
            Self::Answer { is_head: false } | Self::Http | Self::Socks5 | Self::Ready(_) => page,
        }
    }

    /// Ends the connection of a visitor that was refused.
    pub(crate) async fn farewell(self, io: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
        match self {
            Self::Answer { .. } => linger_upload(io).await,
            Self::Http | Self::Socks5 | Self::Ready(_) => linger(io).await,
        }
    }
}

/// Why the handshake failed. The visitor has got its answer already.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error("{0}")]
    Fault(#[from] Fault),
    #[error("the program ended the connection")]
    Ended,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Performs the handshake with a visitor that counts for this source. `associates`: UDP ASSOCIATE
/// is supported. The caller sets the deadline [`HANDSHAKE`].
pub(crate) async fn handshake<T: AsyncRead + AsyncWrite + Unpin>(
    io: &mut T,
    kind: ProxyKind,
    credentials: Option<&Credentials>,
    source: Option<Source>,
    associates: bool,
) -> Result<Agreed, Failed> {
    let mut talk = Talk { io, bytes: BytesMut::new(), source, is_head: false };
    let agreed = match kind {
        ProxyKind::Socks5 => talk.socks5(credentials, associates).await,
        ProxyKind::Http => talk.http(credentials).await,
    };
    if let Err(Failed::Fault(fault)) = agreed {
        let mut page = complaint(kind, fault);
        if talk.is_head {
            page = connect::without_body(page);
        }
        talk.io.write_all(&page).await?;
    }
    Ok(Agreed { rest: talk.bytes, ..agreed? })
}

/// Ends the connection of a visitor that was refused.
pub(crate) async fn linger(io: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    throw_away(io, LINGER, MOST_LINGERED).await;
}

/// Ends the connection of a visitor whose request may have a body.
pub(super) async fn linger_upload(io: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    throw_away(io, LINGER_UPLOAD, u64::MAX).await;
}

async fn throw_away(io: &mut (impl AsyncRead + AsyncWrite + Unpin), time: Duration, most: u64) {
    if io.shutdown().await.is_ok() {
        let mut rest = io.take(most);
        let _ = timeout(time, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
    }
}

struct Talk<'a, T> {
    io: &'a mut T,
    bytes: BytesMut,
    source: Option<Source>,
    /// Whether the request is an HTTP HEAD.
    is_head: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Talk<'_, T> {
    /// Reads the next message of the visitor.
    async fn hear<V>(
        &mut self,
        limit: usize,
        mut decode: impl FnMut(&[u8]) -> Decoded<V>,
    ) -> Result<V, Failed> {
        loop {
            match decode(&self.bytes) {
                Decoded::Done(value, length) => {
                    self.bytes.advance(length);
                    return Ok(value);
                }
                Decoded::Bad(fault) => return Err(fault.into()),
                Decoded::More => {}
            }
            let room = limit.saturating_sub(self.bytes.len());
            if room == 0 {
                return Err(Fault::Size.into());
            }
            self.bytes.reserve(room.min(AHEAD));
            if self.io.read_buf(&mut (&mut self.bytes).limit(room)).await? == 0 {
                return Err(Failed::Ended);
            }
        }
    }

    async fn socks5(
        &mut self,
        credentials: Option<&Credentials>,
        associates: bool,
    ) -> Result<Agreed, Failed> {
        let methods = self.hear(AHEAD, socks5::greeting).await?;
        match credentials {
            None if methods.open => self.io.write_all(&Method::Open.choice()).await?,
            None => return Err(Fault::Method("none is needed").into()),
            Some(_) if !methods.password => {
                return Err(Fault::Method("a user and a password are needed").into());
            }
            Some(credentials) => {
                self.io.write_all(&Method::Password.choice()).await?;
                let given = self.hear(AHEAD, socks5::password).await?;
                credentials.judge(&given, self.source.as_ref()).await?;
                self.io.write_all(&socks5::status(true)).await?;
            }
        }
        let socks5::Request { command, address } = self.hear(AHEAD, socks5::request).await?;
        let asked = match (command, address) {
            (Command::Other, _) => return Err(Fault::Command.into()),
            (Command::Associate, _) if !associates => return Err(Fault::Command.into()),
            (_, Err(fault)) => return Err(fault.into()),
            (Command::Associate, Ok(Endpoint { port, .. })) => Asked::Associate(port),
            (Command::Connect, Ok(Endpoint { port: 0, .. })) => return Err(Fault::Target.into()),
            (Command::Connect, Ok(target)) => Asked::Connect(target),
        };
        Ok(Agreed { asked, speech: Speech::Socks5, rest: BytesMut::new() })
    }

    async fn http(&mut self, credentials: Option<&Credentials>) -> Result<Agreed, Failed> {
        let mut decoder = connect::Decoder::default();
        let request = self.hear(connect::HEAD, |bytes| decoder.look(bytes)).await?;
        self.is_head = request.is_head;
        if let Some(credentials) = credentials {
            match request.given {
                None => return Err(Fault::Unauthenticated.into()),
                Some(given) => credentials.judge(&given, self.source.as_ref()).await?,
            }
        }
        let (asked, speech) = match request.wish? {
            Wish::Connect(target) => (Asked::Connect(target), Speech::Http),
            Wish::Request(absolute::Request { target, head }) => {
                let behind = std::mem::replace(&mut self.bytes, head.as_slice().into());
                self.bytes.extend_from_slice(&behind);
                (Asked::Request(target), Speech::Answer { is_head: self.is_head })
            }
        };
        Ok(Agreed { asked, speech, rest: BytesMut::new() })
    }
}

/// The answer to a visitor whose request is malformed or not admitted.
fn complaint(kind: ProxyKind, fault: Fault) -> Vec<u8> {
    match (kind, fault) {
        (_, Fault::Socks4) => REFUSED_4.to_vec(),
        (_, Fault::Method(_) | Fault::SocksAtHttp) => Method::Unacceptable.choice().to_vec(),
        (ProxyKind::Http, _) | (_, Fault::HttpAtSocks) => connect::complaint(fault),
        (ProxyKind::Socks5, Fault::Denied | Fault::Busy) => socks5::status(false).to_vec(),
        (ProxyKind::Socks5, Fault::Command | Fault::AddressType | Fault::Target) => {
            socks5::reply(fault.into(), None)
        }
        // There is no reply that the visitor would understand.
        (ProxyKind::Socks5, _) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use tokio::io::duplex;

    use super::*;

    /// Sends `said` in pieces of `size` bytes. Returns the outcome and the proxy's answer.
    async fn talk(
        kind: ProxyKind,
        credentials: Option<&Credentials>,
        said: &[u8],
        size: usize,
    ) -> (Result<Agreed, Failed>, Vec<u8>) {
        let (mut near, mut far) = duplex(1 << 20);
        let visitor = async {
            for piece in said.chunks(size) {
                far.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            far.shutdown().await.unwrap();
        };
        let source = Some(IpAddr::from([192, 0, 2, 1]).into());
        let agreed = handshake(&mut near, kind, credentials, source, true);
        let (agreed, ()) = tokio::join!(agreed, visitor);
        drop(near);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.unwrap();
        (agreed, heard)
    }

    fn shown(agreed: Result<Agreed, Failed>) -> String {
        match agreed {
            Ok(Agreed { asked: Asked::Connect(to), rest, .. }) => {
                format!("connect {to} {}", String::from_utf8_lossy(&rest))
            }
            Ok(Agreed { asked: Asked::Request(to), rest, .. }) => {
                format!("request {to} {}", String::from_utf8_lossy(&rest))
            }
            Ok(Agreed { asked: Asked::Associate(port), .. }) => format!("associate {port}"),
            Err(failed) => failed.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn conversations_of_socks5_mean_the_same_in_pieces_of_any_size() {
        let anna = Credentials::new("anna", "one").unwrap();
        let name = b"\x03\x0bexample.com\x00\x50";
        let connect = [b"\x05\x01\x00", &name[..]].concat();
        let both = [b"\x05\x02\x00\x02", &connect[..]].concat();
        let password = [b"\x05\x02\x00\x02\x01\x04anna\x03one", &connect[..]].concat();
        type Row<'a> = (Option<&'a Credentials>, Vec<u8>, &'static str, Vec<u8>);
        let ok = |open: &[u8]| open.to_vec();
        let table: [Row<'_>; 10] = [
            (None, both.clone(), "connect example.com:80 ", ok(&[5, 0])),
            (None, [&both[..], b"hello"].concat(), "connect example.com:80 hello", ok(&[5, 0])),
            (Some(&anna), password, "connect example.com:80 ", ok(&[5, 2, 1, 0])),
            (
                Some(&anna),
                b"\x05\x01\x02\x01\x04anna\x03two".to_vec(),
                "the user or the password is wrong",
                ok(&[5, 2, 1, 1]),
            ),
            (
                Some(&anna),
                b"\x05\x01\x00".to_vec(),
                "the program offers no acceptable authentication: a user and a password are needed",
                ok(&[5, 0xff]),
            ),
            (
                None,
                b"\x05\x01\x02".to_vec(),
                "the program offers no acceptable authentication: none is needed",
                ok(&[5, 0xff]),
            ),
            (
                None,
                b"\x05\x01\x00\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50".to_vec(),
                "the command is not supported",
                ok(&[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
            ),
            (
                None,
                b"\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x12\x34".to_vec(),
                "associate 4660",
                ok(&[5, 0]),
            ),
            (
                None,
                b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x00".to_vec(),
                "the target has no valid host and port",
                ok(&[5, 0, 5, 4, 0, 1, 0, 0, 0, 0, 0, 0]),
            ),
            (None, b"\x05\x01\x00\x05".to_vec(), "the program ended the connection", ok(&[5, 0])),
        ];
        for (credentials, said, expected, answer) in table {
            for size in 1..=said.len() {
                let (agreed, heard) = talk(ProxyKind::Socks5, credentials, &said, size).await;
                let agreed = shown(agreed);
                // The bytes after the request may still be in the socket.
                assert!(expected.starts_with(&agreed), "{agreed}, not {expected}, by {size}");
                assert_eq!(heard, answer, "{expected} by {size}");
            }
            let (agreed, _) = talk(ProxyKind::Socks5, credentials, &said, said.len()).await;
            assert_eq!(shown(agreed), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_protocol_gets_an_answer_that_its_program_understands() {
        let socks = |said: &'static [u8]| talk(ProxyKind::Socks5, None, said, 1);
        let (agreed, heard) = socks(b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00").await;
        assert!(shown(agreed).contains("SOCKS4"));
        assert_eq!(heard, REFUSED_4);
        let (agreed, heard) = socks(b"GET / HTTP/1.1\r\n\r\n").await;
        assert!(shown(agreed).contains("HTTP"));
        assert!(heard.starts_with(b"HTTP/1.1 400 "));
        let (agreed, heard) = socks(b"\x16\x03\x01").await;
        assert!(shown(agreed).contains("neither"));
        assert_eq!(heard, b"");
        let (agreed, heard) = talk(ProxyKind::Http, None, b"\x05\x01\x00", 1).await;
        assert!(shown(agreed).contains("SOCKS"));
        assert_eq!(heard, [5, 0xff]);
    }

    #[tokio::test(start_paused = true)]
    async fn http_is_asked_for_its_password_first() {
        let anna = Credentials::new("anna", "one").unwrap();
        let head = "CONNECT example.com:443 HTTP/1.1\r\n";
        let status = async |credentials: Option<&Credentials>, head: &str| {
            let said = format!("{head}\r\nhello");
            let (agreed, heard) =
                talk(ProxyKind::Http, credentials, said.as_bytes(), said.len()).await;
            match agreed {
                Ok(_) => shown(agreed),
                Err(_) => String::from_utf8(heard).unwrap()[9..12].to_owned(),
            }
        };
        let right = format!("{head}Proxy-Authorization: Basic YW5uYTpvbmU=\r\n");
        let wrong = format!("{head}Proxy-Authorization: Basic YW5uYTp0d28=\r\n");
        assert_eq!(status(None, head).await, "connect example.com:443 hello");
        assert_eq!(status(Some(&anna), &right).await, "connect example.com:443 hello");
        assert_eq!(status(Some(&anna), &wrong).await, "407");
        assert_eq!(status(Some(&anna), head).await, "407");
        assert_eq!(status(Some(&anna), "GET http://a/ HTTP/1.1\r\n").await, "407");
        assert_eq!(status(None, "GET / HTTP/1.1\r\n").await, "400");
        assert_eq!(
            status(None, "GET http://a/b HTTP/1.1\r\nHost: a\r\n").await,
            "request a:80 GET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nhello"
        );
        assert_eq!(status(None, "CONNECT a HTTP/1.1\r\n").await, "400");
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_over_many_connections_are_bounded_in_both_protocols() {
        let brake = net::brake::Brake::new(|_| {});
        let anna = Credentials::new("anna", "one").unwrap().braked(&brake, "exit");
        let head =
            "CONNECT example.com:443 HTTP/1.1\r\nProxy-Authorization: Basic YW5uYTp0d28=\r\n\r\n";
        let wrong = b"\x05\x01\x02\x01\x04anna\x03two";
        let socks = |said: &'static [u8]| talk(ProxyKind::Socks5, Some(&anna), said, 99);
        let begin = tokio::time::Instant::now();
        let (mut denied, mut busy) = (0, 0);
        let guesses = (0..100).map(|_| socks(wrong));
        let mut guesses: Vec<_> = guesses.map(Box::pin).collect();
        std::future::poll_fn(|cx| {
            guesses.retain_mut(|guess| match guess.as_mut().poll(cx) {
                std::task::Poll::Pending => true,
                std::task::Poll::Ready((outcome, heard)) => {
                    assert_eq!(heard, [5, 2, 1, 1]);
                    match shown(outcome).contains("too many") {
                        true => busy += 1,
                        false => denied += 1,
                    }
                    false
                }
            });
            if guesses.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        assert!(begin.elapsed() <= Duration::from_secs(10));
        assert!((5..=9).contains(&denied) && denied + busy == 100, "{denied} {busy}");
        let (_, heard) = talk(ProxyKind::Http, Some(&anna), head.as_bytes(), 999).await;
        assert!(heard.starts_with(b"HTTP/1.1 407 "), "the answer to the next guess");
        assert!(connect::complaint(Fault::Busy).starts_with(b"HTTP/1.1 429 Too Many Requests"));
    }

    #[tokio::test]
    async fn a_visitor_is_not_read_beyond_the_limit() {
        let (mut near, mut far) = duplex(1 << 20);
        far.write_all(&[b'A'; 100 << 10]).await.unwrap();
        let outcome = handshake(&mut near, ProxyKind::Http, None, None, false).await;
        assert!(matches!(outcome, Err(Failed::Fault(Fault::Size))), "{outcome:?}");
        let mut left = Vec::new();
        drop(far);
        near.read_to_end(&mut left).await.unwrap();
        assert_eq!(left.len(), (100 << 10) - connect::HEAD);
    }
}
