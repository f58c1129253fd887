//! Each request reaches the service of its own host and path.

use std::time::Duration;

use proto::HttpOptions;
use tokio::time::Instant;
use web::{HeaderName, OpenFailed, Pages, Refusal, Settings, Unavailable};

use crate::rig::{Site, connect, connect_as, field, ok, on_worker, status, visitor};

#[test]
fn each_request_of_a_connection_is_routed_by_its_own_host() {
    on_worker(async {
        let site = Site::new();
        let (a, b) = (site.plain("a.example"), site.plain("b.example"));
        let mut client = connect(&site);
        client.send("GET /1?q=%20 HTTP/1.1\r\nHost: A.example:80\r\nX-Own: 1\r\n\r\n").await;
        let mut target_a = a.accept().await;
        let seen = target_a.serve(&ok("from a")).await;
        assert_eq!(seen, "GET /1?q=%20 HTTP/1.1\r\nHost: A.example:80\r\nX-Own: 1\r\n\r\n");
        let answer = client.answer().await;
        assert_eq!(answer.0, "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 6\r\n\r\n");
        assert_eq!(answer.1, "from a");

        client.send("GET /2 HTTP/1.1\r\nHost: b.example.\r\n\r\n").await;
        let mut target_b = b.accept().await;
        target_b.serve(&ok("from b")).await;
        assert_eq!(client.answer().await.1, "from b");

        client.send("GET /3 HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let seen = target_a.serve(&ok("again a")).await;
        assert!(seen.starts_with("GET /3 "), "{seen}");
        assert_eq!(client.answer().await.1, "again a");
        assert_eq!((a.count.get(), b.count.get()), (1, 1));
    });
}

#[test]
fn requests_that_arrive_together_are_answered_in_order() {
    on_worker(async {
        let site = Site::new();
        let (a, b) = (site.plain("a.example"), site.plain("b.example"));
        let mut client = connect(&site);
        client
            .send("GET /1 HTTP/1.1\r\nHost: a.example\r\n\r\nGET /2 HTTP/1.1\r\nHost: b.example\r\n\r\n")
            .await;
        let mut target = a.accept().await;
        target.serve(&ok("first")).await;
        assert_eq!(client.answer().await.1, "first");
        b.accept().await.serve(&ok("second")).await;
        assert_eq!(client.answer().await.1, "second");
    });
}

#[test]
fn absolute_form_is_routed_by_its_authority() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        site.plain("b.example");
        let mut client = connect(&site);
        client.send("GET http://a.example/x HTTP/1.1\r\nHost: A.EXAMPLE:80\r\n\r\n").await;
        let mut target = a.accept().await;
        let seen = target.serve(&ok("")).await;
        assert_eq!(seen, "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.status().await, 200);
        client.send("GET http://a.example HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        let seen = target.serve(&ok("")).await;
        assert_eq!(seen, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.status().await, 200);
        for request in [
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET http://a.example:81/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\n\r\n",
            "GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://user@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ] {
            let mut client = connect(&site);
            client.send(request).await;
            assert_eq!(client.status().await, 400, "{request}");
            assert_eq!(client.rest().await, "", "{request}");
        }
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_request_whose_host_is_unknown_is_for_the_service_of_all_hosts() {
    on_worker(async {
        let site = Site::new();
        site.plain("a.example");
        let old = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        let requests = [old, "GET / HTTP/1.1\r\nHost:\r\n\r\n"];
        for request in requests {
            let mut client = connect(&site);
            client.send(request).await;
            assert_eq!(client.status().await, 404, "{request}");
        }
        let options = HttpOptions { forwarded: true, ..HttpOptions::default() };
        let all = site.add("-", &options);
        for request in requests {
            let mut client = connect(&site);
            client.send(request).await;
            let seen = all.accept().await.serve(&ok("")).await;
            assert!(seen.contains("\r\nHost: \r\n") || seen.contains("\r\nHost:\r\n"), "{seen}");
            assert_eq!(field(&seen, "x-forwarded-host"), None, "{seen}");
            assert_eq!(client.status().await, 200, "{request}");
        }
    });
}

#[test]
fn a_request_without_a_usable_host_gets_400() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        for request in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example:x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example, b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n",
        ] {
            let mut client = connect(&site);
            client.send(request).await;
            let (head, _) = client.answer().await;
            assert_eq!((status(&head), field(&head, "connection")), (400, Some("close")));
            assert_eq!(client.rest().await, "", "{request}");
        }
        assert_eq!(a.count.get(), 0);
    });
}

#[test]
fn an_unknown_host_gets_a_page_that_is_not_stored() {
    on_worker(async {
        let site = Site::new();
        let mut client = connect(&site);
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: x.example\r\n\r\n").await;
            let (head, body) = client.answer().await;
            assert_eq!(status(&head), 404);
            assert_eq!(field(&head, "cache-control"), Some("no-store"));
            assert_eq!(field(&head, "content-type"), Some("text/html; charset=utf-8"));
            assert!(body.contains("No service has the name x.example."), "{body}");
        }
        client.send("HEAD / HTTP/1.1\r\nHost: x.example\r\n\r\n").await;
        let head = client.head().await;
        assert_eq!(status(&head), 404);
        client.send("GET / HTTP/1.1\r\nHost: x.example\r\nConnection: close\r\n\r\n").await;
        let (again, body) = client.answer().await;
        // HEAD told the length of the page and sent none of it.
        assert_eq!(field(&head, "content-length"), field(&again, "content-length"));
        assert_eq!(field(&again, "content-length"), Some(&*body.len().to_string()));
        assert_eq!(client.rest().await, "");
    });
}

#[test]
fn pages_can_be_replaced() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let pages = Pages {
            not_found: Some("<p>{reason}</p>".into()),
            unavailable: Some("down: {status} {reason}".into()),
        };
        let mut client = connect_as(&site, visitor(), Settings { pages, ..Settings::default() });
        client.send("GET / HTTP/1.1\r\nHost: x.example\r\n\r\n").await;
        assert_eq!(client.answer().await.1, "<p>No service has the name x.example.</p>");
        *a.refusal.borrow_mut() = Some(OpenFailed { status: 503, reason: "a <limit>".into() });
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        assert_eq!(client.answer().await.1, "down: 503 A &lt;limit&gt;.");
    });
}

#[test]
fn a_name_that_returns_soon_is_waited_for() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        site.late.set(1);
        let mut client = connect(&site);
        let begin = Instant::now();
        client.send("GET / HTTP/1.1\r\nHost: late.example\r\n\r\n").await;
        a.accept().await.serve(&ok("late")).await;
        assert_eq!(client.answer().await.1, "late");
        assert_eq!(begin.elapsed(), Duration::from_secs(3));
    });
}

#[test]
fn the_caller_may_refuse_a_request() {
    on_worker(async {
        let site = Site::new();
        *site.refused.borrow_mut() = Some(Refusal { status: 503, reason: "Too many.".into() });
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let (head, body) = client.answer().await;
        assert_eq!(status(&head), 503);
        assert!(body.contains("Too many."), "{body}");
    });
}

#[test]
fn a_host_beyond_the_certificate_gets_421() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        site.plain("b.example");
        *site.uncovered.borrow_mut() = Some("b.example".into());
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: B.example\r\n\r\n").await;
        assert_eq!(client.status().await, 421);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        a.accept().await.serve(&ok("covered")).await;
        assert_eq!(client.answer().await.1, "covered");
    });
}

#[test]
fn a_chosen_field_names_the_host_and_stays() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let settings = Settings {
            route_header: Some(HeaderName::from_static("x-target")),
            ..Settings::default()
        };
        let mut client = connect_as(&site, visitor(), settings.clone());
        client.send("GET / HTTP/1.1\r\nHost: 10.0.0.1\r\nX-Target: A.example\r\n\r\n").await;
        let seen = a.accept().await.serve(&ok("")).await;
        assert_eq!(seen, "GET / HTTP/1.1\r\nHost: 10.0.0.1\r\nX-Target: A.example\r\n\r\n");
        assert_eq!(client.status().await, 200);
        // A request without the field is for the host of `Host`.
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let seen = a.accept().await.serve(&ok("by Host")).await;
        assert_eq!(seen, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.answer().await.1, "by Host");
        for fields in [
            "X-Target: a.example\r\nX-Target: a.example\r\n",
            "X-Target: a.example\r\nx-target: b.example\r\n",
            "X-Target: /\r\n",
            "X-Target:\r\n",
        ] {
            let mut client = connect_as(&site, visitor(), settings.clone());
            client.send(&format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")).await;
            assert_eq!(client.status().await, 400, "{fields}");
        }
    });
}

#[test]
fn the_longest_path_wins_and_no_spelling_leaves_it() {
    on_worker(async {
        let site = Site::new();
        let path = |path: &str| HttpOptions { path: Some(path.into()), ..HttpOptions::default() };
        let api = site.add("a.example", &path("/api"));
        let admin = site.add("a.example", &path("/admin"));
        let other = site.plain("a.example");
        for (target, paths) in [
            (&api, ["/api", "/api/v1?x=/../admin", "//api/./x", "/x/../api/", "/%61pi/x"]),
            (
                &admin,
                ["/api/../admin", "/api/%2e%2E/admin", "/admin/", "//admin", "/api/..//admin"],
            ),
            (&other, ["/", "/apis", "/api/..", "/adminx", "/x/admin"]),
        ] {
            for path in paths {
                let mut client = connect(&site);
                client.send(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
                let seen = target.accept().await.serve(&ok("")).await;
                assert_eq!(seen, format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
                assert_eq!(client.status().await, 200);
            }
        }
        for path in ["/api/..%2fadmin", "/api/..;/admin", "/api/..%5Cadmin"] {
            let mut client = connect(&site);
            client.send(&format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
            assert_eq!(client.status().await, 400, "{path}");
        }
    });
}

#[test]
fn a_service_that_is_away_says_when_to_try_again_and_ends_the_connection() {
    on_worker(async {
        let site = Site::new();
        site.plain("a.example");
        let settings = Settings {
            pages: Pages {
                unavailable: Some("away: {status} {reason}".into()),
                ..Pages::default()
            },
            ..Settings::default()
        };
        for (page, body) in [
            (None, "away: 503 &lt;Later&gt;"),
            (Some("own: {status} {reason}"), "own: 503 &lt;Later&gt;"),
        ] {
            *site.away.borrow_mut() = Some(Unavailable {
                refusal: Refusal { status: 503, reason: "<Later>".into() },
                retry_after: 600,
                page: page.map(Into::into),
            });
            for (method, body) in [("GET", body), ("HEAD", "")] {
                let mut client = connect_as(&site, visitor(), settings.clone());
                client.send(&format!("{method} / HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
                let said = client.rest().await;
                let (head, said) = said.split_once("\r\n\r\n").unwrap();
                assert_eq!((status(head), said), (503, body), "{method}: {head}");
                assert!(head.contains("\r\nRetry-After: 600"), "{head}");
                assert!(head.to_lowercase().contains("\r\nconnection: close"), "{head}");
            }
        }
    });
}
