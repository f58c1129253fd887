//! What is told about each request once its answer has ended.

use std::{rc::Rc, time::Duration};

use proto::HttpOptions;
use tokio::time::sleep;
use web::{Record, Wants};

use crate::rig::{Site, connect, head, ok, on_worker, send};

fn summaries(records: &std::cell::RefCell<Vec<Record>>) -> Vec<(u16, u64, bool)> {
    let records = records.borrow();
    records.iter().map(|one| (one.status, one.bytes, one.is_complete)).collect()
}

fn wanting() -> Rc<Site> {
    let site = Site::new();
    site.wants.set(Some(Wants { query: false, user: true }));
    site
}

#[test]
fn a_request_is_told_with_its_figures_when_its_answer_has_ended() {
    on_worker(async {
        let site = wanting();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client
            .send("GET /x?secret=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: curl\r\n\r\n")
            .await;
        let mut target = a.accept().await;
        head(&mut target.io).await;
        sleep(Duration::from_millis(300)).await;
        send(&mut target.io, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl").await;
        client.head().await;
        assert!(a.records.borrow().is_empty(), "the answer has not ended");
        sleep(Duration::from_millis(500)).await;
        send(&mut target.io, "ow").await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(summaries(&a.records), [(200, 4, true)]);
        let record = a.records.borrow_mut().pop().unwrap();
        assert_eq!(record.first_byte.map(|time| time.as_millis()), Some(300));
        assert_eq!(record.duration.as_millis(), 800);
        let head = record.head.unwrap();
        assert_eq!((head.path(), head.query()), (Some(&b"/x"[..]), None));
        assert_eq!((head.method(), head.protocol()), (Some(&b"GET"[..]), "HTTP/1.1"));
        assert_eq!((head.host(), head.user_agent()), (Some(&b"a.example"[..]), Some(&b"curl"[..])));
        assert!(site.records.borrow().is_empty());
    });
}

#[test]
fn answers_of_the_server_itself_are_told_as_well() {
    on_worker(async {
        let site = wanting();
        let basic_auth = vec!["anna:one".to_owned()];
        let a = site.add("a.example", &HttpOptions { basic_auth, ..HttpOptions::default() });
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        assert_eq!(client.status().await, 401);
        client.send("GET /no HTTP/1.1\r\nHost: b.example\r\n\r\n").await;
        assert_eq!(client.status().await, 404);
        client.send("GET /x HTTP/1.1\r\nHost: a b\r\n\r\n").await;
        assert_eq!(client.status().await, 400);
        client.rest().await;
        client.served.await.unwrap();
        assert_eq!(a.records.borrow()[0].status, 401, "the service is known");
        let records = site.records.borrow();
        assert_eq!(records.iter().map(|one| one.status).collect::<Vec<_>>(), [404, 400]);
        assert_eq!(records[0].head.as_ref().unwrap().path(), Some(&b"/no"[..]));
        assert!(records.iter().all(|one| one.is_complete && one.bytes > 0));
    });
}

#[test]
fn a_visitor_that_leaves_and_an_answer_that_breaks_are_told() {
    on_worker(async {
        let site = wanting();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let target = a.accept().await;
        drop(client);
        sleep(Duration::from_secs(400)).await;
        drop(target);
        assert_eq!(summaries(&a.records), [(499, 0, false)]);
        assert_eq!(a.records.borrow_mut().pop().unwrap().first_byte, None);
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await;
        client.head().await;
        drop(target);
        client.served.await.unwrap();
        assert_eq!(summaries(&a.records), [(200, 4, false)]);
    });
}

#[test]
fn answers_without_a_body_and_switched_connections_are_told_at_once() {
    on_worker(async {
        let site = wanting();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut target = a.accept().await;
        target.serve("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").await;
        client.head().await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(summaries(&a.records), [(200, 0, true)]);
        let upgrade = "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\n\
                       Upgrade: websocket\r\n\r\n";
        let mut client = connect(&site);
        client.send(upgrade).await;
        let mut target = a.accept().await;
        target
            .serve("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
            .await;
        client.head().await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(summaries(&a.records), [(200, 0, true), (101, 0, true)]);
    });
}

#[test]
fn without_a_log_no_head_is_kept_and_figures_are_told_all_the_same() {
    on_worker(async {
        let site = Site::new();
        let a = site.plain("a.example");
        let mut client = connect(&site);
        client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        a.accept().await.serve(&ok("body")).await;
        assert_eq!(client.status().await, 200);
        sleep(Duration::from_millis(1)).await;
        let record = a.records.borrow_mut().pop().unwrap();
        assert!(record.head.is_none() && record.visitor.is_none());
        assert_eq!((record.status, record.bytes), (200, 4));
    });
}
