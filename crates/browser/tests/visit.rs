//! A visit against a server and a client with a service that are played here, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a player looks at its own events alone")]

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use browser::{Body, News, Request, State, Visit, Visitor};
use bytes::{Bytes, BytesMut};
use proto::greeting::{
    Binding, Features, ServerAccepted, ServerEvent, ServerGreeting, ServerSetup, Terms, Token,
    Versions,
};
use proto::{
    Attach, Event, HEAD_ROOM, Instant, Link, LinkConfig, LinkId, ResetCode, Side, StreamKey,
    Target, Unlimited,
};

const LOGIN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";
const SECRET: &str = "Z0aKc9RtYv4WnPs8DfGh3JeUiq7Xb2LmQpWdVrTnBkE";

/// The server's side of a link with one carrier.
struct Far {
    greeting: Option<ServerGreeting>,
    token: &'static str,
    input: BytesMut,
    accepted: Option<ServerAccepted>,
    has_refused: bool,
    link: Link,
    out: VecDeque<Bytes>,
    events: VecDeque<Event>,
}

impl Far {
    fn new(token: &'static str, now: Instant) -> Self {
        let setup = ServerSetup {
            binding: Binding::None,
            certificate_name: None,
            introductions: false,
            links_suffice: false,
            versions: Versions::OURS,
            features: Features::OURS,
            nonce: [3; 32],
        };
        let link = Link::new(Side::Server, LinkConfig::default(), Rc::new(Unlimited), now);
        Self {
            greeting: Some(ServerGreeting::new(setup)),
            token,
            input: BytesMut::new(),
            accepted: None,
            has_refused: false,
            link,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    fn hear(&mut self, now: Instant, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if let Some(greeting) = &mut self.greeting {
            greeting.handle_input(&mut self.input);
            while let Some(event) = greeting.poll_event() {
                match event {
                    ServerEvent::Credentials { .. } => {
                        greeting.credentials(&[Token::new(self.token).unwrap().stored()]);
                    }
                    ServerEvent::Decide(_) => {
                        let seconds = Duration::from_secs;
                        let terms = Terms {
                            new_link: LinkId([7; 16]),
                            resume_timeout: seconds(60),
                            keepalive: seconds(15),
                        };
                        self.accepted = greeting.accept(&terms);
                    }
                    ServerEvent::Failed(_) => self.has_refused = true,
                    // It knows no link.
                    ServerEvent::LinkSecret { .. } => greeting.link_secret(None),
                    ServerEvent::Preview { .. } => {}
                }
            }
            self.out.extend(greeting.poll_output());
            let Some(accepted) = &self.accepted else { return };
            self.link.attach(now, accepted.carrier, Attach::New);
            self.greeting = None;
        }
        let number = self.accepted.as_ref().unwrap().carrier;
        while let Some(event) = self.link.handle_input(now, number, &mut self.input).unwrap() {
            self.events.push_back(event);
        }
    }

    /// Bytes for the visitor.
    fn says(&mut self, now: Instant) -> Vec<u8> {
        if let Some(greeting) = &mut self.greeting {
            self.out.extend(greeting.poll_output());
        } else if let Some(accepted) = &self.accepted {
            while self.link.poll_transmit(now, accepted.carrier, &mut self.out) > 0 {}
        }
        self.out.drain(..).flatten().collect()
    }
}

fn visit() -> Visit {
    let visitor = Visitor {
        name: "guest",
        secret: LOGIN,
        is_code: false,
        service: "home/web",
        token: SECRET,
        seed: [1; 32],
    };
    Visit::new(&visitor).unwrap()
}

/// A visit, the server, and the client with the service behind it.
struct Rig {
    now: Instant,
    visit: Visit,
    server: Far,
    client: Far,
    /// The stream of the server that carries the inner link.
    relay: Option<StreamKey>,
    /// The server passes nothing on.
    is_cut: bool,
    /// The server ends the stream of a visit that is refused at once.
    stops: bool,
    news: Vec<News>,
    /// What the client has said and the stream has no room for.
    said: BytesMut,
    /// The requests that have arrived at the service.
    asked: Vec<u8>,
    stream: Option<StreamKey>,
    streams: Vec<StreamKey>,
}

impl Rig {
    fn new(token: &'static str) -> Self {
        let now = Instant::now();
        let mut visit = visit();
        visit.dial(now, 1);
        let (server, client) = (Far::new(LOGIN, now), Far::new(token, now));
        let (relay, stream) = (None, None);
        let (news, asked, streams) = (Vec::new(), Vec::new(), Vec::new());
        let (is_cut, stops, said) = (false, false, BytesMut::new());
        Self {
            now,
            visit,
            server,
            client,
            relay,
            is_cut,
            stops,
            news,
            said,
            asked,
            stream,
            streams,
        }
    }

    /// Passes on what there is until nothing moves.
    fn run(&mut self) {
        loop {
            let mut moved = false;
            while let Some(news) = self.visit.poll(self.now) {
                moved = true;
                match news {
                    News::Send(1, bytes) => self.server.hear(self.now, &bytes),
                    other => self.news.push(other),
                }
            }
            while let Some(event) = self.server.events.pop_front() {
                self.at_server(event);
            }
            if let Some(key) = self.relay
                && !self.is_cut
            {
                self.said.extend_from_slice(&self.client.says(self.now));
                let size = self.server.link.room(key).min(self.said.len());
                moved |= size > 0;
                send(&mut self.server.link, key, &self.said.split_to(size));
                if self.stops && self.client.has_refused {
                    self.server.link.stop(key, ResetCode::Aborted);
                    self.server.link.finish(key);
                    self.relay = None;
                }
            }
            while let Some(event) = self.client.events.pop_front() {
                self.at_client(event);
            }
            let bytes = self.server.says(self.now);
            if !bytes.is_empty() {
                moved = true;
                self.visit.handle(self.now, 1, &bytes);
            }
            if !moved {
                return;
            }
        }
    }

    fn at_server(&mut self, event: Event) {
        match event {
            Event::Opened { key, open } => {
                assert!(matches!(open.target, Target::Private { .. }));
                self.said.clear();
                if self.client.has_refused {
                    self.client = Far::new(self.client.token, self.now);
                }
                self.relay = Some(key);
            }
            Event::Data { key, bytes } => {
                self.server.link.consume(self.now, key, bytes.len());
                if !self.is_cut {
                    self.client.hear(self.now, &bytes);
                }
            }
            _ => {}
        }
    }

    fn at_client(&mut self, event: Event) {
        match event {
            Event::Opened { key, open } => {
                assert_eq!(open.target, Target::Service("web".into()));
                self.stream = Some(key);
                self.streams.push(key);
            }
            Event::Data { key, bytes } => {
                self.client.link.consume(self.now, key, bytes.len());
                self.asked.extend_from_slice(&bytes);
            }
            _ => {}
        }
    }

    /// The time passes until the visit has this state.
    fn until(&mut self, state: &State) {
        for _ in 0..1000 {
            self.run();
            if self.news.iter().any(|news| *news == News::State(state.clone())) {
                return;
            }
            let next = self.visit.poll_timeout().unwrap();
            self.now = next.max(self.now);
            self.visit.handle_timeout(self.now);
        }
        panic!("never {state:?}: {:?}", self.news);
    }
}

fn send(link: &mut Link, key: StreamKey, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    assert!(link.room(key) >= bytes.len());
    let mut frame = BytesMut::zeroed(HEAD_ROOM);
    frame.extend_from_slice(bytes);
    link.send(key, &mut frame);
}

const GET: Request<'_> =
    Request { method: "GET", target: "/", host: "a", fields: "", body: Body::None };

#[test]
fn a_request_that_waits_for_the_link_is_answered_over_both_links() {
    let mut rig = Rig::new(SECRET);
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.until(&State::Live);
    assert!(rig.asked.starts_with(b"GET / HTTP/1.1\r\nHost: a\r\n"));
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    send(&mut rig.client.link, rig.stream.unwrap(), answer);
    rig.run();
    let body = News::Body(number, Bytes::from_static(b"hello"));
    assert!(rig.news.ends_with(&[body, News::End(number)]), "{:?}", rig.news);
}

#[test]
fn neither_the_login_nor_the_token_is_among_the_bytes_that_leave() {
    let mut rig = Rig::new(SECRET);
    let mut left = Vec::new();
    for _ in 0..20 {
        while let Some(news) = rig.visit.poll(rig.now) {
            if let News::Send(_, bytes) = news {
                left.extend_from_slice(&bytes);
                rig.server.hear(rig.now, &bytes);
            }
        }
        rig.run();
    }
    for secret in [LOGIN, SECRET] {
        assert!(!left.windows(secret.len()).any(|part| part == secret.as_bytes()));
    }
}

#[test]
fn a_wrong_token_ends_the_visit_and_what_waits_for_it() {
    let mut rig = Rig::new("nBkEZ0aKc9RtYv4WnPs8DfGh3JeUiq7Xb2LmQpWdVrT");
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.until(&State::Over("token"));
    assert!(rig.news.contains(&News::Failed(number, "over")), "{:?}", rig.news);
}

#[test]
fn a_service_that_does_not_exist_ends_the_visit_and_a_client_that_is_away_does_not() {
    for (code, state) in [
        (ResetCode::Unknown, State::Over("unknown")),
        (ResetCode::Denied, State::Over("denied")),
        (ResetCode::Unreachable, State::Away),
        (ResetCode::Shutdown, State::Silent),
    ] {
        let mut rig = Rig::new(SECRET);
        rig.is_cut = true;
        rig.run();
        let first = rig.relay.unwrap();
        rig.server.link.refuse(first, code);
        rig.relay = None;
        rig.until(&state);
        if matches!(state, State::Away | State::Silent) {
            rig.is_cut = false;
            rig.client = Far::new(SECRET, rig.now);
            rig.until(&State::Live);
            assert_ne!(rig.relay, Some(first), "it was tried again");
        }
    }
}

#[test]
fn a_client_that_falls_silent_is_told_and_a_response_that_is_cut_off_is_none() {
    let mut rig = Rig::new(SECRET);
    rig.until(&State::Live);
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.run();
    let stream = rig.stream.unwrap();
    send(&mut rig.client.link, stream, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    rig.client.link.reset(stream, ResetCode::Aborted);
    rig.run();
    assert_eq!(rig.news.last(), Some(&News::Failed(number, "cut")));
    rig.is_cut = true;
    rig.news.clear();
    rig.until(&State::Silent);
}

#[test]
fn a_lost_connection_to_the_server_is_told() {
    let mut rig = Rig::new(SECRET);
    rig.until(&State::Live);
    rig.visit.lost(rig.now, 1);
    rig.run();
    assert!(rig.news.contains(&News::State(State::Offline)), "{:?}", rig.news);
}

#[test]
fn the_reason_of_a_refusal_is_heard_although_a_stop_overtakes_it() {
    let mut rig = Rig::new("nBkEZ0aKc9RtYv4WnPs8DfGh3JeUiq7Xb2LmQpWdVrT");
    rig.stops = true;
    rig.until(&State::Over("token"));
}

#[test]
fn a_stop_without_last_words_is_a_visit_that_is_tried_again() {
    let mut rig = Rig::new(SECRET);
    rig.until(&State::Live);
    rig.is_cut = true;
    rig.server.link.stop(rig.relay.unwrap(), ResetCode::Shutdown);
    rig.relay = None;
    rig.until(&State::Silent);
    rig.is_cut = false;
    rig.client = Far::new(SECRET, rig.now);
    rig.news.clear();
    rig.until(&State::Live);
}

#[test]
fn a_server_and_a_client_that_say_nothing_are_told() {
    let mut rig = Rig::new(SECRET);
    let now = rig.now;
    rig.visit = visit();
    rig.visit.dial(now, 9);
    rig.until(&State::Offline);
    assert!(rig.news.contains(&News::Close(9)), "{:?}", rig.news);
    assert!(rig.now.duration_since(now) <= Duration::from_secs(10));
    let mut rig = Rig::new(SECRET);
    let now = rig.now;
    rig.is_cut = true;
    rig.until(&State::Silent);
    assert!(rig.now.duration_since(now) <= Duration::from_secs(21));
}

#[test]
fn a_client_that_takes_no_more_streams_leaves_the_next_request_to_its_successor() {
    let mut rig = Rig::new(SECRET);
    rig.until(&State::Live);
    // GOAWAY 2, which only a client that misbehaves says to a visitor that goes on.
    rig.client.out.push_back(Bytes::from_static(&[11, 0, 0, 2, 0, 0, 0, 0, 0, 2]));
    rig.until(&State::Silent);
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.client = Far::new(SECRET, rig.now);
    rig.news.clear();
    rig.until(&State::Live);
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    send(&mut rig.client.link, rig.stream.unwrap(), answer);
    rig.run();
    assert_eq!(rig.news.last(), Some(&News::End(number)));
}

#[test]
fn a_body_that_is_longer_or_shorter_than_it_says_or_does_not_wait_is_not_sent() {
    let mut rig = Rig::new(SECRET);
    rig.until(&State::Live);
    let at = rig.now;
    let mut post = |body, work: &dyn Fn(&mut Visit, u32)| {
        let request = Request { method: "POST", body, ..GET };
        let number = rig.visit.ask(rig.now, &request).unwrap();
        rig.asked.clear();
        work(&mut rig.visit, number);
        rig.run();
        let text = String::from_utf8_lossy(&rig.asked);
        assert!(!text.contains("smuggled"), "{text:.1000}");
        rig.news.contains(&News::Failed(number, "bad"))
    };
    assert!(post(Body::Length(2), &|visit, number| {
        visit.body(at, number, b"abGET /smuggled HTTP/1.1\r\n\r\n");
    }));
    assert!(post(Body::None, &|visit, number| {
        visit.body(at, number, b"GET /smuggled HTTP/1.1\r\n\r\n");
    }));
    assert!(post(Body::Length(2), &|visit, number| visit.end_body(at, number)));
    assert!(post(Body::Unknown, &|visit, number| {
        while visit.body(at, number, &[0; 60_000]) {}
        for _ in 0..20 {
            visit.body(at, number, &[0; 60_000]);
        }
    }));
    assert!(!post(Body::Length(1), &|visit, number| {
        visit.body(at, number, b"a");
        visit.end_body(at, number);
    }));
}

#[test]
fn requests_without_end_are_bounded() {
    let mut rig = Rig::new(SECRET);
    let numbers: Vec<_> = (0..300).map(|_| rig.visit.ask(rig.now, &GET).unwrap()).collect();
    rig.until(&State::Live);
    let refused = |number: &&u32| rig.news.contains(&News::Failed(**number, "limit"));
    assert_eq!(numbers.iter().filter(refused).count(), 44);
    assert_eq!(rig.streams.len(), 256);
}

#[test]
fn what_a_service_sends_and_nobody_takes_is_bounded_over_all_requests() {
    let mut rig = Rig::new(SECRET);
    for _ in 0..60 {
        rig.visit.ask(rig.now, &GET).unwrap();
    }
    rig.until(&State::Live);
    for key in rig.streams.clone() {
        send(&mut rig.client.link, key, b"HTTP/1.1 200 OK\r\n\r\n");
    }
    let mut waits = 0;
    for _ in 0..20 {
        for key in rig.streams.clone() {
            let size = rig.client.link.room(key).min(16 << 10);
            send(&mut rig.client.link, key, &vec![0; size]);
        }
        rig.run();
        rig.now += Duration::from_millis(100);
        rig.visit.handle_timeout(rig.now);
        for news in std::mem::take(&mut rig.news) {
            if let News::Body(_, bytes) = news {
                waits += bytes.len();
            }
        }
    }
    // A stream alone gets 256 KiB before its bytes were taken; all of them have a quarter of 32 MiB,
    // and 16 KiB each.
    assert!(waits > 4 << 20, "the test sends too little: {waits}");
    assert!(waits <= (8 << 20) + 60 * (16 << 10), "{waits} bytes wait");
}

#[test]
fn the_next_piece_of_a_body_is_asked_for_once() {
    let mut rig = Rig::new(SECRET);
    rig.until(&State::Live);
    let request = Request { method: "POST", body: Body::Unknown, ..GET };
    let number = rig.visit.ask(rig.now, &request).unwrap();
    for _ in 0..20 {
        rig.news.clear();
        let goes_on = rig.visit.body(rig.now, number, &[0; 70_000]);
        rig.run();
        let rooms = rig.news.iter().filter(|news| **news == News::Room(number)).count();
        assert_eq!(usize::from(goes_on) + rooms, 1);
    }
}
