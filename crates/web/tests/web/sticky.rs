//! Visitors that stay where their first request went.

use web::{Cookies, Place};

use crate::rig::{Site, connect, field, on_worker};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\nContent-Length: 2\r\n\r\nok";

fn request(cookie: Option<&str>) -> String {
    let line = cookie.map(|cookie| format!("Cookie: own=1; {cookie}\r\n")).unwrap_or_default();
    format!("GET / HTTP/1.1\r\nHost: a.example\r\n{line}\r\n")
}

fn pair(value: &str) -> &str {
    value.split(';').next().unwrap()
}

/// The cookie of the server in a head, beside that of the target.
fn set(head: &str) -> Option<String> {
    let cookies = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("set-cookie").then_some(value)
    });
    let mut cookies = cookies.skip_while(|value| *value == "own=1");
    cookies.next().map(str::to_owned)
}

#[test]
fn a_request_with_the_cookie_uses_the_kept_connection_of_its_place_and_no_other() {
    on_worker(async {
        let (site, [here, there]) = (Site::new(), [1, 2].map(|target| Place { client: 0, target }));
        let a = site.plain("a.example");
        let cookies: &'static Cookies = Box::leak(Box::new(Cookies::new(&[7; 32], "/")));
        *a.cookies.borrow_mut() = Some(cookies);
        a.leads_to.set(Some(here));
        let mut visitor = connect(&site);
        visitor.send(&request(None)).await;
        let mut first = a.accept().await;
        first.serve(ANSWER).await;
        let head = visitor.answer().await.0;
        assert_eq!(field(&head, "set-cookie"), Some("own=1"));
        let own = set(&head).expect(&head);
        // With and without the cookie, the connection is the same, and nothing is set again.
        visitor.send(&request(Some(pair(&own)))).await;
        let asked = first.serve(ANSWER).await;
        assert!(asked.contains(pair(&own)), "{asked}");
        assert_eq!(set(&visitor.answer().await.0), None);
        // A place of another target asks for a stream of its own, and the visitor keeps its place.
        let other = cookies.set(there, false).unwrap();
        let other = other.to_str().unwrap().to_owned();
        a.leads_to.set(Some(there));
        visitor.send(&request(Some(pair(&other)))).await;
        let mut second = a.accept().await;
        second.serve(ANSWER).await;
        assert_eq!(set(&visitor.answer().await.0), None);
        assert_eq!(*a.places.borrow(), [None, Some(there)]);
        // Both connections are kept, each for its place.
        visitor.send(&request(Some(pair(&own)))).await;
        first.serve(ANSWER).await;
        assert_eq!(set(&visitor.answer().await.0), None);
        // A stream that leads elsewhere gives the visitor another place.
        drop(second);
        a.leads_to.set(Some(here));
        visitor.send(&request(Some(pair(&other)))).await;
        a.accept().await.serve(ANSWER).await;
        let moved = set(&visitor.answer().await.0).expect("another cookie");
        assert_eq!(pair(&moved), pair(&own));
    });
}
