//! `sticky: cookie`: visitors that stay at a client and at a target, with curl and its cookie jar.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use testkit::stage::{Daemon, Running};

use crate::harness::{LONG, SOON, Scheme, Setup, free_port, program, run, wait};

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// A target that answers each request with its own letter, until it is closed.
struct Page {
    port: u16,
    is_closed: Arc<AtomicBool>,
}

impl Page {
    fn open(port: u16, letter: char) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let is_closed = Arc::<AtomicBool>::default();
        let closed = Arc::clone(&is_closed);
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                thread::spawn(move || serve(stream.unwrap(), letter));
            }
        });
        Self { port, is_closed }
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        wait("the port of the target is closed", SOON, || {
            TcpStream::connect(("127.0.0.1", self.port)).is_err().then_some(())
        });
    }
}

fn serve(mut stream: TcpStream, letter: char) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{letter}");
            if stream.write_all(answer.as_bytes()).is_err() {
                break;
            }
        }
    }
}

/// A visitor with a cookie jar of its own.
struct Visitor {
    door: u16,
    jar: PathBuf,
}

/// An answer: its letter, and the cookies that it sets.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    letter: String,
    set: Vec<String>,
}

impl Visitor {
    fn new(door: u16, dir: &Path, name: &str) -> Self {
        Self { door, jar: dir.join(format!("{name}.jar")) }
    }

    fn ask_with(&self, more: &[&str], requests: usize) -> Vec<Answer> {
        let mut curl = Command::new(program("curl"));
        curl.args(["--silent", "--show-error", "--max-time", "20", "--include"]);
        curl.args(["--noproxy", "*", "--cookie"]).arg(&self.jar).arg("--cookie-jar").arg(&self.jar);
        curl.arg("--connect-to").arg(format!("a.example:80:127.0.0.1:{}", self.door)).args(more);
        (0..requests).for_each(|_| {
            curl.arg("http://a.example/");
        });
        let output = run(&mut curl);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let answers = text.split("HTTP/1.1 ").skip(1);
        let answers = answers.map(|answer| {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("200"), "{text}");
            let set = head.lines().filter_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("set-cookie").then(|| value.to_owned())
            });
            Answer { set: set.collect(), letter: body.to_owned() }
        });
        answers.collect()
    }

    fn ask(&self) -> Answer {
        self.ask_with(&[], 1).remove(0)
    }

    /// The letter that several connections get without a new cookie.
    fn stays(&self) -> String {
        let first = self.ask();
        for _ in 0..5 {
            assert_eq!(self.ask(), Answer { set: vec![], letter: first.letter.clone() });
        }
        first.letter
    }
}

/// The service of the clients `home` with the targets a and b, and `office` with c and d.
fn start(lines: &str) -> (Running, Daemon, [Page; 4], u16) {
    let pages = ['a', 'b', 'c', 'd'].map(|letter| Page::open(0, letter));
    let targets = |of: &[Page]| {
        let all: Vec<_> = of.iter().map(|page| format!("http://127.0.0.1:{}", page.port)).collect();
        format!("[\"{}\"]", all.join("\", \""))
    };
    let (of_home, of_office, door) = (targets(&pages[..2]), targets(&pages[2..]), free_port());
    let mut setup = Setup::new(Scheme::TLS);
    setup.more_rights.push("http: a.example, shared: true".to_owned());
    write!(
        setup.server_lines,
        "  - name: office\n    token: {TOKEN}\n    allow: {{ http: a.example, shared: true }}\n\
         workers: 2\nhttp: {{ listen: \"127.0.0.1:{door}\" }}\n{lines}"
    )
    .unwrap();
    writeln!(
        setup.client_lines,
        "services:\n  - {{ name: web, public: \"http://a.example\", target: {of_home}, \
         shared: true, sticky: cookie }}"
    )
    .unwrap();
    let mut running = setup.start();
    running.client().wait_line(&["service web is published at"], SOON);
    let office = running.start_another_client(|text| {
        let token = text.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
        let token = token.trim_matches('"').to_owned();
        text.replace(&of_home, &of_office)
            .replace("name: home", "name: office")
            .replace(&token, TOKEN)
    });
    office.wait_line(&["service web is published at"], SOON);
    (running, office, pages, door)
}

#[test]
fn a_visitor_with_a_cookie_stays_at_its_client_and_its_target() {
    let (running, mut office, pages, door) = start("");
    let visitor = |name: &str| Visitor::new(door, running.dir(), name);
    // Visitors without a cookie are spread over all targets, and each stays where it is.
    let mut letters = BTreeSet::new();
    let mut of_a = None;
    for n in 0..16 {
        let visitor = visitor(&n.to_string());
        let Answer { letter, set } = visitor.ask();
        let [cookie] = &set[..] else { panic!("{set:?}") };
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
        assert_eq!(visitor.stays(), letter);
        if letter == "a" {
            of_a = Some(visitor);
        }
        letters.insert(letter);
    }
    assert_eq!(letters.iter().map(String::as_str).collect::<String>(), "abcd");
    // Several requests of a connection, and several at once, too.
    let (of_a, several) = (of_a.unwrap(), ["--parallel", "--parallel-immediate"]);
    for more in [&[][..], &several] {
        let answers = of_a.ask_with(more, 8);
        assert!(answers.iter().all(|one| one.letter == "a" && one.set.is_empty()), "{answers:?}");
    }
    // A value of somebody else is ignored, and is replaced.
    let jar = std::fs::read_to_string(&of_a.jar).unwrap();
    let value = jar.split_whitespace().last().unwrap().to_owned();
    assert!(!jar.contains(&pages[0].port.to_string()), "{jar}");
    let forged = format!("{}{}", if value.starts_with('A') { "B" } else { "A" }, &value[1..]);
    let other = visitor("forged");
    std::fs::write(&other.jar, jar.replace(&value, &forged)).unwrap();
    assert_eq!(other.ask().set.len(), 1);
    other.stays();
    // A target that is closed costs its visitor the place, and no answer.
    pages[0].close();
    let moved = of_a.ask();
    assert!(moved.letter != "a" && moved.set.len() == 1, "{moved:?}");
    assert_eq!(of_a.stays(), moved.letter);
    // It stays at the new one when the former is back.
    let _again = Page::open(pages[0].port, 'a');
    assert_eq!(of_a.stays(), moved.letter);
    // A client that is gone gives its visitors to the other.
    let of_office = (0..16).map(|n| visitor(&n.to_string()));
    let mut of_office = of_office.filter(|one| "cd".contains(&one.ask().letter));
    let one = of_office.next().unwrap();
    office.kill();
    wait("another client", LONG, || {
        let mut curl = Command::new(program("curl"));
        curl.args(["--silent", "--max-time", "1", "--noproxy", "*", "--cookie"]).arg(&one.jar);
        curl.arg("--connect-to").arg(format!("a.example:80:127.0.0.1:{door}"));
        let answer = run(curl.arg("http://a.example/")).stdout;
        matches!(&answer[..], b"a" | b"b").then_some(())
    });
    assert!("ab".contains(&one.stays()));
}

#[test]
fn the_cookie_of_a_visitor_over_tls_is_secure_and_a_new_process_knows_it() {
    let (mut running, _office, _pages, door) = start("trusted_proxies: 127.0.0.1\n");
    let visitor = Visitor::new(door, running.dir(), "secure");
    let tls = ["--header", "X-Forwarded-Proto: https"];
    let Answer { letter, set } = visitor.ask_with(&tls, 1).remove(0);
    assert!(set[0].ends_with("; SameSite=Lax; Secure"), "{set:?}");
    // curl sends the cookie of TLS over TLS alone.
    let cookie = set[0].split(';').next().unwrap().to_owned();
    let given = ["--cookie", &cookie, "--header", "X-Forwarded-Proto: https"];
    running.server.kill();
    running.server.wait_end(SOON);
    running.start_server_again();
    wait("both clients are back", LONG, || {
        let status = running.status("server")?;
        let sessions = status["sessions"].as_array()?;
        let has_service = |one: &&serde_json::Value| one["services"][0]["name"] == "web";
        (sessions.iter().filter(has_service).count() == 2).then_some(())
    });
    for _ in 0..6 {
        let answer = visitor.ask_with(&given, 1).remove(0);
        assert_eq!(answer, Answer { letter: letter.clone(), set: vec![] });
    }
}
