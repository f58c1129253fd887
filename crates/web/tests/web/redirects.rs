//! Redirects, `Strict-Transport-Security`, paths that are replaced, origins and preflights.

use proto::{FieldEdits, HttpOptions, Redirect};
use tokio::io::AsyncWriteExt as _;
use web::{Settings, Visitor};

use crate::rig::{Site, connect, connect_as, field, ok, on_worker, status, visitor};

fn secure() -> Visitor {
    Visitor { secure: true, ..visitor() }
}

fn redirect(to: &str) -> HttpOptions {
    HttpOptions { redirect: Some(Redirect::new(to).unwrap()), ..HttpOptions::default() }
}

#[test]
fn a_visitor_without_tls_is_sent_to_the_https_name_and_one_with_tls_never() {
    on_worker(async {
        let site = Site::new();
        *site.redirect.borrow_mut() = Some(Redirect::new("https://{host}:8443{uri}").unwrap());
        let a = site.plain("a.example");
        let mut client = connect(&site);
        // One connection, with bodies, in every form of the target.
        for (request, wanted) in [
            ("GET /x?y=1 HTTP/1.1\r\nHost: A.Example:80\r\n", "https://a.example:8443/x?y=1"),
            ("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n", "https://a.example:8443/x"),
            ("OPTIONS * HTTP/1.1\r\nHost: a.example\r\n", "https://a.example:8443/"),
            (
                "GET //evil.example/ HTTP/1.1\r\nHost: a.example\r\n",
                "https://a.example:8443//evil.example/",
            ),
            ("GET /%0d%0aX:y HTTP/1.1\r\nHost: a.example\r\n", "https://a.example:8443/%0d%0aX:y"),
            // Only a trusted proxy reports TLS.
            (
                "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Proto: https\r\n",
                "https://a.example:8443/",
            ),
        ] {
            client.send(&format!("{request}\r\n")).await;
            let (head, body) = client.answer().await;
            assert_eq!(status(&head), 308, "{head}");
            assert_eq!(field(&head, "location"), Some(wanted));
            assert_eq!(field(&head, "cache-control"), Some("no-store"));
            assert!(body.contains(&wanted.replace('&', "&amp;")), "{body}");
        }
        assert_eq!(a.count.get(), 0);
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Proto: https\r\n\r\n";
        let mut client = connect_as(&site, secure(), Settings::default());
        client.send(get).await;
        a.accept().await.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
        site.trusted.set(true);
        let mut client = connect(&site);
        client.send(get).await;
        a.accept().await.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
    });
}

#[test]
fn an_answer_in_the_place_of_a_service_has_its_bytes() {
    on_worker(async {
        let site = Site::new();
        *site.answer.borrow_mut() = Some("token.thumbprint".into());
        let mut client = connect(&site);
        client.send("GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let (head, body) = client.answer().await;
        assert_eq!((status(&head), &*body), (200, "token.thumbprint"));
        assert_eq!(field(&head, "content-type"), Some("application/octet-stream"));
    });
}

#[test]
fn a_service_that_redirects_has_no_target_and_never_leads_to_itself() {
    on_worker(async {
        let site = Site::new();
        let a = site.add("a.example", &redirect("https://www.{host}{path}?from={query}"));
        let password =
            HttpOptions { basic_auth: vec!["u:p".into()], ..redirect("https://b.example") };
        let b = site.add("b.example", &password);
        site.add("c.example", &redirect("http://{host}{uri}"));
        let mut client = connect(&site);
        for (host, path, code, location) in [
            ("a.example", "/x?y", 308, Some("https://www.a.example/x?from=y")),
            ("a.example", "/x", 308, Some("https://www.a.example/x?from=")),
            ("b.example", "/", 401, None),
            ("c.example", "/x", 508, None),
            ("c.example:80", "/x", 508, None),
            ("c.example:8080", "/x", 308, Some("http://c.example/x")),
        ] {
            client.send(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            let (head, _) = client.answer().await;
            assert_eq!((status(&head), field(&head, "location")), (code, location), "{host}");
        }
        let asked = "POST / HTTP/1.1\r\nHost: b.example\r\nAuthorization: Basic dTpw\r\n\
                     Content-Length: 1\r\n\r\nx";
        client.send(asked).await;
        let (head, _) = client.answer().await;
        assert_eq!(field(&head, "location"), Some("https://b.example"));
        assert_eq!((a.count.get(), b.count.get()), (0, 0));
    });
}

#[test]
fn hsts_is_said_over_tls_alone_and_in_every_answer_for_the_service() {
    on_worker(async {
        let site = Site::new();
        let options = HttpOptions {
            hsts: Some(15_552_000),
            basic_auth: vec!["u:p".into()],
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options);
        let target = "HTTP/1.1 200 OK\r\nDate: x\r\nStrict-Transport-Security: max-age=1\r\n\
                      Content-Length: 0\r\n\r\n";
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-Proto: https\r\n";
        for (visitor, is_trusted, own, of_target) in [
            (secure(), false, Some("max-age=15552000"), Some("max-age=15552000")),
            (visitor(), true, Some("max-age=15552000"), Some("max-age=15552000")),
            (visitor(), false, None, Some("max-age=1")),
        ] {
            site.trusted.set(is_trusted);
            let mut client = connect_as(&site, visitor, Settings::default());
            client.send(&format!("{get}\r\n")).await;
            let (head, _) = client.answer().await;
            assert_eq!((status(&head), field(&head, "strict-transport-security")), (401, own));
            client.send(&format!("{get}Authorization: Basic dTpw\r\n\r\n")).await;
            a.accept().await.serve(target).await;
            let (head, _) = client.answer().await;
            assert_eq!(field(&head, "strict-transport-security"), of_target);
        }
        // The fields of the service come last.
        let set = vec![("Strict-Transport-Security".into(), "max-age=5; preload".into())];
        let response = FieldEdits { set, ..FieldEdits::default() };
        let b = site
            .add("b.example", &HttpOptions { response, hsts: Some(9), ..HttpOptions::default() });
        let mut client = connect_as(&site, secure(), Settings::default());
        client.send("GET / HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
        b.accept().await.serve(target).await;
        let (head, _) = client.answer().await;
        assert_eq!(field(&head, "strict-transport-security"), Some("max-age=5; preload"));
    });
}

#[test]
fn the_path_of_a_service_is_replaced_for_its_target() {
    on_worker(async {
        let site = Site::new();
        let options = |to: &str| HttpOptions {
            path: Some("/api".into()),
            strip_prefix: Some(to.into()),
            forwarded: true,
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options("/"));
        let b = site.add("b.example", &options("/app"));
        for (host, target, prefix, cases) in [
            (
                "a.example",
                a,
                Some("/api"),
                [("/api/", "/"), ("/api/v1?x=/api", "/v1?x=/api"), ("/api/../api/v1", "/v1")],
            ),
            (
                "b.example",
                b,
                None,
                [("/api", "/app"), ("/api/v1?x", "/app/v1?x"), ("/%61pi/v1", "/app/v1")],
            ),
        ] {
            let mut client = connect(&site);
            let mut remote = None;
            for (asked, wanted) in cases {
                client.send(&format!("GET {asked} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
                if remote.is_none() {
                    remote = Some(target.accept().await);
                }
                let seen = remote.as_mut().unwrap().serve(&ok("")).await;
                assert!(seen.starts_with(&format!("GET {wanted} HTTP/1.1\r\n")), "{asked}: {seen}");
                assert_eq!(field(&seen, "x-forwarded-prefix"), prefix);
                assert_eq!(client.status().await, 200);
            }
            for bad in ["/api/..%2fadmin", "/api/..;/admin"] {
                client.send(&format!("GET {bad} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
                assert_eq!(client.status().await, 400, "{bad}");
                client = connect(&site);
            }
        }
    });
}

#[test]
fn the_path_of_a_service_whose_target_has_it_as_its_root_ends_with_a_slash() {
    on_worker(async {
        let site = Site::new();
        let options = |to: &str| HttpOptions {
            path: Some("/docs/en".into()),
            strip_prefix: Some(to.into()),
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options("/"));
        let mut client = connect(&site);
        for (asked, location) in
            [("/docs/en", "./en/"), ("/docs/en?x=/y", "./en/?x=/y"), ("/docs/%65n", "./%65n/")]
        {
            client.send(&format!("GET {asked} HTTP/1.1\r\nHost: a.example\r\n\r\n")).await;
            let (head, _) = client.answer().await;
            assert_eq!((status(&head), field(&head, "location")), (308, Some(location)));
        }
        // A program that posts, or switches to a WebSocket, need not follow redirects.
        for asked in [
            "POST /docs/en HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n",
            "GET /docs/en HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\n\
             Upgrade: websocket\r\n\r\n",
        ] {
            let mut client = connect(&site);
            client.send(asked).await;
            let seen = a.accept().await.serve(&ok("")).await;
            assert!(seen.contains(" / HTTP/1.1\r\n"), "{seen}");
            assert_eq!(client.status().await, 200);
        }
        let b = site.add("b.example", &options("/guide"));
        let mut client = connect(&site);
        client.send("GET /docs/en HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
        let seen = b.accept().await.serve(&ok("")).await;
        assert!(seen.starts_with("GET /guide HTTP/1.1\r\n"), "{seen}");
    });
}

#[test]
fn addresses_of_a_target_become_those_of_its_visitors() {
    on_worker(async {
        let site = Site::new();
        let options = HttpOptions {
            host_rewrite: Some("localhost:3000".into()),
            ports: vec![3000],
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options);
        let mut client = connect_as(&site, secure(), Settings::default());
        let asked = "MOVE /b HTTP/1.1\r\nHost: a.example\r\n\
                     Destination: https://a.example/c\r\nReferer: https://a.example/\r\n\r\n";
        client.send(asked).await;
        let answer = "HTTP/1.1 103 Early Hints\r\nAlt-Svc: h3=\":3000\"\r\n\
                      Link: <http://localhost:3000/c.css>; rel=preload\r\n\r\n\
                      HTTP/1.1 201 Created\r\nLocation: http://localhost:3000/c\r\n\
                      Set-Cookie: s=1; Domain=localhost\r\nAlt-Svc: h3=\":3000\"\r\n\
                      Content-Length: 0\r\n\r\n";
        let seen = a.accept().await.serve(answer).await;
        assert_eq!(field(&seen, "destination"), Some("/c"));
        assert_eq!(field(&seen, "referer"), Some("http://localhost:3000/"));
        let hints = client.head().await;
        assert_eq!(status(&hints), 103);
        assert_eq!(field(&hints, "link"), Some("<https://a.example/c.css>; rel=preload"));
        assert_eq!(field(&hints, "alt-svc"), None);
        let (head, _) = client.answer().await;
        assert_eq!(field(&head, "location"), Some("https://a.example/c"));
        assert_eq!(field(&head, "set-cookie"), Some("s=1"));
        assert_eq!(field(&head, "alt-svc"), None);
    });
}

#[test]
fn a_destination_outside_of_the_path_of_a_service_is_refused() {
    on_worker(async {
        let site = Site::new();
        let options = HttpOptions { path: Some("/dav".into()), ..HttpOptions::default() };
        site.add("a.example", &options);
        let mut client = connect(&site);
        let asked = "MOVE /dav/b HTTP/1.1\r\nHost: a.example\r\n\
                     Destination: http://a.example/private\r\n\r\n";
        client.send(asked).await;
        assert_eq!(client.status().await, 502);
    });
}

#[test]
fn an_origin_follows_the_rewritten_host() {
    on_worker(async {
        let site = Site::new();
        let rewritten = |forwarded| HttpOptions {
            host_rewrite: Some("localhost:3000".into()),
            forwarded,
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &rewritten(false));
        let b = site.add("b.example", &rewritten(true));
        let c = site.plain("c.example");
        for (host, target, origin, wanted) in [
            ("a.example", &a, "https://a.example", "http://localhost:3000"),
            ("a.example", &a, "https://evil.example", "https://evil.example"),
            ("b.example", &b, "https://b.example", "https://localhost:3000"),
            ("c.example", &c, "https://c.example", "https://c.example"),
        ] {
            let mut client = connect_as(&site, secure(), Settings::default());
            let asked = format!("POST / HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n");
            client.send(&format!("{asked}Content-Length: 0\r\n\r\n")).await;
            let seen = target.accept().await.serve(&ok("")).await;
            assert_eq!(field(&seen, "origin"), Some(wanted), "{host}");
            assert_eq!(client.status().await, 200);
        }
    });
}

#[test]
fn a_preflight_passes_without_a_password_and_nothing_else_does() {
    on_worker(async {
        let site = Site::new();
        let options = HttpOptions {
            basic_auth: vec!["u:p".into()],
            preflight_pass: true,
            ..HttpOptions::default()
        };
        let a = site.add("a.example", &options);
        let preflight = "Origin: https://b.example\r\nAccess-Control-Request-Method: PUT\r\n";
        let mut client = connect(&site);
        let asked = |method: &str, more: &str| {
            format!("{method} /x HTTP/1.1\r\nHost: a.example\r\n{preflight}{more}\r\n")
        };
        let more = "Cookie: session=1\r\nX-HTTP-Method-Override: PUT\r\n\
                    X_HTTP_Method_Override: PUT\r\nX-Original-URL: /admin\r\n";
        client.send(&asked("OPTIONS", more)).await;
        let mut target = a.accept().await;
        let seen = target.serve("HTTP/1.1 204 No Content\r\nDate: x\r\n\r\n").await;
        assert_eq!(field(&seen, "access-control-request-method"), Some("PUT"));
        for name in ["cookie", "x-http-method-override", "x_http_method_override", "x-original-url"]
        {
            assert_eq!(field(&seen, name), None, "{name}");
        }
        assert_eq!(status(&client.head().await), 204);
        for refused in [
            asked("GET", ""),
            asked("POST", "Content-Length: 0\r\n"),
            asked("OPTIONS", "Authorization: Basic x\r\n"),
            asked("OPTIONS", "Connection: upgrade\r\nUpgrade: websocket\r\n"),
            asked("OPTIONS", "Access-Control-Request-Method: GET\r\n"),
            asked("OPTIONS", "Content-Length: 1\r\n"),
            asked("OPTIONS", "Transfer-Encoding: chunked\r\n"),
            "OPTIONS / HTTP/1.1\r\nHost: a.example\r\nOrigin: https://b.example\r\n\r\n".into(),
        ] {
            let mut client = connect(&site);
            client.send(&refused).await;
            assert_eq!(client.status().await, 401, "{refused}");
            let _ = client.io.shutdown().await;
        }
        assert_eq!(a.count.get(), 1);
        // Without the option a preflight needs the password as well.
        let closed = HttpOptions { preflight_pass: false, ..options };
        site.add("b.example", &closed);
        let mut client = connect(&site);
        let other = asked("OPTIONS", "").replace("Host: a", "Host: b");
        client.send(&other).await;
        assert_eq!(client.status().await, 401);
    });
}
