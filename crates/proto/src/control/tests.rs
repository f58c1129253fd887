//! Invariants of control messages, valid and invalid.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;

use super::message::{NODE, REGISTER, REGISTERED, SIGNAL, STRAINED, STUN, field, service};
use super::*;
use crate::greeting::Name;
use crate::wire::put_tlv;
use crate::{
    Balance, CREDENTIALS_MAX, Compress, Dscp, EDITS_MAX, FieldEdits, FlowId, HASHES_MAX, HashError,
    HttpOptionError, HttpOptions, NETWORKS_MAX, NamePattern, Network, Networks, Open, Priority,
    Redirect, ResetCode, Sticky, Target, TargetProtocol, Visitors,
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spec(text: &str) -> ServiceSpec {
    ServiceSpec {
        name: name(text),
        public: vec!["tcp://:10022".to_owned()],
        terms: ServiceTerms::default(),
    }
}

fn invite(action: InviteAction) -> ControlMessage {
    let (visitor, service) = (name("laptop"), name("ssh"));
    ControlMessage::Invite(Invite { request: 7, visitor, service, action })
}

fn invited(outcome: InviteOutcome) -> ControlMessage {
    ControlMessage::Invited(Invited { request: 7, outcome })
}

/// A service with these terms.
fn spec_on(text: &str, terms: ServiceTerms) -> ServiceSpec {
    ServiceSpec { terms, ..spec(text) }
}

/// Terms in which each field differs from its default.
fn terms() -> ServiceTerms {
    let from = Duration::from_millis;
    ServiceTerms {
        priority: Priority::Bulk,
        shared: Some(Balance::SourceHash),
        ephemeral: true,
        resume: false,
        visitors: Visitors {
            allow_from: Some(networks(&[("192.0.2.0", 24), ("2001:db8::", 32)])),
            deny_from: networks(&[("192.0.2.7", 32)]),
        },
        http: options(),
        timeouts: Timeouts {
            dial: from(1),
            idle: from(2),
            half_close: from(3),
            total: from(5),
            flush: from(6),
            idle_up: from(7),
            idle_down: from(8),
            keepalive: Duration::from_secs(4),
        },
        flows: FlowTimes { unanswered: 1, answered: 3_600 },
        private: Some(patterns(&["laptop", "office-*"])),
        dscp: Dscp::of_name("EF").unwrap(),
    }
}

const HASH: &str = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";

/// Options with every field.
fn options() -> HttpOptions {
    let edits = |name: &str| FieldEdits {
        set: vec![(name.to_owned(), "1".to_owned()), ("X-Empty".to_owned(), String::new())],
        remove: vec!["Server".to_owned(), "Cookie".to_owned()],
    };
    HttpOptions {
        basic_auth: vec!["ann:secret".to_owned(), "bob:".to_owned()],
        hashes: vec![format!("eve:{HASH}")],
        host_rewrite: Some("localhost:3000".to_owned()),
        request: edits("X-Request"),
        response: edits("X-Response"),
        forwarded: true,
        path: Some("/api".to_owned()),
        strip_prefix: Some("/".to_owned()),
        redirect: Some(Redirect::new("https://www.{host}{uri}").unwrap()),
        no_https_redirect: true,
        hsts: Some(15_552_000),
        preflight_pass: true,
        compress: Compress::Always,
        sticky: Sticky::Target,
        requests_per_second: NonZeroU32::new(20),
        ports: vec![3000, 443],
        pass_through: false,
        target: TargetProtocol::Https,
    }
}

fn networks(list: &[(&str, u8)]) -> Networks {
    list.iter().map(|(ip, prefix)| Network::new(ip.parse().unwrap(), *prefix).unwrap()).collect()
}

fn patterns(list: &[&str]) -> Arc<[NamePattern]> {
    list.iter().map(|text| NamePattern::new(text).unwrap()).collect()
}

fn register(services: Vec<ServiceSpec>) -> ControlMessage {
    ControlMessage::Register(Register { generation: 7, services, leaving: false, standby: false })
}

/// A registration without services.
fn empty(generation: u64, leaving: bool, standby: bool) -> ControlMessage {
    ControlMessage::Register(Register { generation, leaving, standby, ..Register::default() })
}

fn refused(address: &str, error: &ServiceError) -> RefusedAddress {
    RefusedAddress { address: address.to_owned(), error: error.clone() }
}

fn examples() -> Vec<ControlMessage> {
    let error = ServiceError { code: ServiceErrorCode::PortTaken, text: "port 22".to_owned() };
    vec![
        register(vec![]),
        empty(9, true, false),
        empty(10, false, true),
        register(vec![
            spec("ssh"),
            ServiceSpec { public: vec![], ..spec("a") },
            spec_on("all", terms()),
            spec_on(
                "nobody",
                ServiceTerms { private: Some(patterns(&[])), ..ServiceTerms::default() },
            ),
            spec_on(
                "none",
                ServiceTerms {
                    visitors: Visitors { allow_from: Some(networks(&[])), ..Visitors::default() },
                    ..ServiceTerms::default()
                },
            ),
            spec_on(
                "fast",
                ServiceTerms {
                    http: HttpOptions {
                        pass_through: true,
                        target: TargetProtocol::Https,
                        ..HttpOptions::default()
                    },
                    ..ServiceTerms::default()
                },
            ),
            spec_on(
                "grpc",
                ServiceTerms {
                    http: HttpOptions { target: TargetProtocol::H2c, ..HttpOptions::default() },
                    ..ServiceTerms::default()
                },
            ),
        ]),
        ControlMessage::Registered(Registered {
            generation: u64::MAX,
            results: vec![
                ServiceResult::whole(name("ssh"), Ok(vec!["tcp://h:1".to_owned()])),
                ServiceResult::whole(name("a"), Ok(vec![])),
                ServiceResult::whole(name("b"), Err(error.clone())),
                ServiceResult {
                    refused: vec![refused("http://b", &error)],
                    ..ServiceResult::whole(name("some"), Ok(vec!["http://a".to_owned()]))
                },
                ServiceResult {
                    refused: ["http://a", "http://b"].map(|at| refused(at, &error)).to_vec(),
                    ..ServiceResult::whole(name("none"), Err(error))
                },
            ],
        }),
        ControlMessage::Strained(Strained { rate: 125_000 }),
        ControlMessage::Stun(StunPorts(Vec::new())),
        ControlMessage::Stun(StunPorts(vec![7000; STUN_PORTS_MAX])),
        ControlMessage::Signal(Bytes::new()),
        invite(InviteAction::New),
        invite(InviteAction::Existing),
        invite(InviteAction::Revoke),
        invited(InviteOutcome::Done(None)),
        invited(InviteOutcome::Done(Some(OneTimeSecret("q7Xb2LmZ0aKc9RtYv4WnPs".to_owned())))),
        invited(InviteOutcome::Refused("client `laptop` is enrolled already".to_owned())),
        ControlMessage::Signal(Bytes::from(vec![7; SIGNAL_MAX])),
        ControlMessage::Node(Bytes::new()),
        ControlMessage::Node(Bytes::from(vec![7; NODE_MAX])),
        ControlMessage::FlowOpen(FlowOpen {
            flow: FlowId::new(3),
            open: Open {
                target: Target::Forward("udp://dns.internal:53".to_owned()),
                visitor: Some("192.0.2.7:5353".parse().unwrap()),
                priority: Priority::Interactive,
                fields: None,
            },
        }),
        ControlMessage::FlowClose(FlowClose { flow: FlowId::new(3), code: ResetCode::Other(99) }),
        register(
            [0, TCP_KEEPALIVE_MAX]
                .map(|keepalive| {
                    let keepalive = Duration::from_secs(keepalive.into());
                    let timeouts = Timeouts { keepalive, ..Timeouts::default() };
                    spec_on("probed", ServiceTerms { timeouts, ..ServiceTerms::default() })
                })
                .to_vec(),
        ),
        register(
            [1, Dscp::MAX]
                .map(|number| {
                    let dscp = Dscp::new(number).unwrap();
                    spec_on("marked", ServiceTerms { dscp, ..ServiceTerms::default() })
                })
                .to_vec(),
        ),
    ]
}

fn one(bytes: &[u8]) -> Result<Option<ControlMessage>, ControlError> {
    ControlDecoder::new().decode(&mut Bytes::copy_from_slice(bytes))
}

/// A Register whose body is `write`'s.
fn body(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    put_tlv(&mut out, REGISTER, write);
    out
}

fn generation(out: &mut BytesMut) {
    put_tlv(out, field::GENERATION, |out| out.put_u64(1));
}

fn text(out: &mut BytesMut, kind: u8, text: &[u8]) {
    put_tlv(out, kind, |out| out.put_slice(text));
}

#[test]
fn messages_come_out_as_they_went_in_whatever_the_pieces() {
    let all: Vec<u8> = examples().iter().flat_map(|m| m.encode().unwrap()).collect();
    for piece in 1..=all.len() {
        let mut decoder = ControlDecoder::new();
        let mut found = Vec::new();
        for chunk in all.chunks(piece) {
            let mut chunk = Bytes::copy_from_slice(chunk);
            while let Some(message) = decoder.decode(&mut chunk).unwrap() {
                found.push(message);
            }
        }
        assert_eq!(found, examples(), "pieces of {piece}");
    }
}

#[test]
fn unknown_fields_are_skipped_and_absent_ones_have_defaults() {
    let message = body(|out| {
        text(out, 200, b"of a newer peer");
        generation(out);
        put_tlv(out, field::SERVICE, |out| {
            text(out, 99, &[0xff; 3]);
            text(out, service::NAME, b"ssh");
        });
    });
    let empty = Register { generation: 1, services: vec![], leaving: false, standby: false };
    let expected =
        Register { services: vec![ServiceSpec { public: vec![], ..spec("ssh") }], ..empty };
    assert_eq!(one(&message), Ok(Some(ControlMessage::Register(expected))));
}

#[test]
fn a_text_with_a_control_character_is_refused_and_an_explanation_is_sent_without() {
    let bad = ControlError::Malformed("a text has a control character");
    for hostile in ["tcp://:1\nINFO forged", "\u{1b}[2J", "\u{9b}2J", "\u{202e}22:\u{2028}"] {
        let address = body(|out| {
            generation(out);
            put_tlv(out, field::SERVICE, |out| {
                text(out, service::NAME, b"ssh");
                text(out, service::ADDRESS, hostile.as_bytes());
            });
        });
        assert_eq!(one(&address), Err(bad), "{hostile:?}");
        let mut explained = BytesMut::new();
        put_tlv(&mut explained, REGISTERED, |out| {
            generation(out);
            put_tlv(out, field::SERVICE, |out| {
                text(out, service::NAME, b"ssh");
                text(out, service::ERROR, &[&[0, 1], hostile.as_bytes()].concat());
            });
        });
        assert_eq!(one(&explained), Err(bad), "{hostile:?}");

        let error = ServiceError { code: ServiceErrorCode::PortTaken, text: hostile.to_owned() };
        let refused = vec![refused("tcp://:1", &error)];
        let result = ServiceResult { refused, ..ServiceResult::whole(name("ssh"), Err(error)) };
        let registered = Registered { generation: 1, results: vec![result] };
        let sent = ControlMessage::Registered(registered).encode().unwrap();
        let Ok(Some(ControlMessage::Registered(registered))) = one(&sent) else {
            panic!("{hostile:?}")
        };
        for registered in registered.results[0].errors() {
            assert_eq!(registered.text, crate::text::escaped(hostile));
        }

        let mut service = spec("ssh");
        service.public = vec![hostile.to_owned()];
        assert_eq!(register(vec![service]).encode(), Err(EncodeError::Address(name("ssh"))));
    }
}

#[test]
fn an_unknown_kind_is_skipped_only_if_it_says_so() {
    let mut bytes = BytesMut::new();
    text(&mut bytes, IGNORABLE | 0x70, &[1; 300]);
    text(&mut bytes, IGNORABLE | 0x71, b"");
    bytes.extend_from_slice(&examples()[2].encode().unwrap());
    assert_eq!(one(&bytes), Ok(Some(examples()[2].clone())));
    assert_eq!(one(&[5, 0, 0, 0]), Err(ControlError::UnknownKind(5)));
}

#[test]
fn a_claimed_length_allocates_nothing_and_too_much_ends_it_at_the_head() {
    let mut decoder = ControlDecoder::new();
    assert_eq!(decoder.decode(&mut Bytes::from_static(&[REGISTER, 0x10, 0, 0])), Ok(None));
    assert!(decoder.capacity() < 1024, "a megabyte was claimed and four bytes came");
    let too_long = [REGISTER, 0x10, 0, 1];
    let error = ControlError::TooLong(MESSAGE_MAX + 1);
    let mut decoder = ControlDecoder::new();
    assert_eq!(decoder.decode(&mut Bytes::copy_from_slice(&too_long)), Err(error));
    let mut more = examples()[0].encode().unwrap();
    assert_eq!(decoder.decode(&mut more), Err(error), "an error repeats");
    assert_eq!(one(&[IGNORABLE, 0x10, 0, 1]), Err(error), "also of what is skipped");
}

#[test]
fn malformed_messages_are_refused() {
    type Write = fn(&mut BytesMut);
    let service: &[(&str, Write)] = &[
        ("no name", |_| {}),
        ("empty name", |out| text(out, service::NAME, b"")),
        ("bad name", |out| text(out, service::NAME, b"a b")),
        ("two names", |out| (text(out, service::NAME, b"a"), text(out, service::NAME, b"a")).1),
        ("empty address", |out| text(out, service::ADDRESS, b"")),
        ("long address", |out| text(out, service::ADDRESS, &[b'a'; TEXT_MAX + 1])),
        ("address not UTF-8", |out| text(out, service::ADDRESS, b"\xff")),
        ("priority of two bytes", |out| text(out, service::PRIORITY, b"\0\0")),
        ("no flags in flags", |out| text(out, service::FLAGS, b"")),
        ("length beyond the end", |out| out.put_slice(&[99, 0, 0, 1])),
        ("half a head", |out| out.put_slice(&[99, 0])),
        ("too many addresses", |out| {
            for _ in 0..=ADDRESSES_MAX {
                text(out, service::ADDRESS, b"a");
            }
        }),
    ];
    for (what, write) in service {
        let message = body(|out| {
            generation(out);
            put_tlv(out, field::SERVICE, write);
        });
        assert!(matches!(one(&message), Err(ControlError::Malformed(_))), "{what}");
    }
    let whole: &[(&str, Write)] = &[
        ("no generation", |_| {}),
        ("short generation", |out| text(out, field::GENERATION, b"1234567")),
        ("long generation", |out| text(out, field::GENERATION, b"123456789")),
        ("two generations", |out| (generation(out), generation(out)).1),
        ("too many services", |out| {
            generation(out);
            for _ in 0..=SERVICES_MAX {
                put_tlv(out, field::SERVICE, |out| text(out, service::NAME, b"a"));
            }
        }),
    ];
    for (what, write) in whole {
        assert!(matches!(one(&body(write)), Err(ControlError::Malformed(_))), "{what}");
    }
    let strained: &[(&str, Write)] = &[
        ("no rate", |_| {}),
        ("short rate", |out| text(out, field::RATE, b"1234567")),
        ("two rates", |out| (generation(out), generation(out)).1),
    ];
    for (what, write) in strained {
        let mut message = BytesMut::new();
        put_tlv(&mut message, STRAINED, write);
        assert!(matches!(one(&message), Err(ControlError::Malformed(_))), "{what}");
    }
    let stun: &[(&str, Write)] = &[
        ("no ports", |_| {}),
        ("half a port", |out| text(out, field::PORTS, &[1, 2, 3])),
        ("nine ports", |out| text(out, field::PORTS, &[7; 18])),
        ("ports twice", |out| {
            text(out, field::PORTS, &[1, 2]);
            text(out, field::PORTS, &[1, 2]);
        }),
    ];
    for (what, write) in stun {
        let mut message = BytesMut::new();
        put_tlv(&mut message, STUN, write);
        assert!(matches!(one(&message), Err(ControlError::Malformed(_))), "{what}");
    }
}

#[test]
fn the_encoder_refuses_what_the_decoder_would() {
    let services = vec![spec("a"); SERVICES_MAX + 1];
    assert_eq!(register(services).encode(), Err(EncodeError::Services(SERVICES_MAX + 1)));
    assert!(one(&register(vec![spec("a"); SERVICES_MAX]).encode().unwrap()).is_ok());

    let with = |public| register(vec![ServiceSpec { public, ..spec("a") }]);
    let many = EncodeError::Addresses { name: name("a"), count: ADDRESSES_MAX + 1 };
    assert_eq!(with(vec!["a".to_owned(); ADDRESSES_MAX + 1]).encode(), Err(many));
    assert_eq!(with(vec![String::new()]).encode(), Err(EncodeError::Address(name("a"))));
    let long = "a".repeat(TEXT_MAX + 1);
    assert_eq!(with(vec![long]).encode(), Err(EncodeError::Address(name("a"))));
    let address = "a".repeat(TEXT_MAX);
    let most = with(vec![address.clone(); MESSAGE_MAX / (TEXT_MAX + 4) - 1]);
    assert_eq!(one(&most.encode().unwrap()), Ok(Some(most)));
    assert!(matches!(with(vec![address; ADDRESSES_MAX]).encode(), Err(EncodeError::Long(_))));
}

#[test]
fn a_long_explanation_is_cut_between_characters() {
    let text = format!("a{}", "ä".repeat(TEXT_MAX));
    let outcome = Err(ServiceError { code: ServiceErrorCode::Internal, text });
    let results = vec![ServiceResult::whole(name("a"), outcome)];
    let message = ControlMessage::Registered(Registered { generation: 1, results });
    let Ok(Some(ControlMessage::Registered(found))) = one(&message.encode().unwrap()) else {
        panic!("it decodes")
    };
    let text = found.results[0].outcome.as_ref().unwrap_err().text.as_str();
    assert_eq!((text.len(), &text[..3]), (TEXT_MAX - 1, "aä"));
}

#[test]
fn explanations_of_many_refused_addresses_are_cut_until_the_message_fits() {
    let error = ServiceError { code: ServiceErrorCode::NotAllowed, text: "x".repeat(TEXT_MAX) };
    for (services, each, length) in [(1, 900, TEXT_MAX), (3, 1000, 256), (20, 1000, 0)] {
        let result = |n: usize| ServiceResult {
            refused: vec![refused("tcp://127.0.0.1:10000", &error); each],
            ..ServiceResult::whole(name(&format!("s{n}")), Ok(vec!["tcp://:1".to_owned()]))
        };
        let results = (0..services).map(result).collect();
        let message = ControlMessage::Registered(Registered { generation: 1, results });
        let bytes = message.encode().unwrap();
        assert!(bytes.len() <= MESSAGE_MAX + 4);
        let Ok(Some(ControlMessage::Registered(found))) = one(&bytes) else { panic!("it decodes") };
        let last = &found.results[services - 1].refused[each - 1];
        assert_eq!(last.address, "tcp://127.0.0.1:10000");
        assert_eq!(last.error.code, ServiceErrorCode::NotAllowed);
        assert_eq!(last.error.text.len(), length);
    }
}

#[test]
fn codes_keep_their_numbers() {
    for raw in 0..=300 {
        assert_eq!(ServiceErrorCode::from_raw(raw).raw(), raw);
    }
    assert_eq!(ServiceErrorCode::PortTaken.raw(), 1);
    assert_eq!(ServiceErrorCode::Internal.raw(), 6);
    assert_eq!(ServiceErrorCode::Waits.raw(), 7);
}

proptest! {
    #[test]
    fn any_bytes_decode_the_same_in_any_pieces(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        fuzz(&bytes);
    }
}

#[test]
fn a_list_of_networks_that_is_not_understood_is_refused_and_never_shortened() {
    let with = |kind: u8, lists: &[&[u8]]| {
        one(&body(|out| {
            generation(out);
            put_tlv(out, field::SERVICE, |out| {
                text(out, service::NAME, b"ssh");
                lists.iter().for_each(|list| text(out, kind, list));
            });
        }))
    };
    let full = [4, 24, 192, 0, 2, 0].repeat(NETWORKS_MAX);
    let long = [4, 24, 192, 0, 2, 0].repeat(NETWORKS_MAX + 1);
    let mapped =
        [&[6, 120, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff][..], &[192, 0, 2, 9]].concat();
    for kind in [service::ALLOW_FROM, service::DENY_FROM] {
        for bad in [
            &[4, 33, 192, 0, 2, 0][..],
            &[6, 129, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[5, 8, 192, 0, 2, 0],
            &[4, 24, 192, 0, 2],
            &[4],
            &long,
        ] {
            assert!(with(kind, &[bad]).is_err(), "{kind} {bad:?}");
        }
        assert!(with(kind, &[&[], &[]]).is_err(), "twice");
        assert!(with(kind, &[&full]).is_ok());
        let Ok(Some(ControlMessage::Register(read))) = with(kind, &[&mapped]) else { panic!() };
        let Visitors { allow_from, deny_from } = &read.services[0].terms.visitors;
        let list =
            if kind == service::ALLOW_FROM { allow_from.as_ref().unwrap() } else { deny_from };
        assert_eq!(*list, networks(&[("192.0.2.0", 24)]));
    }
    let apart = (0_u16..).take(NETWORKS_MAX + 1).map(|n| {
        let [a, b] = n.to_be_bytes();
        Network::new([10, a, b, 0].into(), 24)
    });
    let list: Networks = apart.flatten().collect();
    let visitors = Visitors { deny_from: list, ..Visitors::default() };
    let sent = register(vec![spec_on("a", ServiceTerms { visitors, ..terms() })]).encode();
    let (name, count) = (name("a"), NETWORKS_MAX + 1);
    assert_eq!(sent, Err(EncodeError::Networks { name, count }));
}

#[test]
fn a_list_of_time_outs_may_be_shorter_or_longer_than_ours() {
    let timeouts = |list: &[u8]| {
        let message = body(|out| {
            generation(out);
            put_tlv(out, field::SERVICE, |out| {
                text(out, service::NAME, b"ssh");
                text(out, service::TIMEOUTS, list);
            });
        });
        let Some(ControlMessage::Register(read)) = one(&message)? else { panic!("a Register") };
        Ok::<_, ControlError>(read.services[0].terms.timeouts)
    };
    let default = Timeouts::default();
    let dial = Duration::from_millis(7);
    assert_eq!(timeouts(&[]), Ok(default));
    assert_eq!(timeouts(&7_u64.to_be_bytes()), Ok(Timeouts { dial, ..default }));
    let longest = Duration::from_secs(10 * 366 * 86_400);
    let long = timeouts(&[0xff; 8 * 20]).unwrap();
    assert_eq!(long, Timeouts { keepalive: default.keepalive, ..long });
    let Timeouts { dial, idle, half_close, total, flush, idle_up, idle_down, .. } = long;
    assert_eq!([dial, idle, half_close, total, flush, idle_up, idle_down], [longest; 7]);
    // An older peer knows the first five.
    assert_eq!(timeouts(&[0; 8 * 5]).unwrap().idle_up, Duration::ZERO);
    assert!(timeouts(&[0; 7]).is_err(), "a part of a number");
}

/// The result of a Register with one service that has these options.
fn with_http(write: impl FnOnce(&mut BytesMut)) -> Result<HttpOptions, ControlError> {
    let message = body(|out| {
        generation(out);
        put_tlv(out, field::SERVICE, |out| {
            text(out, service::NAME, b"web");
            put_tlv(out, service::HTTP, write);
        });
    });
    let Some(ControlMessage::Register(read)) = one(&message)? else { panic!("a Register") };
    Ok(read.services[0].terms.http.clone())
}

#[test]
fn an_unknown_option_of_http_ends_the_link_unless_it_may_be_ignored() {
    let unknown = ControlError::Malformed("an unknown option of HTTP");
    for kind in [0, 0x60, 0x7f] {
        assert_eq!(with_http(|out| text(out, kind, b"x")), Err(unknown), "{kind}");
    }
    for kind in [IGNORABLE, 0xff] {
        assert_eq!(with_http(|out| text(out, kind, b"x")), Ok(HttpOptions::default()), "{kind}");
    }
    for flags in [0x40, 0x80] {
        assert!(with_http(|out| text(out, 1, &[flags])).is_err(), "{flags}");
    }
}

#[test]
fn malformed_options_of_http_are_refused() {
    type Write = fn(&mut BytesMut);
    let bad: &[(&str, Write)] = &[
        ("two flags", |out| (text(out, 1, &[1]), text(out, 1, &[1])).1),
        ("no flags in flags", |out| text(out, 1, b"")),
        ("long flags", |out| text(out, 1, &[0, 0])),
        ("pass_through and credentials", |out| (text(out, 1, &[1]), text(out, 2, b"a:b")).1),
        ("no password", |out| text(out, 2, b"a")),
        ("a line end in a password", |out| text(out, 2, b"a:b\r\nc")),
        ("two hosts", |out| (text(out, 3, b"a"), text(out, 3, b"a")).1),
        ("a line end in a host", |out| text(out, 3, b"a\r\nb")),
        ("a path with dots", |out| text(out, 4, b"/a/../b")),
        ("two redirects", |out| (text(out, 9, b"http://a"), text(out, 9, b"http://a")).1),
        ("a redirect to no host", |out| text(out, 9, b"https://{uri}")),
        ("a line end in a redirect", |out| text(out, 9, b"https://a/\r\nb: c")),
        ("a short time of hsts", |out| text(out, 10, b"\0\0\0")),
        ("a long time of hsts", |out| text(out, 10, b"\0\0\0\0\0")),
        ("a path in the place of none", |out| text(out, 11, b"/")),
        ("dots in the place of a path", |out| (text(out, 4, b"/a"), text(out, 11, b"/..")).1),
        ("pass_through and a redirect", |out| (text(out, 1, &[1]), text(out, 9, b"http://a")).1),
        ("a field without name", |out| text(out, 5, b"\0value")),
        ("a field with a short name", |out| text(out, 5, b"\x05name")),
        ("a field of the framing", |out| text(out, 5, b"\x0econtent-length1")),
        ("a line end in a value", |out| text(out, 7, b"\x01ab\r\nc: d")),
        ("a blank in a name", |out| text(out, 6, b"a b")),
        ("no target", |out| text(out, 13, b"")),
        ("a target over HTTP/1.1", |out| text(out, 13, &[0])),
        ("an unknown target", |out| text(out, 13, &[3])),
        ("a long target", |out| text(out, 13, &[1, 0])),
        ("two targets", |out| (text(out, 13, &[1]), text(out, 13, &[1])).1),
        ("pass_through to HTTP/2", |out| (text(out, 1, &[1]), text(out, 13, &[2])).1),
        ("no requests at all", |out| text(out, 0xDD, &[0; 4])),
        ("a short limit of requests", |out| text(out, 0xDD, &[0, 0, 1])),
        ("two limits of requests", |out| {
            (text(out, 0xDD, &[0, 0, 0, 1]), text(out, 0xDD, &[0, 0, 0, 1])).1
        }),
        ("pass_through and a limit of requests", |out| {
            (text(out, 1, &[1]), text(out, 0xDD, &[0, 0, 0, 1])).1
        }),
        ("Host removed", |out| text(out, 6, b"Host")),
        ("too many credentials", |out| (0..=CREDENTIALS_MAX).for_each(|_| text(out, 2, b"a:b"))),
        ("too many fields to set", |out| (0..=EDITS_MAX).for_each(|_| text(out, 7, b"\x01ab"))),
        ("too many to remove", |out| (0..=EDITS_MAX).for_each(|_| text(out, 8, b"a"))),
    ];
    for (what, write) in bad {
        assert!(matches!(with_http(write), Err(ControlError::Malformed(_))), "{what}");
    }
    assert!(with_http(|out| (0..EDITS_MAX).for_each(|_| text(out, 7, b"\x01ab"))).is_ok());
}

#[test]
fn the_encoder_refuses_options_of_http_that_the_decoder_would() {
    let send = |http| register(vec![spec_on("a", ServiceTerms { http, ..terms() })]).encode();
    let refused = |why| Err(EncodeError::Http { name: name("a"), why });
    let host_rewrite = Some("a\r\nb".to_owned());
    assert_eq!(send(HttpOptions { host_rewrite, ..options() }), refused(HttpOptionError::Host));
    let both = HttpOptions { pass_through: true, ..options() };
    assert_eq!(send(both), refused(HttpOptionError::PassThrough));
    let many = HttpOptions { basic_auth: vec!["a:b".to_owned(); 17], ..options() };
    assert_eq!(send(many), refused(HttpOptionError::Credentials));
    let hashes = |hashes| send(HttpOptions { hashes, ..options() });
    let of = |nth: usize| format!("u{nth}:{HASH}");
    assert_eq!(hashes((0..=HASHES_MAX).map(of).collect()), refused(HttpOptionError::Hashes));
    assert_eq!(hashes(vec![of(1), of(1)]), refused(HttpOptionError::Twice));
    let weak = refused(HttpOptionError::Hash(HashError::Kind));
    assert_eq!(hashes(vec!["ann:{SHA}x".to_owned()]), weak);
    assert!(one(&hashes((0..HASHES_MAX).map(of).collect()).unwrap()).is_ok());
    let alone = HttpOptions { path: None, ..options() };
    assert_eq!(send(alone), refused(HttpOptionError::StripPrefix));
    let mut forged = options();
    forged.response.set[0].1 = "1\r\nSet-Cookie: x".to_owned();
    assert_eq!(send(forged), refused(HttpOptionError::FieldValue));
    let largest = HttpOptions {
        basic_auth: vec![format!("a:{}", "b".repeat(TEXT_MAX - 2)); CREDENTIALS_MAX],
        ..options()
    };
    assert!(one(&send(largest).unwrap()).is_ok());
}

#[test]
fn a_signal_that_is_too_long_is_neither_sent_nor_taken() {
    let long = Bytes::from(vec![0; SIGNAL_MAX + 1]);
    let message = ControlMessage::Signal(long.clone());
    assert_eq!(message.encode(), Err(EncodeError::Signal(SIGNAL_MAX + 1)));
    let mut out = BytesMut::new();
    put_tlv(&mut out, SIGNAL, |out| out.put_slice(&long));
    // The message is refused at its header, before a byte of the body is buffered.
    assert_eq!(one(&out[..4]), Err(ControlError::TooLong(SIGNAL_MAX + 1)));
}

#[test]
fn a_message_between_nodes_that_is_too_long_is_neither_sent_nor_taken() {
    let long = Bytes::from(vec![0; NODE_MAX + 1]);
    let message = ControlMessage::Node(long.clone());
    assert_eq!(message.encode(), Err(EncodeError::Node(NODE_MAX + 1)));
    let mut out = BytesMut::new();
    put_tlv(&mut out, NODE, |out| out.put_slice(&long));
    assert_eq!(one(&out[..4]), Err(ControlError::TooLong(NODE_MAX + 1)));
}

#[test]
fn visitors_of_a_private_service_are_patterns_in_bounds() {
    let with = |count: usize| {
        let pattern: NamePattern = "a*".parse().unwrap();
        let private = Some(vec![pattern; count].into());
        register(vec![spec_on("a", ServiceTerms { private, ..ServiceTerms::default() })])
    };
    let bytes = with(VISITORS_MAX).encode().unwrap();
    assert_eq!(one(&bytes), Ok(Some(with(VISITORS_MAX))));
    let count = VISITORS_MAX + 1;
    let refused = EncodeError::Visitors { name: name("a"), count };
    assert_eq!(with(count).encode(), Err(refused));
    let visitors = |list: &[u8]| {
        one(&body(|out| {
            generation(out);
            put_tlv(out, field::SERVICE, |out| {
                text(out, service::NAME, b"a");
                text(out, service::VISITORS, list);
            });
        }))
    };
    let many = b"\x01a".repeat(count);
    let malformed = |what| Err(ControlError::Malformed(what));
    assert_eq!(visitors(&many), malformed("too many visitors of one service"));
    for bad in [&b"\x00"[..], b"\x03a b", b"\x03a*b"] {
        assert_eq!(visitors(bad), malformed("a visitor is not a name"));
    }
    assert_eq!(visitors(b"\x02a"), malformed("a field ends too early"));
}

#[test]
fn invitations_are_whole_and_their_secret_is_never_shown() {
    let secret = "q7Xb2LmZ0aKc9RtYv4WnPs";
    let done = invited(InviteOutcome::Done(Some(OneTimeSecret(secret.to_owned()))));
    assert!(!format!("{done:?}").contains(secret));
    let long = invited(InviteOutcome::Refused(format!("\n{}", "x".repeat(2000))));
    let Ok(Some(ControlMessage::Invited(cut))) = one(&long.encode().unwrap()) else { panic!() };
    let InviteOutcome::Refused(why) = cut.outcome else { panic!() };
    assert_eq!((why.len(), &why[..3]), (TEXT_MAX, "\\nx"));
    let whole = invite(InviteAction::New).encode().unwrap();
    let mut unknown = BytesMut::from(&whole[..]);
    *unknown.last_mut().unwrap() = 9;
    assert_eq!(one(&unknown), Err(ControlError::Malformed("no such action")));
    let mut short = BytesMut::new();
    put_tlv(&mut short, whole[0], |out| out.put_slice(&whole[4..whole.len() - 5]));
    assert_eq!(one(&short), Err(ControlError::Malformed("an invitation lacks a field")));
}
