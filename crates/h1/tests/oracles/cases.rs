//! Responses of a hostile service, and what the tracker delivers of them.

use h1::{Ended, Rest, Then, Tracker};

/// What the tracker delivered of one response.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) method: &'static str,
    pub(crate) delivered: Vec<u8>,
    /// Where the origin pauses: a parser may see an end there.
    pub(crate) pauses: Vec<usize>,
    pub(crate) end: End,
}

/// What becomes of the connection after the delivered bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It takes the next request.
    Keep,
    Fin,
    Reset,
}

/// Seeded choices (xorshift64).
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % limit
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// One in `rarity` times one of the list, else the first of it.
    fn rarely<T: Copy>(&mut self, rarity: usize, list: &[T]) -> T {
        if self.below(rarity) == 0 { self.of(list) } else { list[0] }
    }
}

const STATUS_LINES: &[&str] = &[
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200",
    "HTTP/1.1 200 ",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 404 Not Found",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 205 Reset Content",
    "HTTP/1.1 206 Partial Content",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.0 204 No Content",
    "HTTP/1.1 100 Continue",
    "HTTP/1.1 101 Switching Protocols",
    "HTTP/1.1 102 Processing",
    "HTTP/1.1 103 Early Hints",
    "HTTP/1.1 104 Upload Resumption",
    "HTTP/1.1 199 x",
    "HTTP/1.1 299 x",
    "HTTP/1.1 599 x",
    "HTTP/1.1 600 x",
    "HTTP/1.1 999 x",
    "HTTP/1.1 099 x",
    "HTTP/1.1 000 x",
    "HTTP/1.1 2000 OK",
    "HTTP/1.1 20 OK",
    "HTTP/1.1 200.1 OK",
    "HTTP/1.1 +200 OK",
    "HTTP/1.2 200 OK",
    "HTTP/2.0 200 OK",
    "HTTP/01.1 200 OK",
    "http/1.1 200 OK",
    "HTTP/1.1  200 OK",
    "HTTP/1.1\t200 OK",
    "HTTP/1.1 200\tOK",
    "HTTP/1.1 200 a\x01b",
    "HTTP/1.1 200 \u{e4}\u{f6}",
    "ICY 200 OK",
    "",
];

/// Fields that say where the body ends, with what is written behind their name.
const LENGTHS: &[&str] = &[
    "Content-Length: 5",
    "content-length:5",
    "Content-Length:  005 ",
    "Content-Length: 0",
    "Content-Length: 5, 5",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length: 5;",
    "Content-Length: 5.0",
    "Content-Length:",
    "Content-Length:\t5",
    "Content-Length: 5\t",
    "Content-Length : 5",
    "Content-Length\t: 5",
    " Content-Length: 5",
    "Content-Length: 9223372036854775808",
    "Content-Length: 18446744073709551621",
    "Content_Length: 5",
    "Content-Length: 00000000000000000000000000005",
];

const CODINGS: &[&str] = &[
    "Transfer-Encoding: chunked",
    "transfer-encoding:CHUNKED",
    "Transfer-Encoding:   chunked  ",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: chunked,",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: chunked\t",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:",
    "Transfer_Encoding: chunked",
    "Transfer-Encoding: x\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\n identity",
];

const OTHERS: &[&str] = &[
    "Server: x",
    "Connection: keep-alive",
    "Connection: close",
    "Connection: Close, x",
    "Connection: upgrade\r\nUpgrade: x",
    "Connection: Content-Length",
    "Connection: Transfer-Encoding",
    "Trailer: X",
    "Keep-Alive: timeout=5",
    "X'!#$%&*+.^_`|~: y",
    "X\u{e4}: y",
    "X: \u{e4}",
    "X:\ty",
    "X: y\tz",
    "X:",
    "X: y\r\n z",
    "X: y\r\n\tContent-Length: 3",
    "X: \"\r\n Content-Length: 3\"",
    "X y: z",
    "X",
    ": y",
    "X(: y",
    "X: a\0b",
    "X: a\x0bb",
    "X: a\x7fb",
    "X: a\rContent-Length: 3",
    "HTTP/1.1 200 OK",
    "Set-Cookie: a=b\r\nSet-Cookie: c=d",
];

const CHUNKS: &[&str] = &[
    "5\r\nhello\r\n0\r\n\r\n",
    "0\r\n\r\n",
    "00005\r\nhello\r\n000\r\n\r\n",
    "5;a=b\r\nhello\r\n0;c\r\n\r\n",
    "5 ; a=\"b;c\"\r\nhello\r\n0\r\n\r\n",
    "5  \r\nhello\r\n0\r\n\r\n",
    "5\t\r\nhello\r\n0\r\n\r\n",
    "5;\"\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nX: y\r\nZ:\r\n\r\n",
    "5\r\nhello\r\n0\r\nContent-Length: 7\r\n\r\n",
    "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n",
    "5\nhello\n0\n\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\n",
    "5\r\nhello\r\n0\n\r\n",
    "5;\nhello\r\n0\r\n\r\n",
    "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "5;\r\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "-0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "5 5\r\nhello\r\n0\r\n\r\n",
    "\r\n5\r\nhello\r\n0\r\n\r\n",
    "100000000000000005\r\nhello\r\n0\r\n\r\n",
    "8000000000000005\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nX\r\n\r\n",
    "5\r\nhello\r\n0\r\n X: y\r\n\r\n",
    "5\r\nhello\r\n0\r\nX: y\n\r\n",
    "5\r\nhel",
];

const BODIES: &[&str] = &["hello", "", "hell", "hello, world", "5\r\nhello\r\n0\r\n\r\n"];

/// The methods of requests.
const METHODS: &[&str] = &["GET", "GET", "GET", "HEAD", "OPTIONS"];

fn response(choices: &mut Choices, number: usize) -> Vec<u8> {
    let mut text = String::new();
    match choices.below(12) {
        0 => text.push_str("HTTP/1.1 100 Continue\r\n\r\n"),
        1 => text.push_str("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
        2 => {
            let interim = choices.of(&["100 x", "102 x", "103 x", "104 x", "199 x"]);
            let field = choices.of(&[LENGTHS, CODINGS, OTHERS]);
            text = format!("HTTP/1.1 {interim}\r\n{}\r\n\r\n", choices.of(field));
        }
        _ => {}
    }
    text.push_str(choices.rarely(3, STATUS_LINES));
    let mut fields = Vec::new();
    for _ in 0..choices.below(3) {
        fields.push(choices.rarely(2, OTHERS));
    }
    let kind = choices.below(8);
    if kind < 3 || kind == 6 {
        fields.push(choices.rarely(3, LENGTHS));
    }
    if (3..6).contains(&kind) || kind == 6 {
        fields.push(choices.rarely(4, CODINGS));
    }
    if choices.below(16) == 0 {
        fields.push(choices.of(LENGTHS));
    }
    if choices.below(16) == 0 {
        fields.push(choices.of(CODINGS));
    }
    match choices.below(60) {
        0 => fields.extend(["X: y"; 100]),
        1 => fields.extend(["X: y"; 98]),
        _ => {}
    }
    for at in (1..fields.len()).rev() {
        fields.swap(at, choices.below(at + 1));
    }
    for field in fields {
        text.push_str("\r\n");
        text.push_str(field);
    }
    if choices.below(60) == 0 {
        text.push_str("\r\nX: ");
        text.push_str(&"x".repeat(choices.of(&[5_000, 20_000, 66_000])));
    }
    text.push_str(choices.rarely(40, &["\r\n\r\n", "\n\n", "\r\n\n", "\n\r\n", "\r\r\n\r\n"]));
    let body = if (3..6).contains(&kind) { CHUNKS } else { BODIES };
    text.push_str(choices.rarely(2, body));
    let poison = format!("poison{number}");
    let length = poison.len();
    let follows = choices.below(8) != 0;
    if follows {
        text.push_str(&format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{poison}"));
    }
    let mut bytes: Vec<u8> =
        text.chars().map(|char| u8::try_from(u32::from(char)).unwrap_or(b'?')).collect();
    // A byte of the head or of the body is lost, doubled or replaced.
    if choices.below(6) == 0 {
        let at = choices.below(bytes.len().min(400));
        match choices.below(3) {
            0 => drop(bytes.remove(at)),
            1 => bytes.insert(at, bytes[at]),
            _ => bytes[at] = choices.of(b"\r\n \t\0:,;0159afx\x0c\xff"),
        }
    }
    bytes
}

/// The cases of which anything is delivered.
pub(crate) fn generate(count: usize, seed: u64) -> Vec<Case> {
    let mut choices = Choices(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..count).filter_map(|number| case(&mut choices, number)).collect()
}

fn case(choices: &mut Choices, number: usize) -> Option<Case> {
    let method = choices.of(METHODS);
    let response = response(choices, number);
    let request = format!("{method} / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let mut tracker = Tracker::new(None);
    assert_eq!(tracker.requests(request.as_bytes()), (request.len(), Then::Read));
    let (mut delivered, mut rest) = (Vec::new(), Rest::Held);
    let size = choices.of(&[1, 7, 100, 100_000]);
    for piece in response.chunks(size) {
        let progress = tracker.responses(piece);
        delivered.extend_from_slice(&progress.held);
        delivered.extend_from_slice(&piece[..progress.deliver]);
        rest = progress.rest;
        if rest != Rest::Held {
            break;
        }
    }
    let end = match rest {
        Rest::Held if tracker.is_idle() && tracker.requests(b"") == (0, Then::Read) => End::Keep,
        // The service ends, or the door does.
        Rest::Held => {
            assert!(
                tracker.service_ended() != Ended::Unanswered || delivered.is_empty() || {
                    // Only interim responses were delivered.
                    delivered.starts_with(b"HTTP/1.1 1")
                }
            );
            End::Fin
        }
        // Behind a complete response the poison may also come later.
        Rest::Excess if choices.below(4) != 0 && goes_on(&request, &delivered) => End::Keep,
        Rest::Excess => End::Fin,
        // Behind interim responses the page of the server follows, with which the connection ends.
        Rest::Refused(_) => End::Fin,
        Rest::Cut(_) => End::Reset,
    };
    if delivered.is_empty() {
        return None;
    }
    let ends =
        |at: &usize| delivered[..*at].ends_with(b"\n\r\n") || delivered[..*at].ends_with(b"\n\n");
    let mut pauses: Vec<_> = (1..delivered.len()).filter(ends).take(3).collect();
    pauses.extend(delivered.windows(5).position(|part| part == b"hello").map(|at| at + 5));
    pauses.push(delivered.len());
    pauses.dedup();
    Some(Case { method, delivered, pauses, end })
}

/// Whether the connection takes the next request after these bytes of the service.
fn goes_on(request: &str, delivered: &[u8]) -> bool {
    let mut tracker = Tracker::new(None);
    tracker.requests(request.as_bytes());
    tracker.responses(delivered);
    tracker.is_idle() && tracker.requests(b"") == (0, Then::Read)
}
