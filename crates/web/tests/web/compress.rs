//! Compressed answers, as a visitor sees them.

use std::{cell::Cell, io::Write, rc::Rc, time::Duration};

use proto::{Budget, Compress, HttpOptions};
use tokio::io::{AsyncReadExt as _, DuplexStream};
use web::{Account, Settings};

use crate::rig::{
    Client, Site, Target, connect, connect_at, field, head, on_worker, send, silent, status,
    visitor,
};

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// A decoder that gives what it can give so far.
enum Decoder {
    Gzip(Box<flate2::write::GzDecoder<Vec<u8>>>),
    Brotli(Box<brotli::DecompressorWriter<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Decoder<'static, Vec<u8>>>),
}

impl Decoder {
    fn new(coding: &str) -> Self {
        match coding {
            "gzip" => Self::Gzip(Box::new(flate2::write::GzDecoder::new(Vec::new()))),
            "br" => Self::Brotli(Box::new(brotli::DecompressorWriter::new(Vec::new(), 4096))),
            "zstd" => Self::Zstd(Box::new(zstd::stream::write::Decoder::new(Vec::new()).unwrap())),
            other => panic!("{other}"),
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Vec<u8> {
        fn all(writer: &mut dyn Write, bytes: &[u8]) {
            writer.write_all(bytes).unwrap();
            writer.flush().unwrap();
        }
        std::mem::take(match self {
            Self::Gzip(decoder) => {
                all(decoder, bytes);
                decoder.get_mut()
            }
            Self::Brotli(decoder) => {
                all(decoder, bytes);
                decoder.get_mut()
            }
            Self::Zstd(decoder) => {
                all(decoder, bytes);
                decoder.get_mut()
            }
        })
    }
}

/// Reads a chunk. Empty: the last one, whose trailers follow.
async fn chunk(io: &mut DuplexStream) -> Vec<u8> {
    let mut line = String::new();
    while !line.ends_with("\r\n") {
        line.push(char::from(io.read_u8().await.unwrap()));
    }
    let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
    let mut bytes = vec![0; length + if length == 0 { 0 } else { 2 }];
    io.read_exact(&mut bytes).await.unwrap();
    bytes.truncate(length);
    bytes
}

fn compressing(compress: Compress) -> HttpOptions {
    HttpOptions { compress, ..HttpOptions::default() }
}

fn site(compress: Compress) -> (Rc<Site>, Rc<Target>) {
    let site = Site::new();
    let target = site.add("a.example", &compressing(compress));
    (site, target)
}

async fn ask(client: &mut Client, fields: &str) {
    client.send(&format!("GET /page HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")).await;
}

/// Text that compresses, and that no two pieces have in common.
fn text(length: usize) -> String {
    (0_u64..)
        .flat_map(|n| format!("line {}\n", n * n).into_bytes())
        .take(length)
        .map(char::from)
        .collect()
}

const KIND: &str = "Content-Type: text/html\r\nETag: \"a\"\r\n";

#[test]
fn a_visitor_gets_the_content_in_a_coding_that_it_accepts() {
    on_worker(async {
        let (site, a) = site(Compress::Public);
        for coding in CODINGS {
            for length in [1024, 300_000] {
                let mut client = connect(&site);
                ask(&mut client, &format!("Accept-Encoding: {coding}\r\n")).await;
                let mut target = a.accept().await;
                let seen = head(&mut target.io).await;
                assert_eq!(field(&seen, "accept-encoding"), Some(coding));
                let body = text(length);
                let sent = body.clone();
                tokio::task::spawn_local(async move {
                    let answer =
                        format!("HTTP/1.1 200 OK\r\n{KIND}Content-Length: {length}\r\n\r\n{sent}");
                    send(&mut target.io, &answer).await;
                    std::future::pending::<()>().await;
                });
                let head = client.head().await;
                assert_eq!(field(&head, "content-encoding"), Some(coding));
                assert_eq!(field(&head, "vary"), Some("Accept-Encoding"));
                assert_eq!(field(&head, "etag"), Some("W/\"a\""));
                assert_eq!(field(&head, "content-length"), None);
                let (mut decoder, mut decoded, mut wire) = (Decoder::new(coding), Vec::new(), 0);
                loop {
                    let piece = chunk(&mut client.io).await;
                    if piece.is_empty() {
                        break;
                    }
                    wire += piece.len();
                    decoded.extend(decoder.decode(&piece));
                }
                assert!(String::from_utf8(decoded).unwrap() == body, "{coding} {length}");
                assert!(wire < length / 2, "{coding}: {wire} of {length}");
            }
        }
    });
}

#[test]
fn what_the_target_sends_before_a_pause_arrives_before_the_pause() {
    on_worker(async {
        let (site, a) = site(Compress::Public);
        for coding in CODINGS {
            let mut client = connect(&site);
            ask(&mut client, &format!("Accept-Encoding: {coding}\r\n")).await;
            let mut target = a.accept().await;
            let answer = format!("HTTP/1.1 200 OK\r\n{KIND}Transfer-Encoding: chunked\r\n\r\n");
            target.serve(&answer).await;
            assert_eq!(field(&client.head().await, "content-encoding"), Some(coding));
            let mut decoder = Decoder::new(coding);
            for n in 0..3 {
                send(&mut target.io, &format!("9\r\nmessage {n}\r\n")).await;
                let piece = chunk(&mut client.io).await;
                let expected = format!("message {n}");
                assert_eq!(decoder.decode(&piece), expected.as_bytes(), "{coding}");
                assert!(silent(&mut client.io, Duration::from_secs(5)).await, "{coding}");
            }
            send(&mut target.io, "0\r\n\r\n").await;
            loop {
                let piece = chunk(&mut client.io).await;
                if piece.is_empty() {
                    break;
                }
                assert_eq!(decoder.decode(&piece), b"");
            }
        }
    });
}

#[test]
fn an_answer_that_breaks_off_is_not_complete() {
    on_worker(async {
        let (site, a) = site(Compress::Public);
        let mut client = connect(&site);
        ask(&mut client, "Accept-Encoding: gzip\r\n").await;
        let mut target = a.accept().await;
        let answer = format!("HTTP/1.1 200 OK\r\n{KIND}Content-Length: 5000\r\n\r\n");
        target.serve(&(answer + &text(3000))).await;
        drop(target);
        client.head().await;
        let mut rest = Vec::new();
        let _ = client.io.read_to_end(&mut rest).await;
        assert!(!rest.ends_with(b"0\r\n\r\n"), "{}", rest.escape_ascii());
    });
}

#[test]
fn the_connection_to_the_target_serves_the_next_request() {
    on_worker(async {
        let (site, a) = site(Compress::Public);
        let mut client = connect(&site);
        let mut target = None;
        for _ in 0..3 {
            ask(&mut client, "Accept-Encoding: zstd\r\n").await;
            let target = match &mut target {
                Some(target) => target,
                none => none.insert(a.accept().await),
            };
            let answer = format!("HTTP/1.1 200 OK\r\n{KIND}Content-Length: 2000\r\n\r\n");
            target.serve(&(answer + &text(2000))).await;
            client.head().await;
            let mut decoder = Decoder::new("zstd");
            let mut decoded = Vec::new();
            loop {
                let piece = chunk(&mut client.io).await;
                if piece.is_empty() {
                    break;
                }
                decoded.extend(decoder.decode(&piece));
            }
            assert_eq!(String::from_utf8(decoded).unwrap(), text(2000));
            assert_eq!(client.io.read_u16().await.unwrap(), u16::from_be_bytes(*b"\r\n"));
        }
        assert_eq!(a.count.get(), 1);
    });
}

#[test]
fn a_password_of_the_service_is_a_credential_too() {
    on_worker(async {
        let site = Site::new();
        let options =
            HttpOptions { basic_auth: vec!["anna:one".into()], ..compressing(Compress::Public) };
        let a = site.add("a.example", &options);
        let mut client = connect(&site);
        ask(&mut client, "Accept-Encoding: gzip\r\nAuthorization: Basic YW5uYTpvbmU=\r\n").await;
        let answer = format!("HTTP/1.1 200 OK\r\n{KIND}Content-Length: 2000\r\n\r\n");
        a.accept().await.serve(&(answer + &text(2000))).await;
        let (head, body) = client.answer().await;
        assert_eq!(field(&head, "content-encoding"), None);
        assert_eq!(body, text(2000));
    });
}

/// A budget with little left.
#[derive(Debug)]
struct Small {
    left: Cell<u64>,
    least: Cell<u64>,
}

impl Budget for Small {
    fn total(&self) -> u64 {
        4 << 20
    }

    fn left(&self) -> u64 {
        self.left.get()
    }

    fn draw(&self, bytes: u64) -> bool {
        let may = bytes <= self.left.get();
        if may {
            self.charge(bytes);
        }
        may
    }

    fn charge(&self, bytes: u64) {
        self.left.set(self.left.get().saturating_sub(bytes));
        self.least.set(self.least.get().min(self.left.get()));
    }

    fn release(&self, bytes: u64) {
        self.left.set(self.left.get() + bytes);
    }
}

#[test]
fn without_memory_for_an_encoder_the_answer_stays_as_it_is() {
    on_worker(async {
        for (left, is_compressed) in [(1_800 << 10, false), (4 << 20, true)] {
            let (site, a) = site(Compress::Public);
            let budget = Rc::new(Small { left: Cell::new(left), least: Cell::new(left) });
            let account = Account::open(Rc::clone(&budget) as Rc<dyn Budget>, 0).unwrap();
            let mut client = connect_at(&site, visitor(), Settings::default(), account);
            ask(&mut client, "Accept-Encoding: gzip\r\n").await;
            let answer = format!("HTTP/1.1 200 OK\r\n{KIND}Content-Length: 2000\r\n\r\n");
            let mut target = a.accept().await;
            target.serve(&(answer + &text(2000))).await;
            let head = client.head().await;
            assert_eq!(status(&head), 200);
            assert_eq!(field(&head, "content-encoding").is_some(), is_compressed);
            assert_eq!(field(&head, "content-length").is_some(), !is_compressed);
            assert_eq!(field(&head, "vary"), Some("Accept-Encoding"));
            if is_compressed {
                while !chunk(&mut client.io).await.is_empty() {}
                let given_back = budget.left.get() - budget.least.get();
                assert!(given_back >= 500 << 10, "the encoder is charged: {given_back}");
            }
        }
    });
}
