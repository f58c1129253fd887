//! Invariants of greetings: two state machines, and a wire that a test may cut, tamper with or
//! record.

mod attach;
mod early;
mod hostile;
mod introduce;
mod log_in;
mod passed;

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::{CarrierNumber, InstanceId, LinkId};

const TOKEN: &str = "9fK2xQ7bVt0LmZ4cRw8JpA";
const OTHER_TOKEN: &str = "Zq3Wx8Ec2Rv7Tb1Yn6Um5K";
const BOUND: Binding = Binding::Exporter([0xee; 32]);
const NEW_LINK: LinkId = LinkId([0xaa; 16]);
const BOTH: [Binding; 2] = [BOUND, Binding::None];

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn token(text: &str) -> Token {
    Token::new(text).unwrap()
}

fn client_setup(binding: Binding) -> ClientSetup {
    ClientSetup {
        binding,
        name: name("home"),
        identity: Identity::Token(token(TOKEN)),
        instance: InstanceId([0x22; 16]),
        takeover: true,
        attach: None,
        versions: Versions::OURS,
        features: Features(0b0110),
        nonce: [0xcc; 32],
    }
}

fn server_setup(binding: Binding) -> ServerSetup {
    ServerSetup {
        binding,
        certificate_name: None,
        versions: Versions::OURS,
        features: Features(0b0011),
        introductions: false,
        links_suffice: false,
        nonce: [0x55; 32],
    }
}

/// The state of the server's driver in these tests.
#[derive(Clone)]
struct Knowledge {
    credentials: Vec<(&'static str, StoredCredential)>,
    certificates: bool,
    code: Option<StoredCredential>,
    links: Vec<(&'static str, InstanceId, LinkId, LinkSecret)>,
    /// Whether the driver offers previews before the handshake is complete.
    previews: bool,
    decision: Result<(), Refusal>,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            credentials: vec![("home", token(TOKEN).stored())],
            certificates: false,
            code: None,
            links: vec![],
            previews: true,
            decision: Ok(()),
        }
    }
}

/// The outcome at the server.
#[derive(Debug)]
struct ServerEnd {
    outcome: Result<ServerAccepted, GreetingError>,
    grant: Option<Grant>,
}

impl Knowledge {
    /// Answers all queries; `Some` when the greeting is over.
    fn drive(&self, server: &mut ServerGreeting) -> Option<ServerEnd> {
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Credentials { certificate: true, .. } if self.certificates => {
                    server.certificate_suffices();
                }
                ServerEvent::Credentials { enrolls: true, .. } => {
                    server.credentials(self.code.as_slice());
                }
                ServerEvent::Credentials { name, .. } => {
                    let mine = self.credentials.iter().filter(|(n, _)| *n == name.as_str());
                    let mine: Vec<_> = mine.map(|(_, c)| c.clone()).collect();
                    server.credentials(&mine);
                }
                ServerEvent::LinkSecret { name, instance, link } => {
                    let found = self
                        .links
                        .iter()
                        .find(|(n, i, l, _)| (*n, *i, *l) == (name.as_str(), instance, link));
                    server.link_secret(found.map(|(.., secret)| secret.clone()));
                }
                ServerEvent::Preview { .. } => {
                    server.preview(self.previews.then(terms).as_ref());
                }
                ServerEvent::Decide(grant) => match self.decision {
                    Ok(()) => {
                        let outcome = Ok(server.accept(&terms()).unwrap());
                        return Some(ServerEnd { outcome, grant: Some(*grant) });
                    }
                    Err(refusal) => server.refuse(refusal),
                },
                ServerEvent::Failed(error) => {
                    return Some(ServerEnd { outcome: Err(error), grant: None });
                }
            }
        }
        None
    }
}

fn terms() -> Terms {
    Terms {
        new_link: NEW_LINK,
        resume_timeout: Duration::from_secs(60),
        keepalive: Duration::from_secs(15),
    }
}

type ClientEnd = Result<ClientAccepted, GreetingError>;

/// A whole greeting and every byte of it.
struct Talk {
    client: Option<ClientEnd>,
    server: Option<ServerEnd>,
    from_client: Vec<u8>,
    from_server: Vec<u8>,
}

impl Talk {
    fn accepted(&self) -> (&ClientAccepted, &ServerAccepted) {
        let client = self.client.as_ref().unwrap().as_ref().unwrap();
        (client, self.server.as_ref().unwrap().outcome.as_ref().unwrap())
    }

    /// How both sides see a refusal of the server.
    #[track_caller]
    fn refused(&self, refusal: Refusal) {
        let error = GreetingError::Refused(refusal);
        assert_eq!(self.client.as_ref().unwrap().as_ref().unwrap_err(), &error);
        assert_eq!(self.server.as_ref().unwrap().outcome.as_ref().unwrap_err(), &error);
    }
}

fn talk(client: ClientSetup, server: ServerSetup, knowledge: &Knowledge) -> Talk {
    talk_tampered(client, server, knowledge, |_, bytes| bytes.to_vec())
}

/// Lets `tamper` change what the client (`true`) or the server (`false`) sends.
fn talk_tampered(
    client: ClientSetup,
    server: ServerSetup,
    knowledge: &Knowledge,
    mut tamper: impl FnMut(bool, Bytes) -> Vec<u8>,
) -> Talk {
    let mut client = ClientGreeting::new(client).unwrap();
    let mut server = ServerGreeting::new(server);
    let (mut to_client, mut to_server) = (BytesMut::new(), BytesMut::new());
    let mut talk = Talk { client: None, server: None, from_client: vec![], from_server: vec![] };
    loop {
        let mut quiet = true;
        if let Some(bytes) = client.poll_output() {
            let bytes = tamper(true, bytes);
            talk.from_client.extend_from_slice(&bytes);
            to_server.extend_from_slice(&bytes);
            quiet = false;
        }
        server.handle_input(&mut to_server);
        if let Some(end) = knowledge.drive(&mut server) {
            assert!(talk.server.replace(end).is_none(), "one end");
        }
        if let Some(bytes) = server.poll_output() {
            let bytes = tamper(false, bytes);
            talk.from_server.extend_from_slice(&bytes);
            to_client.extend_from_slice(&bytes);
            quiet = false;
        }
        client.handle_input(&mut to_client);
        if let Some(end) = client.poll_outcome() {
            assert!(talk.client.replace(end).is_none(), "one end");
        }
        if quiet {
            return talk;
        }
    }
}

/// Whether two link secrets are equal, judged by their proofs.
fn same_secret(a: &LinkSecret, b: &LinkSecret) -> bool {
    a.attach_proof(&[0; 32]) == b.attach_proof(&[0; 32])
}

/// Sends recorded bytes to a fresh server.
fn replay(bytes: &[u8], server: ServerSetup, knowledge: &Knowledge) -> (Option<ServerEnd>, Bytes) {
    let mut server = ServerGreeting::new(server);
    server.handle_input(&mut BytesMut::from(bytes));
    let end = knowledge.drive(&mut server);
    (end, server.poll_output().unwrap_or_default())
}
