//! Harnesses of the fuzz targets `greeting_client` and `greeting_server` and of the replay of their
//! corpus. Nonces and exporter are fixed, so that a greeting in the corpus can be valid to the end.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::{
    Attach, AttachMode, Binding, ClientGreeting, ClientSetup, EarlyBinding, Features, GREETING_MAX,
    GreetingError, Identity, LinkSecret, Name, Refusal, ServerEvent, ServerGreeting, ServerSetup,
    Terms, Token, Versions,
};
use crate::{CarrierNumber, InstanceId, LinkId};

const TOKEN: &str = "9fK2xQ7bVt0LmZ4cRw8JpA";

/// A token that the server does not know.
const STRANGE: &str = "Zt5RkW1xQ8bN4mVc7LpYs2";

const EARLY: EarlyBinding = EarlyBinding { client: [0xe1; 32], server: [0xe2; 32] };

/// The first byte of the data: the kind of greeting (bit 0 bound, bit 1 attach, bit 2 certificate,
/// bit 3 a client that the server does not know, bit 7 early Hello) and the length of the pieces in
/// which it arrives (bits 4 to 6).
#[derive(Clone, Copy)]
struct Scenario {
    bound: bool,
    attach: bool,
    certificate: bool,
    stranger: bool,
    early: bool,
    piece: usize,
}

impl Scenario {
    fn new(byte: u8) -> Self {
        Self {
            bound: byte & 1 != 0,
            attach: byte & 2 != 0,
            certificate: byte & 4 != 0,
            stranger: byte & 8 != 0,
            early: byte & 0x80 != 0,
            piece: usize::from(byte >> 4 & 7) * 37 + 1,
        }
    }

    fn binding(self) -> Binding {
        if self.bound { Binding::Exporter([0xee; 32]) } else { Binding::None }
    }

    fn setup(self) -> Option<ClientSetup> {
        let attach = Attach {
            link: LinkId([0x11; 16]),
            carrier: CarrierNumber(2),
            mode: AttachMode::Replaces(CarrierNumber(1)),
        };
        let identity = match Token::new(if self.stranger { STRANGE } else { TOKEN }) {
            Ok(token) if !self.certificate && self.stranger => Identity::Introducing(token),
            Ok(token) if !self.certificate => Identity::Token(token),
            Ok(_) | Err(_) => Identity::Certificate,
        };
        Some(ClientSetup {
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
    }

    fn client(self) -> Option<ClientGreeting> {
        let setup = self.setup()?;
        let begun = if self.early {
            ClientGreeting::after_early(setup, &EARLY)
        } else {
            ClientGreeting::new(setup)
        };
        begun.ok()
    }

    fn certificate_name(self) -> Option<String> {
        self.certificate.then(|| "home".to_owned())
    }

    fn server(self) -> ServerGreeting {
        let setup = ServerSetup {
            binding: self.binding(),
            certificate_name: self.certificate_name(),
            versions: Versions::OURS,
            features: Features(1),
            introductions: true,
            links_suffice: self.certificate,
            nonce: [0x55; 32],
        };
        if self.early { ServerGreeting::early(setup, EARLY) } else { ServerGreeting::new(setup) }
    }
}

/// Runs a client against a server that sends `data`.
pub fn fuzz_client(data: &[u8]) {
    client_accepts(data);
}

/// Runs a server, whose driver accepts every authenticated client, against a client that sends
/// `data`.
pub fn fuzz_server(data: &[u8]) {
    server_accepts(data);
}

fn client_accepts(data: &[u8]) -> bool {
    let Some((&scenario, data)) = data.split_first() else { return false };
    let scenario = Scenario::new(scenario);
    let Some(mut client) = scenario.client() else { return false };
    let mut outcome = None;
    let taken = feed(data, scenario.piece, |input| {
        client.handle_input(input);
        let sent = client.poll_output().map_or(0, |bytes| bytes.len());
        assert!(sent <= GREETING_MAX);
        outcome = outcome.take().or_else(|| client.poll_outcome());
        outcome.is_some()
    });
    assert!(taken <= GREETING_MAX);
    let Some(Ok(accepted)) = outcome else { return false };
    assert_eq!(accepted.secret.is_none(), scenario.attach);
    true
}

fn server_accepts(data: &[u8]) -> bool {
    let Some((&scenario, data)) = data.split_first() else { return false };
    let scenario = Scenario::new(scenario);
    let mut server = scenario.server();
    let (mut sent, mut end) = (0, None);
    let taken = feed(data, scenario.piece, |input| {
        for _ in 0..2 {
            server.handle_input(input);
            while let Some(event) = server.poll_event() {
                let over = answer(&mut server, scenario, event);
                end = end.or(over);
            }
            server.handshake_done(scenario.binding(), scenario.certificate_name());
        }
        sent += server.poll_output().map_or(0, |bytes: Bytes| bytes.len());
        end.is_some()
    });
    assert!(taken <= GREETING_MAX && sent <= GREETING_MAX);
    end == Some(true)
}

const TERMS: Terms = Terms {
    new_link: LinkId([0x11; 16]),
    resume_timeout: Duration::from_secs(1),
    keepalive: Duration::from_secs(1),
};

/// Returns whether the server accepted, once the greeting is over.
fn answer(server: &mut ServerGreeting, scenario: Scenario, event: ServerEvent) -> Option<bool> {
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
        ServerEvent::Preview { name, .. } => {
            assert!(scenario.early && name.as_str() == "home", "who has the link's secret");
            server.preview(Some(&TERMS));
        }
        ServerEvent::Decide(grant) => {
            let proved = grant.name.as_str() == "home" || grant.introduced.is_some();
            assert!(proved, "another name can but introduce itself");
            assert!(server.accept(&TERMS).is_some());
            return Some(true);
        }
        ServerEvent::Failed(error) => {
            assert_ne!(error, GreetingError::Unproven);
            assert_ne!(error, GreetingError::Refused(Refusal::Unavailable));
            return Some(false);
        }
    }
    None
}

/// Feeds `data` in pieces until `step` returns true. Returns the number of consumed bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds of greeting that can succeed: a certificate needs an exporter.
    const KINDS: [(u8, &str); 9] = [
        (0, "unbound"),
        (1, "bound"),
        (2, "unbound-attach"),
        (3, "bound-attach"),
        (5, "bound-certificate"),
        (7, "bound-certificate-attach"),
        (9, "bound-stranger"),
        (0x83, "early"),
        (0x87, "early-certificate"),
    ];

    /// The bytes of both directions of a successful greeting, each preceded by its scenario.
    fn valid(kind: u8) -> [Vec<u8>; 2] {
        let scenario = Scenario::new(kind);
        let (mut client, mut server) = (scenario.client().unwrap(), scenario.server());
        let (mut from_server, mut from_client) = (vec![kind], vec![kind]);
        let hear = |server: &mut ServerGreeting, said: &[u8]| {
            let mut input = BytesMut::from(said);
            server.handle_input(&mut input);
            while let Some(event) = server.poll_event() {
                answer(server, scenario, event);
            }
        };
        if scenario.early {
            let flight = scenario.setup().unwrap().early_flight(&EARLY.client).unwrap();
            from_client.extend_from_slice(&flight);
            hear(&mut server, &flight);
        }
        server.handshake_done(scenario.binding(), scenario.certificate_name());
        while let Some(said) = server.poll_output() {
            from_server.extend_from_slice(&said);
            client.handle_input(&mut BytesMut::from(&said[..]));
            let said = client.poll_output().unwrap_or_default();
            from_client.extend_from_slice(&said);
            hear(&mut server, &said);
        }
        [from_server, from_client]
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test reads what is kept beside the code")]
    fn the_kept_corpus_has_a_valid_greeting_of_each_kind() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        for (kind, name) in KINDS {
            let [from_server, from_client] = valid(kind);
            for (target, bytes) in
                [("greeting_client", from_server), ("greeting_server", from_client)]
            {
                let kept = std::fs::read(corpus.join(target).join(name)).unwrap();
                assert_eq!(kept, bytes, "{target}/{name}");
            }
        }
    }

    #[test]
    fn the_harnesses_reach_the_end_of_a_valid_greeting() {
        for (kind, name) in KINDS {
            let [from_server, from_client] = valid(kind);
            assert!(client_accepts(&from_server), "{name}");
            assert!(server_accepts(&from_client), "{name}");
        }
    }
}
