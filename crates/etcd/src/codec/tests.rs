//! The codec against answers that etcd 3.4.23 and 3.7.3 gave, and against nonsense.

use bytes::Bytes;
use cluster::engine::{
    Change, Compare, Condition, Done, KeyValue, Lease, Operation, Performed, Range, Revision,
    Transaction,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::error::{Code, Reason};

const HEAD: &str = r#""header":{"cluster_id":"1940665961518094200","member_id":"4883755753530146457","revision":"3","raft_term":"2"}"#;
const CLUSTER: u64 = 1_940_665_961_518_094_200;

fn key(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn put(name: &'static str) -> Operation {
    Operation::Put { key: key(name), value: key("1"), lease: None }
}

fn text(body: &Bytes) -> &str {
    std::str::from_utf8(body).unwrap()
}

/// As the test of the first answer: a claim, a range, a deletion.
fn claim() -> Transaction {
    Transaction {
        compare: vec![Compare { key: key("k1"), is: Condition::Absent }],
        then: vec![
            Operation::Put { key: key("k1"), value: key("v1"), lease: Some(Lease(7)) },
            Operation::Range(Range::of(key("a"))),
            Operation::Delete { key: key("zz") },
        ],
        otherwise: vec![Operation::Range(Range::of(key("k1")))],
    }
}

#[test]
fn a_transaction_is_written_as_the_gateway_reads_it() {
    assert_eq!(
        text(&transaction(&claim())),
        r#"{"compare":[{"key":"azE=","target":"CREATE","result":"EQUAL","create_revision":"0"}],"success":[{"request_put":{"key":"azE=","value":"djE=","lease":"7"}},{"request_range":{"key":"YQ==","limit":"0"}},{"request_delete_range":{"key":"eno="}}],"failure":[{"request_range":{"key":"azE=","limit":"0"}}]}"#
    );
    let moved = Compare { key: key("a"), is: Condition::ModifiedAt(Revision(u64::MAX)) };
    let made = Compare { key: key("a"), is: Condition::CreatedAt(Revision(5)) };
    let old = Compare { key: key("a"), is: Condition::ModifiedBefore(Revision(6)) };
    let inner = Transaction { compare: vec![moved, made, old], ..Transaction::default() };
    let outer = Transaction { then: vec![Operation::Inner(inner)], ..Transaction::default() };
    assert_eq!(
        text(&transaction(&outer)),
        r#"{"compare":[],"success":[{"request_txn":{"compare":[{"key":"YQ==","target":"MOD","result":"EQUAL","mod_revision":"18446744073709551615"},{"key":"YQ==","target":"CREATE","result":"EQUAL","create_revision":"5"},{"key":"YQ==","target":"MOD","result":"LESS","mod_revision":"6"}],"success":[],"failure":[]}}],"failure":[]}"#
    );
}

#[test]
fn other_requests_are_written_as_the_gateway_reads_them() {
    let keys = Range { limit: 9, ..Range::below(&key("w/")) };
    assert_eq!(
        text(&range(&keys, true, None)),
        r#"{"key":"dy8=","range_end":"dzA=","limit":"9","serializable":true}"#
    );
    assert_eq!(
        text(&range(&Range::of(key("a")), false, Some(Revision(4)))),
        r#"{"key":"YQ==","limit":"0","revision":"4"}"#
    );
    assert_eq!(text(&grant(10)), r#"{"TTL":"10"}"#);
    assert_eq!(text(&lease(Lease(77))), r#"{"ID":"77"}"#);
    assert_eq!(
        text(&watch(&keys, Revision(2))),
        r#"{"create_request":{"key":"dy8=","range_end":"dzA=","start_revision":"2","progress_notify":true,"fragment":true}}"#
    );
}

#[test]
fn the_answers_to_a_transaction_are_read() {
    let body = format!(
        r#"{{{HEAD},"succeeded":true,"responses":[{{"response_put":{{"header":{{"revision":"3"}}}}}},{{"response_range":{{"header":{{"revision":"3"}},"kvs":[{{"key":"YQ==","create_revision":"2","mod_revision":"2","version":"1"}}],"count":"1"}}}},{{"response_delete_range":{{"header":{{"revision":"3"}}}}}}]}}"#
    );
    let (head, done) = transacted(200, body.as_bytes(), &claim()).unwrap();
    assert_eq!(head, AnswerHead { cluster: CLUSTER, revision: 3 });
    let a = KeyValue {
        key: key("a"),
        value: Bytes::new(),
        created: Revision(2),
        modified: Revision(2),
        lease: None,
    };
    let answers =
        vec![Performed::Put, Performed::Range { keys: vec![a], more: false }, Performed::Delete(0)];
    assert_eq!(done, Done { revision: Revision(3), held: true, answers });

    let body = format!(
        r#"{{{HEAD},"responses":[{{"response_range":{{"header":{{"revision":"3"}},"kvs":[{{"key":"azE=","create_revision":"3","mod_revision":"3","version":"1","value":"djE=","lease":"4510814809183686664"}}],"count":"1"}}}}]}}"#
    );
    let (_, done) = transacted(200, body.as_bytes(), &claim()).unwrap();
    assert!(!done.held);
    let [Performed::Range { keys, .. }] = &done.answers[..] else { panic!("{done:?}") };
    assert_eq!(keys[0].lease, Some(Lease(4_510_814_809_183_686_664)));
    assert_eq!(keys[0].value, key("v1"));
}

#[test]
fn the_answers_of_transactions_inside_are_read_and_have_an_empty_header() {
    let inner = |name| {
        let compare = vec![Compare { key: key(name), is: Condition::Absent }];
        let otherwise = vec![Operation::Range(Range::of(key(name)))];
        Operation::Inner(Transaction { compare, then: vec![put(name)], otherwise })
    };
    let outer = Transaction { then: vec![inner("n1"), inner("k1")], ..Transaction::default() };
    // 3.7.3 writes a space after each comma.
    let body = format!(
        r#"{{{HEAD}, "succeeded":true, "responses":[{{"response_txn":{{"header":{{}}, "succeeded":true, "responses":[{{"response_put":{{"header":{{"revision":"4"}}}}}}]}}}}, {{"response_txn":{{"header":{{}}, "responses":[{{"response_range":{{"header":{{"revision":"4"}}, "kvs":[{{"key":"azE=", "create_revision":"3", "mod_revision":"3", "version":"1", "value":"djE="}}], "count":"1"}}}}]}}}}]}}"#
    );
    let (_, done) = transacted(200, body.as_bytes(), &outer).unwrap();
    let [
        Performed::Inner { held: true, answers },
        Performed::Inner { held: false, answers: other },
    ] = &done.answers[..]
    else {
        panic!("{done:?}");
    };
    assert_eq!(answers, &[Performed::Put]);
    assert!(matches!(&other[..], [Performed::Range { keys, .. }] if keys.len() == 1));
}

#[test]
fn answers_that_do_not_fit_the_request_are_refused() {
    for responses in [
        "",
        r#"{"response_put":{}},{"response_put":{}},{"response_put":{}}"#,
        r#"{"response_put":{}},{"response_range":{"kvs":[],"more":true}},{"response_delete_range":{}}"#,
    ] {
        let body = format!(r#"{{{HEAD},"succeeded":true,"responses":[{responses}]}}"#);
        let read = transacted(200, body.as_bytes(), &claim());
        assert!(matches!(read, Err(Reason::Nonsense { .. })), "{responses}: {read:?}");
    }
    let two = Range { limit: 1, ..Range::below(&key("a")) };
    let body = format!(r#"{{{HEAD},"kvs":[{{"key":"YQ=="}},{{"key":"YWE="}}]}}"#);
    assert!(matches!(page(200, body.as_bytes(), &two), Err(Reason::Nonsense { .. })));
}

#[test]
fn a_page_says_whether_there_is_more() {
    let body = format!(
        r#"{{{HEAD},"kvs":[{{"key":"YQ==","create_revision":"2","mod_revision":"2","version":"1"}}],"more":true,"count":"5"}}"#
    );
    let one = Range { limit: 1, ..Range::below(&Bytes::new()) };
    let (_, page) = page(200, body.as_bytes(), &one).unwrap();
    assert!(page.more && page.keys.len() == 1 && page.revision == Revision(3), "{page:?}");
}

#[test]
fn a_lease_that_is_gone_is_told_by_the_missing_time() {
    let body = format!(r#"{{"result":{{{HEAD},"ID":"77","TTL":"7"}}}}"#);
    assert_eq!(renewed(200, body.as_bytes(), Lease(77)).unwrap().1, Some(7));
    let body = format!("{{\"result\":{{{HEAD},\"ID\":\"77\"}}}}\n");
    assert_eq!(renewed(200, body.as_bytes(), Lease(77)).unwrap().1, None);
    assert!(matches!(renewed(200, body.as_bytes(), Lease(78)), Err(Reason::Nonsense { .. })));
    let body = format!(r#"{{{HEAD},"ID":"4510814809183686664","TTL":"7"}}"#);
    let lease = granted(200, body.as_bytes()).unwrap().1;
    assert_eq!(lease.lease, Lease(4_510_814_809_183_686_664));
    assert_eq!(lease.ttl.as_secs(), 7);
}

#[test]
fn a_member_says_how_it_is() {
    let body = format!(
        r#"{{{HEAD},"version":"3.4.23","dbSize":"11030528","leader":"4883755753530146457","raftIndex":"14","raftTerm":"2","raftAppliedIndex":"14","errors":["memberID:4883755753530146457 alarm:NOSPACE "],"dbSizeInUse":"11030528"}}"#
    );
    let said = status(200, body.as_bytes()).unwrap().1;
    assert_eq!(said.leader, Some(said.member));
    assert_eq!((said.version.as_str(), said.bytes), ("3.4.23", 11_030_528));
    assert_eq!(said.alarms, ["memberID:4883755753530146457 alarm:NOSPACE"]);
    let body = format!(r#"{{{HEAD},"version":"3.4.23"}}"#);
    assert_eq!(status(200, body.as_bytes()).unwrap().1.leader, None);
}

#[test]
fn errors_of_all_versions_are_told_by_their_number() {
    let errors = [
        // 3.4.23, and the same error of 3.7.3.
        r#"{"error":"etcdserver: invalid auth token","message":"etcdserver: invalid auth token","code":16}"#,
        r#"{"code":16, "message":"etcdserver: invalid auth token"}"#,
        // Streamed: 3.7.3, 3.4.23.
        r#"{"error":{"code":16,"message":"etcdserver: invalid auth token"}}"#,
        r#"{"error":{"grpc_code":16,"http_code":401,"message":"etcdserver: invalid auth token","http_status":"Unauthorized"}}"#,
    ];
    for error in errors {
        for status in [200, 401, 503] {
            let reason = unit(status, error.as_bytes()).unwrap_err();
            let Reason::Says { code, text } = &reason else { panic!("{error}: {reason:?}") };
            assert_eq!((*code, text.as_str()), (Code(16), "etcdserver: invalid auth token"));
            assert_eq!(read_watch_line(status, error.as_bytes()), Err(reason.clone()));
            assert_eq!(renewed(status, error.as_bytes(), Lease(1)), Err(reason.clone()));
            assert_eq!(granted(status, error.as_bytes()), Err(reason.clone()));
            assert_eq!(transacted(status, error.as_bytes(), &claim()), Err(reason.clone()));
            assert_eq!(page(status, error.as_bytes(), &Range::of(key("a"))), Err(reason.clone()));
            assert_eq!(token(status, error.as_bytes()), Err(reason));
        }
    }
    let full = r#"{"error":"etcdserver: mvcc: database space exceeded","message":"etcdserver: mvcc: database space exceeded","code":8}"#;
    assert!(matches!(unit(429, full.as_bytes()), Err(Reason::Full { .. })));
}

#[test]
fn lines_of_a_watch_are_read() {
    let line =
        |rest: &str| read_watch_line(200, format!(r#"{{"result":{{{HEAD}{rest}}}}}"#).as_bytes());
    let head = AnswerHead { cluster: CLUSTER, revision: 3 };
    assert_eq!(line(r#","created":true"#), Ok(WatchLine::Created(head)));
    let compacted = line(r#","canceled":true,"compact_revision":"5""#);
    assert_eq!(compacted, Ok(WatchLine::Compacted(Revision(5))));
    let nothing = WatchLine::Changes { head, changes: vec![], is_fragment: false };
    assert_eq!(line(""), Ok(nothing));
    let changes = line(
        r#","fragment":true,"events":[{"kv":{"key":"dy8x","create_revision":"3","mod_revision":"7","version":"2","value":"eA=="}},{"type":"DELETE","kv":{"key":"dy8z","mod_revision":"7"}}]"#,
    );
    let Ok(WatchLine::Changes { changes, is_fragment: true, .. }) = changes else {
        panic!("{changes:?}")
    };
    assert!(matches!(&changes[0], Change::Put(kv) if kv.value == key("x")));
    assert_eq!(changes[1], Change::Delete { key: key("w/3"), at: Revision(7) });
    let none = line(r#","events":[{"kv":{"key":"dy8x"}}]"#);
    assert!(matches!(none, Err(Reason::Nonsense { .. })), "{none:?}");
}

#[test]
fn a_canceled_watch_has_its_number_in_words() {
    let canceled = |reason: &str| {
        let text = format!(
            r#"{{"result":{{{HEAD},"watch_id":"-1","created":true,"canceled":true,"cancel_reason":"{reason}"}}}}"#
        );
        let line = read_watch_line(200, text.as_bytes());
        let Ok(WatchLine::Canceled(reason)) = line else { panic!("{line:?}") };
        reason
    };
    let token = canceled("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token");
    assert!(token.wants_token(), "{token:?}");
    let user = canceled("rpc error: code = InvalidArgument desc = etcdserver: user name is empty");
    assert!(user.wants_token(), "{user:?}");
    let denied =
        canceled("rpc error: code = PermissionDenied desc = etcdserver: permission denied");
    assert!(denied.refuses() && !denied.wants_token(), "{denied:?}");
    let empty = canceled("mvcc: watcher range is empty");
    assert!(matches!(empty, Reason::Says { code: Code::UNKNOWN, .. }), "{empty:?}");
}

#[test]
fn what_is_no_answer_of_etcd_is_named_without_its_content() {
    let what = |body: &str| {
        let read = unit(502, body.as_bytes());
        let Err(Reason::Nonsense { status: 502, what }) = read else { panic!("{read:?}") };
        what
    };
    assert_eq!(what("Not Found\n"), r#"it begins with "Not Found""#);
    assert_eq!(what(""), "it ends early");
    assert!(what("<html>\r\n<h1>Bad Gateway").starts_with(r#"it begins with "<html>"#));
    assert_eq!(what(r#"{"header":{"secret""#), "it ends early");
    assert_eq!(what(r#"{"secret" "secret"}"#), "no JSON at column 11");
    for other in [
        "{}",
        "[]",
        r#"{"header":"secret"}"#,
        r#"{"header":{"revision":"secret"}}"#,
        r#"{"header":{"revision":"-5"}}"#,
        r#"{"code":0,"message":"secret"}"#,
    ] {
        let what = what(other);
        assert!(what.starts_with("other fields or values"), "{other}: {what}");
    }
    let odd = format!(r#"{{{HEAD},"kvs":[{{"key":"!!"}}]}}"#);
    let one = Range::of(key("a"));
    assert!(matches!(page(200, odd.as_bytes(), &one), Err(Reason::Nonsense { .. })));
    let token = r#"{"token":"a\nb"}"#;
    assert!(matches!(super::token(200, token.as_bytes()), Err(Reason::Nonsense { .. })));
}

#[test]
fn operations_are_counted_as_etcd_counts_them() {
    let of = |count: usize, inner: usize| {
        let inner = Transaction { then: vec![put("k"); inner], ..Transaction::default() };
        Transaction { then: vec![Operation::Inner(inner); count], ..Transaction::default() }
    };
    let flat = |count| Transaction { then: vec![put("k"); count], ..Transaction::default() };
    assert!(fits(&flat(128)) && !fits(&flat(129)));
    assert!(fits(&of(127, 1)) && !fits(&of(128, 1)) && !fits(&of(127, 2)));
    assert!(fits(&of(1, 127)) && fits(&of(128, 0)));
}

#[test]
fn nesting_without_an_end_is_refused() {
    let deep =
        format!(r#"{{{HEAD},"responses":{}"#, "[{\"response_txn\":{\"responses\":".repeat(9999));
    assert!(transacted(200, deep.as_bytes(), &claim()).is_err());
}

/// All readers of answers.
fn read_all(body: &[u8]) {
    let outer = Transaction {
        then: vec![Operation::Inner(claim()), Operation::Range(Range::of(key("a")))],
        ..claim()
    };
    let _ = transacted(200, body, &claim());
    let _ = transacted(200, body, &outer);
    let _ = page(200, body, &Range::below(&key("a")));
    let _ = (granted(200, body), renewed(200, body, Lease(1)), unit(200, body));
    let _ = (token(200, body), status(200, body));
    let _ = read_watch_line(200, body);
}

/// Words and marks of real answers, in any order.
fn pieces() -> impl Strategy<Value = Vec<&'static str>> {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\n",
        " ",
        "null",
        "true",
        "-1",
        "1e400",
        "\"\\ud800\"",
        "\"header\":{\"revision\":\"3\"}",
        "\"header\"",
        "\"result\":",
        "\"error\":",
        "\"code\":16",
        "\"grpc_code\":14",
        "\"message\":\"m\"",
        "\"responses\":[",
        "\"response_txn\":",
        "\"response_range\":",
        "\"response_put\":{}",
        "\"kvs\":[",
        "\"key\":\"YQ==\"",
        "\"key\":\"!\"",
        "\"value\":\"YQ=\"",
        "\"mod_revision\":\"18446744073709551616\"",
        "\"mod_revision\":\"7\"",
        "\"events\":[",
        "\"type\":\"DELETE\"",
        "\"kv\":{",
        "\"canceled\":true",
        "\"compact_revision\":\"5\"",
        "\"cancel_reason\":\"rpc error: code = \"",
        "\"created\":true",
        "\"fragment\":true",
        "\"TTL\":\"7\"",
        "\"ID\":\"1\"",
        "\"more\":true",
        "\"succeeded\":true",
        "\"token\":\"t\"",
        "\"errors\":[\"x\"]",
        "\u{0}",
        "ä",
    ];
    vec(proptest::sample::select(PIECES), 0..60)
}

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic(bytes in vec(any::<u8>(), 0..300), words in pieces()) {
        read_all(&bytes);
        read_all(words.concat().as_bytes());
        read_all(format!("{{{HEAD},{}}}", words.concat()).as_bytes());
        read_all(format!("{{\"result\":{{{HEAD},{}}}}}", words.concat()).as_bytes());
    }

    #[test]
    fn an_answer_that_is_cut_or_damaged_is_no_panic(at in 0..200_usize, byte in any::<u8>()) {
        let body = format!(
            r#"{{{HEAD},"succeeded":true,"responses":[{{"response_put":{{}}}},{{"response_range":{{"kvs":[{{"key":"YQ==","create_revision":"2"}}]}}}},{{"response_delete_range":{{"deleted":"1"}}}}]}}"#
        );
        let cut = body.as_bytes().get(..at).unwrap();
        prop_assert!(transacted(200, cut, &claim()).is_err());
        let mut damaged = body.into_bytes();
        damaged[at] = byte;
        read_all(&damaged);
    }
}
