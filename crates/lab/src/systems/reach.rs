//! Checks that a visitor gets through to an origin. Most systems accept visitors before the other
//! side is there, and no byte may be sent to an origin whose protocol is unknown here. So the proof
//! is a new connection of the origin, read from `/proc`. Systems that take only HTTP answer a
//! request of curl, and the origin of datagrams answers a question.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::scene::Scene;
use super::socks;
use super::visitors::{HOST, Visitors, url};
use super::way::Way;

/// The time until visitors get through to all origins: 5 times the time of the slowest system on a
/// busy machine.
const READY: Duration = Duration::from_secs(30);

/// The time limit of one visitor: an early visitor may wait for a peer that tries again after a
/// second.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time limit of one datagram and its answer.
const ANSWER: Duration = Duration::from_millis(200);

/// The time limit for the origin to lose that visitor. iperf3 serves one client at a time.
const GONE: Duration = Duration::from_secs(5);

/// The pause between two checks.
const LOOK: Duration = Duration::from_millis(10);

/// A remote end as the kernel prints it.
type Ends = BTreeSet<String>;

/// Waits until a visitor gets through to every origin, and until the origins have lost the visitor
/// again.
pub(super) fn wait(scene: &mut Scene<'_>) -> Result<()> {
    let start = Instant::now();
    for way in scene.ways.clone() {
        while !gets_through(&way, scene.visitors) {
            scene.daemons.check()?;
            ensure!(
                start.elapsed() < READY,
                "no visitor of {} gets through to {} ({}) after {READY:?}",
                way.entrance,
                way.target,
                way.name
            );
            thread::sleep(LOOK);
        }
    }
    // A daemon that ended because its port is in use may have left the visitors to another process.
    scene.daemons.check()
}

/// Whether a visitor gets through.
fn gets_through(way: &Way, visitors: Visitors) -> bool {
    match visitors {
        Visitors::Any if way.is_udp() => answers(way),
        Visitors::Any | Visitors::Socks => visit(way, visitors),
        Visitors::Http | Visitors::Https => request(way, visitors),
    }
}

/// Whether a request is answered by the origin. The certificate is not of interest.
fn request(way: &Way, visitors: Visitors) -> bool {
    let mut command = Command::new("curl");
    command.args(["--http1.1", "--fail", "--silent", "--insecure", "--output", "/dev/null"]);
    command.args(["--max-time", &PATIENCE.as_secs().to_string()]);
    // No proxy of the environment, and no other address of the host.
    command.args(["--noproxy", "*", "--resolve"]);
    command.arg(format!("{HOST}:{}:{}", way.entrance.port(), way.entrance.ip()));
    command.arg(url(visitors, way.entrance, "/"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether the origin of datagrams answers a question about a run that nobody has made.
fn answers(way: &Way) -> bool {
    let answer = || -> io::Result<usize> {
        let visitor = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        visitor.connect(way.entrance)?;
        visitor.set_read_timeout(Some(ANSWER))?;
        visitor.send(&question())?;
        visitor.recv(&mut [0; 256])
    };
    answer().is_ok_and(|length| length > 0)
}

/// A question of `load udp`: the format is that of `benches::udp::packet`.
fn question() -> [u8; 68] {
    let mut question = [0; 68];
    question[..5].copy_from_slice(b"load\x01");
    question
}

/// Whether a connection of one visitor gets through.
fn visit(way: &Way, visitors: Visitors) -> bool {
    let before = connected(way.target.port());
    let Ok(mut visitor) = TcpStream::connect_timeout(&way.entrance, PATIENCE) else { return false };
    if visitors == Visitors::Socks && socks::ask(&visitor, way.target).is_err() {
        return false;
    }
    let start = Instant::now();
    let new = loop {
        let mut new = connected(way.target.port());
        new.retain(|end| !before.contains(end));
        if !new.is_empty() {
            break new;
        }
        if start.elapsed() > PATIENCE || has_ended(&mut visitor) {
            return false;
        }
    };
    drop(visitor);
    let start = Instant::now();
    while start.elapsed() < GONE && !connected(way.target.port()).is_disjoint(&new) {
        thread::sleep(LOOK);
    }
    true
}

/// Whether the other side ended the connection; waits for one [`LOOK`]. Data from the origin is
/// ignored.
fn has_ended(visitor: &mut TcpStream) -> bool {
    if visitor.set_read_timeout(Some(LOOK)).is_err() {
        return true;
    }
    match visitor.read(&mut [0; 64]) {
        Ok(n) => n == 0,
        Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

/// The remote ends that are connected to a service on this local port.
fn connected(port: u16) -> Ends {
    let mut ends = Ends::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(table) = File::open(table) else { continue };
        let lines = BufReader::new(table).lines().skip(1).map_while(Result::ok);
        ends.extend(lines.filter_map(|line| remote_end(&line, port)));
    }
    ends
}

/// The remote end of a line about an established connection of this local port.
fn remote_end(line: &str, port: u16) -> Option<String> {
    let mut columns = line.split_whitespace().skip(1);
    let (_, local) = columns.next()?.rsplit_once(':')?;
    let remote = columns.next()?;
    // 01: TCP_ESTABLISHED.
    let found = columns.next()? == "01" && u16::from_str_radix(local, 16) == Ok(port);
    found.then(|| remote.to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::systems::scene::free;

    #[test]
    fn the_kernels_table_is_read_as_it_is() {
        let line = "   2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000  0";
        assert_eq!(remote_end(line, 8080).as_deref(), Some("0100007F:D431"));
        assert_eq!(remote_end(line, 8081), None);
        assert_eq!(remote_end(&line.replace(" 01 ", " 06 "), 8080), None, "TIME_WAIT");
        assert_eq!(remote_end("", 8080), None);
    }

    #[test]
    fn a_visitor_that_is_accepted_and_led_nowhere_has_not_got_through() {
        let origin = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = origin.local_addr().unwrap();
        let direct = Way { name: "origin", entrance: target, target };
        assert!(visit(&direct, Visitors::Any));

        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let entrance = door.local_addr().unwrap();
        thread::spawn(move || drop(door.accept()));
        assert!(!visit(&Way { entrance, ..direct }, Visitors::Any));
        let nobody = Way { entrance: free(), ..direct };
        assert!(!visit(&nobody, Visitors::Any), "nobody listens");
        assert!(!answers(&nobody), "nobody listens");
    }
}
