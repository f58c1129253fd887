//! NAT detection: queries to STUN servers, independent of any attempt.
//!
//! | query | socket | a response shows that |
//! |---|---|---|
//! | Binding request | main | UDP passes; two responses show the mapping |
//! | response from the other port | fresh, never sent to that port | nothing is filtered |
//! | response from the other port | main, sent to that port before | the server supports it |
//!
//! The third query distinguishes a filter from a server without another port. The second query
//! needs a separate socket: if the main socket has sent to the other port, the filter admits the
//! response, and if it has not yet sent, the unsolicited datagram makes some NATs choose another
//! port afterwards.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::attempt::{PACE, QUERIES};
use crate::nat::{Filtering, Mapping, Nat, Udp};
use crate::stun::{self, Id};

/// The timeouts of each transmission of a query; the last timeout ends the query. With all queries,
/// each [`PACE`] after the previous one, an inquiry is over within 2.4 s.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_millis(1_000)];

/// The socket of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// The socket whose external address is queried.
    Main,
    /// A socket that sends to only one port of a server.
    Fresh,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The socket.
    pub from: Port,
    /// The server.
    pub to: SocketAddr,
    /// The content.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Question {
    from: Port,
    server: SocketAddr,
    /// Whether the response must come from the other port of the server.
    elsewhere: bool,
    id: Id,
    sent: usize,
    next: Option<Instant>,
    seen: Option<SocketAddr>,
}

/// Queries to STUN servers with their responses.
///
/// The owner calls [`Self::handle_timeout`] at the time of [`Self::poll_timeout`], sends the
/// datagrams of [`Self::poll_asked`], and passes in datagrams that arrive at either socket.
#[derive(Debug)]
pub struct Inquiry {
    questions: Vec<Question>,
    asked: VecDeque<Asked>,
}

impl Inquiry {
    /// Queries these servers, at most [`QUERIES`] of them. Queries for a response from the other
    /// port go to the first server of each address family, if there is a fresh socket.
    pub fn new(
        now: Instant,
        servers: &[SocketAddr],
        has_fresh: bool,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Self {
        let servers = &servers[..servers.len().min(QUERIES)];
        let first = |is_v4| servers.iter().find(move |server| server.is_ipv4() == is_v4);
        let firsts: Vec<_> = [true, false].into_iter().filter_map(first).copied().collect();
        let changed = if has_fresh { &firsts[..] } else { &[] };
        let plain = servers.iter().map(|server| (Port::Main, *server, false));
        // The main socket sends last: it must have sent to the other port.
        let elsewhere = [Port::Fresh, Port::Main];
        let elsewhere =
            elsewhere.into_iter().flat_map(|from| changed.iter().map(move |to| (from, *to, true)));
        let mut begins = now;
        let questions = plain.chain(elsewhere).map(|(from, server, elsewhere)| {
            let mut id = Id::default();
            random(&mut id);
            let next = Some(begins);
            begins += PACE;
            Question { from, server, elsewhere, id, sent: 0, next, seen: None }
        });
        Self { questions: questions.collect(), asked: VecDeque::new() }
    }

    /// The time at which [`Self::handle_timeout`] is due; `None` if no query is pending.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.questions.iter().filter_map(|question| question.next).min()
    }

    /// Sends the queries that are due.
    pub fn handle_timeout(&mut self, now: Instant) {
        for question in &mut self.questions {
            if question.next.is_none_or(|due| due > now) {
                continue;
            }
            question.next = PAUSES.get(question.sent).map(|pause| now + *pause);
            question.sent += 1;
            if question.next.is_some() {
                let bytes = if question.elsewhere {
                    stun::request_from_other_port(question.id).to_vec()
                } else {
                    stun::request(question.id).to_vec()
                };
                self.asked.push_back(Asked { from: question.from, to: question.server, bytes });
            }
        }
    }

    /// The next datagram to send.
    pub fn poll_asked(&mut self) -> Option<Asked> {
        self.asked.pop_front()
    }

    /// Handles a datagram that arrived at a socket. Everything but a response to a query of that
    /// socket is ignored.
    pub fn handle_datagram(&mut self, at: Port, from: SocketAddr, datagram: &[u8]) {
        let Some((id, seen)) = stun::answered(datagram) else { return };
        let question = self.questions.iter_mut().find(|question| {
            let is_from = if question.elsewhere {
                question.server.ip() == from.ip() && question.server != from
            } else {
                question.server == from
            };
            question.id == id && question.from == at && is_from
        });
        if let Some(question) = question {
            question.next = None;
            question.seen = Some(seen);
        }
    }

    /// The servers, each with the mapped address that it reported for the main socket.
    pub fn answers(&self) -> impl Iterator<Item = (SocketAddr, Option<SocketAddr>)> + '_ {
        let plain = self.questions.iter().filter(|question| !question.elsewhere);
        plain.map(|question| (question.server, question.seen))
    }

    /// The NAT behaviour according to the responses of one address family; `None` if no server of
    /// that family was queried. `own` identifies addresses of this machine.
    #[must_use]
    pub fn nat(&self, is_ipv4: bool, own: impl Fn(SocketAddr) -> bool) -> Option<Nat> {
        let of_family = |server: &SocketAddr| server.is_ipv4() == is_ipv4;
        self.answers().find(|(server, _)| of_family(server))?;
        let answers: Vec<_> = self
            .answers()
            .filter(|(server, _)| of_family(server))
            .filter_map(|(server, seen)| Some((server, seen?)))
            .collect();
        let has_answer_at = |port| {
            self.questions.iter().any(|question| {
                let is_it = question.elsewhere && question.from == port;
                is_it && of_family(&question.server) && question.seen.is_some()
            })
        };
        let filtering = match (has_answer_at(Port::Fresh), has_answer_at(Port::Main)) {
            (true, _) => Filtering::Open,
            (false, true) => Filtering::AddressAndPort,
            (false, false) => Filtering::Unknown,
        };
        let udp = if answers.is_empty() { Udp::Blocked } else { Udp::Passes };
        Some(Nat { udp, mapping: Mapping::of(&answers, own), filtering })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::testing::epoch;

    const SERVER: &str = "198.51.100.1";
    const OUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));

    /// A NAT in front of a server with two ports.
    struct World {
        mapping: Mapping,
        filtering: Filtering,
        /// Whether the server answers from its other port.
        changes: bool,
        sent: HashMap<Port, Vec<u16>>,
    }

    impl World {
        fn new(mapping: Mapping, filtering: Filtering) -> Self {
            Self { mapping, filtering, changes: true, sent: HashMap::new() }
        }

        fn outer(&self, from: Port, to: u16) -> SocketAddr {
            let base = if from == Port::Main { 4_000 } else { 5_000 };
            let moves = self.mapping == Mapping::PerDestination;
            SocketAddr::new(OUTER, if moves { base + to % 100 } else { base })
        }

        /// The source of the response, with its bytes; `None`: the response does not arrive.
        fn answer(&mut self, asked: &Asked) -> Option<(SocketAddr, Vec<u8>)> {
            self.sent.entry(asked.from).or_default().push(asked.to.port());
            let seen = self.outer(asked.from, asked.to.port());
            let answer = stun::answer(&asked.bytes, seen)?;
            let mut from = asked.to;
            if answer.from_other_port {
                from.set_port(if from.port() == 7_000 { 3_478 } else { return None });
                let has_sent = self.sent[&asked.from].contains(&from.port());
                let arrives = self.outer(asked.from, from.port()) == seen;
                let is_admitted = self.filtering == Filtering::Open || has_sent && arrives;
                if !self.changes || !is_admitted {
                    return None;
                }
            }
            Some((from, answer.bytes().to_vec()))
        }
    }

    fn servers() -> Vec<SocketAddr> {
        [7_000, 3_478].map(|port| SocketAddr::new(SERVER.parse().unwrap(), port)).into()
    }

    fn run(mut answer: impl FnMut(&Asked) -> Option<(SocketAddr, Vec<u8>)>) -> (Inquiry, Duration) {
        let (mut now, mut number) = (epoch(), 0);
        let begin = now;
        let mut random = |bytes: &mut [u8]| {
            number += 1;
            bytes.fill(number);
        };
        let mut inquiry = Inquiry::new(now, &servers(), true, &mut random);
        while let Some(due) = inquiry.poll_timeout() {
            now = due;
            inquiry.handle_timeout(now);
            while let Some(asked) = inquiry.poll_asked() {
                if let Some((from, bytes)) = answer(&asked) {
                    inquiry.handle_datagram(asked.from, from, &bytes);
                }
            }
        }
        (inquiry, now - begin)
    }

    fn found(mut world: World) -> Nat {
        let (inquiry, took) = run(|asked| world.answer(asked));
        assert!(took < Duration::from_millis(2_400), "{took:?}");
        assert!(inquiry.nat(false, |_| false).is_none(), "nobody was asked over IPv6");
        inquiry.nat(true, |_| false).unwrap()
    }

    #[test]
    fn each_nat_is_told_by_the_answers() {
        use Filtering::{AddressAndPort, Open, Unknown};
        for (mapping, filtering, expected) in [
            (Mapping::Same, AddressAndPort, AddressAndPort),
            (Mapping::Same, Open, Open),
            (Mapping::PerDestination, Open, Open),
            // The response from the other port is sent to a port that does not admit it.
            (Mapping::PerDestination, AddressAndPort, Unknown),
        ] {
            let nat = found(World::new(mapping, filtering));
            let expected = Nat { udp: Udp::Passes, mapping, filtering: expected };
            assert_eq!(nat, expected, "{mapping:?} {filtering:?}");
        }
    }

    #[test]
    fn a_server_without_another_port_tells_no_filter() {
        let nat =
            found(World { changes: false, ..World::new(Mapping::Same, Filtering::AddressAndPort) });
        assert_eq!((nat.mapping, nat.filtering), (Mapping::Same, Filtering::Unknown));
    }

    #[test]
    fn the_fresh_socket_sends_to_one_port_and_no_socket_sends_without_a_pause() {
        let mut all = Vec::new();
        let (inquiry, _) = run(|asked| {
            all.push((asked.from, asked.to.port()));
            None
        });
        assert!(all.iter().all(|one| *one != (Port::Fresh, 3_478)), "{all:?}");
        assert_eq!(all.len(), 4 * (PAUSES.len()), "four questions, each as often");
        let nat = inquiry.nat(true, |_| false).unwrap();
        assert_eq!(nat, Nat { udp: Udp::Blocked, ..Nat::default() });
    }

    #[test]
    fn an_answer_counts_from_its_server_and_at_its_socket_only() {
        let mut world = World::new(Mapping::Same, Filtering::Open);
        let (inquiry, _) = run(|asked| {
            let (from, bytes) = world.answer(asked)?;
            Some((SocketAddr::new("192.0.2.66".parse().unwrap(), from.port()), bytes))
        });
        assert!(inquiry.answers().all(|(_, seen)| seen.is_none()));
        let mut inquiry = Inquiry::new(epoch(), &servers(), true, &mut |_| {});
        let answer = stun::answer(&stun::request([0; 12]), servers()[0]).unwrap();
        inquiry.handle_datagram(Port::Fresh, servers()[0], answer.bytes());
        assert!(inquiry.answers().all(|(_, seen)| seen.is_none()));
    }
}
