//! Tokens: who asks for them, when they are replaced, and what is said when that fails.

use cluster::engine::{NoReply, Range, Transaction};
use etcd::{Calls, Code, Error, Freshness, LogIn, Reason};

use super::empty;
use crate::gateway::{Script, answers, run};

const PASSWORD: &str = "hunter2";
const EXPIRED: &str = r#"{"error":"etcdserver: invalid auth token","code":16}"#;
const NAMELESS: &str = r#"{"code":3,"message":"etcdserver: user name is empty"}"#;
const OFF: &str = r#"{"code":9,"message":"etcdserver: authentication is not enabled"}"#;

fn user() -> Option<LogIn> {
    Some(LogIn { user: "u".to_owned(), password: PASSWORD.to_owned() })
}

fn token(name: &str) -> String {
    format!(r#"{{"header":{{"cluster_id":"1","revision":"1"}},"token":"{name}"}}"#)
}

async fn range(calls: &mut Calls) -> Result<u64, Error> {
    let range = Range::of("k".into());
    calls.range(&range, Freshness::Current).await.map(|page| page.revision.0)
}

/// The tokens of all requests; a log-in has none.
fn tokens(script: &Script) -> Vec<Option<String>> {
    script.requests().into_iter().map(|(.., token)| token).collect()
}

#[test]
fn a_token_is_shared_and_replaced_when_it_has_expired() {
    run(async {
        let (one, two) = (token("one"), token("two"));
        let first =
            [(200, &*one), (200, &empty(5)), (401, EXPIRED), (200, &*two), (200, &empty(6))];
        let script = Script::new(vec![vec![answers(&first), answers(&[(200, &empty(7))])]]);
        let etcd = script.etcd(user());
        let mut calls = etcd.calls();
        assert_eq!(range(&mut calls).await.unwrap(), 5);
        let done = calls.transact(&Transaction::default()).await.unwrap();
        assert_eq!(done.revision.0, 6);
        assert_eq!(range(&mut etcd.calls()).await.unwrap(), 7);
        let [one, two] = ["one", "two"].map(|name| Some(name.to_owned()));
        assert_eq!(tokens(&script), [None, one.clone(), one, None, two.clone(), two]);
        let bodies = script.bodies();
        assert_eq!(bodies[0], format!(r#"{{"name":"u","password":"{PASSWORD}"}}"#));
        assert!(!format!("{etcd:?}{calls:?}").contains(PASSWORD));
    });
}

#[test]
fn a_new_token_that_is_refused_is_no_reason_for_a_third() {
    run(async {
        let (one, two) = (token("one"), token("two"));
        let all = [(200, &*one), (401, EXPIRED), (200, &*two), (401, EXPIRED)];
        let script = Script::new(vec![vec![answers(&all)]]);
        let mut calls = script.etcd(user()).calls();
        let error = calls.transact(&Transaction::default()).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Refused);
        assert!(
            matches!(error.reason, Reason::Says { code: Code::UNAUTHENTICATED, .. }),
            "{error}"
        );
    });
}

#[test]
fn a_wrong_password_is_an_error_of_its_own_without_the_password() {
    run(async {
        let wrong = r#"{"code":3,"message":"etcdserver: authentication failed, invalid user ID or password"}"#;
        let script = Script::new(vec![vec![answers(&[(400, wrong)])], vec![]]);
        let mut calls = script.etcd(user()).calls();
        let error = calls.transact(&Transaction::default()).await.unwrap_err();
        assert_eq!(error.failure, NoReply::Refused);
        let text = "etcd at m0: the log-in failed: etcdserver: authentication failed, invalid user ID \
                    or password (code 3)";
        assert_eq!(error.to_string(), text);
        assert!(!format!("{error:?}").contains(PASSWORD));
    });
}

#[test]
fn a_log_in_without_an_answer_leaves_the_request_unsent() {
    run(async {
        let one = token("one");
        let script = Script::new(vec![
            vec![answers(&[(200, "no token")])],
            vec![answers(&[(200, &one), (200, &empty(5))])],
        ]);
        let mut calls = script.etcd(user()).calls();
        let done = calls.transact(&Transaction::default()).await.unwrap();
        assert_eq!(done.revision.0, 5);
    });
}

#[test]
fn users_may_be_configured_before_they_count() {
    run(async {
        let one = token("one");
        let all = [
            (412, OFF),
            (200, &empty(5)),
            (200, &empty(6)),
            (400, NAMELESS),
            (200, &*one),
            (200, &empty(7)),
            // And they may be turned off again.
            (401, EXPIRED),
            (412, OFF),
            (200, &empty(8)),
        ];
        let script = Script::new(vec![vec![answers(&all)]]);
        let mut calls = script.etcd(user()).calls();
        for revision in 5..=8 {
            assert_eq!(range(&mut calls).await.unwrap(), revision);
        }
        let one = Some("one".to_owned());
        let wanted = [None, None, None, None, None, one.clone(), one, None, None];
        assert_eq!(tokens(&script), wanted);
    });
}
