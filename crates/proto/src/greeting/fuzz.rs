//! Harnesses of the fuzz targets `greeting_client` and `greeting_server` and of the replay of their
//! corpus. Nonces and exporter are fixed, so that a kept greeting can be valid to the end.

use bytes::{Bytes, BytesMut};

use super::{
    Attach, AttachMode, Binding, ClientGreeting, ClientSetup, Features, GREETING_MAX,
    GreetingError, Identity, LinkSecret, Name, Refusal, ServerEvent, ServerGreeting, ServerSetup,
    Terms, Token, Versions,
};
use crate::{CarrierNumber, InstanceId, LinkId};

const TOKEN: &str = "9fK2xQ7bVt0LmZ4cRw8JpA";

/// First byte of the data: which kind of greeting (bit 0 bound, bit 1 attach, bit 2 certificate)
/// and in pieces of which length it arrives.
#[derive(Clone, Copy)]
struct Scenario {
    bound: bool,
    attach: bool,
    certificate: bool,
    piece: usize,
}

impl Scenario {
    fn new(byte: u8) -> Self {
        Self {
            bound: byte & 1 != 0,
            attach: byte & 2 != 0,
            certificate: byte & 4 != 0,
            piece: usize::from(byte >> 3) * 37 + 1,
        }
    }

    fn binding(self) -> Binding {
        if self.bound { Binding::Exporter([0xee; 32]) } else { Binding::None }
    }

    fn client(self) -> Option<ClientGreeting> {
        let attach = Attach {
            link: LinkId([0x11; 16]),
            carrier: CarrierNumber(2),
            mode: AttachMode::Replaces(CarrierNumber(1)),
        };
        let identity = match Token::new(TOKEN) {
            Ok(token) if !self.certificate => Identity::Token(token),
            Ok(_) | Err(_) => Identity::Certificate,
        };
        ClientGreeting::new(ClientSetup {
            binding: self.binding(),
            name: Name::new("home").ok()?,
            identity,
            instance: InstanceId([0x22; 16]),
            takeover: true,
            attach: self.attach.then(|| (attach, LinkSecret::decoy([0x33; 32]))),
            versions: Versions::OURS,
            features: Features(3),
            nonce: [0xcc; 32],
        })
        .ok()
    }

    fn server(self) -> ServerGreeting {
        ServerGreeting::new(ServerSetup {
            binding: self.binding(),
            certificate_name: self.certificate.then(|| "home".to_owned()),
            versions: Versions::OURS,
            features: Features(1),
            nonce: [0x55; 32],
        })
    }
}

/// A client meets a server that sends `data`.
pub fn fuzz_client(data: &[u8]) {
    let Some((&scenario, data)) = data.split_first() else { return };
    let scenario = Scenario::new(scenario);
    let Some(mut client) = scenario.client() else { return };
    let mut outcome = None;
    let taken = feed(data, scenario.piece, |input| {
        client.handle_input(input);
        let sent = client.poll_output().map_or(0, |bytes| bytes.len());
        assert!(sent <= GREETING_MAX);
        outcome = outcome.take().or_else(|| client.poll_outcome());
        outcome.is_some()
    });
    assert!(taken <= GREETING_MAX);
    if let Some(Ok(accepted)) = outcome {
        assert_eq!(accepted.secret.is_none(), scenario.attach);
    }
}

/// A server, whose driver accepts whoever proves himself, meets a client that sends `data`.
pub fn fuzz_server(data: &[u8]) {
    let Some((&scenario, data)) = data.split_first() else { return };
    let scenario = Scenario::new(scenario);
    let mut server = scenario.server();
    let (mut sent, mut over) = (0, false);
    let taken = feed(data, scenario.piece, |input| {
        server.handle_input(input);
        while let Some(event) = server.poll_event() {
            over |= answer(&mut server, scenario, event);
        }
        sent += server.poll_output().map_or(0, |bytes: Bytes| bytes.len());
        over
    });
    assert!(taken <= GREETING_MAX && sent <= GREETING_MAX);
}

/// Says whether the greeting is over.
fn answer(server: &mut ServerGreeting, scenario: Scenario, event: ServerEvent) -> bool {
    match event {
        ServerEvent::Credentials { certificate: true, .. } => server.certificate_suffices(),
        ServerEvent::Credentials { name, .. } => match Token::new(TOKEN) {
            Ok(token) if name.as_str() == "home" => server.credentials(&[token.stored()]),
            Ok(_) | Err(_) => server.credentials(&[]),
        },
        ServerEvent::LinkSecret { link, .. } => {
            let known = scenario.attach && link == LinkId([0x11; 16]);
            server.link_secret(known.then(|| LinkSecret::decoy([0x33; 32])));
        }
        ServerEvent::Decide(grant) => {
            assert_eq!(grant.name.as_str(), "home", "only this name can prove itself");
            let second = std::time::Duration::from_secs(1);
            let terms =
                Terms { new_link: LinkId([0x11; 16]), resume_timeout: second, keepalive: second };
            assert!(server.accept(&terms).is_some());
            return true;
        }
        ServerEvent::Failed(error) => {
            assert_ne!(error, GreetingError::Unproven);
            assert_ne!(error, GreetingError::Refused(Refusal::Unavailable));
            return true;
        }
    }
    false
}

/// Feeds `data` in pieces until `step` says that it is over; returns how many bytes it took.
fn feed(data: &[u8], piece: usize, mut step: impl FnMut(&mut BytesMut) -> bool) -> usize {
    let mut input = BytesMut::new();
    let mut given = 0;
    for piece in data.chunks(piece) {
        input.extend_from_slice(piece);
        given += piece.len();
        if step(&mut input) {
            break;
        }
        assert!(input.len() < GREETING_MAX, "what is incomplete is bounded");
    }
    given - input.len()
}
