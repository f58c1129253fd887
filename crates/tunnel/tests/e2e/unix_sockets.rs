//! Unix sockets as targets and as listeners of forwards: real software over them, their ends, their
//! access rights, and the life of their files.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use testkit::stage::Running;

use crate::harness::{
    LONG, Nginx, SOON, Scheme, Setup, bytes, free_port, program, run, try_connect, wait,
    wait_listening,
};

const MB: u64 = 1_000_000;

/// A service `app` at the socket `back` of the folder, and a forward from `front` to `back`.
struct Plan {
    setup: Setup,
    public: u16,
    rights: String,
}

impl Plan {
    fn new(scheme: Scheme) -> Self {
        let mut setup = Setup::new(scheme);
        let public = free_port();
        setup.allow.push(public);
        let dir = setup.dir().display().to_string();
        write!(
            setup.client_lines,
            "services:\n  - {{ name: app, target: \"unix://{dir}/back\", public: \"tcp://:{public}\" }}\n\
             forwards:\n  - {{ listen: \"unix://{dir}/front\", target: \"unix://{dir}/back\" }}\n"
        )
        .unwrap();
        Self { setup, public, rights: format!("\"unix:{dir}/back\"") }
    }

    /// Starts both, the server with the rights to these targets.
    fn start(self) -> Running {
        let mut running = self.setup.start_server();
        let file = running.file("server.yaml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("forward: []", &format!("forward: [{}]", self.rights)))
            .unwrap();
        running.server.terminate();
        assert!(running.server.wait_end(SOON).success());
        running.start_server_again();
        wait_listening(running.server_port(), SOON);
        running.start_client();
        wait_listening(self.public, SOON);
        wait_socket(&running.file("front"));
        running
    }
}

fn wait_socket(path: &Path) {
    wait("a listener at the socket", SOON, || UnixStream::connect(path).ok());
}

fn visit(path: &Path) -> UnixStream {
    patient(UnixStream::connect(path).unwrap())
}

fn patient(stream: UnixStream) -> UnixStream {
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn fetch(args: &[&str], url: &str, to: &Path) {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "60", "--output"]);
    let output = run(curl.arg(to).args(args).arg(url));
    assert!(output.status.success(), "{args:?} {url}: {output:?}");
}

#[test]
fn curl_and_nginx_meet_over_unix_sockets_at_both_ends() {
    for &scheme in Scheme::ALL {
        let plan = Plan::new(scheme);
        let (dir, public) = (plan.setup.dir().to_owned(), plan.public);
        let _nginx = Nginx::start(&dir, &format!("listen unix:{}/back;", dir.display()));
        bytes::send(File::create(dir.join("www/big")).unwrap(), 50 * MB);
        let running = plan.start();
        let got = dir.join("got");
        let front = running.file("front").display().to_string();
        let forward = ["--unix-socket", front.as_str()];
        for args in [&forward[..], &[]] {
            let url = |page| format!("http://127.0.0.1:{public}/{page}");
            fetch(args, &url("small"), &got);
            assert_eq!(fs::read_to_string(&got).unwrap(), "hello from nginx\n");
            fetch(args, &url("big"), &got);
            bytes::expect(File::open(&got).unwrap(), 50 * MB);
        }
        let status = running.status("client").unwrap();
        let forward = &status["sessions"][0]["forwards"][0];
        assert_eq!(forward["address"], format!("unix://{front}"));
        assert!(forward["bytes_out"].as_u64().unwrap() > 50 * MB, "{status}");
    }
}

#[test]
fn half_close_passes_both_ways() {
    let plan = Plan::new(Scheme::TLS);
    let listener = UnixListener::bind(plan.setup.dir().join("back")).unwrap();
    let running = plan.start();
    let serve = |ends_first: bool| {
        let listener = listener.try_clone().unwrap();
        std::thread::spawn(move || {
            let service = patient(listener.accept().unwrap().0);
            talk(&service, ends_first);
        })
    };
    // Whoever waited for the listener was a visitor, too.
    drop(listener.accept().unwrap());
    for visitor_ends_first in [true, false] {
        let service = serve(!visitor_ends_first);
        talk(&visit(&running.file("front")), visitor_ends_first);
        service.join().unwrap();
    }
}

#[test]
fn visitors_of_one_socket_spread_over_the_links_of_all_workers() {
    let mut plan = Plan::new(Scheme::TLS);
    plan.setup.client_lines.push_str("workers: 2\nconnections: 2\n");
    let _service = UnixListener::bind(plan.setup.dir().join("back")).unwrap();
    let running = plan.start();
    running.wait_links(2);
    let _visitors: Vec<_> = (0..8).map(|_| visit(&running.file("front"))).collect();
    wait("four streams on each link", SOON, || {
        let status = running.status("client")?;
        let links = status["sessions"][0]["links"].as_array()?.clone();
        links.iter().all(|link| link["streams"].as_u64() >= Some(4)).then_some(())
    });
}

/// 10 MB each way, one after the other; who ends first reads the other's to the end.
fn talk(socket: &UnixStream, first: bool) {
    let say = || {
        bytes::send(socket, 10 * MB);
        socket.shutdown(Shutdown::Write).unwrap();
    };
    let hear = || {
        bytes::expect(socket, 10 * MB);
        bytes::expect_end(socket);
    };
    if first {
        say();
        hear();
    } else {
        hear();
        say();
    }
}

#[test]
fn a_socket_that_no_right_names_is_not_reached_and_told() {
    let mut plan = Plan::new(Scheme::TLS);
    let dir = plan.setup.dir().display().to_string();
    let listener = UnixListener::bind(plan.setup.dir().join("back")).unwrap();
    plan.rights =
        format!("\"0.0.0.0/0:*\", \"[::]/0:*\", \"unix:{dir}/bac\", \"unix:@{dir}/back\"");
    let running = plan.start();
    bytes::expect_end(&visit(&running.file("front")));
    running.server.wait_line(&["home", &format!("unix:{dir}/back"), "allow.forward"], SOON);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "it was dialled");
}

#[test]
fn a_target_that_is_not_there_is_told_where_it_is_dialled() {
    let plan = Plan::new(Scheme::TLS);
    let (public, back) = (plan.public, plan.setup.dir().join("back"));
    let mut running = plan.start();
    bytes::expect_refused(try_connect(public));
    let missing = format!("unix://{}: No such file", back.display());
    running.client().wait_line(&[&missing], SOON);
    bytes::expect_end(&visit(&running.file("front")));
    running.server.wait_line(&[&missing], SOON);
}

#[test]
fn the_file_of_a_listener_is_private_goes_at_the_end_and_is_replaced_after_a_crash() {
    let plan = Plan::new(Scheme::TLS);
    let mut running = plan.start();
    let front = running.file("front");
    assert_eq!(mode(&front), 0o600);

    running.client().kill();
    running.client().wait_end(SOON);
    assert!(front.exists(), "nobody was left to remove it");
    running.edit_client(|text| text.replacen("/front\",", "/front\", mode: 0660,", 1));
    running.start_client();
    wait_socket(&front);
    assert_eq!(mode(&front), 0o660);

    running.client().terminate();
    assert!(running.client().wait_end(SOON).success());
    assert!(!front.exists());
}

#[test]
fn a_path_in_use_and_one_that_is_no_socket_are_told_in_one_line() {
    let plan = Plan::new(Scheme::TLS);
    let running = plan.start();
    let front = running.file("front");
    let refused = |name: &str, why: &str| {
        let path = running.file(name);
        let edit = |text: String| text.replace("/front\"", &format!("/{name}\""));
        let mut second = running.start_another_client(edit);
        assert_eq!(second.wait_end(SOON).code(), Some(1));
        second
            .wait_one_line(&[&format!("cannot listen on unix://{}: ", path.display()), why], SOON);
    };
    refused("front", "another process listens there");
    let other = running.file("precious");
    fs::write(&other, "text").unwrap();
    refused("precious", "not a socket");
    assert_eq!(fs::read_to_string(&other).unwrap(), "text");
    refused("no/such", "make the folder first");
    assert_eq!(mode(&front), 0o600, "the first still has it");
    wait_socket(&front);
}

#[test]
fn names_without_a_file_work_at_both_ends() {
    let mut plan = Plan::new(Scheme::TLS);
    let unique = format!("tunnel-e2e-{}", std::process::id());
    writeln!(
        plan.setup.client_lines,
        "  - {{ listen: \"unix://@{unique}-front\", target: \"unix://@{unique}-back\" }}"
    )
    .unwrap();
    plan.rights = format!("\"unix:@{unique}-back\"");
    let address = |end: &str| SocketAddr::from_abstract_name(format!("{unique}-{end}")).unwrap();
    let listener = UnixListener::bind_addr(&address("back")).unwrap();
    let _running = plan.start();
    let service = std::thread::spawn(move || talk(&patient(listener.accept().unwrap().0), true));
    talk(&patient(UnixStream::connect_addr(&address("front")).unwrap()), false);
    service.join().unwrap();
}
