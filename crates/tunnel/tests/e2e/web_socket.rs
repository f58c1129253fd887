//! `wss://` and `ws://` through a real nginx that is configured by the files of `examples/nginx`.
//! The proxy reloads, ends, or answers itself.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use testkit::stage::run_within;

use crate::fronts;
use crate::harness::{
    LONG, Nginx, Origin, SOON, Scheme, Setup, bytes, connect, free_port, program, run, start_sshd,
    wait,
};

const MB: u64 = 1_000_000;

fn example(name: &str) -> String {
    fronts::example(&format!("nginx/{name}"))
}

/// A server of `ws://` and a client that is sent to nginx in front of it.
struct Behind {
    setup: Setup,
    conf: String,
    port: u16,
}

impl Behind {
    /// `examples/nginx/nginx.conf`, with the places of this test. nginx asks from 127.0.0.9, so
    /// that its address is not that of the client.
    fn example() -> Self {
        let mut setup = Setup::new(Scheme::WS);
        let port = free_port();
        fronts::seal(&mut setup, ([127, 0, 0, 1], port).into());
        // A client that says it is somebody else.
        setup.client_lines.push_str("headers: { Forwarded: for=203.0.113.9 }\n");
        let dir = setup.dir().to_owned();
        let mut conf = example("nginx.conf");
        let bind = "proxy_bind 127.0.0.9; proxy_pass http://127.0.0.1:";
        for (from, to) in [
            ("listen 443 ssl", format!("listen 127.0.0.1:{port} ssl")),
            ("/etc/nginx/", format!("{}/", dir.display())),
            ("/var/www/html", format!("{}/www", dir.display())),
            ("proxy_pass http://127.0.0.1:7080", format!("{bind}{}", setup.server_port())),
        ] {
            conf = fronts::put(&conf, from, &to);
        }
        setup.server_lines.push_str("trusted_proxies: [ 127.0.0.9 ]\n");
        Self { setup, conf, port }
    }

    /// With another time-out of nginx.
    fn with_timeouts(mut self, time: &str) -> Self {
        assert!(self.conf.contains("timeout 60s"));
        self.conf = self.conf.replace("timeout 60s", &format!("timeout {time}"));
        self
    }

    fn nginx(&self) -> Nginx {
        Nginx::start_with(self.setup.dir(), &self.conf, self.port)
    }
}

fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// How often the client had to resume a link.
fn resumed(log: &str) -> usize {
    log.lines().filter(|line| line.contains("resumed over")).count()
}

#[test]
fn hashes_are_equal_after_200_mb_each_way_through_nginx_by_curl_and_ssh() {
    let behind = Behind::example();
    let nginx = behind.nginx();
    let origin_dir = behind.setup.dir().join("origin");
    fs::create_dir(&origin_dir).unwrap();
    let origin = Nginx::start(&origin_dir, "");
    bytes::send(File::create(origin_dir.join("www/big")).unwrap(), 200 * MB);
    let (sshd_port, _sshd, options) = start_sshd(behind.setup.dir());
    let setup = behind.setup.service("web", origin.port).service("ssh", sshd_port);
    let mut running = setup.start();
    running.client().wait_line(&["connected to wss://127.0.0.1:"], SOON);

    let copy = running.file("copy");
    let url = format!("http://127.0.0.1:{}/big", running.public("web"));
    succeed(Command::new(program("curl")).args(["-sSf", "-o"]).arg(&copy).arg(url));
    bytes::expect(File::open(&copy).unwrap(), 200 * MB);

    let there = running.file("there");
    let port = running.public("ssh").to_string();
    let mut ssh = Command::new(program("ssh"));
    ssh.args(&options).args(["-p", &port, "127.0.0.1"]);
    ssh.arg(format!("cat > {}", there.display())).stdin(File::open(&copy).unwrap());
    let output = run_within(&mut ssh, LONG).expect("ssh ends");
    assert!(output.status.success(), "{output:?}");
    bytes::expect(File::open(&there).unwrap(), 200 * MB);
    drop(nginx);
}

#[test]
fn the_block_that_users_have_already_works_as_it_is() {
    let mut setup = Setup::new(Scheme::WS);
    // The slash at the end of its proxy_pass makes the path another one: no path here takes any.
    let port = setup.server_port().to_string();
    let nginx = Nginx::start(setup.dir(), &example("location.conf").replace("PORT", &port));
    setup.server_url = Some(format!("ws://127.0.0.1:{}/some/path", nginx.port));
    setup.server_path = String::new();
    let origin = Origin::echo();
    let running = setup.service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));

    let url = format!("http://127.0.0.1:{}/some/path", nginx.port);
    let mut curl = Command::new(program("curl"));
    let status = succeed(curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", &url]));
    assert_eq!(status, "404");
}

/// Stock nginx ends what is still for 60 s; here everything is 20 times as quick.
#[test]
fn an_idle_tunnel_outlives_the_time_outs_of_nginx() {
    let mut behind = Behind::example().with_timeouts("3s");
    behind.setup.server_lines.push_str("keepalive: 1s\n");
    behind.setup.client_lines.push_str("keepalive: 1s\n");
    let nginx = behind.nginx();
    let origin = Origin::echo();
    let mut running = behind.setup.service("echo", origin.port()).start();
    let mut visitor = connect(running.public("echo"));
    visitor.write_all(b"a").unwrap();
    visitor.read_exact(&mut [0]).unwrap();
    // Several time-outs of nginx, whose clock is the real time.
    thread::sleep(Duration::from_secs(10));
    visitor.write_all(b"b").unwrap();
    visitor.read_exact(&mut [0]).unwrap();
    assert_eq!(resumed(&running.client().log()), 0, "no carrier was lost");
    drop(nginx);
}

/// A visitor that sends and expects `total` bytes through an echo, in pieces with pauses, so that
/// it takes a while.
fn trickle(mut stream: TcpStream, total: u64) {
    let mut back = stream.try_clone().unwrap();
    let reader = thread::spawn(move || bytes::expect(&mut back, total));
    let mut whole = Vec::new();
    bytes::send(&mut whole, total);
    for piece in whole.chunks(whole.len() / 50) {
        stream.write_all(piece).unwrap();
        thread::sleep(Duration::from_millis(100));
    }
    reader.join().unwrap();
}

#[test]
fn no_byte_of_100_streams_is_lost_when_nginx_reloads_or_is_started_again() {
    let mut behind = Behind::example();
    // The old workers of a reload keep their connections for as long as they live, else.
    behind.conf = format!("worker_shutdown_timeout 1s;\n{}", behind.conf);
    let mut nginx = behind.nginx();
    let (dir, conf, port) = (behind.setup.dir().to_owned(), behind.conf.clone(), behind.port);
    let origin = Origin::echo();
    let mut running = behind.setup.service("echo", origin.port()).start();
    let public = running.public("echo");
    running.wait_echo(public);
    let visitors: Vec<_> = (0..100)
        .map(|_| {
            let stream = connect(public);
            thread::spawn(move || trickle(stream, 200_000))
        })
        .collect();
    // The transfers are under way; nginx gives no sign of that.
    thread::sleep(Duration::from_secs(1));
    nginx.reload();
    running.client().wait_line(&["resumed over wss://"], SOON);
    drop(nginx);
    // Some attempts of the client fail in this time.
    thread::sleep(Duration::from_millis(500));
    let before = resumed(&running.client().log());
    nginx = Nginx::start_with(&dir, &conf, port);
    for visitor in visitors {
        visitor.join().unwrap();
    }
    assert!(resumed(&running.client().log()) > before, "resumed over the new nginx as well");
    drop(nginx);
}

#[test]
fn status_shows_the_address_that_a_trusted_proxy_tells() {
    for (trusted, wanted) in [("127.0.0.9", "127.0.0.1"), ("192.0.2.1", "127.0.0.9")] {
        let mut behind = Behind::example();
        let lines = &mut behind.setup.server_lines;
        *lines = lines.replace("127.0.0.9", trusted);
        let nginx = behind.nginx();
        let origin = Origin::echo();
        let running = behind.setup.service("echo", origin.port()).start();
        let status = running.status("server").unwrap().to_string();
        let (with_port, alone) = (format!("\"{wanted}:"), format!("\"{wanted}\""));
        assert!(status.contains(&with_port) || status.contains(&alone), "{wanted} in {status}");
        assert!(status.contains("\"wss\"") || status.contains("\"ws\""), "{status}");
        drop(nginx);
    }
}

/// Behind a proxy a wrong token is told, and slowed down, by the client's own address.
#[test]
fn a_refused_log_in_behind_a_proxy_is_that_of_its_client() {
    let behind = Behind::example();
    let nginx = behind.nginx();
    let mut running = behind.setup.start_server();
    let token = run(&mut crate::harness::tunnel(&["generate", "token"])).stdout;
    let token = String::from_utf8(token).unwrap();
    let at = |line: &str| line.starts_with("token:");
    running.edit_client(|text| {
        let lines = text.lines().map(|line| {
            if at(line) { format!("token: \"{}\"", token.trim()) } else { line.to_owned() }
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    running.start_client();
    let line = running.server.wait_line(&["did not log in", "wrong token"], SOON);
    assert!(line.contains("from 127.0.0.1 ") && !line.contains("127.0.0.9"), "{line}");
    drop(nginx);
}

/// What a proxy or a web server answers in place of the upgrade: one line, and the client comes in
/// as soon as it is mended.
#[test]
fn an_answer_that_is_no_upgrade_is_told_in_one_line_and_tried_again() {
    let cases = [
        ("return 301 https://elsewhere.example/;", "HTTP 301: redirected to \"https://elsewhere"),
        ("return 200 page;", "HTTP 200: a page came instead of a WebSocket"),
        ("return 502;", "HTTP 502: the proxy in front does not reach the tunnel server"),
    ];
    for (answer, wanted) in cases {
        let mut setup = Setup::new(Scheme::WS);
        setup.client_lines.push_str("connections: 1\nretry: { min: 100ms, max: 500ms }\n");
        let dir = setup.dir().to_owned();
        let nginx = Nginx::start(&dir, &format!("location /tunnel {{ {answer} }}"));
        let nginx_port = nginx.port;
        setup.server_url = Some(format!("ws://127.0.0.1:{nginx_port}/tunnel"));
        let origin = Origin::echo();
        let server_port = setup.server_port();
        let mut running = setup.service("echo", origin.port()).start_server();
        running.start_client();
        running.client().wait_line(&[wanted], SOON);
        // Further attempts in this time must not repeat the line.
        thread::sleep(Duration::from_secs(2));
        running.client().wait_one_line(&[wanted], SOON);
        let pass = example("location.conf").replace("/some/path", "/tunnel");
        let pass = pass.replace("PORT/", &format!("{server_port}/tunnel"));
        let conf = fs::read_to_string(dir.join("nginx.conf")).unwrap();
        fs::write(
            dir.join("nginx.conf"),
            conf.replace(&format!("location /tunnel {{ {answer} }}"), &pass),
        )
        .unwrap();
        nginx.reload();
        running.wait_ready();
        running.wait_echo(running.public("echo"));
    }
}

/// 503 while nobody listens behind nginx; then the server is there.
#[test]
fn a_client_waits_for_a_server_behind_nginx() {
    let behind = Behind::example();
    let nginx = behind.nginx();
    let origin = Origin::echo();
    let mut running = behind.setup.service("echo", origin.port()).start();
    running.wait_echo(running.public("echo"));
    running.server.kill();
    running.client().wait_line(&["HTTP 502"], SOON);
    running.start_server_again();
    wait("the service is back", SOON, || {
        let mut visitor = crate::harness::try_connect(running.public("echo")).ok()?;
        visitor.write_all(b"?").ok()?;
        visitor.read_exact(&mut [0]).ok()
    });
    drop(nginx);
}
