//! A mapper and a router in virtual time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};

use super::*;
use crate::testing::epoch;

const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);
const OWN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 5), 40_000);
const OUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

/// A router: the protocols that it supports, and the ports that it has mapped.
struct Router {
    speaks: Vec<Protocol>,
    /// Whether its kernel reports that the port of PCP and NAT-PMP is closed.
    refuses: bool,
    outer: Ipv4Addr,
    /// The longest lease.
    longest: u32,
    /// Error codes of UPnP for the next requests of a port.
    faults: Vec<u16>,
    /// External port, internal port, expiry.
    ports: BTreeMap<u16, (u16, Instant)>,
    datagrams: usize,
    requests: usize,
}

impl Router {
    fn new(speaks: &[Protocol]) -> Self {
        Self {
            speaks: speaks.to_vec(),
            refuses: false,
            outer: OUTER,
            longest: 86_400,
            faults: Vec::new(),
            ports: BTreeMap::new(),
            datagrams: 0,
            requests: 0,
        }
    }

    fn speaks(&self, protocol: Protocol) -> bool {
        self.speaks.contains(&protocol)
    }

    /// Maps or unmaps a port. Returns the external port and the lease.
    fn map(&mut self, now: Instant, inner: u16, wanted: u16, seconds: u32) -> (u16, u32) {
        if seconds == 0 {
            self.ports.retain(|_, (port, _)| *port != inner);
            return (0, 0);
        }
        let seconds = seconds.min(self.longest);
        self.ports.insert(wanted, (inner, now + Duration::from_secs(seconds.into())));
        (wanted, seconds)
    }

    fn datagram(&mut self, now: Instant, door: Door, asked: &[u8]) -> Option<Vec<u8>> {
        self.datagrams += 1;
        let two = |at: usize| u16::from_be_bytes([asked[at], asked[at + 1]]);
        let four = |at: usize| u32::from_be_bytes(asked[at..at + 4].try_into().unwrap());
        match (door, asked[0]) {
            (Door::Mapping, 2) if self.speaks(Pcp) => {
                assert_eq!(asked.len(), 60);
                assert_eq!(asked[8..24], OWN.ip().to_ipv6_mapped().octets());
                let (inner, wanted, seconds) = (two(40), two(42), four(4));
                let (outer, seconds) = self.map(now, inner, wanted, seconds);
                let mut answer = asked.to_vec();
                answer[1] |= 0x80;
                answer[2..4].fill(0);
                answer[4..8].copy_from_slice(&seconds.to_be_bytes());
                answer[42..44].copy_from_slice(&outer.to_be_bytes());
                answer[44..60].copy_from_slice(&self.outer.to_ipv6_mapped().octets());
                Some(answer)
            }
            // RFC 6886 section 3.5: an unknown version gets a response with this version.
            (Door::Mapping, 2) if self.speaks(NatPmp) => {
                Some(vec![0, asked[1] | 0x80, 0, 1, 0, 0, 0, 0])
            }
            (Door::Mapping, 0) if self.speaks(NatPmp) => {
                let mut answer = vec![0, asked[1] | 0x80, 0, 0, 0, 0, 0, 7];
                if asked[1] == 0 {
                    answer.extend(self.outer.octets());
                } else {
                    let (inner, wanted, seconds) = (two(4), two(6), four(8));
                    let (outer, seconds) = self.map(now, inner, wanted, seconds);
                    answer.extend(inner.to_be_bytes());
                    answer.extend(outer.to_be_bytes());
                    answer.extend(seconds.to_be_bytes());
                }
                Some(answer)
            }
            (Door::Search, _) if self.speaks(Upnp) => Some(
                b"HTTP/1.1 200 OK\r\nLOCATION: http://192.168.1.1:5000/root.xml\r\n\r\n".to_vec(),
            ),
            _ => None,
        }
    }

    fn request(&mut self, now: Instant, request: &Request) -> String {
        self.requests += 1;
        assert_eq!(request.to, SocketAddrV4::new(ROUTER, 5_000));
        let text = std::str::from_utf8(&request.bytes).unwrap();
        let ok = |body: &str| format!("HTTP/1.1 200 OK\r\n\r\n{body}");
        let between = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            rest.split_once('<').map(|(value, _)| value)
        };
        let number = |name| between(name).and_then(|text| text.parse::<u16>().ok()).unwrap();
        if text.starts_with("GET /root.xml ") {
            return ok("<service>\
                <serviceType>urn:schemas-upnp-org:service:WANPPPConnection:1</serviceType>\
                <controlURL>/ppp</controlURL></service><service>\
                <serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>\
                <controlURL>/ip</controlURL></service>");
        }
        if text.starts_with("POST /ppp ") {
            return ok("<NewExternalIPAddress></NewExternalIPAddress>");
        }
        assert!(text.starts_with("POST /ip "), "{text}");
        if text.contains("#GetExternalIPAddress") {
            return ok(&format!("<NewExternalIPAddress>{}</NewExternalIPAddress>", self.outer));
        }
        let outer = number("NewExternalPort");
        assert_eq!(between("NewProtocol"), Some("UDP"));
        if text.contains("#DeletePortMapping") {
            self.ports.remove(&outer);
            return ok("");
        }
        assert!(text.contains("#AddPortMapping"), "{text}");
        if let Some(code) = self.faults.pop() {
            return format!("HTTP/1.1 500 x\r\n\r\n<errorCode>{code}</errorCode>");
        }
        assert_eq!(between("NewInternalClient"), Some("192.168.1.5"));
        let (inner, seconds) = (number("NewInternalPort"), number("NewLeaseDuration"));
        self.map(now, inner, outer, seconds.into());
        ok("")
    }
}

/// A mapper with its router, and the time.
struct Run {
    mapper: Mapper,
    router: Router,
    began: Instant,
    now: Instant,
    events: Vec<Result<Mapped, Unmapped>>,
}

impl Run {
    fn new(router: Router) -> Self {
        Self::first(router, None)
    }

    fn first(router: Router, first: Option<Protocol>) -> Self {
        let now = epoch();
        let mut number = 0;
        let mut random = |bytes: &mut [u8]| {
            number += 1;
            bytes.fill(number);
        };
        let wanted = Wanted { router: ROUTER, own: OWN, first };
        let mapper = Mapper::new(now, wanted, &mut random);
        let mut run = Self { mapper, router, began: now, now, events: Vec::new() };
        run.settle();
        run
    }

    /// Carries out what the mapper wants, without any time.
    fn settle(&mut self) {
        loop {
            let (now, router) = (self.now, &mut self.router);
            if let Some((door, bytes)) = self.mapper.poll_datagram() {
                if router.refuses && door == Door::Mapping {
                    self.mapper.handle_refused(now);
                } else if let Some(answer) = router.datagram(now, door, &bytes) {
                    self.mapper.handle_datagram(now, door, &answer);
                }
            } else if let Some(request) = self.mapper.poll_request() {
                let answer = router.request(now, &request);
                self.mapper.handle_response(now, request.id, Some(answer.as_bytes()));
            } else if let Some(event) = self.mapper.poll_event() {
                self.events.push(event);
            } else {
                return;
            }
        }
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.mapper.poll_timeout().filter(|due| *due <= until) {
            assert!(due >= self.now, "a time of the past");
            self.now = due;
            self.mapper.handle_timeout(due);
            self.settle();
        }
        self.now = until;
    }

    fn end(&mut self) {
        self.mapper.end(self.now);
        self.settle();
    }
}

fn mapped(protocol: Protocol, port: u16) -> Result<Mapped, Unmapped> {
    Ok(Mapped { outer: SocketAddr::from((OUTER, port)), protocol })
}

use Protocol::{NatPmp, Pcp, Upnp};

#[test]
fn each_protocol_gives_the_port_and_takes_it_back() {
    for (speaks, used) in
        [(&[Pcp, NatPmp, Upnp][..], Pcp), (&[NatPmp, Upnp], NatPmp), (&[Upnp], Upnp)]
    {
        let mut run = Run::new(Router::new(speaks));
        run.pass(Duration::from_secs(3));
        assert_eq!(run.events, [mapped(used, 40_000)], "{speaks:?}");
        assert_eq!(run.router.ports.get(&40_000).map(|(inner, _)| *inner), Some(40_000));
        run.end();
        assert!(run.router.ports.is_empty() && run.mapper.is_over(), "{used}");
        assert_eq!(run.mapper.poll_timeout(), None);
    }
}

#[test]
fn the_port_is_renewed_for_as_long_as_it_is_used() {
    for used in [Pcp, NatPmp, Upnp] {
        let mut run = Run::new(Router::new(&[used]));
        for _ in 0..100 {
            run.pass(Duration::from_secs(60));
            let (_, until) = run.router.ports[&40_000];
            assert!(until > run.now + Duration::from_secs(200), "{used}");
        }
        assert_eq!(run.events, [mapped(used, 40_000)], "{used}: told once");
        let asked = run.router.datagrams + run.router.requests;
        assert!(asked < 40, "{used}: {asked} messages in 100 minutes");
    }
}

#[test]
fn a_shorter_lease_is_renewed_earlier_but_not_without_end() {
    let mut run = Run::new(Router { longest: 120, ..Router::new(&[Pcp]) });
    run.pass(Duration::from_secs(59));
    assert_eq!(run.router.datagrams, 1);
    run.pass(Duration::from_secs(2));
    assert_eq!(run.router.datagrams, 2);
    let mut run = Run::new(Router { longest: 1, ..Router::new(&[Pcp]) });
    run.pass(Duration::from_secs(100));
    assert!(run.router.datagrams <= 11, "{}", run.router.datagrams);
}

#[test]
fn a_router_that_is_silent_for_a_while_keeps_the_port_and_one_that_stays_silent_loses_it() {
    let mut run = Run::new(Router::new(&[Pcp]));
    run.router.speaks.clear();
    run.pass(Duration::from_secs(400));
    run.router.speaks.push(Pcp);
    run.pass(Duration::from_secs(100));
    let (_, until) = run.router.ports[&40_000];
    assert!(until > run.began + LEASE, "renewed after the silence");
    run.router.speaks.clear();
    run.pass(Duration::from_secs(1_000));
    assert_eq!(run.events, [mapped(Pcp, 40_000), Err(Unmapped::Lost)]);
    assert!(run.mapper.is_over());
}

#[test]
fn a_router_that_knows_nothing_of_it_costs_a_few_datagrams_and_three_seconds() {
    let mut run = Run::new(Router::new(&[]));
    run.pass(Duration::from_secs(3));
    assert_eq!(run.events, [Err(Unmapped::Silent)]);
    assert_eq!(run.router.datagrams, 9);
    // Where the system says so, the wait is shorter.
    let mut run = Run::new(Router { refuses: true, ..Router::new(&[]) });
    run.pass(Duration::from_secs(1));
    assert_eq!(run.events, [Err(Unmapped::Silent)]);
    let mut run = Run::new(Router { refuses: true, ..Router::new(&[Upnp]) });
    run.pass(Duration::ZERO);
    assert_eq!(run.events, [mapped(Upnp, 40_000)]);
}

#[test]
fn the_protocol_that_worked_before_comes_first() {
    let mut run = Run::first(Router::new(&[Pcp, NatPmp, Upnp]), Some(NatPmp));
    run.pass(Duration::ZERO);
    assert_eq!(run.events, [mapped(NatPmp, 40_000)]);
    let mut run = Run::first(Router::new(&[Pcp]), Some(Upnp));
    run.pass(Duration::from_secs(3));
    assert_eq!(run.events, [mapped(Pcp, 40_000)]);
}

#[test]
fn behind_two_nats_no_port_stays_open_and_the_person_learns_it() {
    let outer = Ipv4Addr::new(10, 0, 0, 7);
    for used in [Pcp, NatPmp, Upnp] {
        let mut run = Run::new(Router { outer, ..Router::new(&[used]) });
        run.pass(Duration::from_secs(3));
        assert_eq!(run.events, [Err(Unmapped::Private(IpAddr::V4(outer)))], "{used}");
        assert!(run.router.ports.is_empty() && run.mapper.is_over(), "{used}");
    }
    for outer in [[127, 0, 0, 1], [0, 0, 0, 0], [169, 254, 169, 254], [224, 0, 0, 1]] {
        let mut run = Run::new(Router { outer: outer.into(), ..Router::new(&[Pcp]) });
        run.pass(Duration::ZERO);
        assert_eq!(run.events, [Err(Unmapped::NoAddress)], "{outer:?}");
        assert!(run.router.ports.is_empty());
    }
}

#[test]
fn a_port_that_another_machine_has_is_replaced_by_another_one() {
    let taken = |times| Router { faults: vec![718; times], ..Router::new(&[Upnp]) };
    let mut run = Run::new(taken(2));
    run.pass(Duration::from_secs(3));
    let Ok(Mapped { outer, .. }) = run.events[0] else { panic!("{:?}", run.events) };
    assert!(outer.port() >= 0x8000 && run.router.ports.contains_key(&outer.port()));
    run.end();
    assert!(run.router.ports.is_empty());
    let mut run = Run::new(taken(3));
    run.pass(Duration::from_secs(3));
    assert_eq!(run.events, [Err(Unmapped::Denied(Upnp, Denied::Code(718)))]);
}

#[test]
fn a_port_without_an_end_is_not_taken() {
    let mut run = Run::new(Router { faults: vec![725], ..Router::new(&[Upnp]) });
    run.pass(Duration::from_secs(3));
    assert_eq!(run.events, [Err(Unmapped::Permanent)]);
}

#[test]
fn what_may_still_be_granted_is_given_back() {
    let mut run = Run::new(Router::new(&[]));
    run.mapper.end(run.now);
    let (door, bytes) = run.mapper.poll_datagram().unwrap();
    assert_eq!((door, &bytes[..8]), (Door::Mapping, &[2, 1, 0, 0, 0, 0, 0, 0][..]), "a lease of 0");
    run.pass(Duration::from_secs(1));
    assert!(run.mapper.is_over() && run.events.is_empty());
    // Nothing was asked that would have to be given back.
    let mut run = Run::new(Router::new(&[]));
    run.pass(Duration::from_secs(2));
    run.end();
    assert!(run.mapper.is_over());
}

#[test]
fn answers_of_others_and_to_others_are_ignored() {
    let mut run = Run::new(Router::new(&[]));
    let now = run.now;
    let mut answer = pcp::request((*OWN.ip(), OWN.port()), &[9; 12], 600, None);
    answer[1] |= 0x80;
    run.mapper.handle_datagram(now, Door::Mapping, &answer);
    for other in [&b""[..], b"\x02", b"\x02\x81", b"\x03\x81\0\0", &[2; 2_000]] {
        run.mapper.handle_datagram(now, Door::Mapping, other);
        run.mapper.handle_datagram(now, Door::Search, other);
    }
    run.mapper.handle_response(now, 0, Some(b"HTTP/1.1 200 OK\r\n\r\n"));
    run.mapper.handle_response(now, 7, None);
    run.settle();
    assert!(run.events.is_empty());
    assert!(matches!(run.mapper.step, Some(Step::Pcp(_))));
}

#[test]
fn a_router_that_refuses_is_quoted() {
    let mut run = Run::new(Router::new(&[]));
    let mut answer = pcp::request((*OWN.ip(), OWN.port()), &run.mapper.nonce, 600, None);
    answer[1] |= 0x80;
    answer[3] = 2;
    run.mapper.handle_datagram(run.now, Door::Mapping, &answer);
    run.pass(Duration::from_secs(3));
    assert_eq!(run.events, [Err(Unmapped::Denied(Pcp, Denied::NotAuthorized))]);
    let error = run.events[0].unwrap_err().to_string();
    assert_eq!(error, "the router refuses by PCP: its settings do not permit it");
}
