//! A visit against a server and a client with a service that are played here, in virtual time.

#![allow(clippy::disallowed_methods, reason = "a test begins now, and counts from there")]
#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a player looks at its own events alone")]

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use browser::{Body, News, Path, Request, State, Visit, Visitor};
use bytes::{Bytes, BytesMut};
use proto::control::{ControlDecoder, ControlMessage};
use proto::greeting::{
    Binding, Features, ServerAccepted, ServerEvent, ServerGreeting, ServerSetup, Terms, Token,
    Versions,
};
use proto::{
    Attach, CarrierNumber, Event, HEAD_ROOM, Instant, Link, LinkConfig, LinkId, ResetCode, Side,
    StreamKey, Target, Unlimited,
};
use punch::{Body as Said, Decline, Described, Signal};
use sha2::{Digest as _, Sha256};

const LOGIN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";
const SECRET: &str = "Z0aKc9RtYv4WnPs8DfGh3JeUiq7Xb2LmQpWdVrTnBkE";

/// A carrier that joins a link.
struct Join {
    greeting: Option<ServerGreeting>,
    input: BytesMut,
    number: CarrierNumber,
}

/// The server's side of a link.
struct Far {
    greeting: Option<ServerGreeting>,
    token: &'static str,
    input: BytesMut,
    accepted: Option<ServerAccepted>,
    has_refused: bool,
    /// A further carrier.
    direct: Option<Join>,
    link: Link,
    out: VecDeque<Bytes>,
    events: VecDeque<Event>,
}

impl Far {
    fn setup(binding: Binding) -> ServerSetup {
        ServerSetup {
            binding,
            certificate_name: None,
            introductions: false,
            links_suffice: false,
            versions: Versions::OURS,
            features: Features::OURS,
            nonce: [3; 32],
        }
    }

    fn new(token: &'static str, now: Instant) -> Self {
        let setup = Self::setup(Binding::None);
        let link = Link::new(Side::Server, LinkConfig::default(), Rc::new(Unlimited), now);
        Self {
            greeting: Some(ServerGreeting::new(setup)),
            token,
            input: BytesMut::new(),
            accepted: None,
            has_refused: false,
            direct: None,
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
                    ServerEvent::Decide(_) => self.accepted = greeting.accept(&TERMS),
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

    /// Bytes of the further carrier, and those for it.
    fn converse(&mut self, now: Instant, bytes: &[u8]) -> Vec<u8> {
        let Some(join) = &mut self.direct else { return Vec::new() };
        join.input.extend_from_slice(bytes);
        if let Some(greeting) = &mut join.greeting {
            greeting.handle_input(&mut join.input);
            let mut has_accepted = false;
            while let Some(event) = greeting.poll_event() {
                match event {
                    ServerEvent::Credentials { .. } => {
                        greeting.credentials(&[Token::new(self.token).unwrap().stored()]);
                    }
                    ServerEvent::LinkSecret { .. } => {
                        let accepted = self.accepted.as_ref().unwrap();
                        greeting.link_secret(accepted.secret.clone());
                    }
                    ServerEvent::Decide(_) => {
                        join.number = greeting.accept(&TERMS).unwrap().carrier;
                        has_accepted = true;
                    }
                    ServerEvent::Failed(_) => self.has_refused = true,
                    ServerEvent::Preview { .. } => {}
                }
            }
            let said: Vec<_> = std::iter::from_fn(|| greeting.poll_output()).flatten().collect();
            if !has_accepted {
                return said;
            }
            join.greeting = None;
            self.link.attach(now, join.number, Attach::Replaces(CarrierNumber(1)));
            return said;
        }
        while let Some(event) = self.link.handle_input(now, join.number, &mut join.input).unwrap() {
            self.events.push_back(event);
        }
        let mut out = VecDeque::new();
        while self.link.poll_transmit(now, join.number, &mut out) > 0 {}
        out.drain(..).flatten().collect()
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

const TERMS: Terms = Terms {
    new_link: LinkId([7; 16]),
    resume_timeout: Duration::from_secs(60),
    keepalive: Duration::from_secs(15),
};

fn visit(now: Instant) -> Visit {
    let visitor = Visitor {
        name: "guest",
        secret: LOGIN,
        is_code: false,
        service: "home/web",
        token: SECRET,
        seed: [1; 32],
    };
    Visit::new(now, &visitor).unwrap()
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
    /// What the visit has said over the data channel.
    direct: Vec<u8>,
    /// The signals that have come to the client.
    signals: Vec<Bytes>,
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
        let mut visit = visit(now);
        visit.dial(now, 1);
        let (server, client) = (Far::new(LOGIN, now), Far::new(token, now));
        let (relay, stream) = (None, None);
        let (news, asked, streams) = (Vec::new(), Vec::new(), Vec::new());
        let (is_cut, stops, said) = (false, false, BytesMut::new());
        let (direct, signals) = (Vec::new(), Vec::new());
        Self {
            now,
            visit,
            server,
            client,
            relay,
            is_cut,
            stops,
            news,
            direct,
            signals,
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
                    News::Send(0, bytes) => self.direct.extend_from_slice(&bytes),
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
            if self.client.direct.is_some() {
                let heard = std::mem::take(&mut self.direct);
                let said = self.client.converse(self.now, &heard);
                moved |= !said.is_empty();
                self.visit.handle(self.now, 0, &said);
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
            Event::Control(mut bytes) => {
                let message = ControlDecoder::new().decode(&mut bytes).unwrap();
                let Some(ControlMessage::Signal(signal)) = message else { panic!("{message:?}") };
                self.signals.push(signal);
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

const LIVE: State = State::Live(Path::Relay);

const GET: Request<'_> =
    Request { method: "GET", target: "/", host: "a", fields: "", body: Body::None };

#[test]
fn a_request_that_waits_for_the_link_is_answered_over_both_links() {
    let mut rig = Rig::new(SECRET);
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.until(&LIVE);
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
            rig.until(&LIVE);
            assert_ne!(rig.relay, Some(first), "it was tried again");
        }
    }
}

#[test]
fn a_client_that_falls_silent_is_told_and_a_response_that_is_cut_off_is_none() {
    let mut rig = Rig::new(SECRET);
    rig.until(&LIVE);
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
    rig.until(&LIVE);
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
    rig.until(&LIVE);
    rig.is_cut = true;
    rig.server.link.stop(rig.relay.unwrap(), ResetCode::Shutdown);
    rig.relay = None;
    rig.until(&State::Silent);
    rig.is_cut = false;
    rig.client = Far::new(SECRET, rig.now);
    rig.news.clear();
    rig.until(&LIVE);
}

#[test]
fn a_server_and_a_client_that_say_nothing_are_told() {
    let mut rig = Rig::new(SECRET);
    let now = rig.now;
    rig.visit = visit(now);
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
    rig.until(&LIVE);
    // GOAWAY 2, which only a client that misbehaves says to a visitor that goes on.
    rig.client.out.push_back(Bytes::from_static(&[11, 0, 0, 2, 0, 0, 0, 0, 0, 2]));
    rig.until(&State::Silent);
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.client = Far::new(SECRET, rig.now);
    rig.news.clear();
    rig.until(&LIVE);
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    send(&mut rig.client.link, rig.stream.unwrap(), answer);
    rig.run();
    assert_eq!(rig.news.last(), Some(&News::End(number)));
}

#[test]
fn a_body_that_is_longer_or_shorter_than_it_says_or_does_not_wait_is_not_sent() {
    let mut rig = Rig::new(SECRET);
    rig.until(&LIVE);
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
    rig.until(&LIVE);
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
    rig.until(&LIVE);
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
    // A stream alone gets 256 KiB before its bytes were taken; all of them have a quarter of 32
    // MiB, and 16 KiB each.
    assert!(waits > 4 << 20, "the test sends too little: {waits}");
    assert!(waits <= (8 << 20) + 60 * (16 << 10), "{waits} bytes wait");
}

#[test]
fn an_upload_goes_on_when_its_bytes_have_left_and_before_the_service_says_anything() {
    for is_direct in [false, true] {
        let mut rig = Rig::new(SECRET);
        rig.until(&LIVE);
        if is_direct {
            rig.go_direct([1, 2]);
        }
        let request = Request { method: "POST", body: Body::Length(1 << 20), ..GET };
        let number = rig.visit.ask(rig.now, &request).unwrap();
        rig.run();
        while rig.visit.body(rig.now, number, &[0; 16 << 10]) {}
        let news: Vec<_> = std::iter::from_fn(|| rig.visit.poll(rig.now)).collect();
        assert!(news.contains(&News::Room(number)), "direct: {is_direct}");
    }
}

#[test]
fn the_next_piece_of_a_body_is_asked_for_once() {
    let mut rig = Rig::new(SECRET);
    rig.until(&LIVE);
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

/// A session description with a certificate of this hash.
fn description(byte: u8) -> String {
    let digits = vec![format!("{byte:02X}"); 32].join(":");
    format!("v=0\r\na=fingerprint:sha-256 {digits}\r\n")
}

impl Rig {
    /// The link lives through the server, and the page offers a data channel.
    fn offer(&mut self) -> u32 {
        self.until(&LIVE);
        self.run();
        assert!(self.news.contains(&News::Seek(Vec::new())), "{:?}", self.news);
        self.visit.offer(self.now, &description(1));
        self.run();
        let Signal { round, body } = Signal::decode(&self.signals.pop().unwrap()).unwrap();
        assert_eq!(body, Said::Description(Described::Offer, description(1)));
        round
    }

    fn signal(&mut self, round: u32, body: Said) {
        let signal = ControlMessage::Signal(Signal { round, body }.encode().into());
        assert!(self.client.link.send_control(&signal.encode().unwrap()));
        self.run();
    }

    /// The link moves to a data channel whose certificates the client sees as these.
    fn go_direct(&mut self, bound: [u8; 2]) {
        let round = self.offer();
        self.signal(round, Said::Description(Described::Answer, description(2)));
        assert!(self.news.contains(&News::Answer(description(2))), "{:?}", self.news);
        let binding = Sha256::digest([[bound[0]; 32], [bound[1]; 32]].concat()).into();
        let greeting = Some(ServerGreeting::new(Far::setup(Binding::Exporter(binding))));
        let (input, number) = (BytesMut::new(), CarrierNumber(0));
        self.client.direct = Some(Join { greeting, input, number });
        self.visit.dial(self.now, 0);
        self.run();
    }
}

#[test]
fn a_response_goes_on_over_a_data_channel_and_needs_no_server_then() {
    let mut rig = Rig::new(SECRET);
    rig.until(&LIVE);
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.run();
    let stream = rig.stream.unwrap();
    send(&mut rig.client.link, stream, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    rig.run();
    rig.go_direct([1, 2]);
    assert!(rig.news.contains(&News::State(State::Live(Path::Direct))), "{:?}", rig.news);
    rig.news.clear();
    // The server is gone.
    rig.is_cut = true;
    rig.visit.lost(rig.now, 1);
    send(&mut rig.client.link, stream, b"again");
    rig.run();
    let body = News::Body(number, Bytes::from_static(b"again"));
    assert_eq!(rig.news, [body, News::End(number)], "and no word of the server");
    // And so is the channel.
    rig.client.direct = None;
    rig.visit.lost(rig.now, 0);
    rig.run();
    assert!(rig.news.contains(&News::State(State::Offline)), "{:?}", rig.news);
    assert!(rig.news.contains(&News::Close(0)));
}

#[test]
fn the_link_returns_to_the_server_when_the_channel_is_lost_and_seeks_again_later() {
    let mut rig = Rig::new(SECRET);
    rig.go_direct([1, 2]);
    rig.run();
    let first = rig.relay.take();
    rig.news.clear();
    rig.client.direct = None;
    rig.visit.lost(rig.now, 0);
    rig.run();
    assert!(rig.relay.is_some() && rig.relay != first, "a relayed carrier is dialled at once");
    assert!(!rig.news.contains(&News::State(State::Offline)), "{:?}", rig.news);
}

#[test]
fn a_channel_that_falls_silent_has_a_relayed_carrier_beside_it_after_three_seconds() {
    let mut rig = Rig::new(SECRET);
    rig.go_direct([1, 2]);
    let first = rig.relay.take();
    rig.client.direct = None;
    // Of a client that does not answer there either.
    rig.is_cut = true;
    rig.visit.ask(rig.now, &GET).unwrap();
    rig.news.clear();
    let began = rig.now;
    let seconds = |rig: &Rig| rig.now.duration_since(began).as_secs();
    let pass = |rig: &mut Rig| {
        rig.now = rig.visit.poll_timeout().unwrap().max(rig.now);
        rig.visit.handle_timeout(rig.now);
        rig.run();
    };
    while rig.relay.is_none() {
        pass(&mut rig);
    }
    assert!(rig.relay != first && seconds(&rig) <= 3, "{} s", seconds(&rig));
    while !rig.news.contains(&News::State(State::Silent)) {
        pass(&mut rig);
    }
    assert!(seconds(&rig) <= 5, "{} s", seconds(&rig));
    // The client is back, and knows the link no more.
    let relay = rig.relay.take().unwrap();
    rig.server.link.refuse(relay, ResetCode::Unreachable);
    rig.client = Far::new(SECRET, rig.now);
    rig.is_cut = false;
    let began = rig.now;
    let seconds = |rig: &Rig| rig.now.duration_since(began).as_secs();
    rig.news.clear();
    rig.until(&LIVE);
    assert!(seconds(&rig) <= 6, "{} s", seconds(&rig));
}

#[test]
fn a_channel_whose_certificates_were_exchanged_on_the_way_is_no_carrier() {
    let mut rig = Rig::new(SECRET);
    rig.go_direct([3, 2]);
    assert!(rig.client.has_refused, "the proof is over other certificates");
    rig.client.direct = None;
    rig.run();
    assert!(!rig.news.contains(&News::State(State::Live(Path::Direct))), "{:?}", rig.news);
    assert!(rig.news.contains(&News::Close(0)));
    // The visit goes on as it was.
    let number = rig.visit.ask(rig.now, &GET).unwrap();
    rig.run();
    send(&mut rig.client.link, rig.stream.unwrap(), b"HTTP/1.1 204 No Content\r\n\r\n");
    rig.run();
    assert_eq!(rig.news.last(), Some(&News::End(number)), "{:?}", rig.news);
}

#[test]
fn an_attempt_that_is_declined_or_silent_leaves_the_visit_as_it_is() {
    for (why, again) in
        [(Decline::Unable, true), (Decline::Relay, false), (Decline::Without, false)]
    {
        let mut rig = Rig::new(SECRET);
        let round = rig.offer();
        rig.signal(round, Said::Decline(why));
        rig.news.clear();
        for _ in 0..100 {
            let Some(next) = rig.visit.poll_timeout() else { break };
            rig.now = next.max(rig.now);
            rig.visit.handle_timeout(rig.now);
            rig.run();
        }
        assert_eq!(rig.news.contains(&News::Seek(Vec::new())), again, "{why:?}");
        assert!(!rig.news.iter().any(|news| matches!(news, News::State(_))), "{:?}", rig.news);
    }
    let mut rig = Rig::new(SECRET);
    rig.offer();
    rig.news.clear();
    let began = rig.now;
    while !rig.news.contains(&News::Close(0)) {
        rig.now = rig.visit.poll_timeout().unwrap().max(rig.now);
        rig.visit.handle_timeout(rig.now);
        rig.run();
    }
    assert!(rig.now.duration_since(began) <= Duration::from_secs(26));
    // A channel that opens all the same has no greeting that anybody waits for.
    rig.visit.dial(rig.now, 0);
    rig.run();
    assert!(rig.direct.is_empty());
}
