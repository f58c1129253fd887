//! The signalling of the tests: a small server of HTTP, which serves the page of the browser as
//! well.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

const PAGE: &str = include_str!("peer.html");

/// What a peer wants.
#[derive(Debug)]
pub(crate) enum Request {
    /// `POST /offer`: it offers, and wants the answer.
    Offer { sdp: String, reply: oneshot::Sender<String> },
    /// `GET /offer`: it wants an offer.
    Ask { reply: oneshot::Sender<String> },
    /// `POST /answer`.
    Answer(String),
    /// `POST /said`: how the test went.
    Said(String),
}

#[derive(Debug)]
pub(crate) struct Signalling {
    address: SocketAddr,
    requests: mpsc::Receiver<Request>,
}

impl Signalling {
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::channel(10);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn_local(serve(stream, sender.clone()));
            }
        });
        Self { address, requests }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn next(&mut self) -> Request {
        self.requests.recv().await.unwrap()
    }
}

/// Serves one request, as browsers and libraries write it.
async fn serve(mut stream: TcpStream, requests: mpsc::Sender<Request>) {
    let mut read = Vec::new();
    let body = loop {
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        if body.len() >= length.unwrap_or(0) {
            break body.to_owned();
        }
    };
    let head = String::from_utf8_lossy(&read);
    let mut words = head.split_ascii_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (reply, answer) = oneshot::channel();
    let request = match (method, path) {
        ("POST", "/offer") => Some(Request::Offer { sdp: body, reply }),
        ("GET", "/offer") => Some(Request::Ask { reply }),
        ("POST", "/answer") => Some(Request::Answer(body)),
        ("POST", "/said") => Some(Request::Said(body)),
        _ => None,
    };
    let (kind, text) = match request {
        Some(request) => {
            let is_answered = matches!(request, Request::Offer { .. } | Request::Ask { .. });
            requests.send(request).await.unwrap();
            let answer = if is_answered { answer.await.unwrap_or_default() } else { String::new() };
            ("application/sdp", answer)
        }
        None if path.starts_with("/?") => ("text/html", PAGE.to_owned()),
        None => ("text/plain", String::new()),
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
}
