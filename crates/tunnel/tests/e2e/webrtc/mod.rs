//! Programs without a tunnel visit a private service by WebRTC. The stage is that of private
//! services; the server takes offers at a listener of WebSockets.

mod door;
mod programs;
mod requests;

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proto::greeting::{Token, is_signed, prove_offer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::LocalSet;
use transport_webrtc::{
    Admission, Arrived, Channel, ChannelStream, Channels, First, Interfaces, Offerer, Peers,
    WebrtcSettings,
};

use crate::harness::{LONG, Scheme, Setup, free_port};
use crate::private::{LAPTOP, Stage, VISIT, private};

/// Permits offers.
const OFFERS: &str = "p2p: { webrtc: {} }\n";

/// The stage with a service `echo` of `home`, and the port of offers.
fn stage(right: &str, target: u16) -> (Stage, u16) {
    stage_with(right, target, None)
}

/// The same with a further listener.
fn stage_with(right: &str, target: u16, listen: Option<String>) -> (Stage, u16) {
    let mut setup = Setup::new(Scheme::TLS);
    let offers = free_port();
    setup.more_listen.push(format!("ws://127.0.0.1:{offers}/tunnel"));
    setup.more_listen.extend(listen);
    let services = [private("echo", &format!("tcp://127.0.0.1:{target}"))];
    let stage = Stage::new(setup, right, &services);
    stage.running.edit_server(|text| format!("{OFFERS}{text}"));
    assert!(stage.running.reload("server").status.success());
    (stage, offers)
}

/// An answer of HTTP.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// Sends a request of HTTP.
fn http(port: u16, method: &str, path: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let head = format!("{head}Content-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut read = Vec::new();
    stream.read_to_end(&mut read).unwrap();
    let text = String::from_utf8(read).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// What a program says of itself.
#[derive(Clone, Copy, Debug)]
struct Program<'a> {
    name: &'a str,
    token: &'a str,
    place: &'a str,
    secret: &'a str,
}

impl Default for Program<'_> {
    fn default() -> Self {
        Self { name: "laptop", token: LAPTOP, place: "home/echo", secret: VISIT }
    }
}

impl Program<'_> {
    fn context(self) -> String {
        format!("{}\n{}", self.name, self.place)
    }

    /// Sends an offer.
    fn offer(self, port: u16, offer: &str) -> Answer {
        let context = self.context();
        let proof = |token: &str| {
            let token = Token::new(token).unwrap();
            URL_SAFE_NO_PAD.encode(prove_offer(&token, &context, offer))
        };
        let fields = [
            ("Content-Type", "application/sdp"),
            ("Authorization", &format!("Bearer {}.{}", self.name, proof(self.token))),
            ("Tunnel-Visit", &proof(self.secret)),
        ];
        http(port, "POST", &format!("/webrtc/{}", self.place), &fields, offer)
    }
}

/// A connection to the service, whose first channel is a stream.
struct Visit {
    channels: Channels,
    stream: ChannelStream,
    /// For `DELETE`.
    location: String,
}

impl Visit {
    /// The offer of a connection that is given up.
    async fn offer() -> String {
        Self::offerer().await.offer().to_owned()
    }

    async fn offerer() -> Offerer {
        let settings = WebrtcSettings {
            bind: vec![std::net::Ipv4Addr::UNSPECIFIED.into()],
            admission: Admission { loopback: false, private: true },
            ..WebrtcSettings::default()
        };
        let peers = Peers::new(settings);
        let first = First::Stream("echo".to_owned());
        Offerer::new(&peers, first, Interfaces::Announced).await.unwrap()
    }

    async fn new(port: u16) -> Self {
        let offerer = Self::offerer().await;
        let (program, offer) = (Program::default(), offerer.offer().to_owned());
        let answer = tokio::task::spawn_blocking(move || {
            (program.offer(port, &offer), offer, program.context())
        });
        let (answer, offer, context) = answer.await.unwrap();
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.field("content-type"), Some("application/sdp"));
        let signature = answer.field("tunnel-visit").unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap().try_into().unwrap();
        let secret = Token::new(VISIT).unwrap();
        assert!(is_signed(&secret, (&context, &offer, &answer.body), &signature), "{answer:?}");
        let location = answer.field("location").unwrap().to_owned();
        let Arrived::Channels(mut channels) = offerer.connect(&answer.body).await.unwrap() else {
            panic!("no tunnel")
        };
        let stream = channels.accept().await.unwrap().into_stream();
        Self { channels, stream, location }
    }

    async fn open(&self, label: &str) -> ChannelStream {
        let channel: Channel = self.channels.open(label).await.unwrap();
        channel.into_stream()
    }
}

/// Whether the service sends back what it gets.
async fn echoes(stream: &mut ChannelStream) -> bool {
    let mut back = [0; 5];
    stream.write_all(b"hello").await.is_ok()
        && stream.flush().await.is_ok()
        && stream.read_exact(&mut back).await.is_ok()
        && back == *b"hello"
}

/// Runs a program with a library of WebRTC.
fn run(program: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(LONG, program).await.expect("within the deadline");
    });
}
