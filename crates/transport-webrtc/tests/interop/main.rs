//! Streams with aiortc, pion and Chromium, implementations of WebRTC that share no code with the
//! crate `webrtc`, in both roles: `peer.py`, `peer/`, `peer.html`. They carry 5 MB in each
//! direction (`WEBRTC_INTEROP_MB`: another number) and end by an empty message; a channel that
//! closes without it is no end, in both directions.
//!
//! `cargo xtask test webrtc-interop` installs them and names them in the variables below.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::print_stdout, reason = "what the peer says is for people")]

mod signalling;

#[path = "../setup/mod.rs"]
mod setup;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::future::Future;
use std::future::poll_fn;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use rustix::process::{Pid, Signal, kill_process_group};
use sha2::{Digest as _, Sha256};
use testkit::conformance::{Sum, pattern};
use tokio::task::spawn_local;
use transport::Lane;
use transport_webrtc::{Answerer, Arrived, Channel, Channels, First, Interfaces, Offerer, Peers};

use setup::settings;
use signalling::{Request, Signalling};

/// Bytes in each direction.
fn bytes() -> u64 {
    let wanted = std::env::var("WEBRTC_INTEROP_MB").ok();
    wanted.map_or(5, |wanted| wanted.parse::<u64>().unwrap()) << 20
}

/// A run with as much time as the slowest peer needs for its bytes on a busy machine.
fn run(test: impl Future<Output = ()>) {
    setup::run_within(setup::DEADLINE + Duration::from_secs(bytes() / 300_000), test);
}

/// A peer: the variable that names its program, and the arguments before the role.
#[derive(Clone, Copy, Debug)]
enum Program {
    Aiortc,
    Pion,
    Chromium,
}

impl Program {
    fn command(self, role: &str, signalling: &Signalling) -> Command {
        let address = signalling.address();
        match self {
            Self::Aiortc => {
                let mut command = Command::new(named("WEBRTC_PEER_PYTHON"));
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/peer.py"));
                command.args([role, &address, &bytes().to_string()]);
                command
            }
            Self::Pion => {
                let mut command = Command::new(named("WEBRTC_PEER_PION"));
                command.args([role, &address, &bytes().to_string()]);
                command
            }
            Self::Chromium => {
                let mut command = Command::new(named("WEBRTC_PEER_CHROMIUM"));
                // Without the second and third option it has no candidate but a name of mDNS.
                command.args([
                    "--no-sandbox",
                    "--allow-loopback-in-peer-connection",
                    "--disable-features=WebRtcHideLocalIpsWithMdns",
                    "--disable-gpu",
                    "--remote-debugging-port=0",
                ]);
                command.arg(format!("{address}/?role={role}&bytes={}", bytes()));
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command
            }
        }
    }
}

fn named(variable: &str) -> OsString {
    let program = std::env::var_os(variable);
    program.unwrap_or_else(|| panic!("{variable} is not set: cargo xtask test webrtc-interop"))
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Self {
        Self(command.stdin(Stdio::null()).process_group(0).spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended by itself. Chromium is started by a shell, and has children.
        if let Some(group) = Pid::from_raw(self.0.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

async fn read(lane: &mut dyn Lane) -> io::Result<Bytes> {
    let mut buf = BytesMut::with_capacity(64 << 10);
    poll_fn(|cx| lane.poll_read(cx, &mut buf)).await?;
    Ok(buf.freeze())
}

async fn write(lane: &mut dyn Lane, bytes: Bytes) -> io::Result<()> {
    let mut frames = VecDeque::from([bytes]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    Ok(())
}

/// Sends back what comes, and says the hash.
async fn echo(lane: &mut dyn Lane) {
    let mut hash = Sha256::new();
    loop {
        let bytes = read(lane).await.unwrap();
        if bytes.is_empty() {
            break;
        }
        hash.update(&bytes);
        write(lane, bytes).await.unwrap();
    }
    poll_fn(|cx| lane.poll_close(cx)).await.unwrap();
    println!("echoed {:x?}", &hash.finalize()[..4]);
}

/// Reads bytes of a channel that closes without an end mark: this is no end.
async fn drain(lane: &mut dyn Lane) {
    while let Ok(bytes) = read(lane).await {
        assert!(!bytes.is_empty(), "closed, and looks like an end");
    }
}

/// Serves the three channels of a peer that offers.
async fn serve(mut channels: Channels) -> (Channels, Vec<String>) {
    let mut labels = Vec::new();
    while labels.len() < 3 {
        let Channel { label, mut lane, .. } = channels.accept().await.unwrap();
        match label.as_str() {
            "echo" => echo(&mut *lane).await,
            "close" => drain(&mut *lane).await,
            "abort" => assert_eq!(&read(&mut *lane).await.unwrap()[..], b"x"),
            other => panic!("{other}"),
        }
        println!("served {label}");
        labels.push(label);
    }
    (channels, labels)
}

/// The peer offers, and opens a channel for each stream.
fn answers(program: Program, interfaces: Interfaces) {
    run(async {
        let mut signalling = Signalling::new().await;
        let _peer = Running::start(program.command("offer", &signalling));
        let peers = Peers::new(settings());
        let Request::Offer { sdp, reply } = signalling.next().await else { panic!("no offer") };
        let answerer = Answerer::new(&peers, &sdp, interfaces).await.unwrap();
        if interfaces == Interfaces::Hidden {
            assert!(!answerer.answer().contains("a=candidate"), "{}", answerer.answer());
        }
        reply.send(answerer.answer().to_owned()).unwrap();
        let Arrived::Channels(channels) = answerer.connect().await.unwrap() else {
            panic!("no tunnel")
        };
        assert!(channels.peer().exporter.is_some());
        let served = spawn_local(serve(channels));
        let Request::Said(said) = signalling.next().await else { panic!("no verdict") };
        assert_eq!(said, "ok");
        let (_channels, labels) = served.await.unwrap();
        assert_eq!(labels, ["echo", "close", "abort"]);
    });
}

/// The peer answers and echoes.
fn offers(program: Program) {
    run(async {
        let mut signalling = Signalling::new().await;
        let _peer = Running::start(program.command("answer", &signalling));
        let peers = Peers::new(settings());
        let first = First::Stream("echo".to_owned());
        let offerer = Offerer::new(&peers, first, Interfaces::Announced).await.unwrap();
        let Request::Ask { reply } = signalling.next().await else { panic!("no question") };
        reply.send(offerer.offer().to_owned()).unwrap();
        let Request::Answer(sdp) = signalling.next().await else { panic!("no answer") };
        let Arrived::Channels(mut channels) = offerer.connect(&sdp).await.unwrap() else {
            panic!("no tunnel")
        };
        let mut lane = channels.accept().await.unwrap().lane;
        there_and_back(&mut *lane).await;
        drop(lane);
        let Request::Said(said) = signalling.next().await else { panic!("no verdict") };
        assert_eq!(said, "ok");
    });
}

/// Sends bytes and their end; the same have to come back.
async fn there_and_back(lane: &mut dyn Lane) {
    let (lane, total) = (std::cell::RefCell::new(lane), bytes());
    let sending = async {
        let mut sent = 0;
        let mut frames = VecDeque::new();
        while sent < total || !frames.is_empty() {
            if frames.is_empty() {
                let end = total.min(sent + 50_000);
                frames.push_back((sent..end).map(|at| pattern(1, at)).collect::<Bytes>());
                sent = end;
            }
            poll_fn(|cx| lane.borrow_mut().poll_write(cx, &mut frames)).await.unwrap();
        }
        poll_fn(|cx| lane.borrow_mut().poll_close(cx)).await.unwrap();
    };
    let receiving = async {
        let mut sum = Sum::new(1);
        loop {
            let mut buf = BytesMut::with_capacity(64 << 10);
            if poll_fn(|cx| lane.borrow_mut().poll_read(cx, &mut buf)).await.unwrap() == 0 {
                break;
            }
            sum.add(&buf);
        }
        assert_eq!(sum.seen(), total);
    };
    tokio::join!(sending, receiving);
}

#[test]
fn aiortc_opens_streams() {
    answers(Program::Aiortc, Interfaces::Announced);
}

#[test]
fn aiortc_is_offered_a_stream() {
    offers(Program::Aiortc);
}

#[test]
fn pion_opens_streams() {
    answers(Program::Pion, Interfaces::Announced);
}

#[test]
fn pion_is_offered_a_stream() {
    offers(Program::Pion);
}

#[test]
fn chromium_opens_streams_and_learns_no_address_of_an_interface() {
    answers(Program::Chromium, Interfaces::Hidden);
}

#[test]
fn chromium_is_offered_a_stream() {
    offers(Program::Chromium);
}
