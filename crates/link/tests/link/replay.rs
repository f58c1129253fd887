//! A client's greeting, recorded as plaintext inside its TLS session, is replayed in another
//! session. It cannot be recorded on the wire, but by a terminating proxy, in a log or in a memory
//! dump.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use proto::greeting::{
    Attach, AttachMode, Binding, ClientAccepted, ClientGreeting, ClientSetup, Features, Identity,
    LinkSecret, Name, Refusal, Token, Versions,
};
use proto::{CarrierNumber, InstanceId};
use transport::{Carrier, Dialer, Lane};
use transport_tcp::TcpDialer;

use crate::rig::{Rules, Server, TOKEN, Tls, really, until, web_socket};

/// Magic and nonce, which a server sends to every client (SPEC.md).
const PREAMBLE: usize = 4 + 4 + 32;

/// A server on `tls://`, `tcp://` and `ws://`, and dialers to all.
struct Site {
    server: Server,
    sealed: Route,
    bare: Route,
    web: Route,
    _tls: Tls,
}

struct Route {
    dialer: Box<dyn Dialer>,
    port: u16,
}

impl Site {
    fn start() -> Self {
        let tls = Tls::new();
        let (sealed, port) = tls.listen();
        let (bare, bare_port) = Tls::listen_bare();
        let (web, web_dialer, web_port) = web_socket();
        let server = Server::start(vec![sealed, bare, web], Rules::default());
        let sealed = Route { dialer: Box::new((*tls.dialer()).clone()), port };
        let bare = Route { dialer: Box::new(TcpDialer::new(None)), port: bare_port };
        let web = Route { dialer: Box::new(web_dialer), port: web_port };
        Self { server, sealed, bare, web, _tls: tls }
    }

    /// What the server has from greetings: how many it accepted, its links, states of links.
    fn registered(&self) -> (usize, usize, usize) {
        let states = self.server.owner().states.borrow().len();
        (self.server.state.greeted.get(), self.server.links().len(), states)
    }

    /// Says recorded bytes over a fresh connection, and expects this answer and no trace.
    async fn replay(&self, way: &Route, recorded: &[u8], refusal: Refusal) {
        let (before, errors) = (self.registered(), self.server.state.errors.borrow().len());
        let mut carrier = way.dial().await;
        write(&mut *carrier.lane, recorded).await;
        let mut answer = BytesMut::new();
        while read(&mut *carrier.lane, &mut answer).await > 0 {}
        let [high, low] = refusal.raw().to_be_bytes();
        assert_eq!(answer[PREAMBLE..], [6, 0, 0, 2, high, low], "nothing but a refusal");
        until("its error", || self.server.state.errors.borrow().len() > errors).await;
        let last = self.server.state.errors.borrow().last().and_then(link::GreetError::refusal);
        assert_eq!(last, Some(refusal));
        assert_eq!(self.registered(), before);
    }
}

impl Route {
    async fn dial(&self) -> Carrier {
        self.dialer.dial(SocketAddr::from(([127, 0, 0, 1], self.port))).await.unwrap()
    }

    /// Logs in as an honest client does; its words, and what it got.
    async fn log_in(&self, attach: Option<(Attach, LinkSecret)>) -> Recorded {
        let mut carrier = self.dial().await;
        let setup = ClientSetup {
            binding: carrier.peer.exporter.map_or(Binding::None, Binding::Exporter),
            name: Name::new("client-1").unwrap(),
            identity: Identity::Token(Token::new(TOKEN).unwrap()),
            instance: InstanceId([7; 16]),
            takeover: true,
            attach,
            versions: Versions::OURS,
            features: Features(0),
            nonce: [9; 32],
        };
        let mut greeting = ClientGreeting::new(setup).unwrap();
        let (mut said, mut input) = (Vec::new(), BytesMut::new());
        loop {
            while let Some(output) = greeting.poll_output() {
                said.extend_from_slice(&output);
                write(&mut *carrier.lane, &output).await;
            }
            if let Some(outcome) = greeting.poll_outcome() {
                return Recorded { said, accepted: outcome.unwrap(), carrier };
            }
            assert!(read(&mut *carrier.lane, &mut input).await > 0);
            greeting.handle_input(&mut input);
        }
    }
}

struct Recorded {
    said: Vec<u8>,
    accepted: ClientAccepted,
    carrier: Carrier,
}

async fn write(lane: &mut dyn Lane, bytes: &[u8]) {
    let mut frames = VecDeque::from([Bytes::copy_from_slice(bytes)]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await.unwrap();
    }
    poll_fn(|cx| lane.poll_flush(cx)).await.unwrap();
}

async fn read(lane: &mut dyn Lane, into: &mut BytesMut) -> usize {
    into.reserve(4096);
    poll_fn(|cx| lane.poll_read(cx, into)).await.unwrap()
}

#[test]
fn a_greeting_recorded_in_one_tls_session_is_refused_in_another() {
    really(async {
        let site = Site::start();
        let first = site.sealed.log_in(None).await;
        until("its link", || site.server.links().len() == 1).await;
        site.replay(&site.sealed, &first.said, Refusal::BadCredential).await;
        // Also after the original client has disconnected.
        drop(first.carrier);
        site.server.forget();
        site.replay(&site.sealed, &first.said, Refusal::BadCredential).await;
        // The session makes the difference: the same client is admitted in its own session.
        let again = site.sealed.log_in(None).await;
        assert_ne!(again.said, first.said);
        until("a new link", || site.server.links().len() == 1).await;
    });
}

#[test]
fn a_resume_recorded_in_one_tls_session_is_refused_in_another() {
    really(async {
        let site = Site::start();
        let first = site.sealed.log_in(None).await;
        let secret = first.accepted.secret.clone().unwrap();
        let mode = AttachMode::Replaces(first.accepted.carrier);
        let attach = Attach { link: first.accepted.link, carrier: CarrierNumber(2), mode };
        let resumed = site.sealed.log_in(Some((attach, secret))).await;
        until("both greeted", || site.server.state.greeted.get() == 2).await;
        site.replay(&site.sealed, &resumed.said, Refusal::BadCredential).await;
        assert_eq!(site.server.state.refused_carriers.get(), 0, "it never came to its link");
        assert_eq!(site.server.links().len(), 1);
    });
}

#[test]
fn a_greeting_does_not_change_between_tls_and_plain_tcp() {
    really(async {
        let site = Site::start();
        let sealed = site.sealed.log_in(None).await;
        let bare = site.bare.log_in(None).await;
        until("both greeted", || site.server.state.greeted.get() == 2).await;
        site.replay(&site.bare, &sealed.said, Refusal::Binding).await;
        site.replay(&site.sealed, &bare.said, Refusal::Binding).await;
        // Without TLS the server's nonce is what is fresh.
        site.replay(&site.bare, &bare.said, Refusal::BadCredential).await;
    });
}

#[test]
fn a_greeting_recorded_over_web_socket_is_worth_nothing_anywhere() {
    really(async {
        let site = Site::start();
        let web = site.web.log_in(None).await;
        let bare = site.bare.log_in(None).await;
        let sealed = site.sealed.log_in(None).await;
        until("all greeted", || site.server.state.greeted.get() == 3).await;
        site.replay(&site.web, &web.said, Refusal::BadCredential).await;
        site.replay(&site.bare, &web.said, Refusal::BadCredential).await;
        site.replay(&site.web, &bare.said, Refusal::BadCredential).await;
        site.replay(&site.sealed, &web.said, Refusal::Binding).await;
        site.replay(&site.web, &sealed.said, Refusal::Binding).await;
    });
}
