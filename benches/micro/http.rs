//! What HTTP by name costs: the head of the first request, and the boundaries of a request and its
//! response on a kept connection.

use divan::{Bencher, black_box};
use h1::{HeadSniffer, Looked, Rest, Then, Tracker};

/// The request of curl.
const SMALL: &str = "GET /index.html HTTP/1.1\r\nHost: app.example.com\r\nUser-Agent: curl/8.5.0\r\n\
    Accept: */*\r\n\r\n";

/// The request of a browser.
const BROWSER: &str = "GET /assets/app-4f2a9c.js?v=17 HTTP/1.1\r\nHost: app.example.com\r\n\
    Connection: keep-alive\r\nsec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n\
    sec-ch-ua-mobile: ?0\r\nsec-ch-ua-platform: \"Linux\"\r\nUser-Agent: Mozilla/5.0 (X11; Linux \
    x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\nAccept: */*\r\n\
    Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n\
    Referer: https://app.example.com/\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9\r\nCookie: session=0123456789abcdef0123456789abcdef\r\n\r\n";

/// The response of nginx to a file of 612 bytes.
const RESPONSE: &str = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Tue, 24 Nov 2026 18:00:00 \
    GMT\r\nContent-Type: text/html\r\nContent-Length: 612\r\nLast-Modified: Tue, 24 Nov 2026 \
    17:00:00 GMT\r\nConnection: keep-alive\r\nETag: \"65c4f1a2-264\"\r\nAccept-Ranges: bytes\r\n\r\n";

const REQUESTS: [(&str, &str); 2] = [("curl", SMALL), ("browser", BROWSER)];

fn request(name: &str) -> &'static [u8] {
    let found = REQUESTS.iter().find(|(known, _)| *known == name);
    found.map_or(&[], |(_, text)| text.as_bytes())
}

/// The head of the first request of a connection.
#[divan::bench(args = ["curl", "browser"])]
fn head(bencher: Bencher<'_, '_>, name: &str) {
    let request = request(name);
    bencher.bench_local(|| {
        let looked = HeadSniffer::new(None).look(black_box(request));
        assert!(matches!(looked, Looked::Head(_)));
        looked
    });
}

/// A request and its response on a kept connection.
#[divan::bench(args = ["curl", "browser"])]
fn exchange(bencher: Bencher<'_, '_>, name: &str) {
    let request = request(name);
    let response = [RESPONSE.as_bytes(), &[b'x'; 612]].concat();
    let mut tracker = Tracker::new(None);
    let mut carry = move || {
        assert_eq!(tracker.requests(black_box(request)), (request.len(), Then::Read));
        let delivered = tracker.responses(black_box(&response));
        assert_eq!((delivered.deliver, delivered.rest), (response.len(), Rest::Held));
        delivered
    };
    // The first request sets the host.
    carry();
    bencher.bench_local(carry);
}
