//! `load`: the programs that put load on a tunnel to measure it. The first word selects the
//! program; see [`HELP`].

use std::future::Future;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use benches::options::{Usage, Words};
use benches::{
    bridge, bulk, connections, descriptors, echo, idle, origin, pulse, report, requests, runtime,
    storm, udp,
};
use serde::Serialize;

const HELP: &str = "\
load PROGRAM --option value …

  bulk         --target A --seconds S [--streams N] [--write BYTES] [--direction up|down] [--socks5 PROXY]
               bytes into `origin sink` (up) or out of `origin source` (down)
  requests     --target A --seconds S [--connections N] [--http [--path P] | --echo BYTES] [--sources N]
               GET, or bytes that come back, over connections that stay
  connections  --target A --seconds S [--concurrency C] [--http] [--sources N]
               new connections per second, each with one byte that comes back, or a GET
  echo         --target A --seconds S [--bulk none|sink:A|source:A] [--streams N] [--pause S]
               the latency of one byte, alone or beside a bulk transfer
  pulse        --target A --seconds S [--every S] [--bytes N]
               the latency of requests at fixed times over one connection: 1,024 bytes each 0.05 s
  idle         --target A --connections N --hold S [--sources N]
               connections that do nothing; one line when all are open, one at the end
  storm        --server tls://A|quic://A|kcp://A|tcp://A|wss://A/P|ws://A/P [--pin P|--ca FILE] --token-file F --clients N
               [--prefix TEXT] [--loss clients|server] [--limit S]
               clients c0, c1, … that log in at once, are lost and come back; with `server` whoever
               reads the first line restarts the server; one line when all are in, one at the end
  udp          --target A --seconds S [--flows N] [--payload BYTES] [--rate PER_S | --search]
               datagrams to `origin udp`, and how many are lost: as many as possible, or at a rate; with
               `--search` at 80 % of the highest rate that gets through, after a line with that rate
  bridge       --listen A (--server wss://A/P|ws://A/P [--pin P|--ca FILE] | --target A)
               a WebSocket for each visitor, and its other end: what a reverse proxy passes by itself;
               says its address and runs until it is ended
  origin       echo|sink|source|udp --listen A
               the server at the far end; says its address and runs until it is ended

Addresses are digits, 127.0.0.1:8080. Each program says one line of JSON on standard output; its
fields stand at the `Report` of its file. Exit code 2 is wrong usage, 1 a failure of this machine;
what fails at the target is counted in the report.
";

fn main() -> ExitCode {
    descriptors::raise_limit();
    match start(std::env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(End::Usage(usage)) => {
            say(&format!("load: {usage}; `load help` tells more"));
            ExitCode::from(2)
        }
        Err(End::Failed(error)) => {
            say(&format!("load: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
enum End {
    Usage(Usage),
    Failed(io::Error),
}

impl From<Usage> for End {
    fn from(usage: Usage) -> Self {
        Self::Usage(usage)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

fn start(mut args: impl Iterator<Item = String>) -> Result<(), End> {
    let program = args.next().ok_or_else(|| Usage("no program given".to_owned()))?;
    match program.as_str() {
        "bulk" => {
            let options = read(args, bulk::Options::read)?;
            run(bulk::run(&options))
        }
        "requests" => {
            let options = read(args, requests::Options::read)?;
            run(requests::run(&options))
        }
        "connections" => {
            let options = read(args, connections::Options::read)?;
            run(connections::run(&options))
        }
        "echo" => {
            let options = read(args, echo::Options::read)?;
            let report = runtime()?.block_on(echo::run(&options))?;
            Ok(report::print(&report)?)
        }
        "pulse" => {
            let options = read(args, pulse::Options::read)?;
            run(pulse::run(&options))
        }
        "idle" => {
            let options = read(args, idle::Options::read)?;
            // The reader of the first line is gone, so the run is worthless.
            let tell = |open: &idle::Report| report::print(open).unwrap_or_else(|_| gone());
            run(idle::run(&options, tell))
        }
        "storm" => {
            let options = read(args, storm::Options::read)?;
            let tell = |live: &storm::Report| report::print(live).unwrap_or_else(|_| gone());
            let report = runtime()?.block_on(storm::run(&options, tell))?;
            Ok(report::print(&report)?)
        }
        "udp" => {
            let options = read(args, udp::Options::read)?;
            let tell = |reached: &udp::Report| report::print(reached).unwrap_or_else(|_| gone());
            let report = udp::run(&options, tell)?;
            Ok(report::print(&report)?)
        }
        "bridge" => {
            let options = read(args, bridge::Options::read)?;
            let tell = |listening| say_listening("bridge", None, listening);
            Ok(runtime()?.block_on(bridge::run(options, tell))?)
        }
        "origin" => serve(args),
        "help" | "--help" | "-h" => {
            say(HELP);
            Ok(())
        }
        _ => Err(Usage(format!("no program `{program}`")).into()),
    }
}

fn read<T>(
    args: impl Iterator<Item = String>,
    options: impl FnOnce(&mut Words) -> Result<T, Usage>,
) -> Result<T, Usage> {
    let mut words = Words::read(args, &["--http", "--search"])?;
    let options = options(&mut words)?;
    words.finish()?;
    Ok(options)
}

fn run(program: impl Future<Output: Serialize>) -> Result<(), End> {
    let report = runtime()?.block_on(program);
    Ok(report::print(&report)?)
}

fn serve(mut args: impl Iterator<Item = String>) -> Result<(), End> {
    let name = args.next().unwrap_or_default();
    if name == "udp" {
        let socket = udp::socket::Socket::listen(read(args, |words| words.address("--listen"))?)?;
        say_listening("origin", Some(&name), socket.local_addr()?);
        return Ok(udp::sink::serve(&socket, || true)?);
    }
    let kind = origin::KINDS.iter().find(|kind| kind.0 == name).map(|kind| kind.1);
    let kind =
        kind.ok_or_else(|| Usage(format!("an origin is echo, sink, source or udp, not `{name}`")))?;
    let address = read(args, |words| words.address("--listen"))?;
    runtime()?.block_on(async {
        let listener = origin::listen(address)?;
        let listening = listener.local_addr()?;
        say_listening("origin", Some(&name), listening);
        origin::serve(listener, kind).await;
        Ok(())
    })
}

/// After this line, the parent process may connect.
fn say_listening(program: &str, kind: Option<&str>, listening: SocketAddr) {
    let line = serde_json::json!({ "program": program, "kind": kind, "listening": listening });
    report::print(&line).unwrap_or_else(|_| gone());
}

fn gone() {
    std::process::exit(1);
}

/// Prints a line for readers. A closed output is no error.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", text.trim_end());
}
