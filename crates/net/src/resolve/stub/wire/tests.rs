use std::net::Ipv6Addr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::packets::*;
use super::*;

const ID: u16 = 0x1234;

fn question() -> (Question, Vec<u8>) {
    let question = Question { name: "app.test".into(), kind: RecordKind::A };
    let packet = question.packet(ID).unwrap();
    (question, packet)
}

/// What the answer with these records says.
fn read(flags: u16, answer: &[PacketRecord<'_>], authority: &[PacketRecord<'_>]) -> Option<Said> {
    let (question, packet) = question();
    question.read(ID, &reply(&packet, flags, answer, authority))
}

fn found(ips: &[[u8; 4]], ttl: u64) -> Option<Said> {
    let found = ips.iter().map(|ip| Record::Address(IpAddr::from(*ip))).collect();
    let reply = DnsReply { found, exists: true, ttl: Some(Duration::from_secs(ttl)) };
    Some(Said::Reply { reply, is_whole: true })
}

fn nothing(exists: bool, ttl: Option<u64>) -> Option<Said> {
    let reply = DnsReply { found: Vec::new(), exists, ttl: ttl.map(Duration::from_secs) };
    Some(Said::Reply { reply, is_whole: true })
}

#[test]
fn a_question_asks_for_one_name_and_for_recursion() {
    let (_, packet) = question();
    assert_eq!(
        packet,
        [b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" as &[u8], b"\x03app\x04test\0\0\x01\0\x01"].concat()
    );
    for name in ["", ".", "a..b", "a b", "ä.test", &"a".repeat(64), &"a.".repeat(130)] {
        assert_eq!(Question { name: name.into(), kind: RecordKind::A }.packet(ID), None, "{name}");
    }
}

#[test]
fn only_records_on_the_way_from_the_name_count_and_the_shortest_time_holds() {
    let one = [10, 0, 0, 1];
    assert_eq!(
        read(ANSWER, &[a("APP.test", 60, one), a("app.test", 30, one)], &[]),
        found(&[one], 60)
    );
    let others = [a("other.test", 60, [6, 6, 6, 6]), a("app.test", 60, one)];
    assert_eq!(read(ANSWER, &others, &[]), found(&[one], 60));
    let v6 = Question { name: "app.test".into(), kind: RecordKind::Aaaa };
    let both = [
        a("app.test", 9, one),
        PacketRecord {
            owner: "app.test",
            kind: AAAA,
            ttl: 9,
            data: Ipv6Addr::LOCALHOST.octets().into(),
        },
    ];
    let Some(Said::Reply { reply: parsed, .. }) =
        v6.read(ID, &reply(&v6.packet(ID).unwrap(), ANSWER, &both, &[]))
    else {
        panic!("no reply")
    };
    assert_eq!(parsed.found, [Record::Address(Ipv6Addr::LOCALHOST.into())]);
    // Aliases may stand in any order.
    let chain = [
        a("c.test", 60, one),
        cname("b.test", 20, "c.test"),
        cname("app.test", 40, "B.test"),
        a("d.test", 1, [6, 6, 6, 6]),
    ];
    assert_eq!(read(ANSWER, &chain, &[]), found(&[one], 20));
}

#[test]
fn circles_of_aliases_and_of_compressed_names_end() {
    let circle = [cname("app.test", 9, "b.test"), cname("b.test", 9, "app.test")];
    assert_eq!(read(ANSWER, &circle, &[]), nothing(true, None));
    let (question, packet) = question();
    let mut answer = reply(&packet, ANSWER, &[a("app.test", 9, [10, 0, 0, 1])], &[]);
    // The owner of the record becomes a pointer to itself.
    let owner = packet.len();
    answer.splice(owner..owner + 10, [0xc0, u8::try_from(owner).unwrap()]);
    assert_eq!(question.read(ID, &answer), None);
}

#[test]
fn the_time_of_a_negative_answer_is_that_of_the_zone() {
    assert_eq!(read(NO_NAME, &[], &[soa("test", 300, 7)]), nothing(false, Some(7)));
    assert_eq!(read(ANSWER, &[], &[soa("test", 5, 900)]), nothing(true, Some(5)));
    assert_eq!(read(NO_NAME, &[], &[]), nothing(false, None));
}

#[test]
fn a_packet_that_is_no_answer_to_the_question_is_not_looked_at() {
    let (question, packet) = question();
    let good = reply(&packet, ANSWER, &[a("app.test", 9, [10, 0, 0, 1])], &[]);
    assert!(question.read(ID, &good).is_some());
    assert_eq!(question.read(ID ^ 1, &good), None, "another number");
    let other = Question { name: "app.test".into(), kind: RecordKind::Aaaa };
    assert_eq!(other.read(ID, &good), None, "another type");
    let other = Question { name: "apq.test".into(), kind: RecordKind::A };
    assert_eq!(other.read(ID, &good), None, "another name");
    assert_eq!(question.read(ID, &packet), None, "a question");
    for size in 0..good.len() {
        assert_eq!(question.read(ID, &good[..size]), None, "{size} bytes");
    }
}

#[test]
fn a_refusal_is_told_with_its_code_even_without_the_question() {
    let refused = Some(Said::Refusal(Rcode::REFUSED));
    assert_eq!(read(0x8185, &[], &[]), refused);
    let (question, packet) = question();
    let mut bare = reply(&packet, 0x8185, &[], &[])[..12].to_vec();
    bare[5] = 0;
    assert_eq!(question.read(ID, &bare), refused);
    // A server that knows nothing and looks nothing up.
    assert_eq!(read(0x8000, &[], &[]), Some(Said::Lame));
}

#[test]
fn of_an_answer_that_was_cut_the_addresses_that_are_there_count() {
    let (question, packet) = question();
    let both = [a("app.test", 9, [10, 0, 0, 1]), a("app.test", 9, [10, 0, 0, 2])];
    let whole = reply(&packet, ANSWER | 0x0200, &both, &[]);
    let Some(Said::Reply { reply, is_whole: false }) = question.read(ID, &whole[..whole.len() - 5])
    else {
        panic!("no part")
    };
    assert_eq!(reply.found, [Record::Address([10, 0, 0, 1].into())]);
}

#[test]
fn a_name_has_a_bounded_number_of_addresses() {
    let many: Vec<_> = (0..100).map(|n| a("app.test", 9, [10, 0, 0, n])).collect();
    let Some(Said::Reply { reply, .. }) = read(ANSWER, &many, &[]) else { panic!("no reply") };
    assert_eq!(reply.found.len(), ADDRESSES);
}

const SERVICE: &str = "_tunnel._tcp.test";

/// What the answer with these records says to a question about the service.
fn read_service(answer: &[PacketRecord<'_>]) -> Option<Said> {
    let question = Question { name: SERVICE.into(), kind: RecordKind::Srv };
    let packet = question.packet(ID).unwrap();
    question.read(ID, &reply(&packet, ANSWER, answer, &[]))
}

fn services(records: &[(u16, u16, u16, &str)], ttl: u64) -> Option<Said> {
    let record = |(priority, weight, port, target): &(u16, u16, u16, &str)| {
        let target = (*target).to_owned();
        let (priority, weight, port) = (*priority, *weight, *port);
        Record::Service(ServiceRecord { priority, weight, port, target })
    };
    let found = records.iter().map(record).collect();
    let reply = DnsReply { found, exists: true, ttl: Some(Duration::from_secs(ttl)) };
    Some(Said::Reply { reply, is_whole: true })
}

#[test]
fn a_question_about_a_service_asks_for_type_33() {
    let question = Question { name: "_t._tcp.test".into(), kind: RecordKind::Srv };
    let packet = question.packet(ID).unwrap();
    assert_eq!(
        packet,
        [b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" as &[u8], b"\x02_t\x04_tcp\x04test\0\0\x21\0\x01"]
            .concat()
    );
}

#[test]
fn a_service_has_its_records_once_each_behind_aliases_and_for_the_shortest_time() {
    let records = [
        cname(SERVICE, 40, "_tunnel._tcp.EU.test"),
        srv("_tunnel._tcp.eu.test", 60, [10, 5, 7000], "FRA.test"),
        srv("_tunnel._tcp.eu.test", 50, [20, 0, 7001], "ams.test"),
        srv("_tunnel._tcp.eu.test", 9, [10, 5, 7000], "fra.test"),
        srv("other.test", 1, [0, 0, 1], "evil.test"),
        a("fra.test", 1, [6, 6, 6, 6]),
    ];
    let both = [(10, 5, 7000, "fra.test"), (20, 0, 7001, "ams.test")];
    assert_eq!(read_service(&records), services(&both, 40));
}

#[test]
fn the_target_of_a_service_may_be_compressed_and_the_root_means_no_service() {
    let question = Question { name: SERVICE.into(), kind: RecordKind::Srv };
    let packet = question.packet(ID).unwrap();
    // `fra`, and a pointer to `test` in the question: 12 bytes of head, `_tunnel` and `_tcp`.
    let data = [&[0, 1, 0, 2, 0, 80], b"\x03fra\xc0\x19" as &[u8]].concat();
    let record = PacketRecord { owner: SERVICE, kind: SRV, ttl: 9, data };
    let said = question.read(ID, &reply(&packet, ANSWER, &[record], &[]));
    assert_eq!(said, services(&[(1, 2, 80, "fra.test")], 9));
    assert_eq!(read_service(&[srv(SERVICE, 9, [0, 0, 0], ".")]), services(&[(0, 0, 0, "")], 9));
}

#[test]
fn records_of_a_service_that_nobody_could_dial_are_left_out_and_broken_ones_are_no_answer() {
    let odd = [srv(SERVICE, 9, [1, 1, 1], "a b.test"), srv(SERVICE, 9, [1, 1, 1], "ok.test")];
    assert_eq!(read_service(&odd), services(&[(1, 1, 1, "ok.test")], 9));
    assert_eq!(read_service(&[a(SERVICE, 9, [10, 0, 0, 1])]), nothing(true, None));
    for data in
        [&[] as &[u8], &[0; 6], b"\0\x01\0\x01\0\x01\x09short", b"\0\x01\0\x01\0\x01\xc0\xff"]
    {
        let record = PacketRecord { owner: SERVICE, kind: SRV, ttl: 9, data: data.into() };
        assert_eq!(read_service(&[record]), None, "{data:?}");
    }
    let trailing = [&[0, 1, 0, 1, 0, 1], &name("fra.test")[..], b"x"].concat();
    let record = PacketRecord { owner: SERVICE, kind: SRV, ttl: 9, data: trailing };
    assert_eq!(read_service(&[record]), None);
}

#[test]
fn a_service_has_a_bounded_number_of_records() {
    let many: Vec<_> = (0..100).map(|port| srv(SERVICE, 9, [1, 1, port], "fra.test")).collect();
    let Some(Said::Reply { reply, .. }) = read_service(&many) else { panic!("no reply") };
    assert_eq!(reply.found.len(), SERVICES);
}

proptest! {
    /// As above, about a service.
    #[test]
    fn answers_about_a_service_with_changed_bytes_are_read_or_refused(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let question = Question { name: SERVICE.into(), kind: RecordKind::Srv };
        let packet = question.packet(ID).unwrap();
        let records = [cname(SERVICE, 9, "b.test"), srv("b.test", 9, [1, 1, 1], "fra.test")];
        let mut answer = reply(&packet, ANSWER, &records, &[]);
        let size = answer.len();
        for (at, byte) in changes {
            answer[at.index(size)] = byte;
        }
        for answer in [&answer[..], &answer[..cut.index(size)]] {
            if let Some(Said::Reply { reply, .. }) = question.read(ID, answer) {
                for record in reply.found {
                    let Record::Service(record) = record else { panic!("an address") };
                    prop_assert!(record.target.is_empty() || is_name(&record.target));
                }
            }
        }
    }
}

proptest! {
    /// A hostile server, or whoever forges its packets, causes neither a panic nor an answer
    /// without a bound.
    #[test]
    fn packets_with_changed_bytes_are_read_or_refused(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
    ) {
        let (question, packet) = question();
        let records = [cname("app.test", 9, "b.test"), a("b.test", 9, [10, 0, 0, 1])];
        let mut answer = reply(&packet, ANSWER, &records, &[soa("test", 9, 9)]);
        let size = answer.len();
        for (at, byte) in changes {
            answer[at.index(size)] = byte;
        }
        for answer in [&answer[..], &answer[..cut.index(size)]] {
            if let Some(Said::Reply { reply, .. }) = question.read(ID, answer) {
                prop_assert_eq!(&answer[..2], &packet[..2]);
                prop_assert!(reply.found.len() <= ADDRESSES);
            }
        }
    }
}
