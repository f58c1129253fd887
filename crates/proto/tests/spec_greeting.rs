//! The byte examples of `SPEC.md` in the sections "Greeting" and "Control messages" are what the
//! code sends, and every one of them is looked at.

#![allow(clippy::disallowed_methods, reason = "a test reads what is kept beside the code")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::control::{
    ControlDecoder, ControlMessage, FlowClose, FlowOpen, HomeNode, Homes, Invite, InviteAction,
    InviteOutcome, Invited, OneTimeSecret, RefusedAddress, Register, Registered, ServiceError,
    ServiceErrorCode, ServiceResult, ServiceSpec, ServiceTerms, Strained, StunPorts,
};
use proto::greeting::{
    Attach, AttachMode, Binding, ClientAccepted, ClientGreeting, ClientSetup, EarlyBinding,
    Features, Identity, LinkSecret, Name, Refusal, ServerEvent, ServerGreeting, ServerSetup,
    StoredCredential, Terms, Token, Versions,
};
use proto::{
    CarrierNumber, FieldEdits, FlowId, HttpOptions, InstanceId, LinkId, Network, Open, Priority,
    ResetCode, Target, Visitors,
};

const TOKEN: &str = "9fK2xQ7bVt0LmZ4cRw8JpA";

/// The blocks "```hex name=..." of `SPEC.md` whose names have this prefix. `#` starts a comment.
fn examples(prefix: &str) -> BTreeMap<String, Vec<u8>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("SPEC.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("```hex name=") else { continue };
        let digits: String = lines
            .by_ref()
            .take_while(|line| !line.starts_with("```"))
            .flat_map(|line| line.split('#').next().unwrap().split_whitespace())
            .collect();
        let bytes = (0..digits.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
            .collect();
        if name.starts_with(prefix) {
            assert!(found.insert(name.to_owned(), bytes).is_none(), "{name} stands twice");
        }
    }
    found
}

#[track_caller]
fn assert_examples(prefix: &str, expected: &[(&str, Vec<u8>)]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x} ")).collect::<String>();
    let mut found = examples(prefix);
    for (name, bytes) in expected {
        let example = found.remove(*name).unwrap_or_default();
        assert_eq!(hex(&example), hex(bytes), "{name}");
    }
    assert!(found.is_empty(), "not checked: {:?}", found.keys());
}

/// The output of each side in a greeting of the name `home`, and the client's result.
fn greet(
    binding: Binding,
    attach: Option<(Attach, LinkSecret)>,
) -> (Vec<u8>, Vec<u8>, ClientAccepted) {
    greet_as(Identity::Token(Token::new(TOKEN).unwrap()), binding, attach)
}

fn greet_as(
    identity: Identity,
    binding: Binding,
    attach: Option<(Attach, LinkSecret)>,
) -> (Vec<u8>, Vec<u8>, ClientAccepted) {
    greet_at(&[Token::new(TOKEN).unwrap().stored()], identity, binding, attach)
}

fn greet_at(
    known: &[StoredCredential],
    identity: Identity,
    binding: Binding,
    attach: Option<(Attach, LinkSecret)>,
) -> (Vec<u8>, Vec<u8>, ClientAccepted) {
    let secret = attach.as_ref().map(|(_, secret)| secret.clone());
    let mut client = ClientGreeting::new(ClientSetup {
        binding,
        name: Name::new("home").unwrap(),
        takeover: attach.is_none()
            && matches!(identity, Identity::Token(_) | Identity::Introducing(_)),
        identity,
        instance: InstanceId([0x22; 16]),
        attach,
        versions: Versions::OURS,
        features: Features::default(),
        nonce: [0xcc; 32],
    })
    .unwrap();
    let mut server = ServerGreeting::new(ServerSetup {
        binding,
        certificate_name: None,
        versions: Versions::OURS,
        features: Features::default(),
        introductions: known.is_empty(),
        links_suffice: false,
        nonce: [0x55; 32],
    });
    let mut from_server = server.poll_output().unwrap().to_vec();
    client.handle_input(&mut BytesMut::from(&from_server[..]));
    let mut from_client = Vec::new();
    while let Some(said) = client.poll_output() {
        server.handle_input(&mut BytesMut::from(&said[..]));
        from_client.extend_from_slice(&said);
        while let Some(event) = server.poll_event() {
            match event {
                ServerEvent::Credentials { .. } => server.credentials(known),
                ServerEvent::LinkSecret { .. } => server.link_secret(secret.clone()),
                ServerEvent::Decide(_) => {
                    let terms = Terms {
                        new_link: LinkId::compose([0, 0, 0, 7], [0xaa; 12]),
                        resume_timeout: Duration::from_secs(60),
                        keepalive: Duration::from_secs(15),
                    };
                    server.accept(&terms).unwrap();
                }
                ServerEvent::Preview { .. } => panic!("nothing was said early"),
                ServerEvent::Failed(error) => panic!("{error}"),
            }
        }
        let answer = server.poll_output().unwrap();
        client.handle_input(&mut BytesMut::from(&answer[..]));
        from_server.extend_from_slice(&answer);
    }
    (from_client, from_server, client.poll_outcome().unwrap().unwrap())
}

/// The output of each side if the second carrier of a link uses early data.
fn greet_early(attach: Attach, secret: LinkSecret) -> (Vec<u8>, Vec<u8>) {
    let bindings = EarlyBinding { client: [0xe1; 32], server: [0xe2; 32] };
    let setup = ClientSetup {
        binding: Binding::Exporter([0xee; 32]),
        name: Name::new("home").unwrap(),
        takeover: false,
        identity: Identity::Token(Token::new(TOKEN).unwrap()),
        instance: InstanceId([0x22; 16]),
        attach: Some((attach, secret.clone())),
        versions: Versions::OURS,
        features: Features::default(),
        nonce: [0xcc; 32],
    };
    let server = ServerSetup {
        binding: Binding::None,
        certificate_name: None,
        versions: Versions::OURS,
        features: Features::default(),
        introductions: false,
        links_suffice: false,
        nonce: [0x55; 32],
    };
    let terms = Terms {
        new_link: attach.link,
        resume_timeout: Duration::from_secs(60),
        keepalive: Duration::from_secs(15),
    };
    let flight = setup.early_flight(&bindings.client).unwrap();
    let mut server = ServerGreeting::early(server, bindings);
    server.handle_input(&mut BytesMut::from(&flight[..]));
    assert!(matches!(server.poll_event(), Some(ServerEvent::LinkSecret { .. })));
    server.link_secret(Some(secret.clone()));
    assert!(matches!(server.poll_event(), Some(ServerEvent::Preview { .. })));
    server.preview(Some(&terms));
    let answer = server.poll_output().unwrap();
    let mut client = ClientGreeting::after_early(setup, &bindings).unwrap();
    let proof = client.poll_output().unwrap();
    client.handle_input(&mut BytesMut::from(&answer[..]));
    assert!(client.poll_outcome().unwrap().unwrap().early);
    server.handshake_done(Binding::Exporter([0xee; 32]), None);
    server.handle_input(&mut BytesMut::from(&proof[..]));
    assert!(matches!(server.poll_event(), Some(ServerEvent::Credentials { .. })));
    server.credentials(&[Token::new(TOKEN).unwrap().stored()]);
    assert!(matches!(server.poll_event(), Some(ServerEvent::LinkSecret { .. })));
    server.link_secret(Some(secret));
    assert!(matches!(server.poll_event(), Some(ServerEvent::Decide(_))));
    assert!(server.accept(&terms).unwrap().early && server.poll_output().is_none());
    ([flight, proof].concat(), answer.to_vec())
}

#[test]
fn the_greetings_of_the_document_are_those_of_the_code() {
    let bound = Binding::Exporter([0xee; 32]);
    let (bound_client, bound_server, accepted) = greet(bound, None);
    let (unbound_client, unbound_server, _) = greet(Binding::None, None);
    let attach = Attach {
        link: accepted.link,
        carrier: CarrierNumber(2),
        mode: AttachMode::Replaces(CarrierNumber(1)),
    };
    let secret = accepted.secret.unwrap();
    let (early_client, early_server) = greet_early(attach, secret.clone());
    let (attach_client, attach_server, _) = greet(bound, Some((attach, secret)));
    let code = Identity::Code(Token::new(TOKEN).unwrap());
    let (enrol_client, enrol_server, enrolled) = greet_as(code, bound, None);
    let stranger = Identity::Introducing(Token::new(TOKEN).unwrap());
    let (stranger_client, stranger_server, _) = greet_at(&[], stranger, bound, None);
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/SPEC.md")).unwrap();
    assert!(text.contains(&format!("`{}`", enrolled.token.unwrap().reveal())));
    let mut refusing = ServerGreeting::new(ServerSetup {
        binding: Binding::None,
        certificate_name: None,
        versions: Versions::OURS,
        features: Features::default(),
        introductions: false,
        links_suffice: false,
        nonce: [0x55; 32],
    });
    refusing.refuse(Refusal::Unavailable);
    assert_examples(
        "greeting-",
        &[
            ("greeting-bound-client", bound_client),
            ("greeting-bound-server", bound_server),
            ("greeting-unbound-client", unbound_client),
            ("greeting-unbound-server", unbound_server),
            ("greeting-attach-client", attach_client),
            ("greeting-attach-server", attach_server),
            ("greeting-early-client", early_client),
            ("greeting-early-server", early_server),
            ("greeting-enrol-client", enrol_client),
            ("greeting-enrol-server", enrol_server),
            ("greeting-stranger-client", stranger_client),
            ("greeting-stranger-server", stranger_server),
            ("greeting-refused", refusing.poll_output().unwrap().to_vec()),
        ],
    );
}

fn registration(generation: u64, services: Vec<ServiceSpec>) -> ControlMessage {
    ControlMessage::Register(Register { generation, services, leaving: false, standby: false })
}

#[test]
fn the_control_messages_of_the_document_are_those_of_the_code() {
    let name = |text| Name::new(text).unwrap();
    fn service(text: &str, public: &str, set: impl FnOnce(&mut ServiceTerms)) -> ServiceSpec {
        let name = Name::new(text).unwrap();
        let mut terms = ServiceTerms { priority: Priority::Interactive, ..ServiceTerms::default() };
        set(&mut terms);
        ServiceSpec { name, public: vec![public.to_owned()], terms }
    }
    let register = registration(7, vec![service("ssh", "tcp://:10022", |_| {})]);
    let network = |ip: &str, prefix| [Network::new(ip.parse().unwrap(), prefix).unwrap()].into();
    let visitors = Visitors {
        allow_from: Some(network("192.0.2.0", 24)),
        deny_from: network("2001:db8::1", 128),
    };
    let restricted =
        registration(8, vec![service("ssh", "tcp://:10022", |terms| terms.visitors = visitors)]);
    let http = HttpOptions {
        basic_auth: vec!["ann:secret".to_owned()],
        host_rewrite: Some("localhost".to_owned()),
        request: FieldEdits { remove: vec!["Cookie".to_owned()], ..FieldEdits::default() },
        response: FieldEdits {
            set: vec![("X-Via".to_owned(), "tunnel".to_owned())],
            ..FieldEdits::default()
        },
        forwarded: true,
        path: Some("/api".to_owned()),
        ..HttpOptions::default()
    };
    let named =
        registration(9, vec![service("web", "http://app.example.com", |terms| terms.http = http)]);
    let taken = ServiceError { code: ServiceErrorCode::PortTaken, text: "taken".to_owned() };
    let registered = ControlMessage::Registered(Registered {
        generation: 7,
        results: vec![
            ServiceResult::whole(name("ssh"), Ok(vec!["tcp://example.com:10022".to_owned()])),
            ServiceResult::whole(name("web"), Err(taken.clone())),
        ],
    });
    let flags = |generation, leaving, standby| {
        ControlMessage::Register(Register { generation, leaving, standby, ..Register::default() })
    };
    let (leaving, standby) = (flags(10, true, false), flags(12, false, true));
    let partly = ControlMessage::Registered(Registered {
        generation: 8,
        results: vec![ServiceResult {
            refused: vec![RefusedAddress { address: "https://a.example".to_owned(), error: taken }],
            ..ServiceResult::whole(name("web"), Ok(vec!["http://a.example".to_owned()]))
        }],
    });
    let mut private = service("ssh", "", |terms| {
        terms.private = Some(["laptop", "office-*"].map(|text| text.parse().unwrap()).into());
    });
    private.public.clear();
    let private = registration(11, vec![private]);
    let signal = ControlMessage::Signal(Bytes::from_static(b"hello"));
    let invite = ControlMessage::Invite(Invite {
        request: 1,
        visitor: Name::new("laptop").unwrap(),
        service: Name::new("ssh").unwrap(),
        action: InviteAction::New,
    });
    let code = OneTimeSecret("q7Xb2LmZ0aKc9RtYv4WnPs".to_owned());
    let outcome = InviteOutcome::Done(Some(code));
    let invited = ControlMessage::Invited(Invited { request: 1, outcome });
    let strained = ControlMessage::Strained(Strained { rate: 125_000 });
    let stun = ControlMessage::Stun(StunPorts(vec![7000, 3478]));
    let node = |name: &str, zone: &str, address: &str| {
        let (name, zone) = (name.to_owned(), zone.to_owned());
        HomeNode { name, zone, addresses: vec![address.to_owned()] }
    };
    let nodes = vec![node("fra1", "fra", "tls://f:7000"), node("nyc1", "nyc", "tls://n:7000")];
    let homes = ControlMessage::Homes(Homes { wanted: 2, nodes });
    let bytes = |message: &ControlMessage| message.encode().unwrap().to_vec();
    let flow = FlowId::new(2);
    let flow_open = ControlMessage::FlowOpen(FlowOpen {
        flow,
        open: Open {
            target: Target::Service("dns".into()),
            visitor: Some("[2001:db8::7]:53".parse().unwrap()),
            priority: Priority::Normal,
            fields: None,
        },
    });
    let flow_close = ControlMessage::FlowClose(FlowClose { flow, code: ResetCode::Timeout });
    assert_examples(
        "control-",
        &[
            ("control-flow-close", bytes(&flow_close)),
            ("control-flow-open", bytes(&flow_open)),
            ("control-homes", bytes(&homes)),
            ("control-invite", bytes(&invite)),
            ("control-invited", bytes(&invited)),
            ("control-leaving", bytes(&leaving)),
            ("control-named", bytes(&named)),
            ("control-partly", bytes(&partly)),
            ("control-private", bytes(&private)),
            ("control-register", bytes(&register)),
            ("control-registered", bytes(&registered)),
            ("control-restricted", bytes(&restricted)),
            ("control-signal", bytes(&signal)),
            ("control-standby", bytes(&standby)),
            ("control-strained", bytes(&strained)),
            ("control-stun", bytes(&stun)),
        ],
    );
    let messages = [
        flow_close, flow_open, homes, invite, invited, leaving, named, partly, private, register,
        registered, restricted, signal, standby, strained, stun,
    ];
    for (example, message) in examples("control-").into_values().zip(messages) {
        let mut decoder = ControlDecoder::new();
        assert_eq!(decoder.decode(&mut Bytes::from(example)), Ok(Some(message)));
    }
}

/// The table "number | name" of a section mirrors the code's.
#[test]
fn the_refusals_of_the_document_are_those_of_the_code() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("SPEC.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = |heading: &str, name: fn(u16) -> String| {
        let section = text.split(heading).nth(1).unwrap();
        let rows = section.lines().skip_while(|line| !line.starts_with("| 1 |"));
        let mut numbers = 1..;
        for row in rows.take_while(|row| row.starts_with('|')) {
            let number = numbers.next().unwrap();
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            assert_eq!(cells[1..3], [number.to_string(), format!("`{}`", name(number))]);
        }
        let next = numbers.next().unwrap();
        assert_eq!(name(next), format!("Other({next})"), "the table is complete");
    };
    table("### Refusals", |raw| format!("{:?}", Refusal::from_raw(raw)));
    table("### Error codes of services", |raw| format!("{:?}", ServiceErrorCode::from_raw(raw)));
}
