//! The options of a service.

use std::time::Duration;

use proto::{FieldEdits, HttpOptions};
use tokio::time::Instant;
use web::{Settings, Visitor};

use crate::rig::{Site, connect, connect_as, field, ok, on_worker, status, visitor};

/// `anna:one`, `bert:two`.
const ANNA: &str = "Basic YW5uYTpvbmU=";
const WRONG: &str = "Basic YW5uYTp0d28=";

fn with_password() -> HttpOptions {
    let basic_auth = vec!["bert:two".into(), "anna:one".into()];
    HttpOptions { basic_auth, ..HttpOptions::default() }
}

#[test]
fn names_of_fields_keep_the_case_in_which_the_peer_wrote_them() {
    on_worker(async {
        let site = Site::new();
        let options = HttpOptions { forwarded: true, ..HttpOptions::default() };
        let a = site.add("a.example", &options);
        let mut client = connect(&site);
        let named = "ETag: 1\r\nWWW-Authenticate: Basic\r\nx-lower: 2\r\nX-A: 3\r\nx-a: 4\r\n";
        client
            .send(&format!(
                "GET / HTTP/1.1\r\nhost: a.example\r\nDNT: 1\r\nX-REQUEST-ID: 2\r\n{named}\r\n"
            ))
            .await;
        let mut target = a.accept().await;
        let answer = format!("HTTP/1.1 200 OK\r\ndate: x\r\nContent-Length: 0\r\n{named}\r\n");
        let seen = target.serve(&answer).await;
        for name in ["host: a", "DNT: 1", "X-REQUEST-ID: 2", "X-Forwarded-For: 192"] {
            assert!(seen.contains(&format!("\r\n{name}")), "{name}: {seen}");
        }
        let head = client.head().await;
        for seen in [seen, head] {
            for line in named.lines() {
                assert!(seen.contains(&format!("\r\n{line}\r\n")), "{line}: {seen}");
            }
        }
    });
}

#[test]
fn a_password_is_asked_for_checked_and_kept_from_the_target() {
    on_worker(async {
        let site = Site::new();
        let a = site.add("a.example", &with_password());
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: A.example:80\r\n\r\n").await;
        let (head, _) = client.answer().await;
        assert_eq!(status(&head), 401);
        let challenge = "Basic realm=\"a.example\", charset=\"UTF-8\"";
        assert_eq!(field(&head, "www-authenticate"), Some(challenge));
        assert_eq!(a.wrong_passwords.get(), 0);
        let get = |password| {
            format!("GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: {password}\r\n\r\n")
        };
        client.send(&get(ANNA)).await;
        let seen = a.accept().await.serve(&ok("")).await;
        assert_eq!(seen, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.status().await, 200);
        // A wrong password is counted and slowed down.
        let begin = Instant::now();
        client.send(&get(WRONG)).await;
        assert_eq!(client.status().await, 401);
        assert_eq!(a.wrong_passwords.get(), 1);
        assert_eq!(begin.elapsed(), Duration::from_millis(500));
        assert_eq!(a.count.get(), 1);
        // After too many guesses neither is judged.
        a.busy.set(true);
        for password in [ANNA, WRONG] {
            client.send(&get(password)).await;
            let (head, _) = client.answer().await;
            assert_eq!((status(&head), field(&head, "retry-after")), (429, Some("5")));
        }
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_request_too_many_gets_429_and_the_connection_stays() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        a.excess.set(Some(7));
        // Its body is not for the target either.
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody").await;
        let (head, _) = client.answer().await;
        assert_eq!((status(&head), field(&head, "retry-after")), (429, Some("7")));
        assert_eq!((a.count.get(), field(&head, "connection")), (0, None));
        a.excess.set(None);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        a.accept().await.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
    });
}

#[test]
fn each_request_is_judged_by_the_rules_of_its_moment() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        client.send(get).await;
        let mut first = a.accept().await;
        first.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
        // Another edition of the service: its connections to the target are its own.
        a.identity.set(9);
        client.send(get).await;
        a.accept().await.serve(&ok("")).await;
        assert_eq!((client.status().await, a.count.get()), (200, 2));
        // The settings of the server.
        let route_header = Some("x-target".parse().unwrap());
        *site.settings.borrow_mut() = Settings { route_header, ..Settings::default() }.into();
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\nX-Target: b.example\r\n\r\n").await;
        assert_eq!(client.status().await, 404);
    });
}

#[test]
fn a_service_without_password_passes_the_visitors_password_on() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send(&format!("GET / HTTP/1.1\r\nHost: a.example\r\nAuthorization: {ANNA}\r\n\r\n"))
            .await;
        let seen = a.accept().await.serve(&ok("")).await;
        assert_eq!(field(&seen, "authorization"), Some(ANNA));
    });
}

#[test]
fn a_refused_upload_is_answered_and_never_opened() {
    on_worker(async {
        let site = Site::new();
        let a = site.add("a.example", &with_password());
        let mut client = connect(&site);
        client
            .send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000\r\n\r\nabc")
            .await;
        assert_eq!(client.status().await, 401);
        assert_eq!(client.rest().await, "");
        assert_eq!(a.count.get(), 0);
    });
}

#[test]
fn host_and_fields_are_rewritten() {
    on_worker(async {
        let site = Site::new();
        let edits = |name: &str, value: &str, removed: &str| FieldEdits {
            set: vec![(name.into(), value.into())],
            remove: vec![removed.into()],
        };
        let a = site.add(
            "a.example",
            &HttpOptions {
                host_rewrite: Some("localhost:3000".into()),
                request: edits("X-Set", "new", "Cookie"),
                response: edits("Strict-Transport-Security", "max-age=9", "Server"),
                ..HttpOptions::default()
            },
        );
        let mut client = connect(&site);
        client
            .send(
                "GET / HTTP/1.1\r\nHost: a.example\r\nX-Set: old\r\nX-Set: older\r\n\
                 Cookie: a=1\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n",
            )
            .await;
        let answer = "HTTP/1.1 200 OK\r\nDate: x\r\nServer: y\r\nContent-Length: 0\r\n\r\n";
        let seen = a.accept().await.serve(answer).await;
        assert_eq!(field(&seen, "host"), Some("localhost:3000"));
        assert_eq!(seen.to_ascii_lowercase().matches("x-set: ").count(), 1, "{seen}");
        assert_eq!(field(&seen, "x-set"), Some("new"));
        assert_eq!(field(&seen, "cookie"), None);
        // Without `forwarded` the visitor's own fields pass.
        assert_eq!(field(&seen, "x-forwarded-for"), Some("10.0.0.1"));
        let (head, _) = client.answer().await;
        assert_eq!(field(&head, "strict-transport-security"), Some("max-age=9"));
        assert_eq!(field(&head, "server"), None);
    });
}

#[test]
fn the_target_learns_the_visitor_and_only_a_trusted_proxy_may_speak_for_another() {
    on_worker(async {
        let site = Site::new();
        let options = HttpOptions {
            forwarded: true,
            host_rewrite: Some("localhost".into()),
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options);
        let tls = Visitor { secure: true, ..visitor() };
        for (visitor, trusted, list, proto, host) in [
            (visitor(), false, "192.0.2.7", "http", "a.example"),
            (tls, false, "192.0.2.7", "https", "a.example"),
            (visitor(), true, "10.0.0.1, 192.0.2.7", "wss", "b.example"),
        ] {
            site.trusted.set(trusted);
            let mut client = connect_as(&site, visitor, Settings::default());
            client
                .send(
                    "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 10.0.0.1\r\n\
                     X-Forwarded-Proto: wss\r\nX-Forwarded-Host: b.example\r\n\r\n",
                )
                .await;
            let seen = a.accept().await.serve(&ok("")).await;
            assert_eq!(field(&seen, "host"), Some("localhost"));
            assert_eq!(field(&seen, "x-forwarded-for"), Some(list));
            assert_eq!(field(&seen, "x-real-ip"), Some("192.0.2.7"));
            assert_eq!(field(&seen, "x-forwarded-proto"), Some(proto));
            assert_eq!(field(&seen, "x-forwarded-host"), Some(host));
            assert_eq!(client.status().await, 200);
        }
    });
}
