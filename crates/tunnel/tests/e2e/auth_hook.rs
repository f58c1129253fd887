//! `auth.http`: another program decides which clients exist. The program is a test server with
//! configurable answers, or nginx with TLS.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use testkit::certs::Authority;
use testkit::stage::{Nginx, Running};

use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, try_connect, wait};
use crate::reload::{echo, outcome};

const TOKEN: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uKq";

/// Says the same to everybody, and remembers the questions.
struct Hook {
    port: u16,
    answer: Arc<Mutex<(u16, String)>>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Hook {
    fn new(status: u16, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new((status, body.to_owned())));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hook = Self { port, answer: Arc::clone(&answer), heard: Arc::clone(&heard) };
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = BufReader::new(connection.unwrap());
                let (mut head, mut length) = (String::new(), 0);
                while connection.read_line(&mut head).is_ok_and(|n| n > 2) {}
                for line in head.lines() {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                if connection.read_exact(&mut body).is_err() {
                    continue;
                }
                heard.lock().unwrap().push(head + &String::from_utf8(body).unwrap());
                let (status, body) = answer.lock().unwrap().clone();
                let length = body.len();
                let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}");
                let _ = connection.get_mut().write_all(text.as_bytes());
            }
        });
        hook
    }

    fn says(&self, status: u16, body: &str) {
        *self.answer.lock().unwrap() = (status, body.to_owned());
    }

    fn count(&self) -> usize {
        self.heard.lock().unwrap().len()
    }
}

/// A server that knows nobody of this name, and asks.
fn asking(scheme: Scheme, target: u16, auth: &str) -> Running {
    let running = Setup::new(scheme).service("echo", target).start_server();
    running.edit_server(|text| {
        let text = text.replace("name: home", "name: known");
        format!("{text}auth: {{ http: {{ {auth} }} }}\n")
    });
    let text = fs::read_to_string(running.file("client.yaml")).unwrap();
    let own = text.lines().find(|line| line.starts_with("token")).unwrap();
    running.edit_client(|text| text.replace(own, &format!("token: {TOKEN}")));
    assert_eq!(outcome(running.reload("server")).0, Some(0));
    running
}

fn entry(port: u16) -> String {
    format!("{{\"token\": \"{TOKEN}\", \"allow\": {{\"tcp\": [\"{port}\"]}}}}")
}

#[test]
fn a_client_of_somebody_else_comes_in_and_goes_as_he_says() {
    for scheme in [Scheme::TLS, Scheme::TCP] {
        let origin = Origin::echo();
        let hook = Hook::new(404, "");
        let url = format!("http://127.0.0.1:{}/who", hook.port);
        let auth = format!("url: \"{url}\", cache: 1s, headers: {{ X-Key: sesame }}");
        let mut running = asking(scheme, origin.port(), &auth);
        let port = running.public("echo");
        hook.says(200, &entry(port));
        running.start_client();
        running.wait_echo(port);
        let heard = hook.heard.lock().unwrap()[0].clone();
        assert!(heard.starts_with("POST /who HTTP/1.1\r\n"), "{heard}");
        assert!(heard.to_lowercase().contains("x-key: sesame\r\n"), "{heard}");
        assert!(heard.ends_with("{\"name\":\"home\"}") && !heard.contains(TOKEN), "{heard}");

        // Who is connected stays while nothing can be heard.
        let stays = connect(port);
        hook.says(500, &entry(port));
        let before = hook.count();
        wait("two more questions", SOON, || (hook.count() >= before + 2).then_some(()));
        echo(&stays, 1);
        running.server.wait_line(&["auth.http", &url, "500"], SOON);

        // Other rights are his at once, and none at all as well.
        hook.says(200, &format!("{{\"token\": \"{TOKEN}\"}}"));
        running.client().wait_line(&["echo", "not published"], SOON);
        hook.says(403, "");
        running.server.wait_line(&["home removed", "its connections end"], SOON);
        running.server.wait_line(&["`home`", "did not log in", "auth.http"], SOON);
        assert!(try_connect(port).is_err());
        let log = running.server.log();
        assert!(!log.contains("sesame") && !log.contains(TOKEN), "{log}");
    }
}

#[test]
fn what_is_no_answer_lets_nobody_in_until_there_is_one() {
    let origin = Origin::echo();
    let hook = Hook::new(200, "<html>");
    let auth = format!("url: \"http://127.0.0.1:{}\"", hook.port);
    let mut running = asking(Scheme::TLS, origin.port(), &auth);
    let port = running.public("echo");
    running.start_client();
    running.server.wait_line(&["auth.http", "JSON"], SOON);
    running.client().wait_line(&["try"], SOON);
    for odd in [
        "{}",
        "{\"token_file\": \"/etc/hostname\"}",
        "{\"token\": \"${HOME}\"}",
        "{\"token\": \"weak\"}",
        "{\"token\": \"x\", \"name\": \"other\"}",
    ] {
        hook.says(200, odd);
        let before = hook.count();
        wait("a further attempt", SOON, || (hook.count() > before).then_some(()));
    }
    assert!(try_connect(port).is_err());
    hook.says(200, &entry(port));
    running.wait_echo(port);
}

#[test]
fn who_is_asked_is_believed_by_his_certificate_only() {
    let origin = Origin::echo();
    let port = free_port();
    let url = format!("https://127.0.0.1:{port}/who");
    let mut running = asking(Scheme::TLS, origin.port(), &format!("url: \"{url}\""));
    let dir = running.dir().to_owned();
    let authority = Authority::new("an authority of the hook").unwrap();
    authority.server(&["127.0.0.1"]).unwrap().save(&dir, "hook").unwrap();
    authority.save(&dir).unwrap();
    let (at, answer) = (dir.display(), entry(running.public("echo")));
    let conf = format!(
        "error_log stderr; events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         server {{ listen 127.0.0.1:{port} ssl; ssl_protocols TLSv1.3; ssl_certificate {at}/hook.crt;\n\
         ssl_certificate_key {at}/hook.key;\n\
         location = /who {{ default_type application/json; return 200 '{answer}'; }} }} }}\n"
    );
    let _nginx = Nginx::start_with(&dir, &conf, port);

    running.start_client();
    running.server.wait_line(&["auth.http", &url, "authority"], SOON);
    // Told that nobody can come in now, so that attempt is over.
    running.client().wait_line(&["try again"], SOON);
    assert!(try_connect(running.public("echo")).is_err());
    running.edit_server(|text| {
        text.replace(&format!("\"{url}\""), &format!("\"{url}\", tls: {{ ca: ca.pem }}"))
    });
    assert_eq!(outcome(running.reload("server")).0, Some(0));
    running.wait_echo(running.public("echo"));

    // Its files are followed like those of the server itself.
    let other = Authority::new("another one").unwrap();
    other.save(&dir).unwrap();
    running.server.wait_line(&["certificates have changed", "new connections"], SOON);
}
