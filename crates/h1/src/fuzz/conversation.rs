//! A generated conversation, whose expected outcome is therefore known: a visitor sends requests
//! for several hosts over one connection, and a service responds in every framing. A tracker
//! between both receives the bytes of both in random pieces.
//!
//! The expected outcome is computed from the list of requests and responses, without reading their
//! bytes.

use std::fmt::Write as _;
use std::ops::Range;

use crate::{Ended, Rest, Then, Tracker};

/// The random choices: the bytes of an input. After the end of the input, each choice is the first.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, limit: usize) -> usize {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(first) % limit
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }
}

/// How a connection continues after a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// With the next request.
    Next,
    /// The visitor declared the request to be its last.
    LastRequest,
    /// The response declares itself to be the last. The service ends after it.
    LastResponse,
    /// The response is in doubt, and is not delivered.
    Doubt,
    /// Bytes are passed in both directions without examination.
    Raw,
}

/// A request and its response.
struct Exchange {
    host: &'static str,
    /// The position of the request in the bytes of the visitor.
    request: Range<usize>,
    /// Where its head ends.
    head: usize,
    response: Response,
    after: After,
}

/// A response as the service sends it, and the number of bytes that the visitor receives.
struct Response {
    bytes: Vec<u8>,
    delivered: usize,
}

/// Each host with its spellings.
const HOSTS: [(&str, &str); 6] = [
    ("a.example", "a.example"),
    ("a.example", "A.Example.:80"),
    ("a.example", "a.example"),
    ("b.example", "b.example"),
    ("[2001:db8::1]", "[2001:DB8::1]:80"),
    ("a.example.org", "a.example.org"),
];

/// Bytes that look like a request or a response when a boundary is missed.
const BAIT: &str = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";

fn body(choices: &mut Choices<'_>) -> &'static str {
    let start = choices.below(BAIT.len());
    &BAIT[start..start + choices.below(BAIT.len() - start + 1)]
}

fn chunks(choices: &mut Choices<'_>, extensions: &[&str], text: &mut String) {
    // Writing to a `String` does not fail.
    for _ in 0..choices.below(3) {
        let data = body(choices);
        if !data.is_empty() {
            let extension = choices.of(extensions);
            let _ = write!(text, "{:x}{extension}\r\n{data}\r\n", data.len());
        }
    }
    text.push_str(choices.of(&["0\r\n\r\n", "000\r\nX: y\r\nZ:\r\n\r\n"]));
}

/// Appends a request to `visitor`, and makes its response.
fn exchange(choices: &mut Choices<'_>, visitor: &mut String) -> Exchange {
    let start = visitor.len();
    let (host, spelling) = choices.of(&HOSTS);
    let method = choices.of(&["GET", "POST", "HEAD", "PURGE", "CONNECT"]);
    let is_connect = method == "CONNECT";
    let upgrades = !is_connect && choices.chance(6);
    let version10 = !upgrades && !is_connect && choices.chance(6);
    let target = match choices.below(3) {
        _ if is_connect => format!("{}:80", spelling.trim_end_matches(":80")),
        0 => format!("http://{spelling}/x?y"),
        _ => "/x?y".to_owned(),
    };
    let version = if version10 { "1.0" } else { "1.1" };
    let _ = write!(visitor, "{method} {target} HTTP/{version}\r\n");
    let host_field = choices.of(&["Host: ", "host:", "HOST:\t"]);
    let _ = write!(visitor, "{host_field}{spelling}\r\n");
    let mut is_last_request = version10;
    if upgrades {
        visitor.push_str("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n");
    } else if choices.chance(6) {
        is_last_request = true;
        visitor.push_str("Connection: close\r\n");
    } else if version10 && choices.chance(2) {
        is_last_request = false;
        visitor.push_str("Connection: Keep-Alive\r\n");
    }
    let framing = if is_connect { 0 } else { choices.below(3) };
    let head;
    if framing == 1 {
        let body = body(choices);
        let _ = write!(visitor, "Content-Length: {}\r\n\r\n", body.len());
        head = visitor.len();
        visitor.push_str(body);
    } else if framing == 2 && !version10 {
        visitor.push_str("Transfer-Encoding: chunked\r\n\r\n");
        head = visitor.len();
        chunks(choices, &["", ";a=b", "; a=\"b;c\""], visitor);
    } else {
        visitor.push_str("\r\n");
        head = visitor.len();
    }
    let can_switch = upgrades || is_connect;
    let (response, after) = response(choices, method, can_switch, is_last_request);
    Exchange { host, request: start..visitor.len(), head, response, after }
}

fn response(
    choices: &mut Choices<'_>,
    method: &str,
    can_switch: bool,
    is_last_request: bool,
) -> (Response, After) {
    let all = |text: String| Response { delivered: text.len(), bytes: text.into_bytes() };
    let mut text = String::new();
    // HEAD has no interim responses.
    if method != "HEAD" && choices.chance(5) {
        text.push_str("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
    }
    if can_switch && choices.chance(2) {
        text.push_str(match method {
            "CONNECT" => "HTTP/1.1 200 OK\r\nServer: x\r\n\r\n",
            _ => "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        });
        text.push_str(BAIT);
        return (all(text), After::Raw);
    }
    let status = choices.of(&["200 OK", "404 Not Found", "204 No Content", "304 Not Modified"]);
    // A CONNECT that fails has a status other than 2xx.
    let status = if method == "CONNECT" { "405 No" } else { status };
    let (version, keep) = choices.of(&[
        ("1.1", ""),
        ("1.1", "Connection: keep-alive\r\n"),
        ("1.0", "Connection: keep-alive\r\n"),
    ]);
    let interim = text.len();
    let _ = write!(text, "HTTP/{version} {status}\r\n{keep}");
    let (mut is_last, mut is_doubtful, mut mended) = (choices.chance(8), false, None);
    if is_last {
        text.push_str("Connection: close\r\n");
    }
    let bodiless = ["204", "304"].iter().find(|code| status.starts_with(**code));
    let has_body = method != "HEAD" && bodiless.is_none();
    match choices.below(8) {
        0..=3 => {
            let body = body(choices);
            let _ = write!(text, "Content-Length: {}\r\n\r\n", body.len());
            text.push_str(if has_body { body } else { "" });
            is_last |= method != "HEAD" && bodiless == Some(&"204") && !body.is_empty();
        }
        4..=6 if version == "1.1" => {
            text.push_str("Transfer-Encoding: chunked\r\n\r\n");
            is_last |= method != "HEAD" && bodiless.is_some();
            if has_body {
                chunks(choices, &["", ";a=b", " ; a=\"b;c\""], &mut text);
            }
        }
        7 => {
            // Both framings.
            let body = if has_body { "0\r\n\r\n" } else { "" };
            text.push_str("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n");
            text.push_str(body);
            (is_last, is_doubtful) = (true, version == "1.0");
            mended = Some(format!(
                "{}HTTP/{version} {status}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                 {body}",
                &text[..interim]
            ));
        }
        _ => {
            text.push_str("\r\n");
            text.push_str(if has_body { body(choices) } else { "" });
            is_last |= has_body;
        }
    }
    let after = match (is_last, is_last_request) {
        _ if is_doubtful => After::Doubt,
        (true, _) => After::LastResponse,
        (false, true) => After::LastRequest,
        (false, false) => After::Next,
    };
    let delivered = mended.map_or(text.len(), |mended| mended.len());
    (Response { bytes: text.into_bytes(), delivered }, after)
}

/// The expected outcome.
struct Wanted {
    /// The number of requests that must reach the service.
    requests: usize,
    /// The number of bytes that may reach the service, because a last response may arrive after
    /// them.
    allowed: usize,
    then: Then,
}

/// The oracle.
fn wanted(exchanges: &[Exchange], all: usize) -> Wanted {
    let mut requests = exchanges.len();
    let mut then = Then::Read;
    for (number, exchange) in exchanges.iter().enumerate() {
        if exchange.host != exchanges[0].host {
            requests = number;
            then = Then::Other { host: Some(exchange.host.into()) };
            break;
        }
        if exchange.after != After::Next {
            requests = number + 1;
            then = match exchange.after {
                After::Raw => Then::Read,
                After::Doubt => Then::Wait,
                After::Next | After::LastRequest | After::LastResponse => Then::Close,
            };
            break;
        }
    }
    // Requests may be sent before a last response is known, as long as the visitor has not ended.
    let barrier = exchanges.iter().position(|exchange| exchange.host != exchanges[0].host);
    let last = exchanges.iter().position(|exchange| {
        matches!(exchange.after, After::LastRequest | After::Raw)
            && exchange.host == exchanges[0].host
    });
    let place =
        |number: usize| exchanges.get(number).map_or(all, |exchange| exchange.request.start);
    let allowed = match (barrier, last) {
        _ if then == Then::Read => all,
        (Some(barrier), Some(last)) => place(barrier.min(last + 1)),
        (Some(barrier), None) => place(barrier),
        (None, Some(last)) => place(last + 1),
        (None, None) => all,
    };
    Wanted { requests, allowed, then }
}

/// Runs a conversation and compares its outcome with the oracle.
///
/// # Panics
///
/// Panics when the tracker breaks a rule.
pub fn conversation(input: &[u8]) {
    let mut choices = Choices(input);
    let mut visitor = String::new();
    let exchanges: Vec<_> =
        (0..=choices.below(8)).map(|_| exchange(&mut choices, &mut visitor)).collect();
    let visitor = visitor.as_bytes();
    let wanted = wanted(&exchanges, visitor.len());

    let mut tracker = Tracker::new(None);
    // The number of bytes of the visitor that arrived, and that were passed on.
    let (mut arrived, mut passed) = (0, 0);
    // The response of the service, and how much of it was sent and delivered.
    let (mut sending, mut sent, mut delivered) = (0, 0, 0);
    let (mut then, mut may_go_on, mut has_ended) = (Then::Read, false, false);
    loop {
        let is_final = !matches!(then, Then::Read | Then::Hold | Then::Wait);
        let can_ask = may_go_on || (then != Then::Wait && arrived < visitor.len());
        // A service responds once the head is complete, even before the body is.
        let answer = exchanges.get(sending).filter(|exchange| passed >= exchange.head);
        let can_end = sending > 0 && exchanges[sending - 1].after == After::LastResponse;
        let can_answer =
            (answer.is_some() && !can_end && sending < wanted.requests) || (can_end && !has_ended);
        if is_final || !(can_ask || can_answer) {
            break;
        }
        if can_ask && (!can_answer || choices.chance(2)) {
            if then != Then::Wait {
                arrived += (1 + choices.below(120)).min(visitor.len() - arrived);
            }
            may_go_on = false;
            let length;
            (length, then) = tracker.requests(&visitor[passed..arrived]);
            passed += length;
            assert!(passed <= wanted.allowed, "{} bytes were allowed", wanted.allowed);
            assert!(then != Then::Read || passed == arrived);
        } else if can_end {
            has_ended = true;
            may_go_on = true;
            assert_ne!(tracker.service_ended(), Ended::Cut);
        } else if let Some(exchange) = answer {
            let rest = &exchange.response.bytes[sent..];
            let piece = &rest[..rest.len().min(1 + choices.below(100))];
            let progress = tracker.responses(piece);
            sent += piece.len();
            delivered += progress.held.len() + progress.deliver;
            may_go_on |= progress.completed;
            match progress.rest {
                Rest::Held => {}
                Rest::Excess => assert_eq!(exchange.after, After::LastResponse),
                Rest::Refused(_) => {
                    assert_eq!(exchange.after, After::Doubt);
                    assert_eq!(tracker.requests(&visitor[passed..]), (0, Then::Wait));
                    assert_eq!((sending + 1, wanted.then), (wanted.requests, Then::Wait));
                    return;
                }
                Rest::Cut(_) => panic!("every body is well-formed"),
            }
            if sent == exchange.response.bytes.len() {
                assert_eq!(delivered, exchange.response.delivered, "a byte of a response is lost");
                assert!(progress.completed || exchange.after != After::Next);
                (sending, sent, delivered) = (sending + 1, 0, 0);
            } else if exchange.after == After::Next {
                assert!(!tracker.is_idle());
            }
        }
    }
    assert_eq!(then, wanted.then);
    assert_eq!((sending, sent), (wanted.requests, 0), "every response is complete");
    let place = exchanges.get(wanted.requests).map_or(visitor.len(), |next| next.request.start);
    match then {
        Then::Other { .. } => assert_eq!(passed, place),
        Then::Read => assert_eq!(passed, visitor.len()),
        // A last response may come before the body of its request was passed on.
        Then::Hold | Then::Wait | Then::Changed | Then::Refuse(_) | Then::Close => {
            assert!(passed >= exchanges[wanted.requests - 1].head);
        }
    }
}
