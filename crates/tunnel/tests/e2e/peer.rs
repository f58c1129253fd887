//! A client that the tests control: it logs in like any other client and then sends arbitrary
//! frames.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Buf as _, Bytes, BytesMut};
use proto::greeting::{
    Binding, ClientGreeting, ClientSetup, Features, Identity, NONCE_LENGTH, Name, Token, Versions,
};
use proto::{HEAD, Head, InstanceId, Kind, Priority, StreamId};
use testkit::stage::Running;
use tls::Trust;
use transport::{Carrier, Dialer, SendLane};

/// How to connect to the server of a stage.
pub(crate) fn dialer(running: &Running) -> Rc<dyn Dialer> {
    let file = std::fs::read_to_string(running.file("client.yaml")).unwrap();
    // Last the one that a service's target may have as well.
    let schemes = ["tls", "quic", "wss", "ws", "tcp"];
    let has = |scheme: &&str| file.contains(&format!("\"{scheme}://"));
    let scheme = schemes.into_iter().find(has).unwrap();
    let path = if scheme.starts_with("ws") { "/tunnel" } else { "" };
    let pin = file.split("pin: \"").nth(1).and_then(|rest| rest.split('"').next());
    let trust = pin.map(|pin| Trust::Pins(vec![pin.parse().unwrap()]));
    let address = ([127, 0, 0, 1], running.server_port()).into();
    benches::server::dialer(scheme, address, path, trust).unwrap()
}

/// A frame of any kind.
pub(crate) fn frame(kind: Kind, stream: u32, body: &[u8]) -> Vec<u8> {
    let head = Head::new(kind, 0, body.len(), StreamId::new(stream));
    [&head.encode()[..], body].concat()
}

/// One connection of such a client.
#[derive(Debug)]
pub(crate) struct Peer {
    carrier: Carrier,
    input: BytesMut,
    /// The code with which the server said goodbye.
    pub(crate) goaway: Option<u16>,
    /// Frames that came, GOAWAY included.
    pub(crate) frames: u64,
}

impl Peer {
    pub(crate) async fn log_in(running: &Running, name: &str, token: &str) -> Self {
        let address = ([127, 0, 0, 1], running.server_port()).into();
        let carrier = dialer(running).dial(address).await.unwrap();
        let mut greeting = ClientGreeting::new(ClientSetup {
            binding: carrier.peer.exporter.map_or(Binding::None, Binding::Exporter),
            name: Name::new(name).unwrap(),
            identity: Identity::Token(Token::new(token).unwrap()),
            instance: InstanceId(link::random()),
            takeover: true,
            attach: None,
            versions: Versions::OURS,
            features: Features(0),
            nonce: link::random::<NONCE_LENGTH>(),
        })
        .unwrap();
        let mut peer = Self { carrier, input: BytesMut::new(), goaway: None, frames: 0 };
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

    /// Opens lanes with these bytes on them until the server allows no more for now.
    pub(crate) async fn open_lanes(
        &mut self,
        mut bytes: impl FnMut() -> Bytes,
    ) -> Vec<Box<dyn SendLane>> {
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

    /// Sends; where `reads`, takes what comes meanwhile.
    pub(crate) async fn write(&mut self, bytes: Bytes, reads: bool) -> io::Result<()> {
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

    /// Reads until so many frames have come in all.
    pub(crate) async fn expect(&mut self, frames: u64) {
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
            self.frames += 1;
            self.input.advance(HEAD + head.length);
        }
    }
}
