use std::net::Ipv6Addr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::packets::*;
use super::*;

const ID: u16 = 0x1234;

fn question() -> (Question, Vec<u8>) {
    let question = Question { name: "app.test".into(), kind: IpFamily::V4 };
    let packet = question.packet(ID).unwrap();
    (question, packet)
}

/// What the answer with these records says.
fn read(flags: u16, answer: &[PacketRecord<'_>], authority: &[PacketRecord<'_>]) -> Option<Said> {
    let (question, packet) = question();
    question.read(ID, &reply(&packet, flags, answer, authority))
}

fn found(ips: &[[u8; 4]], ttl: u64) -> Option<Said> {
    let found = ips.iter().map(|ip| IpAddr::from(*ip)).collect();
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
        assert_eq!(Question { name: name.into(), kind: IpFamily::V4 }.packet(ID), None, "{name}");
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
    let v6 = Question { name: "app.test".into(), kind: IpFamily::V6 };
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
    assert_eq!(parsed.found, [Ipv6Addr::LOCALHOST]);
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
    let other = Question { name: "app.test".into(), kind: IpFamily::V6 };
    assert_eq!(other.read(ID, &good), None, "another type");
    let other = Question { name: "apq.test".into(), kind: IpFamily::V4 };
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
    assert_eq!(reply.found, [IpAddr::from([10, 0, 0, 1])]);
}

#[test]
fn a_name_has_a_bounded_number_of_addresses() {
    let many: Vec<_> = (0..100).map(|n| a("app.test", 9, [10, 0, 0, n])).collect();
    let Some(Said::Reply { reply, .. }) = read(ANSWER, &many, &[]) else { panic!("no reply") };
    assert_eq!(reply.found.len(), ADDRESSES);
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
