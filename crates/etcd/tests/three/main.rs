//! Three real members of etcd, of which some are killed or stopped. The long step `etcd` runs these
//! tests: they wait for elections.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

#[path = "../member.rs"]
#[allow(dead_code, reason = "the tests of one member use the rest")]
mod member;

use std::time::Duration;

use bytes::Bytes;
use cluster::engine::{Change, NoReply, Operation, Range, Revision, Transaction};
use etcd::{Calls, Code, Error, Freshness, Reason, Watch, WatchEvent};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use self::member::{Members, SOON, run};

/// As in production; a busy machine makes calls go on at the next member.
const DEADLINE: Duration = Duration::from_secs(1);

fn put(key: &str, value: &str) -> Transaction {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    let then = vec![Operation::Put { key, value, lease: None }];
    Transaction { then, ..Transaction::default() }
}

/// Puts until it succeeds, as a caller does that may write twice. Returns the failures, too.
async fn insist(calls: &mut Calls, key: &str, value: &str) -> (Revision, Vec<Error>) {
    let (start, mut failures) = (Instant::now(), Vec::new());
    loop {
        match calls.transact(&put(key, value)).await {
            Ok(done) => return (done.revision, failures),
            Err(error) => {
                assert!(start.elapsed() < SOON, "{error}");
                // What did not leave, or may have been carried out; nobody refuses a put.
                let is_refused = error.failure == NoReply::Refused;
                assert!(
                    !is_refused || matches!(error.reason, Reason::Unreachable(_) | Reason::Late(_))
                );
                failures.push(error);
                sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// The index of the leader.
async fn leader(members: &Members) -> usize {
    let mut calls = members.etcd(SOON).calls();
    let leader = calls.status(0).await.unwrap().leader;
    for index in 0..3 {
        if leader == Some(calls.status(index).await.unwrap().member) {
            return index;
        }
    }
    panic!("no member is the leader {leader:?}");
}

/// Follows a watch until this value, and returns all values, of which repetitions count once.
async fn values(watch: &mut Watch, last: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    while values.last().is_none_or(|value| value != last) {
        if let Ok(WatchEvent::Changes { changes, .. }) = watch.next().await {
            for change in changes {
                let Change::Put(kv) = change else { panic!("{change:?}") };
                let value = String::from_utf8(kv.value.to_vec()).unwrap();
                if values.last() != Some(&value) {
                    values.push(value);
                }
            }
        }
    }
    values
}

#[test]
fn calls_and_a_watch_survive_the_death_of_the_leader() {
    run(async {
        let mut members = Members::start(3, &[]).await;
        let etcd = members.etcd(DEADLINE);
        let (mut calls, mut renewals) = (etcd.calls(), etcd.calls());
        let dead = leader(&members).await;
        calls.begin_at(dead);
        let (first, _) = insist(&mut calls, "k", "0").await;
        let lease = renewals.grant(Duration::from_secs(60)).await.unwrap().lease;
        let mut watch = etcd.watch(Range::of(Bytes::from_static(b"k")), first, SOON);
        while !matches!(watch.next().await, Ok(WatchEvent::Open { .. })) {}
        members.kill(dead);
        for value in 1..=5 {
            insist(&mut calls, "k", &value.to_string()).await;
        }
        assert_eq!(values(&mut watch, "5").await, ["0", "1", "2", "3", "4", "5"]);
        let start = Instant::now();
        while renewals.renew(lease).await.is_err() {
            renewals.turn();
            assert!(start.elapsed() < SOON);
        }
        // It comes back, and has what it missed.
        members.begin(dead);
        members.ready(dead).await;
        let mut calls = members.etcd(SOON).calls();
        calls.begin_at(dead);
        let range = Range::of(Bytes::from_static(b"k"));
        let page = calls.range(&range, Freshness::Current).await.unwrap();
        assert_eq!(&page.keys[0].value[..], b"5");
        assert_eq!(calls.member(), dead);
    });
}

#[test]
fn a_watch_leaves_a_member_that_is_stopped() {
    run(async {
        let members = Members::start(3, &[]).await;
        let stopped = leader(&members).await;
        // The watch begins at the first member of the list.
        let mut settings = members.settings(DEADLINE);
        settings.members.rotate_left(stopped);
        let etcd = Members::with(settings);
        let mut calls = etcd.calls();
        let (first, _) = insist(&mut calls, "k", "0").await;
        let start = Instant::now();
        let mut watch = loop {
            let silence = Duration::from_secs(3);
            let mut watch = etcd.watch(Range::of(Bytes::from_static(b"k")), first, silence);
            if let Ok(WatchEvent::Open { member: 0, .. }) = watch.next().await {
                break watch;
            }
            assert!(start.elapsed() < SOON);
        };
        members.signal(stopped, Signal::STOP);
        calls.begin_at(0);
        let (_, failures) = insist(&mut calls, "k", "1").await;
        // The transaction that the stopped member has in its socket is one that may be carried out.
        assert_eq!(failures[0].failure, NoReply::Unknown, "{failures:?}");
        assert_eq!(values(&mut watch, "1").await.last().unwrap(), "1");
        assert_ne!(watch.member(), 0);
        members.signal(stopped, Signal::CONT);
        insist(&mut calls, "k", "2").await;
        assert_eq!(values(&mut watch, "2").await.last().unwrap(), "2");
    });
}

#[test]
fn without_a_quorum_only_local_reading_works() {
    run(async {
        let members = Members::start(3, &[]).await;
        let etcd = members.etcd(DEADLINE);
        let mut calls = etcd.calls();
        insist(&mut calls, "k", "0").await;
        let (lease, start) = loop {
            let start = Instant::now();
            if let Ok(granted) = calls.grant(Duration::from_secs(600)).await {
                break (granted.lease, start);
            }
            assert!(start.elapsed() < SOON);
        };
        let alone = leader(&members).await;
        let range = Range::of(Bytes::from_static(b"k"));
        let mut settings = members.settings(SOON);
        settings.members.rotate_left(alone);
        let silence = Duration::from_secs(600);
        let mut watch = Members::with(settings).watch(range.clone(), Revision(0), silence);
        assert!(matches!(watch.next().await, Ok(WatchEvent::Open { member: 0, .. })));
        for index in (0..3).filter(|index| *index != alone) {
            members.signal(index, Signal::STOP);
        }
        // Long before the silence that is allowed.
        let error = watch.next().await.unwrap_err();
        assert!(matches!(error.reason, Reason::Says { code: Code::UNAVAILABLE, .. }), "{error}");
        // Until the leader notices that it is alone.
        let error = loop {
            calls.begin_at(alone);
            match calls.transact(&put("k", "1")).await {
                Ok(_) => assert!(start.elapsed() < SOON),
                Err(error) => break error,
            }
        };
        assert_eq!(error.failure, NoReply::Unknown, "{error}");
        assert!(calls.grant(Duration::from_secs(600)).await.is_err());
        calls.begin_at(alone);
        let page = calls.range(&range, Freshness::Local).await.unwrap();
        assert_eq!(&page.keys[0].key[..], b"k");
        // The other two are asked after the deadline at the first.
        let start = Instant::now();
        loop {
            calls.begin_at(alone);
            if calls.range(&range, Freshness::Current).await.is_err() {
                break;
            }
            assert!(start.elapsed() < SOON);
        }
        // With time enough the member itself says so.
        let mut patient = members.etcd(SOON).calls();
        patient.begin_at(alone);
        let error = patient.transact(&put("k", "2")).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Unknown, "{error}");
        assert!(matches!(error.reason, Reason::Says { .. }), "{error}");
        for index in (0..3).filter(|index| *index != alone) {
            members.signal(index, Signal::CONT);
        }
        insist(&mut calls, "k", "3").await;
        let start = Instant::now();
        let left = loop {
            match calls.renew(lease).await {
                Ok(left) => break left,
                Err(error) => assert!(start.elapsed() < SOON, "{error}"),
            }
        };
        assert_eq!(left, Some(Duration::from_secs(600)));
    });
}
