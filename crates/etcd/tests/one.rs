//! One real member of etcd.

use std::time::Duration;

use bytes::Bytes;
use cluster::engine::{
    Change, Compare, Condition, Lease, NoReply, Operation, Performed, Range, Revision, Transaction,
};
use etcd::{Calls, Code, Freshness, Gap, LogIn, RangePages, Reason, Watch, WatchEvent};
use tokio::time::{Instant, sleep};

use crate::member::{Members, SOON, run};

/// Longer than a test: a member that is alone is never left.
const NEVER: Duration = Duration::from_secs(600);

fn bytes(text: impl Into<String>) -> Bytes {
    text.into().into()
}

fn put(key: &str, value: &str, lease: Option<Lease>) -> Operation {
    Operation::Put { key: bytes(key), value: bytes(value), lease }
}

fn all(then: Vec<Operation>) -> Transaction {
    Transaction { then, ..Transaction::default() }
}

/// Stores a key that must be absent, or else reads it.
fn claim(key: &str) -> Transaction {
    Transaction {
        compare: vec![Compare { key: bytes(key), is: Condition::Absent }],
        then: vec![put(key, "mine", None)],
        otherwise: vec![Operation::Range(Range::of(bytes(key)))],
    }
}

async fn store(calls: &mut Calls, key: &str, value: &str) -> Revision {
    calls.transact(&all(vec![put(key, value, None)])).await.unwrap().revision
}

/// The next changes, as texts.
async fn changes(watch: &mut Watch) -> Vec<String> {
    loop {
        match watch.next().await {
            Ok(WatchEvent::Changes { changes, .. }) => {
                let texts = changes.iter().map(|change| match change {
                    Change::Put(kv) => {
                        format!("{}={}", text(&kv.key), text(&kv.value))
                    }
                    Change::Delete { key, .. } => format!("-{}", text(key)),
                });
                return texts.collect();
            }
            Ok(WatchEvent::Open { .. } | WatchEvent::UpTo(_)) => {}
            Ok(WatchEvent::Anew(gap)) => panic!("{gap:?}"),
            // A member that starts again.
            Err(error) => assert!(!error.reason.to_string().is_empty()),
        }
    }
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn transactions_are_carried_out_whole() {
    run(async {
        let members = Members::start(1, &[]).await;
        let mut calls = members.etcd(SOON).calls();
        let done = calls.transact(&claim("k")).await.unwrap();
        assert!(done.held && done.answers == [Performed::Put], "{done:?}");
        let again = calls.transact(&claim("k")).await.unwrap();
        assert_eq!((again.held, again.revision), (false, done.revision));
        let [Performed::Range { keys, more: false }] = &again.answers[..] else {
            panic!("{again:?}")
        };
        assert_eq!((text(&keys[0].key), text(&keys[0].value)), ("k", "mine"));
        assert_eq!((keys[0].created, keys[0].modified), (done.revision, done.revision));

        // A record is replaced unless it was modified since.
        let replace = |before: Revision| Transaction {
            compare: vec![Compare { key: bytes("k"), is: Condition::ModifiedBefore(before) }],
            ..all(vec![put("k", "mine", None)])
        };
        assert!(!calls.transact(&replace(done.revision)).await.unwrap().held);
        let next = Revision(done.revision.0 + 1);
        let done = calls.transact(&replace(next)).await.unwrap();
        assert_eq!((done.held, done.revision), (true, next));

        // Deletion by the number of the change.
        let is = Condition::ModifiedAt(done.revision);
        let delete = Transaction {
            compare: vec![Compare { key: bytes("k"), is }],
            then: vec![Operation::Delete { key: bytes("k") }],
            otherwise: vec![],
        };
        let done = calls.transact(&delete).await.unwrap();
        assert_eq!((done.held, &done.answers[..]), (true, &[Performed::Delete(1)][..]));
        assert!(!calls.transact(&delete).await.unwrap().held);
        // An absent record was never modified.
        assert!(calls.transact(&replace(Revision(1))).await.unwrap().held);

        // Bytes of any value.
        let odd = Bytes::from((0..=255).collect::<Vec<u8>>());
        let operation = Operation::Put { key: odd.clone(), value: odd.clone(), lease: None };
        calls.transact(&all(vec![operation])).await.unwrap();
        let page = calls.range(&Range::of(odd.clone()), Freshness::Local).await.unwrap();
        assert_eq!((&page.keys[0].key, &page.keys[0].value), (&odd, &odd));

        // A refusal carries nothing out, and its words are those of etcd.
        let twice = all(vec![put("a", "1", None), put("a", "2", None)]);
        let error = calls.transact(&twice).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Refused);
        assert!(error.to_string().contains("duplicate key"), "{error}");
        let lost = all(vec![put("a", "1", Some(Lease(7)))]);
        let error = calls.transact(&lost).await.unwrap_err();
        assert!(matches!(error.reason, Reason::Says { code: Code::MISSING, .. }), "{error}");
        let status = calls.status(0).await.unwrap();
        assert!(status.version.starts_with("3.") && status.leader == Some(status.member));
        assert!(status.alarms.is_empty() && status.bytes > 0, "{status:?}");
    });
}

#[test]
fn each_inner_transaction_is_judged_alone_by_the_state_before_all_of_them() {
    run(async {
        let members = Members::start(1, &[]).await;
        let mut calls = members.etcd(SOON).calls();
        store(&mut calls, "taken", "theirs").await;
        // 127 claims at once, one of which fails.
        let inner =
            (0..127).map(|at| if at == 5 { claim("taken") } else { claim(&format!("c{at}")) });
        let batch = all(inner.map(Operation::Inner).collect());
        let done = calls.transact(&batch).await.unwrap();
        assert_eq!(done.answers.len(), 127);
        for (at, answer) in done.answers.iter().enumerate() {
            match answer {
                Performed::Inner { held: true, answers } => {
                    assert!(at != 5 && *answers == [Performed::Put]);
                }
                Performed::Inner { held: false, answers } => {
                    let [Performed::Range { keys, .. }] = &answers[..] else {
                        panic!("{answers:?}")
                    };
                    assert!(at == 5 && text(&keys[0].value) == "theirs");
                }
                Performed::Put | Performed::Delete(_) | Performed::Range { .. } => {
                    panic!("{answer:?}")
                }
            }
        }
        // All claims have the revision of the whole.
        let page = calls.range(&Range::below(&bytes("c")), Freshness::Current).await.unwrap();
        assert_eq!(page.keys.len(), 126);
        assert!(page.keys.iter().all(|kv| kv.created == done.revision));

        // The condition does not see what the transaction has written before, but the range does.
        let judged = Transaction {
            compare: vec![Compare { key: bytes("new"), is: Condition::Absent }],
            then: vec![Operation::Range(Range::of(bytes("new")))],
            otherwise: vec![],
        };
        let both = all(vec![put("new", "1", None), Operation::Inner(judged)]);
        let done = calls.transact(&both).await.unwrap();
        let [Performed::Put, Performed::Inner { held: true, answers }] = &done.answers[..] else {
            panic!("{done:?}");
        };
        assert!(matches!(&answers[..], [Performed::Range { keys, .. }] if keys.len() == 1));

        // As many operations as etcd accepts are those that the crate sends.
        let many =
            |count: usize| all((0..count).map(|at| put(&format!("m{at}"), "", None)).collect());
        calls.transact(&many(128)).await.unwrap();
        let error = calls.transact(&many(129)).await.unwrap_err();
        assert_eq!(error.reason, Reason::TooManyOperations(128));
        let one = Transaction { then: vec![Operation::Inner(many(127))], ..Transaction::default() };
        calls.transact(&one).await.unwrap();
    });
}

#[test]
fn a_lease_ends_with_its_keys_unless_it_is_renewed() {
    run(async {
        let members = Members::start(1, &[]).await;
        let etcd = members.etcd(SOON);
        let mut calls = etcd.calls();
        // The least time that etcd grants.
        let least = calls.grant(Duration::from_millis(100)).await.unwrap();
        assert_eq!(least.ttl, Duration::from_secs(2));
        let short = calls.grant(Duration::from_millis(4500)).await.unwrap();
        assert_eq!(short.ttl, Duration::from_secs(5));
        let long = calls.grant(Duration::from_secs(600)).await.unwrap();
        assert_eq!(long.ttl, Duration::from_secs(600));
        let both = all(vec![put("n/a", "1", Some(short.lease)), put("n/b", "1", Some(long.lease))]);
        let done = calls.transact(&both).await.unwrap();
        let mut watch = etcd.watch(Range::below(&bytes("n/")), done.revision, NEVER);
        assert_eq!(changes(&mut watch).await, ["n/a=1", "n/b=1"]);
        assert_eq!(changes(&mut watch).await, ["-n/a"]);
        assert_eq!(calls.renew(short.lease).await.unwrap(), None);
        assert_eq!(calls.renew(long.lease).await.unwrap(), Some(long.ttl));
        let page = calls.range(&Range::of(bytes("n/b")), Freshness::Current).await.unwrap();
        assert_eq!(page.keys[0].lease, Some(long.lease));
        calls.revoke(long.lease).await.unwrap();
        assert_eq!(changes(&mut watch).await, ["-n/b"]);
        calls.revoke(long.lease).await.unwrap();
        assert_eq!(calls.renew(long.lease).await.unwrap(), None);
    });
}

#[test]
fn a_large_range_is_read_at_one_revision_while_it_changes() {
    run(async {
        let members = Members::start(1, &[]).await;
        let mut settings = members.settings(SOON);
        settings.answer_bytes = 20_000;
        let mut calls = Members::with(settings).calls();
        for batch in 0..3 {
            let puts = (0..100).map(|at| put(&format!("k/{batch}-{at:02}"), "before", None));
            calls.transact(&all(puts.collect())).await.unwrap();
        }
        let range = Range { limit: 250, ..Range::below(&bytes("k/")) };
        let mut pages = RangePages::new(range, Freshness::Current);
        let (mut keys, mut count) = (Vec::new(), 0);
        while let Some(page) = pages.next(&mut calls).await.unwrap() {
            count += 1;
            keys.extend(page.keys);
            store(&mut calls, &format!("k/0-00-{count}"), "later").await;
            store(&mut calls, "k/2-99", "after").await;
        }
        // 250 keys have more than 20,000 bytes.
        assert!(count >= 3, "{count} pages");
        assert_eq!(keys.len(), 300);
        assert!(keys.is_sorted_by_key(|kv| kv.key.clone()));
        assert!(keys.iter().all(|kv| text(&kv.value) == "before"));
        // A watch from the next revision on has what came later.
        let from = Revision(pages.revision().unwrap().0 + 1);
        let mut watch =
            Members::with(members.settings(SOON)).watch(Range::below(&bytes("k/")), from, NEVER);
        assert_eq!(changes(&mut watch).await[..2], ["k/0-00-1=later", "k/2-99=after"]);
    });
}

#[test]
fn a_watch_goes_on_when_its_member_starts_again() {
    run(async {
        let mut members = Members::start(1, &[]).await;
        let etcd = members.etcd(SOON);
        let mut calls = etcd.calls();
        let mut watch = etcd.watch(Range::below(&bytes("w/")), Revision(0), NEVER);
        assert!(matches!(watch.next().await, Ok(WatchEvent::Open { member: 0, .. })));
        store(&mut calls, "w/1", "a").await;
        let two = all(vec![put("w/2", "b", None), put("other", "x", None), put("w/3", "c", None)]);
        calls.transact(&two).await.unwrap();
        assert_eq!(changes(&mut watch).await, ["w/1=a"]);
        assert_eq!(changes(&mut watch).await, ["w/2=b", "w/3=c"]);
        members.kill(0);
        assert!(watch.next().await.is_err());
        let error = calls.transact(&claim("w/4")).await.unwrap_err();
        assert!(matches!(error.reason, Reason::Unreachable(_) | Reason::Broken(_)), "{error}");
        members.begin(0);
        members.ready(0).await;
        store(&mut calls, "w/5", "d").await;
        assert_eq!(changes(&mut watch).await, ["w/5=d"]);
    });
}

#[test]
fn a_watch_behind_a_compaction_begins_anew() {
    run(async {
        let members = Members::start(1, &[]).await;
        let etcd = members.etcd(SOON);
        let mut calls = etcd.calls();
        let first = store(&mut calls, "w/1", "a").await;
        let last = store(&mut calls, "w/1", "b").await;
        let body = format!(r#"{{"revision":"{}"}}"#, last.0);
        members.post(0, "/v3/kv/compaction", &body, "").await;
        let range = Range::below(&bytes("w/"));
        let mut watch = etcd.watch(range.clone(), first, NEVER);
        assert!(matches!(watch.next().await, Ok(WatchEvent::Open { .. })));
        assert_eq!(watch.next().await.unwrap(), WatchEvent::Anew(Gap::Compacted(last)));
        let error = calls.range(&range, Freshness::At(first)).await.unwrap_err();
        let Reason::Says { code, .. } = error.reason else { panic!("{error}") };
        assert_eq!(code, Code::OUT_OF_RANGE);
        watch.begin(last);
        assert_eq!(changes(&mut watch).await, ["w/1=b"]);
    });
}

#[test]
fn changes_that_one_line_cannot_hold_come_in_fragments() {
    run(async {
        let members = Members::start(1, &[]).await;
        let etcd = members.etcd(SOON);
        let mut calls = etcd.calls();
        let large = "z".repeat(1_000_000);
        let first = store(&mut calls, "b/0", &large).await;
        for at in 1..6 {
            store(&mut calls, &format!("b/{at}"), &large).await;
        }
        let mut watch = etcd.watch(Range::below(&bytes("b/")), first, NEVER);
        let mut keys = Vec::new();
        while keys.len() < 6 {
            keys.extend(changes(&mut watch).await.iter().map(|text| text[..3].to_owned()));
        }
        assert_eq!(keys, ["b/0", "b/1", "b/2", "b/3", "b/4", "b/5"]);
    });
}

#[test]
fn a_full_store_refuses_writes_and_is_read() {
    run(async {
        let members = Members::start(1, &["--quota-backend-bytes", "4000000"]).await;
        let mut calls = members.etcd(SOON).calls();
        let large = "z".repeat(1_000_000);
        let mut count = 0;
        let error = loop {
            match calls.transact(&all(vec![put(&format!("f{count}"), &large, None)])).await {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
            assert!(count < 50, "the store is not full");
        };
        assert_eq!(error.failure, NoReply::Refused);
        assert!(matches!(error.reason, Reason::Full { .. }), "{error}");
        let error = calls.grant(SOON).await.unwrap_err();
        assert!(matches!(error.reason, Reason::Full { .. }), "{error}");
        assert_eq!(
            calls.range(&Range::of(bytes("f0")), Freshness::Current).await.unwrap().keys.len(),
            1
        );
        let alarms = calls.status(0).await.unwrap().alarms;
        assert!(alarms.iter().any(|alarm| alarm.contains("NOSPACE")), "{alarms:?}");
    });
}

#[test]
fn a_user_is_logged_in_again_when_the_token_has_expired() {
    run(async {
        let members = Members::start(1, &["--auth-token-ttl", "3"]).await;
        let log_in = |user: &str, password: &str| {
            let mut settings = members.settings(SOON);
            settings.log_in = Some(LogIn { user: user.to_owned(), password: password.to_owned() });
            Members::with(settings)
        };
        let etcd = log_in("u", "hunter2");
        let mut calls = etcd.calls();
        // Authentication is off, which a client with a user accepts.
        store(&mut calls, "a/0", "0").await;
        for (path, body) in [
            ("role/add", r#"{"name":"root"}"#),
            ("role/add", r#"{"name":"r"}"#),
            (
                "role/grant",
                r#"{"name":"r","perm":{"permType":"READWRITE","key":"YS8=","range_end":"YTA="}}"#,
            ),
            ("user/add", r#"{"name":"root","password":"x"}"#),
            ("user/add", r#"{"name":"u","password":"hunter2"}"#),
            ("user/grant", r#"{"user":"root","role":"root"}"#),
            ("user/grant", r#"{"user":"u","role":"r"}"#),
            ("enable", "{}"),
        ] {
            members.post(0, &format!("/v3/auth/{path}"), body, "").await;
        }
        let first = store(&mut calls, "a/1", "1").await;
        let mut watch = etcd.watch(Range::below(&bytes("a/")), first, NEVER);
        assert_eq!(changes(&mut watch).await, ["a/1=1"]);
        let lease = calls.grant(SOON).await.unwrap().lease;
        // etcd looks for expired tokens each second.
        let expired = Duration::from_secs(7);
        sleep(expired).await;
        store(&mut calls, "a/1", "2").await;
        assert!(calls.renew(lease).await.unwrap().is_some());
        // The watch goes on with its old token; a new watch asks for a new token.
        assert_eq!(changes(&mut watch).await, ["a/1=2"]);
        sleep(expired).await;
        let mut late = etcd.watch(Range::below(&bytes("a/")), first, NEVER);
        assert_eq!(changes(&mut late).await, ["a/1=1", "a/1=2"]);

        // Where the user has no right.
        let error = calls.transact(&all(vec![put("b", "1", None)])).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Refused);
        assert!(matches!(error.reason, Reason::Says { code: Code::DENIED, .. }), "{error}");
        let mut denied = etcd.watch(Range::of(bytes("b")), Revision(0), NEVER);
        let start = Instant::now();
        let error = loop {
            match denied.next().await {
                // An expired token is replaced first.
                Err(error) if error.to_string().contains("invalid auth token") => {}
                Err(error) => break error,
                Ok(event) => panic!("{event:?}"),
            }
            assert!(start.elapsed() < SOON);
        };
        assert!(matches!(error.reason, Reason::Says { code: Code::DENIED, .. }), "{error}");
        // Who is not known.
        let error = log_in("u", "wrong").calls().transact(&claim("a/2")).await.unwrap_err();
        assert!(matches!(error.reason, Reason::LogIn { .. }), "{error}");
        let error = members.etcd(SOON).calls().transact(&claim("a/2")).await.unwrap_err();
        assert!(error.to_string().contains("user name is empty"), "{error}");
    });
}

#[test]
fn a_program_that_is_no_etcd_is_named() {
    run(async {
        // The port for other members speaks HTTP, and has no gateway.
        let members = Members::start(1, &[]).await;
        let mut settings = members.settings(SOON);
        settings.members = vec![members.peer_address(0)];
        let error = Members::with(settings).calls().transact(&claim("k")).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Unknown);
        let text = error.to_string();
        assert!(
            text.contains("HTTP status 404") && text.contains("is this the client port"),
            "{text}"
        );
    });
}
