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
                    ServerEvent::LinkSecret { .. }
                    | ServerEvent::Preview { .. }
                    | ServerEvent::Failed(_) => {}
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
    news: Vec<News>,
    /// The request that has arrived at the service.
    asked: Vec<u8>,
    stream: Option<StreamKey>,
}

impl Rig {
    fn new(token: &'static str) -> Self {
        let now = Instant::now();
        let visitor = Visitor {
            name: "guest",
            secret: LOGIN,
            is_code: false,
            service: "home/web",
            token: SECRET,
            seed: [1; 32],
        };
        let mut visit = Visit::new(&visitor).unwrap();
        visit.dial(now, 1);
        let (server, client) = (Far::new(LOGIN, now), Far::new(token, now));
        let (relay, stream) = (None, None);
        let (news, asked, is_cut) = (Vec::new(), Vec::new(), false);
        Self { now, visit, server, client, relay, is_cut, news, asked, stream }
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
                let bytes = self.client.says(self.now);
                moved |= !bytes.is_empty();
                send(&mut self.server.link, key, &bytes);
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
