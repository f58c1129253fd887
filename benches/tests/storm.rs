//! `load storm` against a server in this process: real carriers, greetings and links, without
//! services. The end-to-end tests use the same herd against the daemon.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use benches::runtime;
use benches::server::Server as Target;
use benches::storm::{self, Loss, Options, Report};
use link::server::{Verifier, VerifierFuture, greet};
use link::{Link, Owner, Settings, State};
use proto::control::ControlMessage;
use proto::greeting::{Grant, LinkSecret, Name, StoredCredential, Terms, Token};
use proto::{InstanceId, LinkConfig, LinkId, Open, ResetCode, Side, Unlimited};
use transport::{Inlet, Listener as _, Outlet, Peer};
use transport_tcp::{TcpDialer, TcpListener};

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// A server that accepts names beginning with a c, and keeps every link.
#[derive(Debug, Default)]
struct Server {
    links: RefCell<Vec<Link>>,
    ids: Cell<u8>,
}

impl Verifier for Server {
    fn credentials<'a>(&'a self, name: &'a Name) -> VerifierFuture<'a, Vec<StoredCredential>> {
        let known = name.as_str().starts_with('c');
        let all = known.then(|| Token::new(TOKEN).unwrap().stored()).into_iter().collect();
        Box::pin(std::future::ready(Ok(all)))
    }

    fn certificate_suffices(&self, _name: &Name) -> bool {
        false
    }

    fn link_secret(&self, _: &Name, _: InstanceId, _: LinkId) -> Option<LinkSecret> {
        None
    }

    fn decide<'a>(&'a self, _grant: &'a Grant, _peer: &'a Peer) -> VerifierFuture<'a, Terms> {
        self.ids.set(self.ids.get() + 1);
        let terms = Terms {
            new_link: LinkId([self.ids.get(); 16]),
            resume_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(15),
        };
        Box::pin(std::future::ready(Ok(terms)))
    }
}

#[derive(Debug)]
struct Silent;

impl Owner for Silent {
    fn accept(&self, _link: &Link, _open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        relay::refuse_stream(&*inlet, None, ResetCode::Unknown)
    }

    fn message(&self, _link: &Link, _message: ControlMessage) {}

    fn changed(&self, _link: &Link, _state: State) {}
}

async fn serve(mut listener: TcpListener, server: Rc<Server>) {
    loop {
        let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let server = Rc::clone(&server);
        tokio::task::spawn_local(async move {
            let Ok(carrier) = incoming.handshake().await else { return };
            let Ok(greeted) = greet(carrier, &*server).await else { return };
            let (config, budget) = (LinkConfig::default(), Rc::new(Unlimited));
            let features = greeted.accepted.features;
            let settings = Settings { side: Side::Server, config, budget, serial: 1, features };
            let link = Link::new(settings, Rc::new(Silent));
            assert!(greeted.attach_to(&link));
            server.links.borrow_mut().push(link);
        });
    }
}

/// Runs a storm of clients with this prefix. Returns the server and the reports.
fn run(prefix: &str, clients: usize, limit: Duration) -> (Rc<Server>, Vec<Report>) {
    let server = Rc::<Server>::default();
    let mut said = Vec::new();
    runtime().unwrap().block_on(async {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let listener = TcpListener::new(socket, None).unwrap();
        let address = listener.local_addr();
        tokio::task::spawn_local(serve(listener, Rc::clone(&server)));
        let options = Options {
            server: Target {
                url: format!("tcp://{address}"),
                address,
                dialer: Rc::new(TcpDialer::new(None)),
            },
            token: Token::new(TOKEN).unwrap(),
            clients,
            prefix: prefix.to_owned(),
            loss: Loss::Clients,
            limit,
        };
        let end = storm::run(&options, |live| said.push(live.clone())).await.unwrap();
        said.push(end);
        server.links.borrow().iter().for_each(Link::close);
    });
    (server, said)
}

#[test]
fn all_log_in_and_come_back_at_once() {
    let (server, said) = run("c", 50, Duration::from_secs(60));
    let fields = |report: &Report| (report.event, report.live, report.errors);
    assert_eq!(said.iter().map(fields).collect::<Vec<_>>(), [("live", 50, 0), ("end", 50, 0)]);
    assert_eq!(server.links.borrow().len(), 100, "each has logged in twice");
}

#[test]
fn who_is_not_let_in_is_an_error_when_the_time_is_over() {
    let (_, said) = run("x", 3, Duration::from_millis(300));
    let last = said.last().unwrap();
    assert_eq!((last.event, last.live, last.errors), ("end", 0, 3), "{said:?}");
}
