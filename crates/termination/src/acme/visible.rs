//! Waits until a record of dns-01 is visible at every name server of its zone. The authority
//! queries one of them, and a check that comes too early counts as a failure.
//!
//! Each query is a single UDP packet (RFC 1035 section 4); CNAME records are followed. The parser
//! reads TXT, NS, CNAME, A and AAAA, and allocates by the received size, not by the counts that a
//! header claims.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use net::resolve::{Lookups, name_servers};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, timeout};

use super::hook::Record;
use crate::plain;
use crate::settings::{Dns, Wait};

/// The pause between two queries, and the timeout of one answer.
const LOOK: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(2);

/// The number of attempts of a query, because a packet may be lost.
const ATTEMPTS: u32 = 2;

/// The largest number of name servers of a zone that are queried, of steps of a CNAME, and of
/// records in an answer.
const SERVERS_MAX: usize = 8;
const STEPS_MAX: usize = 8;
const RECORDS_MAX: usize = 64;

/// The largest number of addresses of a name server that are queried.
const ADDRESSES_MAX: usize = 4;

/// The size of an answer over UDP without EDNS is at most 512 bytes; the server truncates larger
/// answers.
const PACKET: usize = 4096;

const DNS_PORT: u16 = 53;

/// Waits as configured.
///
/// # Errors
/// The record is not visible in time; the sentence names the server.
pub(super) async fn wait(dns: &Dns, record: &Record) -> Result<(), String> {
    wait_at(DNS_PORT, dns, record).await
}

/// As [`wait`], for name servers at another port.
async fn wait_at(port: u16, dns: &Dns, record: &Record) -> Result<(), String> {
    let most = match dns.wait {
        Wait::Fixed(pause) => {
            sleep(pause).await;
            return Ok(());
        }
        Wait::Visible(most) => most,
    };
    let until = Instant::now() + most;
    loop {
        let look =
            timeout(until.saturating_duration_since(Instant::now()), look(port, dns, record));
        let why = match look.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => why,
            Err(_) => "the name servers do not answer".to_owned(),
        };
        if Instant::now() + LOOK >= until {
            return Err(format!(
                "the record {} was not visible after {} s: {why} (hint: `wait: 60s` in \
                 `tls_routes.acme.dns` waits without a question)",
                record.name,
                most.as_secs()
            ));
        }
        sleep(LOOK).await;
    }
}

/// Whether every name server of the zone now has the record.
async fn look(port: u16, dns: &Dns, record: &Record) -> Result<(), String> {
    let mut name = record.name.clone();
    for _ in 0..STEPS_MAX {
        let servers = servers_of(port, &dns.resolvers, &name).await?;
        let mut further = None;
        for (host, server) in &servers {
            let answer = ask(server, &name, Type::Txt)
                .await
                .map_err(|why| format!("{host} does not answer: {why}"))?;
            let text = Found::Text(record.value.clone());
            let texts = answer.iter().any(|(_, found)| *found == text);
            let alias = answer.into_iter().find_map(|(_, found)| match found {
                Found::Alias(to) => Some(to),
                Found::Text(_) | Found::Server(_) | Found::Address(_) => None,
            });
            match alias {
                _ if texts => {}
                Some(to) => further = Some(to),
                None => return Err(format!("{host} does not have it")),
            }
        }
        match further {
            None => return Ok(()),
            Some(to) => name = to,
        }
    }
    Err(format!("{} has too many aliases", plain(&record.name)))
}

/// The name servers of the zone that has a name, with their addresses. The resolvers of the system
/// are queried if none are configured.
async fn servers_of(
    port: u16,
    configured: &[SocketAddr],
    name: &str,
) -> Result<Vec<(String, Vec<SocketAddr>)>, String> {
    let of_system = if configured.is_empty() { name_servers() } else { Vec::new() };
    let resolvers = if configured.is_empty() { &of_system } else { configured };
    let mut zone = name;
    let hosts = loop {
        // If the name is an alias, a resolver adds the records of its target, which may belong to
        // another zone. An alias has no other records, so it belongs to the zone of a name above
        // it.
        let hosts: BTreeSet<String> = ask(resolvers, zone, Type::Ns)
            .await?
            .into_iter()
            .filter_map(|(owner, found)| match found {
                Found::Server(host) if owner.eq_ignore_ascii_case(zone) => Some(host),
                Found::Server(_) | Found::Text(_) | Found::Alias(_) | Found::Address(_) => None,
            })
            .collect();
        if !hosts.is_empty() {
            break hosts;
        }
        zone = match zone.split_once('.') {
            Some((_, rest)) => rest,
            None => return Err(format!("no zone has {}", plain(name))),
        };
    };
    let mut servers = Vec::new();
    for host in hosts.into_iter().take(SERVERS_MAX) {
        let shown = plain(&host);
        let addresses = addresses_of(port, configured, &host)
            .await
            .map_err(|error| format!("the name server {shown} has no address: {error}"))?;
        if addresses.is_empty() {
            return Err(format!("the name server {shown} has no address"));
        }
        servers.push((shown, addresses));
    }
    Ok(servers)
}

/// The addresses of a name server, from the configured resolvers if there are any. This machine may
/// have only IPv4 or only IPv6.
async fn addresses_of(
    port: u16,
    configured: &[SocketAddr],
    host: &str,
) -> Result<Vec<SocketAddr>, String> {
    if configured.is_empty() {
        let found = Lookups::of_servers().resolve(host).await.map_err(|error| error.to_string())?;
        let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, port));
        return Ok(addresses.take(ADDRESSES_MAX).collect());
    }
    let mut addresses = Vec::new();
    let mut failed = None;
    for kind in [Type::A, Type::Aaaa] {
        match ask(configured, host, kind).await {
            Ok(found) => {
                let found = found.into_iter().filter_map(|(_, found)| match found {
                    Found::Address(ip) => Some(SocketAddr::new(ip, port)),
                    Found::Server(_) | Found::Text(_) | Found::Alias(_) => None,
                });
                addresses.extend(found.take(ADDRESSES_MAX / 2));
            }
            Err(why) => failed = Some(why),
        }
    }
    match failed {
        Some(why) if addresses.is_empty() => Err(why),
        Some(_) | None => Ok(addresses),
    }
}

/// The type of a query (RFC 1035 section 3.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    A = 1,
    Ns = 2,
    Txt = 16,
    Aaaa = 28,
}

/// The content of a record in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Text(String),
    Server(String),
    Alias(String),
    Address(IpAddr),
}

/// The records of an answer with their owners, in lower case.
type Records = Vec<(String, Found)>;

/// Queries servers one after the other until one answers.
async fn ask(servers: &[SocketAddr], name: &str, kind: Type) -> Result<Records, String> {
    let mut why = "there is no name server to ask".to_owned();
    for _ in 0..ATTEMPTS {
        for server in servers {
            match timeout(ANSWER, ask_one(*server, name, kind)).await {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) => why = error.to_string(),
                Err(_) => why = format!("{server} is silent"),
            }
        }
    }
    Err(why)
}

async fn ask_one(server: SocketAddr, name: &str, kind: Type) -> io::Result<Records> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A connected socket accepts packets only from this server.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    // `RandomState` has new random keys each time.
    let id = RandomState::new().hash_one(0_u8).to_be_bytes();
    let query = query([id[0], id[1]], name, kind).ok_or_else(|| invalid("it is no name of DNS"))?;
    socket.send(&query).await?;
    let mut packet = vec![0; PACKET];
    loop {
        let length = socket.recv(&mut packet).await?;
        // A packet that does not answer this query belongs to another query, or is forged.
        if let Some(answer) = Answer::read(&packet[..length], &query) {
            return match answer.code {
                // No error, and nonexistent name.
                0 | 3 => Ok(answer.found),
                code => Err(invalid(&format!("{server} refuses with code {code}"))),
            };
        }
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

/// A query with recursion desired, which an authoritative server ignores.
fn query(id: [u8; 2], name: &str, kind: Type) -> Option<Vec<u8>> {
    let mut query = vec![id[0], id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
        query.push(length);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, kind as u8, 0, 1]);
    Some(query)
}

/// The requested part of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u8,
    found: Records,
}

impl Answer {
    /// Reads the answer to `query`; `None`: the packet is something else.
    fn read(packet: &[u8], query: &[u8]) -> Option<Self> {
        let (head, question) = (packet.get(..12)?, query.get(12..)?);
        let is_answer = head[..2] == query[..2] && head[2] & 0x80 != 0;
        let rest = packet.get(12..12 + question.len())?;
        if !is_answer || !rest.eq_ignore_ascii_case(question) {
            return None;
        }
        let mut at = 12 + question.len();
        let count = usize::from(u16::from_be_bytes([head[6], head[7]]));
        let mut found = Vec::new();
        for _ in 0..count.min(RECORDS_MAX) {
            // A truncated record ends the answer.
            let Some((record, next)) = record(packet, at) else { break };
            found.extend(record);
            at = next;
        }
        Some(Self { code: head[3] & 0x0F, found })
    }
}

/// The record at a position, and the position after it. `None` in the result: another type.
fn record(packet: &[u8], at: usize) -> Option<(Option<(String, Found)>, usize)> {
    let (owner, at) = name(packet, at)?;
    let head = packet.get(at..at + 10)?;
    let size = usize::from(u16::from_be_bytes([head[8], head[9]]));
    let (begin, end) = (at + 10, at + 10 + size);
    let data = packet.get(begin..end)?;
    let found = match u16::from_be_bytes([head[0], head[1]]) {
        1 => Some(Found::Address(<[u8; 4]>::try_from(data).ok()?.into())),
        2 => Some(Found::Server(name(packet, begin)?.0)),
        5 => Some(Found::Alias(name(packet, begin)?.0)),
        16 => Some(Found::Text(text(data)?)),
        28 => Some(Found::Address(<[u8; 16]>::try_from(data).ok()?.into())),
        _ => None,
    };
    Some((found.map(|found| (owner, found)), end))
}

/// The strings of a TXT record, joined (RFC 1035 section 3.3.14).
fn text(mut data: &[u8]) -> Option<String> {
    let mut all = Vec::with_capacity(data.len());
    while let Some((length, rest)) = data.split_first() {
        let (part, rest) = rest.split_at_checked(usize::from(*length))?;
        all.extend_from_slice(part);
        data = rest;
    }
    Some(String::from_utf8_lossy(&all).into_owned())
}

/// A name, which may be compressed (RFC 1035 section 4.1.4), and the position after it.
fn name(packet: &[u8], mut at: usize) -> Option<(String, usize)> {
    let (mut name, mut end) = (String::new(), None);
    // Each pointer must point backwards, so that a loop ends.
    let mut bound = at;
    loop {
        let length = usize::from(*packet.get(at)?);
        match length {
            0 => return Some((name, end.unwrap_or(at + 1))),
            1..=63 => {
                push(&mut name, packet.get(at + 1..at + 1 + length)?)?;
                at += 1 + length;
            }
            0xC0.. => {
                let to = ((length & 0x3F) << 8) | usize::from(*packet.get(at + 1)?);
                end = end.or(Some(at + 2));
                if to >= bound {
                    return None;
                }
                (at, bound) = (to, to);
            }
            _ => return None,
        }
    }
}

/// Adds a label in lower case. `None`: the name is longer than 255 characters, or the label is not
/// ASCII.
fn push(name: &mut String, label: &[u8]) -> Option<()> {
    if name.len() + label.len() > 255 || !label.is_ascii() {
        return None;
    }
    if !name.is_empty() {
        name.push('.');
    }
    name.push_str(&str::from_utf8(label).ok()?.to_ascii_lowercase());
    Some(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    /// An answer to a query with these records: owner, type, and data.
    fn answer_of(query: &[u8], code: u8, records: &[(Vec<u8>, u8, Vec<u8>)]) -> Vec<u8> {
        let mut packet = query.to_vec();
        (packet[2], packet[3]) = (0x81, 0x80 | code);
        packet[7] = records.len().try_into().unwrap();
        for (owner, kind, data) in records {
            packet.extend(owner);
            packet.extend([0, *kind, 0, 1, 0, 0, 0, 1]);
            packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
            packet.extend(data);
        }
        packet
    }

    /// As [`answer_of`], with records of the name of the question, which is compressed.
    fn answer(query: &[u8], code: u8, records: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let own = |(kind, data): &(u8, Vec<u8>)| (vec![0xC0, 12], *kind, data.clone());
        answer_of(query, code, &records.iter().map(own).collect::<Vec<_>>())
    }

    fn string(text: &str) -> Vec<u8> {
        [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
    }

    fn wire(name: &str) -> Vec<u8> {
        let mut wire: Vec<u8> = name.split('.').flat_map(string).collect();
        wire.push(0);
        wire
    }

    #[test]
    fn an_answer_is_read_by_its_types_and_a_forged_one_is_not() {
        let query = query([1, 2], "_acme-challenge.a.example", Type::Txt).unwrap();
        let texts = [string("other"), [string("di"), string("gest")].concat()];
        let records = [
            (16, texts[0].clone()),
            (16, texts[1].clone()),
            (5, wire("B.example")),
            (2, [&[3], &b"ns1"[..], &[0xC0, 12 + 16]].concat()),
            (6, vec![127, 0, 0, 1]),
            (1, vec![127, 0, 0, 1]),
            (28, Ipv6Addr::LOCALHOST.octets().to_vec()),
        ];
        let packet = answer(&query, 0, &records);
        let read = Answer::read(&packet, &query).unwrap();
        let of = |found| ("_acme-challenge.a.example".to_owned(), found);
        assert_eq!(
            read.found,
            [
                of(Found::Text("other".into())),
                of(Found::Text("digest".into())),
                of(Found::Alias("b.example".into())),
                of(Found::Server("ns1.a.example".into())),
                of(Found::Address(Ipv4Addr::LOCALHOST.into())),
                of(Found::Address(Ipv6Addr::LOCALHOST.into())),
            ]
        );
        for (index, byte) in [(0, 9), (2, 1), (13, b'x')] {
            let mut forged = packet.clone();
            forged[index] = byte;
            assert_eq!(Answer::read(&forged, &query), None, "byte {index}");
        }
        // A count that no record stands for, and a pointer to itself.
        let mut cut = answer(&query, 0, &records[..1]);
        (cut[6], cut[7]) = (255, 255);
        assert_eq!(Answer::read(&cut, &query).unwrap().found.len(), 1);
        let loops = answer(&query, 0, &[(5, vec![0xC0, 60])]);
        assert_eq!(Answer::read(&loops, &query).unwrap().found, []);
    }

    proptest! {
        #[test]
        fn no_packet_panics(packet in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..200) {
            let query = query([1, 2], "a.example", Type::Ns).unwrap();
            let _ = name(&packet, at);
            let _ = record(&packet, at);
            let _ = Answer::read(&[&query[..], &packet].concat(), &query);
            let _ = text(&packet);
        }
    }

    /// What a server says of a name and a type: a code, and records with their owner.
    type Says = (u8, Vec<(&'static str, u8, Vec<u8>)>);

    /// Answers all questions.
    fn serve(socket: UdpSocket, says: impl Fn(&str, u8) -> Says + Send + 'static) {
        #[expect(clippy::disallowed_methods, reason = "a server of a test")]
        tokio::spawn(async move {
            let mut packet = [0; 512];
            loop {
                let (length, peer) = socket.recv_from(&mut packet).await.unwrap();
                let query = &packet[..length];
                let (code, records) = says(&name(query, 12).unwrap().0, query[length - 3]);
                let records: Vec<_> =
                    records.into_iter().map(|(of, kind, data)| (wire(of), kind, data)).collect();
                socket.send_to(&answer_of(query, code, &records), peer).await.unwrap();
            }
        });
    }

    /// A server for one zone that has the record from the given question about it on.
    async fn zone(from: usize, value: &str) -> (SocketAddr, Arc<AtomicUsize>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, value) = (Arc::clone(&asked), value.to_owned());
        serve(socket, move |name, kind| match (name, kind) {
            ("_acme-challenge.a.example", 16) => {
                let times = count.fetch_add(1, Ordering::Relaxed) + 1;
                let text = ("_acme-challenge.a.example", 16, string(&value));
                (0, if times >= from { vec![text] } else { Vec::new() })
            }
            ("a.example", 2) => (0, vec![("a.example", 2, wire("ns.a.example"))]),
            ("ns.a.example", 1) => (0, vec![("ns.a.example", 1, vec![127, 0, 0, 1])]),
            _ => (0, Vec::new()),
        });
        (address, asked)
    }

    #[tokio::test]
    async fn a_record_is_found_when_the_server_has_it() {
        let (server, asked) = zone(3, "digest").await;
        let has = || async {
            let found = ask(&[server], "_acme-challenge.a.example", Type::Txt).await.unwrap();
            found.iter().any(|(_, found)| *found == Found::Text("digest".into()))
        };
        assert_eq!((has().await, has().await, has().await), (false, false, true));
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        assert_eq!(ask(&[server], "b.example", Type::Ns).await, Ok(Vec::new()));
    }

    fn dns(server: SocketAddr, most: u64) -> Dns {
        let wait = Wait::Visible(Duration::from_secs(most));
        let (program, timeout) = (PathBuf::new(), Duration::ZERO);
        Dns { program, timeout, wait, resolvers: vec![server] }
    }

    #[tokio::test]
    async fn the_wait_ends_when_the_servers_of_the_zone_have_the_record() {
        let (server, asked) = zone(2, "digest").await;
        let record = Record::new("*.a.example", "digest".into());
        wait_at(server.port(), &dns(server, 60), &record).await.unwrap();
        // A slow answer is asked for again, so that more questions are no error.
        assert!(asked.load(Ordering::Relaxed) >= 2);
        let (server, _) = zone(1, "another").await;
        let why = look(server.port(), &dns(server, 0), &record).await.unwrap_err();
        assert_eq!(why, "ns.a.example does not have it");
    }

    #[tokio::test]
    async fn a_name_without_a_zone_is_told() {
        let (server, _) = zone(1, "digest").await;
        let record = Record::new("b.test", "digest".into());
        let why = look(server.port(), &dns(server, 0), &record).await.unwrap_err();
        assert_eq!(why, "no zone has _acme-challenge.b.test");
    }

    #[tokio::test]
    async fn a_record_that_is_not_visible_in_time_is_told_with_a_hint() {
        let (server, _) = zone(1, "digest").await;
        let record = Record::new("b.test", "digest".into());
        let why = wait_at(server.port(), &dns(server, 0), &record).await.unwrap_err();
        let begin = "the record _acme-challenge.b.test was not visible after 0 s: ";
        let end = " (hint: `wait: 60s` in `tls_routes.acme.dns` waits without a question)";
        assert!(why.starts_with(begin) && why.ends_with(end), "{why}");
    }

    /// Two servers at one port: at 127.0.0.1 that of `a.example`, where the record is an alias to
    /// the apex of `d.example`; at 127.0.0.2 that of `d.example`, which refuses other zones. The
    /// first also answers as a resolver.
    async fn delegated() -> SocketAddr {
        let (first, second) = loop {
            let first = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let port = first.local_addr().unwrap().port();
            if let Ok(second) = UdpSocket::bind(("127.0.0.2", port)).await {
                break (first, second);
            }
        };
        let address = first.local_addr().unwrap();
        let apex = || ("d.example", 2, wire("ns.d.example"));
        serve(first, move |name, kind| {
            let alias = ("_acme-challenge.a.example", 5, wire("d.example"));
            match (name, kind) {
                // A resolver follows the alias.
                ("_acme-challenge.a.example", 2) => (0, vec![alias, apex()]),
                ("_acme-challenge.a.example", 16) => (0, vec![alias]),
                ("a.example", 2) => (0, vec![("a.example", 2, wire("ns.a.example"))]),
                ("d.example", 2) => (0, vec![apex()]),
                ("ns.a.example", 1) => (0, vec![("ns.a.example", 1, vec![127, 0, 0, 1])]),
                ("ns.d.example", 1) => (0, vec![("ns.d.example", 1, vec![127, 0, 0, 2])]),
                _ => (0, Vec::new()),
            }
        });
        serve(second, |name, kind| match (name, kind) {
            ("d.example", 16) => (0, vec![("d.example", 16, string("digest"))]),
            ("d.example", _) => (0, Vec::new()),
            _ => (5, Vec::new()),
        });
        address
    }

    #[tokio::test]
    async fn a_record_that_is_an_alias_to_the_apex_of_a_zone_is_found_there() {
        let server = delegated().await;
        let has = |value: &str| {
            let (dns, record) = (dns(server, 0), Record::new("a.example", value.into()));
            async move { look(server.port(), &dns, &record).await }
        };
        assert_eq!(has("digest").await, Ok(()));
        assert_eq!(has("other").await, Err("ns.d.example does not have it".into()));
    }
}
