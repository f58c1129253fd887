//! `SPEC.md` and the code agree on frames, kinds and codes.

#![allow(clippy::disallowed_methods, reason = "a test reads what is kept beside the code")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::VecDeque;
use std::iter::once;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use proto::greeting::{Binding, PassedGreeting};
use proto::{
    Attach, CarrierNumber, Event, Head, Hop, Link, LinkConfig, LinkId, Measure, NodeQuestion, Open,
    Priority, ResetCode, Side, StreamKey, Target, Unlimited, ViolationCode, VisitorFields,
};
use testkit::pair::epoch;

const FIRST: CarrierNumber = CarrierNumber(1);

fn spec() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("SPEC.md");
    std::fs::read_to_string(path).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn example(name: &str) -> String {
    named(&format!("frame-{name}"))
}

fn named(name: &str) -> String {
    let text = spec();
    let (_, rest) = text.split_once(&format!("```hex name={name}\n")).expect(name);
    let (block, _) = rest.split_once("```").unwrap();
    let digits = block.lines().map(|line| line.split('#').next().unwrap());
    digits.flat_map(str::split_whitespace).collect()
}

fn link(side: Side) -> Link {
    let mut link = Link::new(side, LinkConfig::default(), Rc::new(Unlimited), epoch());
    link.attach(epoch(), FIRST, Attach::New);
    link
}

fn sent(link: &mut Link, carrier: CarrierNumber) -> Vec<u8> {
    let mut out = VecDeque::<Bytes>::new();
    link.poll_transmit(epoch(), carrier, &mut out);
    out.into_iter().flatten().collect()
}

#[track_caller]
fn assert_sent(name: &str, link: &mut Link) -> Vec<u8> {
    let bytes = sent(link, FIRST);
    assert_eq!(hex(&bytes), example(name), "{name}");
    bytes
}

fn give(link: &mut Link, bytes: &[u8]) {
    let mut buf = BytesMut::from(bytes);
    while link.handle_input(epoch(), FIRST, &mut buf).unwrap().is_some() {}
}

/// A client with the stream of the example.
fn opener() -> (Link, StreamKey) {
    let mut client = link(Side::Client);
    sent(&mut client, FIRST);
    let open = Open {
        target: Target::Service("ssh".into()),
        visitor: Some("192.0.2.7:50000".parse().unwrap()),
        priority: Priority::Normal,
        fields: None,
    };
    let key = client.open(&open).unwrap();
    (client, key)
}

#[test]
fn every_example_of_a_frame_is_what_the_code_sends() {
    let mut server = link(Side::Server);
    let ping = assert_sent("ping", &mut server);
    give(&mut server, &ping);
    assert_sent("pong", &mut server);

    let (mut client, key) = opener();
    give(&mut server, &assert_sent("open", &mut client));
    assert_sent("credit", &mut server);
    assert!(client.send_slice(key, b"hi"));
    assert_sent("data", &mut client);
    client.finish(key);
    assert_sent("fin", &mut client);
    assert!(client.send_control(b"hi"));
    assert_sent("control", &mut client);
    client.go_away();
    assert_sent("goaway", &mut client);

    let (mut client, key) = opener();
    let mut server = link(Side::Server);
    sent(&mut server, FIRST);
    give(&mut server, &sent(&mut client, FIRST));
    sent(&mut server, FIRST);
    client.reset(key, ResetCode::Refused);
    client.stop(key, ResetCode::Refused);
    let end = assert_sent("reset-stop", &mut client);
    give(&mut server, &end[..10]);
    assert_sent("credit-ack", &mut server);
}

#[test]
fn the_example_of_an_open_over_unix_sockets_is_what_the_code_sends() {
    let (mut client, _) = opener();
    sent(&mut client, FIRST);
    let target = Target::Forward("unix:///run/app.sock".into());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    client.open(&open).unwrap();
    assert_sent("open-unix", &mut client);
}

#[test]
fn the_example_of_an_open_with_fields_is_what_the_code_sends_and_reads() {
    let (mut client, _) = opener();
    sent(&mut client, FIRST);
    let open = Open {
        target: Target::Service("ssh".into()),
        visitor: Some("192.0.2.7:50000".parse().unwrap()),
        priority: Priority::Normal,
        fields: VisitorFields::new(&[0x20, 0, 5, 1, 0, 0, 0, 0]),
    };
    client.open(&open).unwrap();
    let bytes = assert_sent("open-fields", &mut client);
    let read = |bytes: &[u8]| {
        let mut server = link(Side::Server);
        let mut buf = BytesMut::from(bytes);
        match server.handle_input(epoch(), FIRST, &mut buf).unwrap() {
            Some(Event::Opened { open, .. }) => Some(open),
            _ => None,
        }
    };
    assert_eq!(read(&bytes), Some(open.clone()));
    // Behind them a TLV of a newer version, and fields that are incomplete: neither has an effect.
    let with = |tail: &[u8]| {
        let mut all = [&bytes[..bytes.len() - 12], tail].concat();
        all[3] = u8::try_from(all.len() - 8).unwrap();
        read(&all)
    };
    let newer = [&bytes[bytes.len() - 12..], &[9, 0, 0, 1, 7]].concat();
    assert_eq!(with(&newer), Some(open.clone()));
    let without = Some(Open { fields: None, ..open });
    assert_eq!(with(&[]), without);
    assert_eq!(with(&[1, 0, 0, 4, 0x20, 0, 5, 1]), without);
    // A TLV that is cut off.
    assert_eq!(with(&[1, 0, 0, 9, 0x20, 0, 0]), None);
}

#[test]
fn the_longest_target_with_the_most_fields_fits() {
    let (mut client, mut server) = (link(Side::Client), link(Side::Server));
    let value = [&[0xe0, 1, 253][..], &[7; 509]].concat();
    let open = Open {
        target: Target::Forward("x".repeat(300)),
        visitor: Some("[2001:db8::1]:50000".parse().unwrap()),
        priority: Priority::Normal,
        fields: VisitorFields::new(&value),
    };
    assert!(open.fields.is_some());
    sent(&mut client, FIRST);
    client.open(&open).unwrap();
    let mut buf = BytesMut::from(&sent(&mut client, FIRST)[..]);
    let event = server.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open: read, .. }) if read == open));
}

#[test]
fn the_example_of_a_private_service_is_what_the_code_sends_and_reads() {
    let (mut client, _) = opener();
    sent(&mut client, FIRST);
    client.open(&unnamed()).unwrap();
    sent(&mut client, FIRST);
    let private = Open {
        target: Target::Private {
            client: "home".parse().unwrap(),
            service: "ssh".parse().unwrap(),
        },
        visitor: Some("192.0.2.7:50000".parse().unwrap()),
        priority: Priority::Normal,
        fields: None,
    };
    client.open(&private).unwrap();
    let bytes = assert_sent("open-private", &mut client);
    let mut server = link(Side::Server);
    let mut buf = BytesMut::from(&bytes[..]);
    let event = server.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open, .. }) if open == private));
}

#[test]
fn the_example_of_a_detour_is_what_the_code_sends_and_reads() {
    let (mut client, _) = opener();
    sent(&mut client, FIRST);
    client.open(&unnamed()).unwrap();
    sent(&mut client, FIRST);
    let target = Target::Detour("tcp://fra.example.com:7000".into());
    let detour = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    client.open(&detour).unwrap();
    let bytes = assert_sent("open-detour", &mut client);
    let mut server = link(Side::Server);
    let mut buf = BytesMut::from(&bytes[..]);
    let event = server.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open, .. }) if open == detour));
}

#[test]
fn the_example_of_a_hop_is_what_the_code_sends_and_reads() {
    let (mut node, _) = opener();
    sent(&mut node, FIRST);
    node.open(&unnamed()).unwrap();
    sent(&mut node, FIRST);
    let (client, service) = ("home".parse().unwrap(), "web".parse().unwrap());
    let (mark, guest) = (None, None);
    let hop = Hop { client, instance: 7, generation: 42, service, claim: 43, mark, visitor: guest };
    let visitor = Some("192.0.2.7:50000".parse().unwrap());
    let open = Open { target: Target::Hop(hop), visitor, priority: Priority::Normal, fields: None };
    node.open(&open).unwrap();
    let bytes = assert_sent("open-hop", &mut node);
    let mut other = link(Side::Server);
    let mut buf = BytesMut::from(&bytes[..]);
    let event = other.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open: read, .. }) if read == open));
}

#[test]
fn the_example_of_a_visit_over_a_hop_is_what_the_code_sends_and_reads() {
    let (mut node, _) = opener();
    sent(&mut node, FIRST);
    node.open(&unnamed()).unwrap();
    sent(&mut node, FIRST);
    let (client, service) = ("home".parse().unwrap(), "ssh".parse().unwrap());
    let (mark, visitor) = (None, Some("laptop".parse().unwrap()));
    let hop = Hop { client, instance: 7, generation: 42, service, claim: 0, mark, visitor };
    let (target, visitor) = (Target::Hop(hop), Some("192.0.2.7:50000".parse().unwrap()));
    let open = Open { target, visitor, priority: Priority::Normal, fields: None };
    node.open(&open).unwrap();
    let bytes = assert_sent("open-hop-visit", &mut node);
    let mut other = link(Side::Server);
    let mut buf = BytesMut::from(&bytes[..]);
    let event = other.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open: read, .. }) if read == open));
}

#[test]
fn the_example_of_a_question_is_what_the_code_sends_and_reads() {
    let (mut node, _) = opener();
    sent(&mut node, FIRST);
    node.open(&unnamed()).unwrap();
    sent(&mut node, FIRST);
    let question = NodeQuestion::Terms { client: "home".parse().unwrap(), claim: 43 };
    let target = Target::Ask(question);
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    node.open(&open).unwrap();
    let bytes = assert_sent("open-ask", &mut node);
    let mut other = link(Side::Server);
    let mut buf = BytesMut::from(&bytes[..]);
    let event = other.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open: read, .. }) if read == open));
}

#[test]
fn the_example_of_a_passed_carrier_is_what_the_code_sends_and_reads() {
    let (mut node, _) = opener();
    sent(&mut node, FIRST);
    node.open(&unnamed()).unwrap();
    sent(&mut node, FIRST);
    let link_id = LinkId([0xaa; 16]);
    let question = NodeQuestion::Carrier { client: "home".parse().unwrap(), link: link_id };
    let visitor = Some("192.0.2.7:50000".parse().unwrap());
    let target = Target::Ask(question);
    let open = Open { target, visitor, priority: Priority::Normal, fields: None };
    node.open(&open).unwrap();
    let bytes = assert_sent("open-carrier", &mut node);
    let mut other = link(Side::Server);
    let mut buf = BytesMut::from(&bytes[..]);
    let event = other.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open: read, .. }) if read == open));
}

#[test]
fn the_example_of_a_passed_greeting_is_what_the_code_sends_and_reads() {
    let (binding, transport) = (Binding::Exporter([0xee; 32]), "tls".to_owned());
    let passed = PassedGreeting { nonce: [0x55; 32], binding, certificate: false, transport };
    let bytes = passed.encode().unwrap();
    assert_eq!(hex(&bytes), named("passed-greeting"));
    assert_eq!(PassedGreeting::decode(&bytes[PassedGreeting::HEAD..]), Some(passed));
}

#[test]
fn the_example_of_a_service_with_a_mark_is_what_the_code_sends_and_reads() {
    let mut server = link(Side::Server);
    sent(&mut server, FIRST);
    let target = Target::Marked { service: "web".into(), mark: 0x9f86_d081_884c_7d65 };
    let visitor = Some("192.0.2.7:50000".parse().unwrap());
    let open = Open { target, visitor, priority: Priority::Normal, fields: None };
    server.open(&open).unwrap();
    let bytes = assert_sent("open-marked", &mut server);
    let mut client = link(Side::Client);
    let mut buf = BytesMut::from(&bytes[..]);
    let event = client.handle_input(epoch(), FIRST, &mut buf).unwrap();
    assert!(matches!(event, Some(Event::Opened { open: read, .. }) if read == open));
}

fn unnamed() -> Open {
    Open {
        target: Target::Service("x".into()),
        visitor: None,
        priority: Priority::Normal,
        fields: None,
    }
}

#[test]
fn the_example_of_a_measurement_is_what_the_code_sends() {
    let (mut client, _) = opener();
    sent(&mut client, FIRST);
    let target = Target::Measure(Measure::Source { millis: 300_000 });
    let open = Open { target, visitor: None, priority: Priority::Bulk, fields: None };
    client.open(&open).unwrap();
    assert_sent("open-measure", &mut client);
}

#[test]
fn the_examples_of_datagrams_are_what_the_code_sends() {
    let flow = |payload: &[u8]| {
        let mut client = link(Side::Client);
        let open = Open {
            target: Target::Service("dns".into()),
            visitor: None,
            priority: Priority::Normal,
            fields: None,
        };
        let key = client.open_flow(&open).unwrap();
        sent(&mut client, FIRST);
        assert_eq!(client.send_datagrams(epoch(), key, once(payload)), 0);
        client
    };
    assert_sent("datagram", &mut flow(b"hi"));
    let packets = |payload: &[u8]| {
        let mut client = flow(payload);
        client.takes_packets(FIRST);
        let mut out = Vec::<Bytes>::new();
        client.poll_packets(epoch(), FIRST, (522, usize::MAX), &mut out);
        out
    };
    assert_eq!(hex(&packets(b"hi")[0]), named("packet-whole"));
    let pieces = packets(&[7; 3_000]);
    assert_eq!(hex(&pieces[1][..10]), named("packet-fragment"));
    assert!(pieces.iter().all(|piece| piece.len() <= 522));
}

#[test]
fn the_example_of_a_resume_is_what_the_code_sends() {
    let (mut client, _) = opener();
    sent(&mut client, FIRST);
    client.attach(epoch(), CarrierNumber(2), Attach::Replaces(FIRST));
    let bytes = sent(&mut client, CarrierNumber(2));
    // The PING that measures the new carrier follows.
    assert_eq!(hex(&bytes), example("resume") + &example("ping"));
}

/// Client and server whose first carrier is lost, with the frames of each on the next carrier,
/// without the PING that measures it.
fn resume(client: &mut Link, server: &mut Link) -> [String; 2] {
    let next = CarrierNumber(2);
    [client, server].map(|link| {
        link.attach(epoch(), next, Attach::Replaces(FIRST));
        let bytes = sent(link, next);
        let (resume, ping) = bytes.split_at(bytes.len() - 16);
        assert_eq!(ping[..8], [8, 0, 0, 8, 0, 0, 0, 0]);
        hex(resume)
    })
}

/// Passes the output of `from` to `to`. Returns the immediate reply of `to`, without PONGs.
fn exchange(from: &str, to: &mut Link) -> String {
    let bytes: Vec<u8> = (0..from.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&from[at..at + 2], 16).unwrap())
        .collect();
    let mut buf = BytesMut::from(&bytes[..]);
    while to.handle_input(epoch(), CarrierNumber(2), &mut buf).unwrap().is_some() {}
    hex(&sent(to, CarrierNumber(2)))
}

#[test]
fn the_examples_of_resumption_are_what_the_code_sends() {
    // The OPEN and "hi" are lost.
    let (mut client, key) = opener();
    let mut server = link(Side::Server);
    sent(&mut server, FIRST);
    assert!(client.send_slice(key, b"hi"));
    sent(&mut client, FIRST);
    let said = resume(&mut client, &mut server);
    assert_eq!(said, [example("resume"), example("lost-open-server")]);
    assert_eq!(exchange(&said[0], &mut server), "", "the server has nothing to send again");
    let again = exchange(&said[1], &mut client);
    assert_eq!(again, example("lost-open-again"));
    assert_eq!(again, example("open") + &example("data"));

    // The FIN is lost, and one byte of the two before it was read.
    let (mut client, key) = opener();
    let mut server = link(Side::Server);
    sent(&mut server, FIRST);
    assert!(client.send_slice(key, b"hi"));
    client.finish(key);
    let bytes = sent(&mut client, FIRST);
    give(&mut server, &bytes[..bytes.len() - 1 - 12]);
    sent(&mut server, FIRST);
    let said = resume(&mut client, &mut server);
    assert_eq!(said, [example("lost-fin-client"), example("lost-fin-server")]);
    assert_eq!(exchange(&said[0], &mut server), "");
    let again = exchange(&said[1], &mut client);
    assert_eq!(again, example("lost-fin-again"));
    assert_eq!(exchange(&again, &mut server), example("lost-fin-ack"));

    // Only that acknowledgement is lost with the next carrier: now it is in the RESUME.
    server.attach(epoch(), CarrierNumber(3), Attach::Replaces(CarrierNumber(2)));
    let bytes = sent(&mut server, CarrierNumber(3));
    assert_eq!(hex(&bytes[..bytes.len() - 16]), example("fin-seen-server"));
}

/// First and second cells of the table under a line.
fn table(after: &str) -> Vec<(String, String)> {
    let text = spec();
    let (_, rest) = text.split_once(after).expect(after);
    let rows = rest.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let mut cells = row.split('|').skip(1).map(|cell| cell.trim().to_owned());
            (cells.next().unwrap(), cells.next().unwrap())
        })
        .collect()
}

#[test]
fn the_table_of_kinds_is_complete_and_right() {
    let rows = table("### Kinds");
    for raw in 0..32u8 {
        let kind = Head::decode([raw, 0, 0, 0, 0, 0, 0, 0]).kind;
        let name = kind.map(|kind| format!("{kind:?}").to_uppercase());
        let row = rows.iter().find(|(number, _)| *number == raw.to_string());
        assert_eq!(row.map(|(_, name)| name.clone()), name, "kind {raw}");
    }
}

#[test]
fn the_tables_of_codes_are_complete_and_right() {
    let rows = table("RESET and STOP:\n");
    let code = |raw: u16| ResetCode::from_raw(raw);
    let known: Vec<_> = (1..1000)
        .filter(|raw| !matches!(code(*raw), ResetCode::Other(_)))
        .map(|raw| (raw.to_string(), code(raw).to_string()))
        .collect();
    assert_eq!(rows, known);
    let violations = [
        ViolationCode::UnknownKind,
        ViolationCode::BadLength,
        ViolationCode::BadStream,
        ViolationCode::Gap,
        ViolationCode::Credit,
        ViolationCode::Contradiction,
        ViolationCode::Malformed,
        ViolationCode::BadResume,
        ViolationCode::Flood,
    ];
    let expected: Vec<_> =
        violations.iter().map(|code| (format!("{:#x}", code.raw()), code.to_string())).collect();
    assert_eq!(table("GOAWAY, when a rule was broken:\n"), expected);
}
