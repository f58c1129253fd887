//! Health checks of the targets of services with `health`: the client connects to the target,
//! requests `health.path` if it is set, and closes the connection. A UDP target gets the datagram
//! of `health.udp` and must answer. Without `health` only visitors detect whether a target serves.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use config::{Check, DatagramCheck, Over, Public, Service, Target};
use net::SocketOptions;
use net::resolve::Lookups;
use relay::dial::{ask_datagram, dial};
use relay::{DialError, Layer, LayerError, Layered, TargetAddr, proxy_header};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::address::address;
use super::local::proxy_version;
use super::pool::Pools;
use super::site::Site;
use node::descriptors;

/// The maximum number of bytes read of an answer, which include its first line.
pub(super) const ANSWER: usize = 1024;

/// The maximum interval between two reads of the configuration, which a reload may change.
const LOOK: Duration = Duration::from_secs(5);

/// The public address of a connection that has none.
pub(super) const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Services whose targets are checked.
pub trait Checked {
    /// The current services. `None`: this process is leaving.
    fn services(&self) -> Option<Vec<Service>>;

    /// The states of the targets.
    fn pools(&self) -> &Pools;
}

/// Checks targets until this process leaves. Runs on one worker.
pub async fn check_targets(shared: Arc<impl Checked>) {
    let mut due: HashMap<(String, String), Instant> = HashMap::new();
    loop {
        let Some(services) = shared.services() else { return };
        let now = Instant::now();
        let checked = services.iter().filter_map(|s| Some((s, s.health.as_ref()?)));
        let checked = checked.flat_map(|(service, check)| {
            service.targets().map(move |(target, _)| (service, target, check))
        });
        let mut next = HashMap::new();
        for (service, target, check) in checked {
            let which = (service.name.clone(), target.to_string());
            let mut at = due.get(&which).copied().unwrap_or(now);
            if at <= now {
                begin(shared.pools(), service, target, check);
                at = now + check.interval.duration();
            }
            // A shorter interval takes effect at once.
            next.insert(which, at.min(now + check.interval.duration()));
        }
        due = next;
        let first = due.values().min().copied();
        let until = first.unwrap_or(now + LOOK).min(now + LOOK);
        tokio::time::sleep_until(until).await;
    }
}

/// Starts one check. A check that hangs delays no other check, and ends before the next check of
/// the same target begins, because its timeout is not longer than the interval.
fn begin(pools: &Pools, service: &Service, target: &Target, check: &Check) {
    let request = check.path.as_ref().map(|path| request(service, target, path));
    let (pool, layer) = (pools.of(service), Site::of(service, target));
    let to = target.to_string();
    let Some(member) = pool.members().find(|member| member.watch.target == to).cloned() else {
        return;
    };
    let at = |over| address(target, over).filter(|_| service.carries(over));
    let (stream, datagram) = (at(Over::Tcp), at(Over::Udp).zip(check.udp.clone()));
    if stream.is_none() && datagram.is_none() {
        return;
    }
    let (timeout, broadcast) = (check.timeout.duration(), service.broadcast);
    let options = families::dial_options(&service.dial, SocketOptions::DEFAULT);
    // A target that expects a header would log a connection without one as broken.
    let version = service.proxy_protocol.map(proxy_version);
    let header = version.map(|version| proxy_header(version, None, NOWHERE));
    spawn_local(async move {
        let by_stream = async {
            match &stream {
                Some(target) => {
                    let options = options.clone();
                    let asked = Asked { options, header, layer, request };
                    connect(target, asked, timeout).await
                }
                None => Ok(()),
            }
        };
        let by_datagram = async {
            match &datagram {
                Some((target, check)) => ask((target, broadcast), check, (timeout, &options)).await,
                None => Ok(()),
            }
        };
        // A target of both protocols must pass both checks.
        let (by_stream, by_datagram) = tokio::join!(by_stream, by_datagram);
        let outcome = by_stream.and(by_datagram);
        member.note(outcome.as_ref().copied());
    });
}

/// What a check over TCP sends, and by which socket.
struct Asked {
    /// The options of the socket.
    options: SocketOptions,
    /// The PROXY protocol header.
    header: Option<Bytes>,
    /// The TLS of the target.
    layer: Option<Rc<dyn Layer>>,
    /// The request for the path of the check.
    request: Option<Vec<u8>>,
}

/// Connects to a target and requests the path of the check, if it has one.
async fn connect(
    target: &TargetAddr,
    Asked { options, header, layer, request }: Asked,
    timeout: Duration,
) -> Result<(), DialError> {
    let (end, lookups) = (Instant::now() + timeout, Lookups::default());
    let late = |_| DialError::Timeout(target.clone());
    let layer_error = |reason| DialError::Layer { target: target.clone(), reason };
    let dialled = dial(target, None, timeout, (descriptors::room(), &options), &lookups).await?;
    if let Some(header) = header {
        // The target accepted the connection, so a failure here is ignored.
        drop(timeout_at(end, dialled.write_all(&header)).await);
    }
    let socket = dialled.keep();
    let layered = match layer {
        Some(layer) => match timeout_at(end, layer.wrap(socket, false)).await.map_err(late)? {
            Ok(layered) => layered,
            Err(error) => return layer_verdict(error, request.is_some()).map_err(layer_error),
        },
        // A target that sends first, or that logs resets, sees a clean end.
        None => Layered::new(socket, Bytes::new()),
    };
    let Some(request) = request else { return Ok(()) };
    let answer = timeout_at(end, layered.ask(&request, ANSWER)).await.map_err(late)?;
    verdict(answer).map_err(layer_error)
}

/// Sends the datagram of the check to a UDP target.
async fn ask(
    (target, broadcast): (&TargetAddr, bool),
    check: &DatagramCheck,
    (timeout, options): (Duration, &SocketOptions),
) -> Result<(), DialError> {
    let question = match check {
        DatagramCheck::Dns => &QUERY[..],
        DatagramCheck::Own { send, .. } => send,
    };
    let (place, lookups) = ((descriptors::room(), options), Lookups::default());
    let answer = ask_datagram((target, broadcast), question, timeout, place, &lookups).await?;
    let reason = match check {
        DatagramCheck::Dns => is_answer(&answer).err(),
        DatagramCheck::Own { expect, .. } => {
            let is_right = answer.starts_with(expect);
            (!is_right).then_some("answers the check with another datagram than `expect`")
        }
    };
    let fails = |reason: &str| DialError::Layer { target: target.clone(), reason: reason.into() };
    reason.map_or(Ok(()), |reason| Err(fails(reason)))
}

/// A DNS query for the root name servers (RFC 1035 section 4): each resolver knows them, and an
/// authoritative server refuses the query, which is an answer.
const QUERY: [u8; 17] = *b"\x74\x75\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";

/// Whether a datagram answers [`QUERY`].
fn is_answer(answer: &[u8]) -> Result<(), &'static str> {
    /// The response code of a server that cannot answer.
    const SERVFAIL: u8 = 2;
    match answer {
        [first, second, flags, code, ..] if answer.len() >= 12 => {
            if [*first, *second] != QUERY[..2] || flags & 0x80 == 0 {
                return Err("does not answer the check over DNS");
            }
            if code & 0x0f == SERVFAIL { Err("answers the check with SERVFAIL") } else { Ok(()) }
        }
        _ => Err("does not answer the check over DNS"),
    }
}

/// The request of a check. Its host is the host that visitors of the service request, so that a
/// target with several sites answers for the right site.
pub(super) fn request(service: &Service, target: &Target, path: &str) -> Vec<u8> {
    let terms = service.http();
    let of_name = service.public.iter().find_map(|public| match public {
        Public::Name { host, .. } if !host.contains('*') => Some(host.clone()),
        Public::Name { .. } | Public::Tcp { .. } | Public::Udp { .. } => None,
    });
    let own = target.port().map(|(host, port)| format!("{}:{port}", host.unscoped()));
    let host = terms.host_rewrite.clone().or(of_name).or(own);
    let host = host.unwrap_or_else(|| "localhost".to_owned());
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tunnel\r\nAccept: */*\r\n\
         Connection: close\r\n\r\n"
    )
    .into_bytes()
}

/// The verdict of the failed handshake of a check, as a reason after "the target". A target that
/// speaks only HTTP/2 ends the handshake, which offers HTTP/1.1, before it shows a certificate; it
/// serves visitors that speak HTTP/2.
fn layer_verdict(error: LayerError, has_request: bool) -> Result<(), String> {
    let LayerError { reason, is_of_visitor } = error;
    if is_of_visitor && !has_request { Ok(()) } else { Err(reason) }
}

/// The verdict of the answer to a check, as a reason after "the target".
fn verdict(answer: io::Result<BytesMut>) -> Result<(), String> {
    let answer = answer.map_err(|error| format!("breaks the check off: {error}"))?;
    match status(&answer) {
        Some(200..=399) => Ok(()),
        Some(status) => Err(format!("answers the check with {status}")),
        None => Err("does not answer the check over HTTP".to_owned()),
    }
}

/// The status of an answer over HTTP/1 (RFC 9112 section 4).
pub(super) fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_speaks_http2_alone_fails_only_a_check_with_a_request() {
        let of = |is_of_visitor, has_request| {
            layer_verdict(LayerError { reason: "fails".into(), is_of_visitor }, has_request)
        };
        assert_eq!(of(true, false), Ok(()));
        for (is_of_visitor, has_request) in [(true, true), (false, true), (false, false)] {
            assert_eq!(of(is_of_visitor, has_request), Err("fails".into()));
        }
    }

    #[test]
    fn an_answer_from_200_to_399_says_that_the_target_serves() {
        let of = |text: &str| verdict(Ok(BytesMut::from(text)));
        for good in ["HTTP/1.1 200 OK\r\n", "HTTP/1.0 204\r\n", "HTTP/1.1 301 Moved\r\n"] {
            assert_eq!(of(good), Ok(()), "{good}");
        }
        assert_eq!(of("HTTP/1.1 503 No\r\n"), Err("answers the check with 503".to_owned()));
        for bad in ["", "SSH-2.0-x\r\n", "HTTP/1.1 2", "HTTP/1.1 +20 a"] {
            assert_eq!(of(bad), Err("does not answer the check over HTTP".to_owned()), "{bad}");
        }
    }

    #[test]
    fn an_answer_of_dns_has_the_number_of_the_query_and_no_failure_of_the_server() {
        let answer = |flags: u8, code: u8| {
            let mut answer = QUERY;
            (answer[2], answer[3]) = (flags, code);
            answer
        };
        for (flags, code) in [(0x81, 0x80), (0x80, 0x83), (0x85, 0x05)] {
            assert_eq!(is_answer(&answer(flags, code)), Ok(()), "{code}");
        }
        assert!(is_answer(&answer(0x81, 0x82)).is_err(), "SERVFAIL");
        assert!(is_answer(&QUERY).is_err(), "the query itself");
        assert!(is_answer(b"tu").is_err() && is_answer(&[0; 40]).is_err());
    }
}
