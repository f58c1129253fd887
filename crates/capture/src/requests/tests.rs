//! What is kept of connections, compared with what was sent, for any pieces of the bytes.

use std::collections::HashSet;
use std::sync::Arc;

use config::{ClientFlags, Sources, Text};
use link::ProcessBudget;
use ops::requests::{Messages, RequestDetail, RequestFilter, RequestProgress};
use proptest::prelude::*;
use relay::Spectator;

use super::{BODY, PER_SERVICE, Store};
use crate::observed::{Observed, ObservedVisitor, Observer};

/// A service with names that keeps its requests, and its store within a budget of so many bytes.
fn kept(budget: u64) -> (Observer, Arc<Store>) {
    let text = "servers: tcp://127.0.0.1:1\nname: home\ntoken: \
                q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\nservices:\n  - { name: web, public: \
                \"http://a.example\", target: 3000, requests: true }\n";
    let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
    let text = Some(Text { name: "client.yaml", text });
    let config = config::load_client(text, &ClientFlags::default(), &sources).unwrap().config;
    let store = Store::new(ProcessBudget::new(budget));
    let observed = Observed::new(Arc::clone(&store));
    (observed.of(&config.services[0]).unwrap(), store)
}

fn visitor() -> ObservedVisitor {
    ObservedVisitor { visitor: relay::Visitor::At("192.0.2.7:4000".parse().unwrap()), replay: None }
}

fn spectator(observer: &Observer) -> Box<dyn Spectator> {
    observer.spectator(visitor())
}

/// All that is kept, with its secrets and without its times and numbers.
fn all(store: &Store) -> Vec<RequestDetail> {
    let list = store.list(&RequestFilter::default());
    let timeless = |one: &ops::requests::SeenRequest| {
        let mut detail = store.one(one.id, true).unwrap();
        let seen = &mut detail.seen;
        assert_eq!(seen.first_byte_micros.is_some(), seen.status.is_some());
        assert_eq!(seen.whole_micros.is_some(), seen.progress != RequestProgress::Open);
        (seen.id, seen.unix_millis, seen.first_byte_micros, seen.whole_micros) = (0, 0, None, None);
        detail
    };
    list.requests.iter().map(timeless).collect()
}

/// The content of a message.
#[derive(Clone, Debug)]
enum Body {
    None,
    Length(usize),
    /// Sizes of chunks, and whether there is a trailer field.
    Chunks(Vec<usize>, bool),
}

impl Body {
    fn size(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Length(size) => *size,
            Self::Chunks(sizes, _) => sizes.iter().sum(),
        }
    }

    fn write(&self, head: &str, is_head: bool) -> Vec<u8> {
        let data = |size: usize| "abcdefghij".bytes().cycle().take(size);
        let mut bytes = head.as_bytes().to_vec();
        match self {
            Self::None => bytes.extend(b"\r\n"),
            Self::Length(size) => {
                bytes.extend(format!("Content-Length: {size}\r\n\r\n").bytes());
                bytes.extend(data(if is_head { 0 } else { *size }));
            }
            Self::Chunks(sizes, has_trailer) => {
                bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
                if is_head {
                    return bytes;
                }
                for size in sizes {
                    bytes.extend(format!("{size:x};x=y\r\n").bytes());
                    bytes.extend(data(*size));
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n");
                bytes.extend(if *has_trailer { &b"X-Sum: 7\r\n"[..] } else { b"" });
                bytes.extend(b"\r\n");
            }
        }
        bytes
    }
}

/// A request and its response.
#[derive(Clone, Debug)]
struct Exchange {
    method: &'static str,
    asked: Body,
    status: u16,
    answered: Body,
    interims: usize,
}

fn body() -> impl Strategy<Value = Body> {
    let size = prop::sample::select(vec![1usize, 2, 10, 700, BODY - 1, BODY, BODY + 9]);
    prop_oneof![
        Just(Body::Length(0)),
        size.clone().prop_map(Body::Length),
        (prop::collection::vec(size, 0..3), any::<bool>()).prop_map(|(a, b)| Body::Chunks(a, b)),
    ]
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let asked = prop_oneof![
        (prop::sample::select(vec!["GET", "HEAD", "DELETE"]), Just(Body::None)),
        (prop::sample::select(vec!["POST", "PUT"]), body()),
    ];
    let answered = prop_oneof![
        (prop::sample::select(vec![200u16, 404, 500]), body()),
        (prop::sample::select(vec![204u16, 304]), Just(Body::None)),
    ];
    (asked, answered, 0usize..3).prop_map(|((method, asked), (status, answered), interims)| {
        // nginx before version 1.29 does not understand them, so the tracker doubts them.
        let interims = if method == "HEAD" { 0 } else { interims };
        Exchange { method, asked, status, answered, interims }
    })
}

/// Gives the bytes in pieces whose sizes repeat.
fn give(bytes: &[u8], sizes: &[usize], mut take: impl FnMut(&[u8])) {
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        let (piece, behind) = rest.split_at((*size).min(rest.len()));
        take(piece);
        rest = behind;
        if rest.is_empty() {
            return;
        }
    }
}

/// What the store has after a kept connection with these batches of pipelined requests.
fn seen(batches: &[Vec<Exchange>], sizes: &[usize]) -> Vec<RequestDetail> {
    let (observer, store) = kept(1 << 30);
    let mut spectator = spectator(&observer);
    for batch in batches {
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        for (n, one) in batch.iter().enumerate() {
            let head = format!("{} /{n}?q=1 HTTP/1.1\r\nHost: a.example\r\n", one.method);
            asked.extend(one.asked.write(&head, false));
            for _ in 0..one.interims {
                answered.extend(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
            }
            let head = format!("HTTP/1.1 {} Text\r\nServer: x\r\n", one.status);
            let no_body = one.method == "HEAD";
            answered.extend(one.answered.write(&head, no_body));
        }
        give(&asked, sizes, |piece| spectator.taken(piece));
        give(&answered, sizes, |piece| spectator.sent(piece));
    }
    drop(spectator);
    let all = all(&store);
    drop(observer);
    assert_eq!(store.list(&RequestFilter::default()).lost, 0);
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_pieces_give_the_entries_of_what_was_sent(
        batches in prop::collection::vec(prop::collection::vec(exchange(), 1..5), 1..4),
        sizes in prop::collection::vec(prop_oneof![1usize..4, 1usize..3000, Just(65_536usize)], 1..5),
    ) {
        let all = seen(&batches, &sizes);
        prop_assert_eq!(&all, &seen(&batches, &[usize::MAX]));
        let sent: Vec<_> = batches.iter().flat_map(|batch| batch.iter().enumerate()).collect();
        prop_assert_eq!(all.len(), sent.len());
        for (kept, (n, sent)) in all.iter().zip(sent) {
            let (request, response) = (kept.request.as_ref(), kept.response.as_ref());
            let (request, response) = (request.unwrap(), response.unwrap());
            prop_assert_eq!(&kept.seen.method, sent.method);
            prop_assert_eq!(&kept.seen.path, &format!("/{n}?q=1"));
            prop_assert_eq!(kept.seen.visitor.as_deref(), Some("192.0.2.7"));
            prop_assert_eq!(kept.seen.status, Some(sent.status));
            prop_assert_eq!(kept.seen.progress, RequestProgress::Complete);
            prop_assert_eq!(kept.interim.len(), sent.interims);
            let has_body = sent.method != "HEAD";
            for (message, body, has) in
                [(request, &sent.asked, true), (response, &sent.answered, has_body)]
            {
                let size = if has { body.size() } else { 0 };
                let text = message.body.text.as_ref().unwrap();
                prop_assert_eq!(message.body.bytes, size as u64);
                prop_assert_eq!(text.len(), size.min(BODY));
                prop_assert_eq!(message.body.cut, size > BODY);
                let trailers = has && matches!(body, Body::Chunks(_, true));
                prop_assert_eq!(message.trailers.len(), usize::from(trailers));
            }
            prop_assert_eq!(kept.no_replay.is_some(), sent.asked.size() > BODY);
        }
    }

    #[test]
    fn hostile_bytes_never_panic_and_what_is_kept_is_bounded(
        asked in prop::collection::vec(any::<u8>(), 0..400),
        answered in prop::collection::vec(any::<u8>(), 0..400),
        is_after_request in any::<bool>(),
    ) {
        let (observer, store) = kept(1 << 30);
        let mut one = spectator(&observer);
        if is_after_request {
            one.taken(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        }
        one.taken(&asked);
        one.sent(&answered);
        one.taken(&asked);
        drop(one);
        for one in all(&store) {
            prop_assert!(one.seen.progress != RequestProgress::Open);
        }
    }
}

#[test]
fn a_replay_sends_the_bytes_of_the_request_and_not_of_one_that_is_cut() {
    let (observer, store) = kept(1 << 30);
    let mut one = spectator(&observer);
    let chunked =
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n\
        2\r\nab\r\n1\r\nc\r\n0\r\nX: 1\r\n\r\n";
    one.taken(chunked);
    one.sent(b"HTTP/1.1 204 No Content\r\n\r\n");
    let plain = b"PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    one.taken(plain);
    assert_eq!(store.original(2).err(), Some(Some("the request is still under way")));
    one.sent(b"HTTP/1.1 204 No Content\r\n\r\n");
    let one_chunk =
        b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n\
        3\r\nabc\r\n0\r\nX: 1\r\n\r\n";
    assert_eq!(store.original(1).unwrap().bytes, one_chunk);
    assert_eq!(store.original(2).unwrap().bytes, plain);
    assert_eq!(store.original(3).err(), Some(None));
    // The target answers before the end of the request, which then does not come.
    one.taken(b"PUT /c HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    one.sent(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n");
    drop(one);
    let why = store.original(3).err().flatten().unwrap();
    assert!(why.contains("did not come to its end"), "{why}");
    assert_eq!(all(&store)[2].seen.progress, RequestProgress::Complete);
}

#[test]
fn an_early_answer_leaves_the_rest_of_the_body_at_its_request() {
    let (observer, store) = kept(1 << 30);
    let mut one = spectator(&observer);
    one.taken(b"PUT /c HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    one.sent(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    one.taken(b"defGET /d HTTP/1.1\r\nHost: a\r\n\r\n");
    one.sent(b"HTTP/1.1 204 No Content\r\n\r\n");
    let all = all(&store);
    assert_eq!(all[0].request.as_ref().unwrap().body.text.as_deref(), Some("abcdef"));
    assert_eq!((all.len(), all[1].seen.path.as_str()), (2, "/d"));
    assert!(all.iter().all(|one| one.seen.progress == RequestProgress::Complete));
}

#[test]
fn the_messages_of_a_websocket_are_counted_while_it_lives() {
    let (observer, store) = kept(1 << 30);
    let mut one = spectator(&observer);
    one.taken(b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    // The first frames come in one piece with the head.
    one.sent(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n\
        \x81\x02hi\x01\x01a\x80\x01b\x89\x00",
    );
    one.taken(b"\x81\x82\0\0\0\0yo");
    let open = &store.list(&RequestFilter::default()).requests[0];
    assert_eq!((open.progress, open.status), (RequestProgress::Open, Some(101)));
    assert_eq!(open.messages, Some(Messages { incoming: 1, outgoing: 2 }));
    assert_eq!((open.request_bytes, open.response_bytes), (8, 12));
    let (first, revision) = store.since(0);
    assert_eq!(first.requests.len(), 1);
    assert_eq!(store.since(revision).0.requests.len(), 1, "its figures change without a revision");
    drop(one);
    let over = &all(&store)[0];
    assert_eq!(over.seen.progress, RequestProgress::Complete);
    assert_eq!(over.seen.messages, Some(Messages { incoming: 1, outgoing: 2 }));
    assert_eq!((over.seen.request_bytes, over.seen.response_bytes), (8, 12));
    assert!(over.no_replay.is_some());
    assert!(store.since(store.since(0).1).0.requests.is_empty());
}

#[test]
fn other_protocols_and_connections_that_break_are_kept_as_what_they_are() {
    let (observer, store) = kept(1 << 30);
    let mut one = spectator(&observer);
    one.taken(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    one.sent(b"abc");
    drop(one);
    let mut one = spectator(&observer);
    one.taken(b"GET /half HTTP/1.1\r\nHost: a\r\n\r\n");
    one.sent(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    drop(one);
    let mut one = spectator(&observer);
    one.taken(b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n");
    drop(one);
    let mut one = spectator(&observer);
    one.taken(b"GET /end HTTP/1.1\r\nHost: a\r\n\r\n");
    one.sent(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end");
    drop(one);
    let all = all(&store);
    let progress =
        |n: usize| (all[n].seen.progress, all[n].seen.status, all[n].seen.response_bytes);
    assert_eq!(progress(0), (RequestProgress::Complete, None, 3));
    assert!(all[0].seen.method.is_empty() && all[0].request.is_none());
    assert_eq!(progress(1), (RequestProgress::Cut, Some(200), 4));
    assert_eq!(progress(2), (RequestProgress::Cut, None, 0));
    assert_eq!(progress(3), (RequestProgress::Complete, Some(200), 13));
}

#[test]
fn memory_is_bounded_the_oldest_go_first_and_a_body_without_room_is_left_out() {
    let ask = |observer: &Observer, path: &str, size: usize| {
        let mut one = spectator(observer);
        let body = Body::Length(size);
        one.taken(&body.write(&format!("PUT {path} HTTP/1.1\r\nHost: a\r\n"), false));
        one.sent(&body.write("HTTP/1.1 200 OK\r\n", false));
    };
    // Requests without bodies: so many are kept.
    let (observer, store) = kept(1 << 30);
    (0..PER_SERVICE + 5).for_each(|n| ask(&observer, &format!("/{n}"), 0));
    let kept_now = store.list(&RequestFilter::default());
    assert_eq!((kept_now.requests.len(), kept_now.lost), (PER_SERVICE, 0));
    assert_eq!(kept_now.requests[0].path, "/5");
    let all_of_them = RequestFilter { path: Some("/204".into()), ..RequestFilter::default() };
    assert_eq!(store.list(&all_of_them).requests.len(), 1);

    // An eighth of the budget is for requests; the oldest make room.
    let (observer, store) = kept(8 << 20);
    (0..50).for_each(|n| ask(&observer, &format!("/{n}"), BODY));
    let kept_now = store.list(&RequestFilter::default());
    assert!(kept_now.memory_bytes <= 1 << 20, "{}", kept_now.memory_bytes);
    assert!((5..9).contains(&kept_now.requests.len()), "{}", kept_now.requests.len());
    assert_eq!(kept_now.requests.last().unwrap().path, "/49");
    store.retain(HashSet::new());
    assert_eq!(store.list(&RequestFilter::default()).memory_bytes, 0, "all of it is given back");

    // The rest of the budget is in use by others.
    let budget = ProcessBudget::new(8 << 20);
    let others = budget.take((8 << 20) - (8 << 10));
    let (observer, store) = {
        let (observer, _) = kept(1 << 20);
        (observer, Store::new(Arc::clone(&budget)))
    };
    let observer = observer.with_store(&store);
    ask(&observer, "/large", BODY);
    let one = store.one(1, false).unwrap();
    let body = one.request.unwrap().body;
    assert!(body.left_out && body.bytes == BODY as u64 && body.text.as_deref() == Some(""));
    assert!(one.no_replay.unwrap().contains("memory was short"));
    assert_eq!(one.seen.status, Some(200));
    drop(others);
    ask(&observer, "/again", BODY);
    assert!(!store.one(2, false).unwrap().request.unwrap().body.left_out);
    store.retain(HashSet::new());
    assert_eq!(budget.left(), 8 << 20);
}

#[test]
fn the_times_of_a_request_begin_when_it_is_offered_to_the_target() {
    let (observer, store) = kept(1 << 30);
    let mut one = spectator(&observer);
    one.offered();
    // The target answers before the writer runs again.
    let since = std::time::Instant::now();
    while since.elapsed().as_micros() < 3000 {
        std::hint::spin_loop();
    }
    one.taken(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    one.sent(b"HTTP/1.1 204 No Content\r\n\r\n");
    let seen = &store.list(&RequestFilter::default()).requests[0];
    assert!(seen.first_byte_micros >= Some(3000), "{seen:?}");
    assert!(seen.whole_micros >= seen.first_byte_micros);
}

#[test]
fn a_connection_that_is_older_than_the_end_of_the_key_tells_nothing_any_more() {
    let (observer, store) = kept(1 << 30);
    let mut one = spectator(&observer);
    let mut ask = |path: &str| {
        one.taken(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        one.sent(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab");
    };
    let paths = || {
        let all = store.list(&RequestFilter::default());
        all.requests.into_iter().map(|one| one.path).collect::<Vec<_>>()
    };
    ask("/1");
    store.retain(HashSet::from(["web".to_owned(), "other".to_owned()]));
    ask("/2");
    assert_eq!(paths(), ["/1", "/2"]);
    store.retain(HashSet::from(["other".to_owned()]));
    ask("/3");
    let now = store.list(&RequestFilter::default());
    assert!(now.requests.is_empty() && (now.lost, now.memory_bytes) == (0, 0), "{now:?}");
    // The key is there again.
    store.retain(HashSet::from(["web".to_owned()]));
    ask("/4");
    assert_eq!(paths(), ["/4"]);
}
