//! The parsers. Each asks the origin for a case and then, over the same connection where the parser
//! keeps it, for the marker. Each returns the runs whose marker was wrong.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use crate::origin::{MARKER, Origin};

/// Requests at a time.
const WORKERS: usize = 16;

/// The time for an answer, far longer than the pause of the origin.
const PATIENCE: Duration = Duration::from_secs(1);

type Runs<'a> = &'a [(usize, usize)];

/// Whether the answer to the request for the marker is right: the marker, or an error of the
/// connection or of the reverse proxy.
fn is_right(status: u16, body: &[u8]) -> bool {
    match status {
        200 => body == MARKER.as_bytes(),
        502..=504 => !body.windows(6).any(|part| part == b"poison"),
        _ => false,
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracles").join(name)
}

fn program(name: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file());
    Command::new(found.unwrap_or_else(|| panic!("install {name} (cargo xtask test does it)")))
}

pub(crate) fn node(origin: &Origin, runs: Runs<'_>) -> Vec<String> {
    client(program("node").arg(folder("client.js")), origin, runs)
}

pub(crate) fn go(origin: &Origin, runs: Runs<'_>) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("client");
    let mut build = program("go");
    build.args(["build", "-o"]).arg(&binary).arg(folder("client.go"));
    let built = build.env("GO111MODULE", "off").env("GOWORK", "off").output().unwrap();
    assert!(built.status.success(), "{built:?}");
    client(&mut Command::new(binary), origin, runs)
}

/// Runs a program that reads the runs and prints the answers.
fn client(command: &mut Command, origin: &Origin, runs: Runs<'_>) -> Vec<String> {
    command.arg(origin.address.port().to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let lines =
        runs.iter().map(|(case, pause)| format!("{} {case} {pause}\n", origin.cases[*case].method));
    let lines: String = lines.collect();
    let writer = thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), runs.len());
    let right = [format!("\"200 {MARKER}\""), "\"error\"".to_owned()];
    let is_wrong = |line: &&str| !right.iter().any(|right| line.ends_with(right));
    answers.lines().filter(is_wrong).map(str::to_owned).collect()
}

pub(crate) fn hyper(origin: &Origin, runs: Runs<'_>) -> Vec<String> {
    each(runs, |case, pause| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(origin.address).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
            tokio::spawn(connection);
            let method = origin.cases[case].method;
            let path = format!("/case/{case}/{pause}");
            let _ = timeout(PATIENCE, ask(&mut sender, method, &path)).await;
            let answer = timeout(PATIENCE, ask(&mut sender, "GET", "/probe")).await;
            answer.ok().flatten()
        })
    })
}

async fn ask(
    sender: &mut SendRequest<Empty<bytes::Bytes>>,
    method: &str,
    path: &str,
) -> Option<(u16, Vec<u8>)> {
    sender.ready().await.ok()?;
    let request = hyper::Request::builder().method(method).uri(path).header("Host", "origin");
    let response = sender.send_request(request.body(Empty::new()).unwrap()).await.ok()?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.ok()?;
    Some((status, body.to_bytes().to_vec()))
}

/// Asks for each run, several at a time. Returns those with a wrong answer.
fn each(
    runs: Runs<'_>,
    run: impl Fn(usize, usize) -> Option<(u16, Vec<u8>)> + Sync,
) -> Vec<String> {
    let (queue, wrong) = (Mutex::new(runs.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some(&(case, pause)) = next else { return };
                    if let Some((status, body)) = run(case, pause)
                        && !is_right(status, &body)
                    {
                        let body = String::from_utf8_lossy(&body);
                        wrong.lock().unwrap().push(format!("{case} {pause} {status} {body:?}"));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

/// A reverse proxy in the foreground, which is killed with its value.
struct Front {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Front {
    fn start(command: impl FnOnce(&Path, SocketAddr) -> Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut command = command(dir.path(), address);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let front = Self { child, address, _dir: dir };
        let is_up = (0..200).any(|_| {
            thread::sleep(Duration::from_millis(50));
            TcpStream::connect(address).is_ok()
        });
        assert!(is_up, "the reverse proxy listens");
        front
    }

    fn compare(&self, origin: &Origin, runs: Runs<'_>) -> Vec<String> {
        each(runs, |case, pause| {
            let method = origin.cases[case].method;
            let _ = self.ask(method, &format!("/case/{case}/{pause}"));
            let answer = self.ask("GET", "/probe").ok()?;
            let text = answer.iter().position(|byte| *byte == b' ')?;
            let status = str::from_utf8(answer.get(text + 1..text + 4)?).ok()?.parse().ok()?;
            let body = answer.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
            Some((status, answer[body..].to_vec()))
        })
    }

    fn ask(&self, method: &str, path: &str) -> std::io::Result<Vec<u8>> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let head = "HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n";
        write!(socket, "{method} {path} {head}")?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn nginx(origin: &Origin, runs: Runs<'_>) -> Vec<String> {
    let front = Front::start(|dir, address| {
        let (dir, target) = (dir.display(), origin.address);
        // A process without master: nothing is left when it is killed.
        let conf = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log /dev/null;\n\
             events {{ worker_connections 1000; }}\n\
             http {{ access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p;\n\
             fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;\n\
             upstream origin {{ server {target} max_fails=0; keepalive 64; }}\n\
             server {{ listen {address}; location / {{ proxy_pass http://origin;\n\
             proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
             proxy_read_timeout 400ms; proxy_next_upstream off;\n\
             proxy_buffer_size 128k; proxy_buffers 8 128k; }} }} }}\n"
        );
        fs::write(format!("{dir}/conf"), conf).unwrap();
        let mut nginx = program("nginx");
        nginx.args(["-e", "/dev/null", "-p"]).arg(dir.to_string());
        nginx.arg("-c").arg(format!("{dir}/conf"));
        nginx
    });
    front.compare(origin, runs)
}

pub(crate) fn haproxy(origin: &Origin, runs: Runs<'_>) -> Vec<String> {
    let front = Front::start(|dir, address| {
        let target = origin.address;
        let conf = format!(
            "global\n maxconn 1000\n nbthread 1\n\
             defaults\n mode http\n timeout connect 2s\n timeout client 5s\n\
             timeout server 400ms\n retries 0\n option http-keep-alive\n http-reuse always\n\
             frontend front\n bind {address}\n default_backend origin\n\
             backend origin\n server origin {target} pool-max-conn 64\n"
        );
        let file = dir.join("conf");
        fs::write(&file, conf).unwrap();
        let mut haproxy = program("haproxy");
        haproxy.arg("-db").arg("-f").arg(file);
        haproxy
    });
    front.compare(origin, runs)
}
