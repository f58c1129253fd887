//! What runs inside a cage: the programs, and what they tell each other.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use testkit::cage::{Network, internet, network, on, opened};

use super::program::PORTS;
use super::{FIRST, PART};

/// Starts the server, and waits until it answers at both ports.
fn server(name: &str) -> Child {
    let mut server = part(name, None);
    let ready = lines(&mut server);
    for _ in PORTS {
        ready.iter().find(|line| line.starts_with("ready ")).unwrap();
    }
    server
}

/// Makes a network, and returns what an inquiry from there finds.
pub(crate) fn inquire(from: Network) -> String {
    internet();
    let host = network(1, from);
    let mut server = server("server with two ports");
    let mut inquiry = part("inquiry", Some((&host, from)));
    let found = lines(&mut inquiry).iter().find(|line| line.starts_with("found "));
    for child in [&mut inquiry, &mut server] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    found.unwrap()
}

/// Makes a network, asks its router for a port, and gives it back. Returns what the end was told.
pub(crate) fn map(from: Network) -> String {
    internet();
    let host = network(1, from);
    let mut end = part("port", Some((&host, from)));
    let mut input = end.stdin.take().unwrap();
    let all_lines = lines(&mut end);
    let found = all_lines.iter().find(|line| line.starts_with("found ")).unwrap();
    let opens = !matches!(from, Network::UpnpBehindNat | Network::Plain | Network::Open);
    let open = if opens { opened() } else { Vec::new() };
    let port = found.rsplit(':').next().unwrap();
    if found.contains("opened") {
        let [rule] = &open[..] else { panic!("one port is open: {open:?}") };
        assert!(rule.contains("@nh,72,8 0x11"), "UDP alone: {rule}");
        assert!(rule.contains(&format!("dport {port} dnat")), "{found}: {rule}");
    } else {
        assert!(open.is_empty(), "{found}: {open:?}");
    }
    writeln!(input, "end").unwrap();
    all_lines.iter().find(|line| line.starts_with("ready ended")).unwrap();
    if opens {
        assert!(opened().is_empty(), "a port stays open: {:?}", opened());
    }
    end.kill().unwrap();
    end.wait().unwrap();
    found
}

/// Makes both networks, lets both ends try, and returns the outcome of the visitor.
pub(crate) fn run(visitor: Network, publisher: Network) -> String {
    internet();
    let hosts = [(network(1, visitor), visitor), (network(2, publisher), publisher)];
    let mut server = server("server");
    let [mut visitor, mut publisher] = [("visitor", &hosts[0]), ("publisher", &hosts[1])]
        .map(|(name, (at, kind))| part(name, Some((at, *kind))));
    let of_visitor = carried(&mut visitor, &mut publisher);
    let of_publisher = carried(&mut publisher, &mut visitor);
    let outcome = |from: &Receiver<String>| from.iter().find(|line| !line.starts_with("signal "));
    let (ours, theirs) = (outcome(&of_visitor).unwrap(), outcome(&of_publisher).unwrap());
    for child in [&mut visitor, &mut publisher, &mut server] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let is_direct = |outcome: &str| outcome.starts_with("direct ");
    assert_eq!(is_direct(&ours), is_direct(&theirs), "visitor: {ours}; publisher: {theirs}");
    ours
}

fn part(name: &str, namespace: Option<(&String, Network)>) -> Child {
    let exe = std::env::current_exe().unwrap();
    let mut command = match namespace {
        Some((namespace, kind)) => {
            let mut command = on(namespace);
            command.arg(exe);
            if kind == Network::NatPmp {
                command.env(FIRST, "NAT-PMP");
            }
            command
        }
        None => Command::new(exe),
    };
    command.args(["part", "--exact", "--nocapture"]).env(PART, name);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The lines of a program that are meant for the others.
fn lines(child: &mut Child) -> Receiver<String> {
    let (send, receive) = sync_channel(1_000);
    let output = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        let meant = ["signal ", "direct ", "relayed ", "ready ", "found "];
        for line in output.lines().map_while(Result::ok) {
            if meant.iter().any(|begin| line.starts_with(begin)) && send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}

/// The same, with the signals among them carried to the other end.
fn carried(from: &mut Child, to: &mut Child) -> Receiver<String> {
    let (send, receive) = sync_channel(1_000);
    let lines = lines(from);
    let mut input = to.stdin.take().unwrap();
    thread::spawn(move || {
        for line in lines {
            // An end that is done does not read any more.
            let _ = writeln!(input, "{line}");
            if send.send(line).is_err() {
                return;
            }
        }
    });
    receive
}
