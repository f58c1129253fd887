//! Which member is asked next, and what a caller learns.

use std::time::Duration;

use bytes::Bytes;
use cluster::engine::{Lease, NoReply, Operation, Range, Revision, Transaction};
use etcd::{Calls, Code, Error, Freshness, RangePages, Reason};
use tokio::time::{Instant, timeout};

use super::empty;
use crate::gateway::{Dial, Script, Seen, Step, answer, answers, begin, piece, run};

const SECOND: Duration = Duration::from_secs(1);

fn key() -> Range {
    Range::of(Bytes::from_static(b"k"))
}

/// An empty transaction.
async fn transact(calls: &mut Calls) -> Result<u64, Error> {
    calls.transact(&Transaction::default()).await.map(|done| done.revision.0)
}

async fn range(calls: &mut Calls) -> Result<u64, Error> {
    calls.range(&key(), Freshness::Current).await.map(|page| page.revision.0)
}

fn members(script: &Script) -> Vec<usize> {
    script.requests().iter().map(|(member, ..)| *member).collect()
}

#[test]
fn a_silent_member_is_left_after_the_deadline_and_not_asked_first_again() {
    run(async {
        let silent = Dial::Talk(vec![Step::Request]);
        let script =
            Script::new(vec![vec![silent], vec![answers(&[(200, &empty(5)), (200, &empty(5))])]]);
        let mut calls = script.etcd(None).calls();
        let start = Instant::now();
        assert_eq!(range(&mut calls).await.unwrap(), 5);
        assert_eq!(start.elapsed(), SECOND);
        assert_eq!(range(&mut calls).await.unwrap(), 5);
        assert_eq!(members(&script), [0, 1, 1]);
        assert!(script.seen().contains(&Seen::Closed { member: 0 }));
    });
}

#[test]
fn a_transaction_without_an_answer_is_unknown_and_not_repeated() {
    run(async {
        let cut = |text: &str| {
            Dial::Talk(vec![Step::Request, Step::Write(text.as_bytes().into()), Step::Close])
        };
        for (first, late) in [
            (Dial::Talk(vec![Step::Request]), true),
            (cut(""), false),
            (cut("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"header\""), false),
            (cut("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"he"), false),
            (answers(&[(500, r#"{"error":"context deadline exceeded","code":4}"#)]), false),
            (answers(&[(503, r#"{"code":14,"message":"etcdserver: no leader"}"#)]), false),
            (answers(&[(502, "<html>Bad Gateway")]), false),
        ] {
            let script = Script::new(vec![vec![first.clone()], vec![answers(&[(200, &empty(5))])]]);
            let mut calls = script.etcd(None).calls();
            let error = transact(&mut calls).await.unwrap_err();
            assert_eq!(error.failure, NoReply::Unknown, "{first:?}");
            assert_eq!(error.member, "m0");
            assert_eq!(matches!(error.reason, Reason::Late(SECOND)), late, "{error}");
            assert_eq!(members(&script), [0]);
            assert_eq!(transact(&mut calls).await.unwrap(), 5);
            assert_eq!(members(&script), [0, 1]);
            // Other requests go to the next member at once.
            let script = Script::new(vec![vec![first], vec![answers(&[(200, &empty(5))])]]);
            assert_eq!(range(&mut script.etcd(None).calls()).await.unwrap(), 5);
        }
    });
}

#[test]
fn a_transaction_that_did_not_leave_goes_to_the_next_member() {
    run(async {
        let script =
            Script::new(vec![vec![], vec![Dial::Never], vec![answers(&[(200, &empty(5))])]]);
        let start = Instant::now();
        assert_eq!(transact(&mut script.etcd(None).calls()).await.unwrap(), 5);
        assert_eq!(start.elapsed(), SECOND);
        assert_eq!(members(&script), [2]);

        let script = Script::new(vec![vec![], vec![]]);
        let error = transact(&mut script.etcd(None).calls()).await.unwrap_err();
        assert_eq!((error.failure, error.member.as_str()), (NoReply::Refused, "m1"));
        assert!(matches!(error.reason, Reason::Unreachable(_)), "{error}");
    });
}

#[test]
fn a_kept_connection_that_the_member_has_closed_is_opened_again() {
    run(async {
        let mut once = vec![Step::Request, answer(200, &empty(5)), Step::Close];
        let script = Script::new(vec![vec![
            Dial::Talk(once.clone()),
            answers(&[(200, &empty(6)), (200, &empty(7))]),
        ]]);
        let mut calls = script.etcd(None).calls();
        assert_eq!(transact(&mut calls).await.unwrap(), 5);
        tokio::time::sleep(SECOND).await;
        assert_eq!(transact(&mut calls).await.unwrap(), 6);
        assert_eq!(transact(&mut calls).await.unwrap(), 7);

        // A member that closes after each answer and says so.
        let text = empty(5);
        let closing = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        );
        once[1] = Step::Write(closing.into());
        let script = Script::new(vec![vec![Dial::Talk(once.clone()), Dial::Talk(once)]]);
        let mut calls = script.etcd(None).calls();
        assert_eq!(transact(&mut calls).await.unwrap(), 5);
        assert_eq!(transact(&mut calls).await.unwrap(), 5);
    });
}

#[test]
fn a_late_answer_is_never_the_answer_to_another_request() {
    run(async {
        let late = Dial::Talk(vec![Step::Request, Step::Wait(SECOND * 2), answer(200, &empty(5))]);
        let script = Script::new(vec![vec![late, answers(&[(200, &empty(6))])]]);
        let mut calls = script.etcd(None).calls();
        assert!(range(&mut calls).await.is_err());
        tokio::time::sleep(SECOND * 2).await;
        assert_eq!(range(&mut calls).await.unwrap(), 6);
    });
}

#[test]
fn a_refusal_ends_the_call_at_once() {
    run(async {
        for code in [3, 5, 7, 9, 11, 16] {
            let body = format!(r#"{{"code":{code},"message":"etcdserver: no"}}"#);
            let script = Script::new(vec![vec![answers(&[(200, &body)])], vec![]]);
            let error = transact(&mut script.etcd(None).calls()).await.unwrap_err();
            assert_eq!(error.failure, NoReply::Refused, "{code}");
            let Reason::Says { code: said, .. } = error.reason else { panic!("{error}") };
            assert_eq!(said, Code(code));
        }
        let full = r#"{"code":8,"message":"etcdserver: mvcc: database space exceeded"}"#;
        let script = Script::new(vec![vec![answers(&[(429, full)])], vec![]]);
        let error = transact(&mut script.etcd(None).calls()).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Refused);
        let text = "etcd at m0: the store takes no request now: etcdserver: mvcc: database space \
                    exceeded";
        assert_eq!(error.to_string(), text);
    });
}

#[test]
fn an_answer_without_an_end_is_cut_off() {
    run(async {
        let endless =
            |begin| Dial::Talk(vec![Step::Request, begin, Step::Forever(vec![b'5'; 1000])]);
        let body = endless(Step::Write(b"HTTP/1.1 200 OK\r\n\r\n".into()));
        let script = Script::new(vec![vec![body], vec![]]);
        let error = range(&mut script.etcd(None).calls()).await.unwrap_err();
        assert_eq!(error.reason, Reason::TooLarge(100_000));
        let claimed = "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n";
        let script = Script::new(vec![vec![endless(Step::Write(claimed.into()))], vec![]]);
        let error = range(&mut script.etcd(None).calls()).await.unwrap_err();
        assert_eq!(error.reason, Reason::TooLarge(100_000));
        // A head without an end, and no HTTP at all.
        for begin in ["HTTP/1.1 200 OK\r\nX: ", "SSH-2.0-OpenSSH\r\n"] {
            let script = Script::new(vec![vec![endless(Step::Write(begin.into()))]]);
            let error = range(&mut script.etcd(None).calls()).await.unwrap_err();
            assert!(matches!(error.reason, Reason::Broken(_)), "{error}");
        }
        // A lease of one line, in pieces.
        let line = r#"{"result":{"header":{"revision":"5"},"ID":"7","TTL":"9"}}"#;
        let (one, two) = line.split_at(20);
        let pieces = [Step::Request, begin(), piece(one), piece(two), piece("\n"), piece("")];
        let script = Script::new(vec![vec![Dial::Talk(pieces.into())]]);
        let left = script.etcd(None).calls().renew(Lease(7)).await.unwrap();
        assert_eq!(left, Some(Duration::from_secs(9)));
    });
}

#[test]
fn a_dropped_call_closes_its_connection() {
    run(async {
        let silent = Dial::Talk(vec![Step::Request]);
        let script = Script::new(vec![vec![silent, answers(&[(200, &empty(5))])]]);
        let mut calls = script.etcd(None).calls();
        assert!(timeout(SECOND / 2, range(&mut calls)).await.is_err());
        tokio::time::sleep(SECOND / 10).await;
        assert_eq!(script.seen().last(), Some(&Seen::Closed { member: 0 }));
        assert_eq!(range(&mut calls).await.unwrap(), 5);
    });
}

#[test]
fn a_member_of_another_cluster_is_not_believed() {
    run(async {
        let other = empty(9).replace(r#""cluster_id":"1""#, r#""cluster_id":"77""#);
        let script = Script::new(vec![
            vec![answers(&[(200, &empty(5)), (200, &empty(6))])],
            vec![answers(&[(200, &other)])],
        ]);
        let etcd = script.etcd(None);
        let mut calls = etcd.calls();
        assert_eq!(range(&mut calls).await.unwrap(), 5);
        assert_eq!(etcd.cluster(), Some(1));
        calls.turn();
        assert_eq!(range(&mut calls).await.unwrap(), 6);
        assert_eq!(members(&script), [0, 1, 0]);
    });
}

#[test]
fn calls_may_move_between_threads() {
    fn on_any_thread<T: Send>(_: T) {}
    let script = Script::new(vec![vec![]]);
    let (etcd, transaction) = (script.etcd(None), Transaction::default());
    let mut calls = etcd.calls();
    on_any_thread(calls.transact(&transaction));
    on_any_thread(calls.renew(Lease(1)));
    on_any_thread(etcd.watch(key(), Revision(1), SECOND).next());
    on_any_thread(RangePages::new(key(), Freshness::Local).next(&mut calls));
}

#[test]
fn too_many_operations_are_refused_without_a_request() {
    run(async {
        let delete = Operation::Delete { key: Bytes::from_static(b"k") };
        let large = Transaction { then: vec![delete; 129], ..Transaction::default() };
        let script = Script::new(vec![vec![]]);
        let error = script.etcd(None).calls().transact(&large).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Refused);
        assert_eq!(error.reason, Reason::TooManyOperations(128));
    });
}

#[test]
fn a_lease_that_was_revoked_by_a_lost_request_is_revoked() {
    run(async {
        let gone = r#"{"code":5,"message":"etcdserver: requested lease not found"}"#;
        let silent = Dial::Talk(vec![Step::Request]);
        let script = Script::new(vec![vec![silent], vec![answers(&[(404, gone)])]]);
        script.etcd(None).calls().revoke(Lease(7)).await.unwrap();
        assert_eq!(members(&script), [0, 1]);
    });
}

#[test]
fn pages_are_halved_until_they_fit_and_have_one_revision() {
    run(async {
        let of = |revision, keys: &str, more| {
            let head = format!(r#""header":{{"cluster_id":"1","revision":"{revision}"}}"#);
            format!(r#"{{{head},"kvs":[{keys}],"more":{more}}}"#)
        };
        let large = "x".repeat(100_001);
        let first = of(5, r#"{"key":"YQ=="},{"key":"Yg=="}"#, true);
        let last = of(9, r#"{"key":"Yw=="}"#, false);
        let script = Script::new(vec![vec![
            answers(&[(200, &large)]),
            answers(&[(200, &first), (200, &last)]),
        ]]);
        let mut calls = script.etcd(None).calls();
        let range = Range { limit: 4, ..Range::below(&Bytes::new()) };
        let mut pages = RangePages::new(range, Freshness::Local);
        let (mut keys, mut revisions) = (0, Vec::new());
        while let Some(page) = pages.next(&mut calls).await.unwrap() {
            keys += page.keys.len();
            revisions.push(page.revision.0);
        }
        assert_eq!((keys, revisions), (3, vec![5, 5]));
        let [whole, half, next] = &script.bodies()[..] else { panic!("{:?}", script.bodies()) };
        assert!(whole.contains(r#""limit":"4","serializable":true"#), "{whole}");
        assert!(half.contains(r#""limit":"2","serializable":true"#), "{half}");
        // Behind the key `b`, at the revision of the first page.
        assert!(next.contains(r#""key":"YgA=""#), "{next}");
        assert!(next.contains(r#""limit":"2","revision":"5""#), "{next}");
    });
}
