//! The programs inside a cage: the STUN server, the visitor and the publisher.

use std::io::BufRead as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::udp::WANTED;
use punch::mapper::{Mapped, Protocol, Unmapped};
use punch::{Kinds, Nat, Signal};
use testkit::cage::{SERVER_V4, SERVER_V6};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{LocalSet, spawn_local};
use transport_quic::punched::{
    Begin, DirectPath, Failure, PunchSettings, Puncher, Router, Trial, inquire,
};
use transport_quic::{QuicSettings, StunServer};

use super::FIRST;

pub(crate) const PORTS: [u16; 2] = [7_000, 3_478];

fn servers() -> Vec<SocketAddr> {
    let at = |ip: &str, port| SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port);
    [SERVER_V4, SERVER_V6].iter().flat_map(|ip| PORTS.map(|port| at(ip, port))).collect()
}

pub(crate) fn run(part: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = LocalSet::new();
    match part {
        "server" => local.block_on(&runtime, server()),
        "server with two ports" => local.block_on(&runtime, server_with_two_ports()),
        "inquiry" => local.block_on(&runtime, inquiry()),
        "port" => local.block_on(&runtime, port()),
        "visitor" => local.block_on(&runtime, visitor()),
        _ => local.block_on(&runtime, publisher()),
    }
}

async fn server() {
    for port in PORTS {
        let stun = Arc::<StunServer>::default();
        let serving = Arc::clone(&stun);
        let address = SocketAddr::new("::".parse().unwrap(), port);
        spawn_local(async move { serving.serve(address).await.unwrap() });
        while stun.other_port().is_none() {
            tokio::task::yield_now().await;
        }
        println!("ready {port}");
    }
    std::future::pending().await
}

/// A server whose first port can answer from the second one, as `quic://` beside `stun` can.
async fn server_with_two_ports() {
    let bind = |port| UdpSocket::bind(SocketAddr::new("::".parse().unwrap(), port));
    let ports = [bind(PORTS[0]).await.unwrap(), bind(PORTS[1]).await.unwrap()];
    PORTS.iter().for_each(|port| println!("ready {port}"));
    let answer = async |at: usize| loop {
        let mut datagram = [0; 100];
        let (length, from) = ports[at].recv_from(&mut datagram).await.unwrap();
        if let Some(answer) = punch::stun::answer(&datagram[..length], from) {
            let at = if answer.from_other_port { 1 - at } else { at };
            ports[at].send_to(answer.bytes(), from).await.unwrap();
        }
    };
    tokio::join!(answer(0), answer(1));
}

/// Tells what stands between this host and IPv4.
async fn inquiry() {
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    let Nat { udp, mapping, filtering } =
        inquire(&settings(), &servers(), until).await.unwrap().ipv4.unwrap();
    println!("found {udp:?} {mapping:?} {filtering:?}");
}

/// Asks the router for a port until a line comes.
async fn port() {
    let socket = UdpSocket::bind("0.0.0.0:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let (send, mut end) = channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lock().lines().next().unwrap().unwrap();
        send.blocking_send(()).unwrap();
    });
    let ended = Box::pin(async move { end.recv().await.unwrap() });
    let mut tell = |outcome: Result<Mapped, Unmapped>| match outcome {
        Ok(Mapped { outer, protocol }) => println!("found opened by {protocol} {outer}"),
        Err(why) => println!("found none: {why}"),
    };
    router().keep(port, ended, &mut tell).await.unwrap();
    println!("ready ended");
    std::future::pending().await
}

fn router() -> Arc<Router> {
    let first = std::env::var(FIRST).is_ok();
    Arc::new(if first { Router::asked_first_by(Protocol::NatPmp) } else { Router::default() })
}

fn settings() -> PunchSettings {
    PunchSettings {
        quic: QuicSettings::default(),
        buffers: WANTED,
        kinds: Kinds::default(),
        ports: None,
        loopback: false,
    }
}

fn puncher() -> Puncher {
    Puncher::new(settings()).unwrap()
}

/// The signals of the other end.
fn heard() -> Receiver<Vec<u8>> {
    let (send, receive) = channel(1_000);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Some(hex) = line.strip_prefix("signal ") else { continue };
            let digits = hex.as_bytes().chunks(2);
            let byte = |two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
            if send.blocking_send(digits.map(byte).collect()).is_err() {
                return;
            }
        }
    });
    receive
}

/// Carries signals for as long as this end lives, and tells the outcome.
async fn try_it(
    trial: &Trial,
    mut heard: Receiver<Vec<u8>>,
    done: impl Future<Output = Result<transport::Carrier, Failure>>,
) {
    let began = Instant::now();
    spawn_local(trial.map_port(router()).unwrap());
    let mut done = std::pin::pin!(done);
    let carrier = loop {
        tokio::select! {
            biased;
            done = &mut done => break done,
            signal = trial.signal() => tell(&signal),
            Some(signal) = heard.recv() => trial.handle_signal(&signal).unwrap(),
        }
    };
    match &carrier {
        Ok(_) => direct(&trial.path(), began),
        Err(failure) => println!("relayed {failure}"),
    }
    // The other end needs the path until the cage ends both.
    std::future::pending::<()>().await;
}

fn direct(path: &DirectPath, began: Instant) {
    let pair = path.pair().unwrap();
    println!("direct {} after {} ms: {pair}", pair.remote.0, began.elapsed().as_millis());
}

fn tell(signal: &[u8]) {
    let hex: String = signal.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("signal {hex}");
}

async fn visitor() {
    let begin = Begin { round: 1, stun: servers(), is_mapping: true, ..Begin::default() };
    let trial = puncher().visitor(&begin).unwrap();
    try_it(&trial, heard(), trial.dial()).await;
}

async fn publisher() {
    let mut heard = heard();
    let first = heard.recv().await.unwrap();
    let round = Signal::decode(&first).unwrap().round;
    let begin = Begin { round, stun: servers(), is_mapping: true, ..Begin::default() };
    let trial = puncher().publisher(&begin).unwrap();
    trial.handle_signal(&first).unwrap();
    let accept = async { trial.accept().await?.handshake().await.map_err(Failure::Quic) };
    try_it(&trial, heard, accept).await;
}
