//! A hostile client: it logs in like any other client, and then sends what a test requires. It
//! works over the dialer of any transport, so that an attack is a loop over all transports.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails where its hostile client does"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::task::Poll;

use bytes::{Buf as _, Bytes, BytesMut};
use proto::control::ControlMessage;
use proto::greeting::{
    Binding, ClientGreeting, ClientSetup, Features, Identity, NONCE_LENGTH, Name, Token, Versions,
};
use proto::{HEAD, Head, InstanceId, Kind, Priority, StreamId};
use transport::{Carrier, Dialer, SendLane};

/// A frame of any kind.
pub fn frame(kind: Kind, stream: u32, body: &[u8]) -> Vec<u8> {
    let head = Head::new(kind, 0, body.len(), StreamId::new(stream));
    [&head.encode()[..], body].concat()
}

/// The body of an OPEN without a visitor, of normal priority and with all initial credit. `kind` is
/// 0 for the name of a service, and 1 for the address of a target.
pub fn open(kind: u8, target: &str) -> Vec<u8> {
    let length = u16::try_from(target.len()).unwrap().to_be_bytes();
    let head = [0, 0, 0, 0, 0, 0x40, 0, 0, 1, kind];
    [&head[..], &length, target.as_bytes(), &[0]].concat()
}

/// The frame that opens stream number `n` of a client.
pub fn open_frame(n: u32, body: &[u8]) -> Vec<u8> {
    frame(Kind::Open, 2 * n + 1, body)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

/// One connection of a hostile client.
#[derive(Debug)]
pub struct Peer {
    carrier: Carrier,
    input: BytesMut,
    /// The offset of the next byte of the control channel.
    confirmed: u32,
    /// The code of the GOAWAY that the server sent.
    pub goaway: Option<u16>,
    /// The number of frames that arrived, GOAWAY included.
    pub frames: u64,
    /// The kinds of frames that arrived.
    kinds: Vec<Kind>,
    /// The streams that the server reset, with the codes.
    pub resets: Vec<(u32, u16)>,
}

impl Peer {
    /// Logs in with a token.
    pub async fn log_in(dialer: &dyn Dialer, server: SocketAddr, name: &str, token: &str) -> Self {
        let mut carrier = dialer.dial(server).await.unwrap();
        // The server is authenticated: it may send a full window.
        carrier.lane.authenticated();
        let mut greeting = ClientGreeting::new(ClientSetup {
            binding: carrier.peer.exporter.map_or(Binding::None, Binding::Exporter),
            name: Name::new(name).unwrap(),
            identity: Identity::Token(Token::new(token).unwrap()),
            instance: InstanceId(random()),
            takeover: true,
            attach: None,
            versions: Versions::OURS,
            features: Features(0),
            nonce: random::<NONCE_LENGTH>(),
        })
        .unwrap();
        let mut peer = Self {
            carrier,
            input: BytesMut::new(),
            confirmed: 0,
            goaway: None,
            frames: 0,
            resets: Vec::new(),
            kinds: Vec::new(),
        };
        loop {
            while let Some(output) = greeting.poll_output() {
                peer.write(output, false).await.unwrap();
            }
            if let Some(outcome) = greeting.poll_outcome() {
                outcome.unwrap();
                return peer;
            }
            assert!(peer.read().await.unwrap() > 0, "the greeting is cut off");
            greeting.handle_input(&mut peer.input);
        }
    }

    /// Opens lanes with these bytes on each, until the server allows no more lanes for now.
    pub async fn open_lanes(&mut self, mut bytes: impl FnMut() -> Bytes) -> Vec<Box<dyn SendLane>> {
        let mut open = Vec::new();
        let lanes = self.carrier.lanes.as_mut().unwrap();
        while let Some(mut lane) = lanes.open(Priority::Normal).unwrap() {
            let mut queue = VecDeque::from([bytes()]);
            poll_fn(|cx| lane.poll_write(cx, &mut queue)).await.unwrap();
            open.push(lane);
        }
        open
    }

    async fn read(&mut self) -> io::Result<usize> {
        self.input.reserve(64 << 10);
        poll_fn(|cx| self.carrier.lane.poll_read(cx, &mut self.input)).await
    }

    /// Sends a control message.
    pub async fn tell(&mut self, message: &ControlMessage) {
        self.tell_bytes(&message.encode().unwrap()).await;
    }

    /// Sends bytes on the control channel.
    pub async fn tell_bytes(&mut self, message: &[u8]) {
        let body = [&self.confirmed.to_be_bytes()[..], message].concat();
        self.confirmed += u32::try_from(message.len()).unwrap();
        self.write(frame(Kind::Control, 0, &body).into(), true).await.unwrap();
    }

    /// Sends bytes. With `reads`, reads what arrives meanwhile.
    pub async fn write(&mut self, bytes: Bytes, reads: bool) -> io::Result<()> {
        let mut queue = VecDeque::from([bytes]);
        poll_fn(|cx| {
            loop {
                if !reads {
                    break;
                }
                self.input.reserve(64 << 10);
                match self.carrier.lane.poll_read(cx, &mut self.input) {
                    Poll::Ready(Ok(0)) => {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    Poll::Ready(read) => read.map(|_| self.count())?,
                    Poll::Pending => break,
                }
            }
            while !queue.is_empty() {
                std::task::ready!(self.carrier.lane.poll_write(cx, &mut queue))?;
            }
            self.carrier.lane.poll_flush(cx)
        })
        .await
    }

    /// Reads until a frame of this kind has arrived since the log-in.
    pub async fn expect_kind(&mut self, kind: Kind) {
        self.count();
        while !self.kinds.contains(&kind) {
            assert!(self.read().await.unwrap() > 0, "{:?} came", self.kinds);
            self.count();
        }
    }

    /// Reads until the server has reset this number of streams.
    pub async fn expect_resets(&mut self, streams: usize) {
        self.count();
        while self.resets.len() < streams {
            assert!(self.read().await.unwrap() > 0, "{} resets came", self.resets.len());
            self.count();
        }
    }

    /// Reads until the server has ended the link or the connection.
    pub async fn expect_end(&mut self) {
        self.count();
        while self.goaway.is_none() && self.read().await.is_ok_and(|size| size > 0) {
            self.count();
        }
    }

    /// Reads until this number of frames has arrived since the log-in.
    pub async fn expect(&mut self, frames: u64) {
        self.count();
        while self.frames < frames {
            assert!(self.read().await.unwrap() > 0, "{} frames came", self.frames);
            self.count();
        }
    }

    fn count(&mut self) {
        while let Some(raw) = self.input.first_chunk::<HEAD>() {
            let head = Head::decode(*raw);
            let Some(body) = self.input.get(HEAD..HEAD + head.length) else { return };
            if head.kind == Some(Kind::GoAway) {
                self.goaway = Some(u16::from_be_bytes([body[0], body[1]]));
            }
            if head.kind == Some(Kind::Reset) {
                self.resets.push((head.stream.raw(), u16::from_be_bytes([body[0], body[1]])));
            }
            if let Some(kind) = head.kind.filter(|kind| !self.kinds.contains(kind)) {
                self.kinds.push(kind);
            }
            self.frames += 1;
            self.input.advance(HEAD + head.length);
        }
    }
}
