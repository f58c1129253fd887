//! Questions over loopback, and the task that asks in virtual time.

use std::cell::RefCell;
use std::fs;
use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use config::{Secret, Span, TlsVersion, Token, Trust};
use testkit::certs::Authority;
use tls::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::trouble::TroubleKind;
use super::*;

const TOKEN: &str = "eyJh.e30.x-_/+=";

const ANSWER: &str =
    "{\"servers\": [\"tls://a.example\", \"quic://b.example\"], \"every\": \"60s\"}";

fn api_at(url: &str, trust: Trust) -> ServersFrom {
    let path = config::Path {
        endpoint: url.parse().unwrap(),
        trust,
        identity: None,
        min_version: TlsVersion::V13,
        sni: None,
        headers: Vec::new(),
        proxy: None,
        via: None,
        dial: config::DialOptions::default(),
    };
    let token = Some(Token { secret: Secret::new(TOKEN), file: None });
    ServersFrom { path, token, every: Span::from_millis(300_000) }
}

fn finder(url: &str, trust: Trust, folder: Option<PathBuf>) -> Finder {
    Finder::of_api(&api_at(url, trust), PathDefaults::default(), folder).unwrap()
}

/// An API that gives each of these answers once, and the requests that it got.
async fn api(answers: Vec<Vec<u8>>) -> (SocketAddr, Rc<RefCell<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let own = Rc::clone(&heard);
    tokio::task::spawn_local(async move {
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(socket.read_u8().await.unwrap());
            }
            own.borrow_mut().push(String::from_utf8(request).unwrap());
            // A client that reads no further may have left.
            let _ = socket.write_all(&answer).await;
            let _ = socket.shutdown().await;
        }
    });
    (address, heard)
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn names(servers: &[FoundServer]) -> Vec<&str> {
    servers.iter().map(|server| server.name.as_str()).collect()
}

/// What a question to an API with this answer leads to.
async fn asked(answer: impl AsRef<[u8]>) -> Result<FoundAnswer, Trouble> {
    let work = async {
        let (address, _) = api(vec![answer.as_ref().to_vec()]).await;
        finder(&format!("ws://{address}/servers"), Trust::System, None).ask().await
    };
    LocalSet::new().run_until(work).await
}

#[tokio::test]
async fn a_question_is_a_get_with_the_token_and_its_answer_names_servers() {
    let work = async {
        let (address, heard) = api(vec![ok(ANSWER).into_bytes()]).await;
        let mut finder = finder(&format!("ws://{address}/servers?zone=eu"), Trust::System, None);
        assert_eq!(finder.name(), format!("http://{address}/servers?zone=eu"));
        let found = finder.ask().await.unwrap();
        assert_eq!(names(&found.servers), ["a.example", "b.example"]);
        assert_eq!(found.every, Some(Duration::from_secs(60)));
        let heard = heard.borrow();
        let request = heard[0].to_ascii_lowercase();
        assert!(request.starts_with("get /servers?zone=eu http/1.1\r\n"), "{request}");
        for line in [
            format!("host: {address}"),
            "accept: application/json".to_owned(),
            format!("authorization: bearer {}", TOKEN.to_ascii_lowercase()),
        ] {
            assert!(request.contains(&format!("\r\n{line}\r\n")), "{request}");
        }
        assert!(!request.contains("content-length"), "{request}");
        assert!(!format!("{finder:?}").contains(TOKEN));
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test]
async fn an_answer_that_names_no_servers_is_a_trouble_that_says_why() {
    let large = ok(&" ".repeat(config::FOUND_MAX + 1));
    for (answer, kind, text) in [
        (
            "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
            TroubleKind::Status(500),
            "it answers 500",
        ),
        ("HTTP/1.1 204 X\r\n\r\n", TroubleKind::Status(204), "it answers 204"),
        (
            "HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n",
            TroubleKind::Status(401),
            "that of this API?",
        ),
        (
            "HTTP/1.1 302 X\r\nLocation: https://b/x?token=secret\r\nContent-Length: 0\r\n\r\n",
            TroubleKind::Redirect,
            "it answers 302 Found to https://b/x (hint: redirects are not followed",
        ),
        ("HTTP/1.1 301 X\r\nContent-Length: 0\r\n\r\n", TroubleKind::Redirect, "it answers 301"),
        (&large, TroubleKind::Answer, "more than 256 KiB"),
        (&ok("<html>"), TroubleKind::Answer, "its answer: not JSON"),
        (&ok(""), TroubleKind::Answer, "its answer: not JSON"),
        (
            &ok("{\"servers\": []}"),
            TroubleKind::Answer,
            "its answer: servers: there is no server in it",
        ),
        (&ok("{\"servers\": [\"x://a\"]}"), TroubleKind::Answer, "its answer: servers[0]: "),
        ("nonsense\r\n\r\n", TroubleKind::Unreachable, ""),
        ("", TroubleKind::Unreachable, ""),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
            TroubleKind::Unreachable,
            "its answer: ",
        ),
    ] {
        let trouble = asked(answer).await.unwrap_err();
        let said = trouble.to_string();
        assert_eq!(trouble.kind(), kind, "{answer:.60}: {said}");
        assert!(said.contains(text) && !said.contains("secret"), "{answer:.60}: {said}");
    }
    let trouble = LocalSet::new()
        .run_until(async {
            // The port is closed.
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            drop(listener);
            finder(&format!("ws://{address}/"), Trust::System, None).ask().await.unwrap_err()
        })
        .await;
    assert_eq!(trouble.kind(), TroubleKind::Unreachable);
}

#[tokio::test]
async fn a_question_goes_through_the_outgoing_proxy() {
    let work = async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let serve = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut heads = Vec::new();
            for answer in ["HTTP/1.1 200 OK\r\n\r\n", &ok(ANSWER)] {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(socket.read_u8().await.unwrap());
                }
                heads.push(String::from_utf8(head).unwrap());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
            heads
        };
        let mut from = api_at("ws://fleet.example:8080/servers", Trust::System);
        from.path.proxy = Some(format!("http://{proxy}").parse().unwrap());
        let mut finder = Finder::of_api(&from, PathDefaults::default(), None).unwrap();
        let (found, heads) = tokio::join!(finder.ask(), serve);
        assert_eq!(found.unwrap().servers.len(), 2);
        assert!(heads[0].starts_with("CONNECT fleet.example:8080 HTTP/1.1\r\n"), "{heads:?}");
        assert!(!heads[0].contains(TOKEN), "{heads:?}");
        assert!(heads[1].starts_with("GET /servers HTTP/1.1\r\n"), "{heads:?}");
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test]
async fn a_body_without_utf8_is_refused() {
    let trouble = asked(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe").await.unwrap_err();
    assert_eq!(trouble.to_string(), "its answer is not UTF-8");
}

#[tokio::test(start_paused = true)]
async fn an_api_that_says_nothing_is_given_up_after_ten_seconds() {
    let work = async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let start = Instant::now();
        let trouble = finder(&format!("ws://{address}/"), Trust::System, None).ask().await;
        assert_eq!(trouble.unwrap_err().kind(), TroubleKind::Silent);
        assert_eq!(start.elapsed().as_secs(), 10);
    };
    LocalSet::new().run_until(work).await;
}

/// Accepts one connection over TLS, and answers it if its handshake succeeds.
async fn answer_over_tls(mut listener: transport_tcp::TcpListener) {
    use transport::Listener as _;
    let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
    let Ok(carrier) = incoming.handshake().await else { return };
    let mut lane = carrier.lane;
    let mut request = bytes::BytesMut::with_capacity(4096);
    while !request.ends_with(b"\r\n\r\n") {
        request.reserve(1024);
        if poll_fn(|cx| lane.poll_read(cx, &mut request)).await.unwrap() == 0 {
            return;
        }
    }
    let mut answer = std::collections::VecDeque::from([bytes::Bytes::from(ok(ANSWER))]);
    while !answer.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut answer)).await.unwrap();
    }
    poll_fn(|cx| lane.poll_flush(cx)).await.unwrap();
    // The client closes first.
    let _ = poll_fn(|cx| lane.poll_read(cx, &mut request)).await;
}

#[tokio::test]
async fn the_certificate_of_the_api_is_verified_by_pin_or_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (Authority::new("own").unwrap(), Authority::new("other").unwrap());
    let ca = own.save(folder.path()).unwrap();
    let leaf = own.server(&["127.0.0.1"]).unwrap().save(folder.path(), "api").unwrap();
    let identity = Identity::load(&leaf.0, &leaf.1).unwrap();
    let others = folder.path().join("other");
    fs::create_dir(&others).unwrap();
    let other_ca = other.save(&others).unwrap();
    let other_leaf = other.server(&["127.0.0.1"]).unwrap().save(&others, "api").unwrap();
    let other_pin = Identity::load(&other_leaf.0, &other_leaf.1).unwrap().pin().to_string();
    for (trust, is_right) in [
        (Trust::Pins(vec![identity.pin().to_string()]), true),
        (Trust::Pins(vec![other_pin]), false),
        (Trust::Ca(ca), true),
        (Trust::Ca(other_ca), false),
        (Trust::System, false),
    ] {
        let config = tls::server_config(&identity, None, &[b"http/1.1"]).unwrap();
        let socket = net::listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap().remove(0);
        let listener = transport_tcp::TcpListener::new(socket, Some(config.into())).unwrap();
        let listener = listener.speaking(transport_tcp::Speech::Http);
        let address = transport::Listener::local_addr(&listener);
        let work = async {
            tokio::task::spawn_local(answer_over_tls(listener));
            finder(&format!("wss://{address}/"), trust.clone(), None).ask().await
        };
        match LocalSet::new().run_until(work).await {
            Ok(found) => assert!(is_right && found.servers.len() == 2, "{trust:?}"),
            Err(trouble) => {
                assert!(!is_right, "{trust:?}: {trouble}");
                assert_eq!(trouble.kind(), TroubleKind::Certificate, "{trust:?}: {trouble}");
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_starts_without_its_api_has_the_servers_of_the_last_answer() {
    let folder = tempfile::tempdir().unwrap();
    let place = || Some(folder.path().to_owned());
    let work = async {
        let (address, _) = api(vec![ok(ANSWER).into_bytes()]).await;
        let url = format!("ws://{address}/");
        let mut first = finder(&url, Trust::System, place());
        assert!(first.former().is_none());
        let found = first.ask().await.unwrap();
        first.keep(&found).await;
        let former = finder(&url, Trust::System, place()).former().unwrap();
        assert_eq!(former, found.servers);
        // A file that somebody has changed is no reason not to start.
        let file = folder.path().join(kept::FILE);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("tls://", "xyz://")).unwrap();
        assert!(finder(&url, Trust::System, place()).former().is_none());
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test]
async fn the_servers_of_records_are_kept_in_the_form_of_an_answer() {
    let folder = tempfile::tempdir().unwrap();
    let name: SrvName = "_tunnel._udp.example.com".parse().unwrap();
    let places =
        [("a.example".to_owned(), 1), ("b.example".to_owned(), 2), ("a.example".to_owned(), 3)];
    let defaults = PathDefaults::default();
    let read = config::servers_of_records(&name, &places, &defaults);
    let found = found(read, name.as_str(), dns::as_answer).unwrap();
    let mut finder = Finder::of_dns(name.clone(), defaults.clone(), Some(folder.path().to_owned()));
    finder.keep(&found).await;
    let mut next = Finder::of_dns(name, defaults, Some(folder.path().to_owned()));
    assert_eq!(next.former().unwrap(), found.servers);
    assert_eq!(names(&found.servers), ["a.example-1", "b.example", "a.example-3"]);
}

/// A source that answers as its script says, for ever as at its end.
struct Script {
    start: Instant,
    outcomes: Vec<bool>,
    /// The seconds of the questions.
    asked: Vec<u64>,
    /// The number of answers that were kept, and that were given to the client.
    kept: usize,
    found: usize,
}

impl ServerSource for Script {
    fn name(&self) -> &str {
        "the script"
    }

    fn every(&self) -> Duration {
        Duration::from_mins(5)
    }

    async fn ask(&mut self) -> Result<FoundAnswer, Trouble> {
        self.asked.push(self.start.elapsed().as_secs());
        sleep(Duration::from_millis(20)).await;
        let is_good =
            if self.outcomes.len() > 1 { self.outcomes.remove(0) } else { self.outcomes[0] };
        if !is_good {
            return Err(Trouble::Silent(10));
        }
        let text = Text { name: "", text: "{\"servers\": [\"tls://a\"]}" };
        found(config::servers_of_answer(text, &PathDefaults::default()), "", |_| String::new())
    }

    async fn keep(&mut self, _: &FoundAnswer) {
        self.kept += 1;
    }
}

/// Asks a source with these outcomes for this number of seconds.
async fn script(outcomes: &[bool], outage: &Notify, seconds: u64) -> Script {
    let (start, asked) = (Instant::now(), Vec::new());
    let mut script = Script { start, outcomes: outcomes.to_vec(), asked, kept: 0, found: 0 };
    let mut answers = 0;
    let end = sleep_until(start + Duration::from_secs(seconds));
    tokio::select! {
        () = keep_asking(&mut script, outage, None, async |_| answers += 1) => {}
        () = end => {}
    }
    script.found = answers;
    script
}

#[tokio::test(start_paused = true)]
async fn a_source_is_asked_at_the_start_and_periodically() {
    let Script { asked, kept, found, .. } = script(&[true], &Notify::new(), 1_000).await;
    assert_eq!(asked[0], 0);
    assert!((4..=5).contains(&asked.len()), "{asked:?}");
    assert!(asked.windows(2).all(|pair| (269..=301).contains(&(pair[1] - pair[0]))), "{asked:?}");
    assert_eq!((kept, found), (asked.len(), asked.len()));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_changes_nothing_and_is_asked_again_within_a_minute() {
    let outcomes = [true, false, false, false, true];
    let Script { asked, kept, found, .. } = script(&outcomes, &Notify::new(), 400).await;
    assert_eq!((kept, found), (2, 2));
    assert_eq!(asked.len(), 5, "{asked:?}");
    assert!(asked[4] - asked[1] <= 8, "{asked:?}");
    let Script { asked, kept, found, .. } = script(&[false], &Notify::new(), 600).await;
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] <= 61), "{asked:?}");
    assert!((12..=30).contains(&asked.len()), "{asked:?}");
    assert_eq!((kept, found), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_all_links_asks_a_source_at_most_once_in_ten_seconds() {
    let outage = Notify::new();
    let lose = async {
        sleep(Duration::from_secs(100)).await;
        for _ in 0..300 {
            outage.notify_one();
            sleep(Duration::from_millis(100)).await;
        }
        std::future::pending::<Script>().await
    };
    let asked = tokio::select! {
        script = script(&[true], &outage, 200) => script.asked,
        script = lose => script.asked,
    };
    assert!(asked[1] >= 100 && asked[1] <= 102, "{asked:?}");
    assert!(asked.windows(2).all(|pair| pair[1] - pair[0] >= 9), "{asked:?}");
    assert!((4..=5).contains(&asked.len()), "{asked:?}");
}
