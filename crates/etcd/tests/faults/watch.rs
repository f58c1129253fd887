//! A watch over members that fail.

use std::time::Duration;

use bytes::Bytes;
use cluster::engine::{Change, Range, Revision};
use etcd::{Code, Gap, LogIn, Reason, Watch, WatchEvent};
use tokio::time::{Instant, sleep, timeout};

use crate::gateway::{Dial, Script, Seen, Step, answer, answers, begin, piece, run};

const SECOND: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_secs(10);
const HEAD: &str = r#""header":{"cluster_id":"1","member_id":"2","revision":"100"}"#;

fn line(rest: &str) -> String {
    format!("{{\"result\":{{{HEAD}{rest}}}}}\n")
}

fn created() -> Step {
    piece(&line(r#","created":true"#))
}

/// A line with deletions of `k` at these revisions.
fn changes(revisions: &[u64], is_fragment: bool) -> String {
    let event =
        |at: &u64| format!(r#"{{"type":"DELETE","kv":{{"key":"aw==","mod_revision":"{at}"}}}}"#);
    let events = revisions.iter().map(event).collect::<Vec<_>>().join(",");
    line(&format!(r#","fragment":{is_fragment},"events":[{events}]"#))
}

/// A member that accepts the watch and then does this.
fn watched(steps: Vec<Step>) -> Dial {
    Dial::Talk([vec![Step::Request, begin(), created()], steps].concat())
}

fn watch(script: &Script, from: u64) -> Watch {
    script.etcd(None).watch(Range::below(&Bytes::from_static(b"k")), Revision(from), SILENCE)
}

fn open(member: usize) -> WatchEvent {
    WatchEvent::Open { member, revision: Revision(100) }
}

async fn revisions(watch: &mut Watch) -> Vec<u64> {
    let WatchEvent::Changes { changes, revision } = watch.next().await.unwrap() else { panic!() };
    let revisions = changes.iter().map(|change| match change {
        Change::Delete { at, .. } => at.0,
        Change::Put(_) => panic!("{change:?}"),
    });
    let revisions: Vec<u64> = revisions.collect();
    assert_eq!(revisions.last(), Some(&revision.0));
    revisions
}

/// The revisions from which members were asked for changes.
fn asked(script: &Script) -> Vec<u64> {
    let from = |body: String| {
        let (_, rest) = body.split_once(r#""start_revision":""#)?;
        rest.split('"').next()?.parse().ok()
    };
    script.bodies().into_iter().filter_map(from).collect()
}

#[test]
fn a_watch_begins_at_the_member_that_its_caller_wants() {
    run(async {
        let script = Script::new(vec![vec![watched(vec![])], vec![watched(vec![])]]);
        let mut other = watch(&script, 5);
        other.begin_at(1);
        assert_eq!(other.next().await.unwrap(), open(1));
        // There is no third member.
        let mut first = watch(&script, 5);
        first.begin_at(2);
        assert_eq!(first.next().await.unwrap(), open(0));
    });
}

#[test]
fn a_silent_member_is_left_behind_the_last_change() {
    run(async {
        let first = watched(vec![Step::Wait(SECOND), piece(&changes(&[5, 6, 6], false))]);
        let second = watched(vec![piece(&changes(&[8], false))]);
        let script = Script::new(vec![vec![first], vec![second]]);
        let mut watch = watch(&script, 5);
        assert_eq!(watch.next().await.unwrap(), open(0));
        assert_eq!(revisions(&mut watch).await, [5, 6, 6]);
        let start = Instant::now();
        assert_eq!(watch.next().await.unwrap_err().reason, Reason::Silent(SILENCE));
        assert_eq!(start.elapsed(), SILENCE);
        assert_eq!(watch.next().await.unwrap(), open(1));
        assert_eq!(revisions(&mut watch).await, [8]);
        assert_eq!(asked(&script), [5, 7]);
        assert!(script.seen().contains(&Seen::Closed { member: 0 }));
        assert_eq!(watch.from(), Revision(9));
    });
}

#[test]
fn nothing_of_a_line_that_is_cut_off_is_reported() {
    run(async {
        let text = changes(&[5, 6], false);
        for cut in [1, text.len() / 2, text.len() - 3] {
            let half = piece(&text[..cut]);
            let first = watched(vec![half, Step::Close]);
            let script = Script::new(vec![vec![first], vec![watched(vec![piece(&text)])]]);
            let mut watch = watch(&script, 5);
            assert_eq!(watch.next().await.unwrap(), open(0));
            assert!(watch.next().await.is_err());
            assert_eq!(watch.next().await.unwrap(), open(1));
            assert_eq!(revisions(&mut watch).await, [5, 6]);
            assert_eq!(asked(&script), [5, 5]);
        }
    });
}

#[test]
fn the_changes_of_one_revision_are_not_split_over_two_members() {
    run(async {
        let first =
            watched(vec![piece(&changes(&[5, 6, 6], true)), Step::Wait(SECOND), Step::Close]);
        let second = watched(vec![
            piece(&changes(&[6, 6], true)),
            piece(&changes(&[6], true)),
            piece(&changes(&[6, 7], false)),
        ]);
        let script = Script::new(vec![vec![first], vec![second]]);
        let mut watch = watch(&script, 5);
        assert_eq!(watch.next().await.unwrap(), open(0));
        assert_eq!(revisions(&mut watch).await, [5]);
        assert!(watch.next().await.is_err());
        assert_eq!(watch.next().await.unwrap(), open(1));
        assert_eq!(revisions(&mut watch).await, [6, 6, 6, 6, 7]);
        assert_eq!(asked(&script), [5, 6]);
    });
}

#[test]
fn a_compaction_is_reported_until_the_watch_begins_anew() {
    run(async {
        let gone = piece(&line(r#","canceled":true,"compact_revision":"50""#));
        let script = Script::new(vec![vec![watched(vec![gone]), watched(vec![])]]);
        let mut watch = watch(&script, 5);
        assert_eq!(watch.next().await.unwrap(), open(0));
        let anew = WatchEvent::Anew(Gap::Compacted(Revision(50)));
        assert_eq!(watch.next().await.unwrap(), anew);
        assert_eq!(watch.next().await.unwrap(), anew);
        watch.begin(Revision(101));
        assert_eq!(watch.next().await.unwrap(), open(0));
        assert_eq!(asked(&script), [5, 101]);
    });
}

#[test]
fn changes_that_are_too_large_are_to_be_read_anew() {
    run(async {
        let endless = vec![Step::Write(b"fffffff\r\n".into()), Step::Forever(vec![b' '; 1000])];
        let held = vec![piece(&changes(&[5; 1000], true)); 5];
        for steps in [endless, held] {
            let script = Script::new(vec![vec![watched(steps)]]);
            let mut watch = watch(&script, 5);
            assert_eq!(watch.next().await.unwrap(), open(0));
            assert_eq!(watch.next().await.unwrap(), WatchEvent::Anew(Gap::TooLarge));
        }
    });
}

#[test]
fn a_watch_from_now_on_goes_on_behind_its_begin() {
    run(async {
        let script = Script::new(vec![vec![watched(vec![Step::Close]), watched(vec![])]]);
        let mut watch = watch(&script, 0);
        assert_eq!(watch.next().await.unwrap(), open(0));
        assert!(watch.next().await.is_err());
        assert_eq!(watch.next().await.unwrap(), open(0));
        assert_eq!(asked(&script), [0, 101]);
    });
}

#[test]
fn a_sign_of_life_moves_the_begin_of_the_next_member() {
    run(async {
        let first = watched(vec![Step::Wait(SILENCE / 2), piece(&line("")), Step::Close]);
        let script = Script::new(vec![vec![first], vec![watched(vec![])]]);
        let mut watch = watch(&script, 5);
        assert_eq!(watch.next().await.unwrap(), open(0));
        assert_eq!(watch.next().await.unwrap(), WatchEvent::UpTo(Revision(100)));
        assert!(watch.next().await.is_err());
        assert_eq!(watch.next().await.unwrap(), open(1));
        assert_eq!(asked(&script), [5, 101]);
    });
}

#[test]
fn a_wait_that_is_dropped_loses_nothing() {
    run(async {
        let text = changes(&[5, 6], false);
        let (one, two) = text.split_at(30);
        let steps =
            vec![piece(one), Step::Wait(SECOND * 3), piece(two), piece(&changes(&[7], false))];
        let script = Script::new(vec![vec![watched(steps)]]);
        let mut watch = watch(&script, 5);
        assert_eq!(watch.next().await.unwrap(), open(0));
        for _ in 0..10 {
            assert!(timeout(SECOND / 4, watch.next()).await.is_err());
        }
        assert_eq!(revisions(&mut watch).await, [5, 6]);
        // A caller that was away for longer than the silence finds what has come meanwhile.
        sleep(SILENCE * 2).await;
        assert_eq!(revisions(&mut watch).await, [7]);
    });
}

#[test]
fn a_member_that_does_not_accept_the_watch_is_left_after_the_deadline() {
    run(async {
        // 3.7.3 is silent where a request cannot be read.
        for first in
            [Dial::Talk(vec![Step::Request]), Dial::Talk(vec![Step::Request, begin()]), Dial::Never]
        {
            let script = Script::new(vec![vec![first], vec![watched(vec![])]]);
            let mut watch = watch(&script, 5);
            let start = Instant::now();
            assert!(watch.next().await.is_err());
            assert_eq!(start.elapsed(), SECOND);
            assert_eq!(watch.next().await.unwrap(), open(1));
        }
    });
}

#[test]
fn errors_and_nonsense_end_the_watch_at_a_member() {
    run(async {
        let unavailable = r#"{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}"#;
        let denied = line(
            r#","created":true,"canceled":true,"cancel_reason":"rpc error: code = PermissionDenied desc = etcdserver: permission denied""#,
        );
        let steps = |step| Dial::Talk(vec![Step::Request, begin(), step]);
        for (first, code) in [
            (answers(&[(503, unavailable)]), Some(Code::UNAVAILABLE)),
            (steps(piece(&denied)), Some(Code::DENIED)),
            (answers(&[(404, "Not Found\n")]), None),
            (steps(piece("{\"result\":\n")), None),
            (steps(piece("\u{0}\n")), None),
            (watched(vec![piece(&changes(&[6, 5], false))]), None),
        ] {
            let script = Script::new(vec![vec![first.clone()], vec![watched(vec![])]]);
            let mut watch = watch(&script, 5);
            let error = loop {
                match watch.next().await {
                    Ok(event) => assert_eq!(event, open(0)),
                    Err(error) => break error,
                }
            };
            match (&error.reason, code) {
                (Reason::Says { code: said, .. }, Some(code)) => assert_eq!(*said, code),
                (Reason::Nonsense { .. }, None) => {}
                _ => panic!("{first:?}: {error}"),
            }
            assert_eq!(watch.next().await.unwrap(), open(1));
            assert_eq!(asked(&script), [5, 5]);
        }
    });
}

#[test]
fn a_round_of_failures_is_followed_by_a_pause() {
    run(async {
        let script = Script::new(vec![vec![], vec![]]);
        let mut watch = watch(&script, 5);
        let start = Instant::now();
        for _ in 0..6 {
            assert!(watch.next().await.is_err());
        }
        // After the second failure in a row and each later one.
        assert_eq!(start.elapsed(), Duration::from_millis(4 * 500));
    });
}

#[test]
fn an_expired_token_of_a_watch_is_replaced_at_the_same_member() {
    run(async {
        let token = |name| answer(200, &format!(r#"{{{HEAD},"token":"{name}"}}"#));
        let expired = line(
            r#","created":true,"canceled":true,"cancel_reason":"rpc error: code = Unauthenticated desc = etcdserver: invalid auth token""#,
        );
        let script = Script::new(vec![
            vec![
                Dial::Talk(vec![Step::Request, token("one"), Step::Request, token("two")]),
                Dial::Talk(vec![Step::Request, begin(), piece(&expired)]),
                watched(vec![]),
            ],
            vec![],
        ]);
        let user = LogIn { user: "u".to_owned(), password: "p".to_owned() };
        let etcd = script.etcd(Some(user));
        let mut watch = etcd.watch(Range::of(Bytes::from_static(b"k")), Revision(5), SILENCE);
        assert!(watch.next().await.is_err());
        assert_eq!(watch.next().await.unwrap(), open(0));
        let tokens: Vec<_> = script.requests().into_iter().map(|(.., token)| token).collect();
        let [one, two] = ["one", "two"].map(|name| Some(name.to_owned()));
        assert_eq!(tokens, [None, one, None, two]);
    });
}
