//! A client whose machine changes its network: the client runs in a network namespace with two
//! interfaces.

use std::io::{Read as _, Write as _};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::stage::Running;

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, connect, free_port, run, wait};

/// The time in which a link moves: 250 ms until the change is complete and 1 s for an answer, and
/// as much for a busy machine. Without the announcements of the kernel, it is 3 s at least.
const MOVES: Duration = Duration::from_millis(2700);

/// A namespace with two interfaces, `near0` and `near1`, whose far ends are on this machine.
struct Namespace(String);

impl Namespace {
    /// `None`: this machine does not let the test make it.
    fn new() -> Option<Self> {
        let name = format!("roams{}", std::process::id());
        let made = run(Command::new("ip").args(["netns", "add", &name]));
        if !made.status.success() {
            let reason = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            println!("not shown here: {reason}");
            return None;
        }
        let namespace = Self(name);
        for nth in 0..2 {
            let (name, far, network) = (&namespace.0, namespace.far(nth), network(nth));
            for command in [
                format!("ip link add {far} type veth peer name near{nth} netns {name}"),
                format!("ip addr add {network}.1/24 dev {far}"),
                format!("ip link set {far} up"),
                format!("ip -n {name} addr add {network}.2/24 dev near{nth}"),
                format!("ip -n {name} link set near{nth} up"),
            ] {
                ip(&command);
            }
        }
        Some(namespace)
    }

    /// The name of the far end of an interface.
    fn far(&self, nth: usize) -> String {
        format!("r{}n{nth}", std::process::id() % 100_000)
    }

    /// Runs `ip` inside.
    fn ip(&self, words: &str) {
        ip(&format!("ip -n {} {words}", self.0));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        for nth in 0..2 {
            run(Command::new("ip").args(["link", "del", &self.far(nth)]));
        }
        run(Command::new("ip").args(["netns", "del", &self.0]));
    }
}

fn ip(command: &str) {
    let mut words = command.split(' ');
    let done = run(Command::new(words.next().unwrap()).args(words));
    assert!(done.status.success(), "{command}: {done:?}");
}

/// The first three bytes of the addresses of an interface.
fn network(nth: usize) -> String {
    format!("10.97.{}", 20 + nth)
}

/// A server on this machine, and a client in the namespace that prefers the path over `near0`.
fn start(namespace: &Namespace, origin: &Origin, spread: &str) -> (Running, [String; 2]) {
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let paths = [0, 1].map(|nth| format!("tls://{}.1:{}", network(nth), free_port()));
    setup.more_listen.extend(paths.clone());
    setup
        .client_lines
        .push_str(&format!("connections: 1\nspread: {spread}\nlog: {{ level: debug }}\n"));
    setup.client_starter = ["ip", "netns", "exec", &namespace.0].map(Into::into).to_vec();
    let own = format!("tls://127.0.0.1:{}", setup.server_port());
    let mut running = setup.start_server();
    running.edit_client(|text| {
        let text = text.replace(&own, &paths.join("\", \""));
        text.replace("tcp://127.0.0.1:", &format!("tcp://{}.1:", network(1)))
    });
    running.start_client();
    running.wait_ready();
    running.wait_echo(running.public("echo"));
    (running, paths)
}

fn resumes(running: &mut Running, path: &str) -> usize {
    running.client().log().matches(&format!("resumed over {path}")).count()
}

#[test]
fn a_client_moves_when_an_interface_goes_and_comes_back_when_it_is_there_again() {
    let Some(namespace) = Namespace::new() else { return };
    let at = format!("{}.1:0", network(1));
    let origin = Origin::start_on(&at, |mut socket| {
        let mut byte = [0];
        while socket.read_exact(&mut byte).is_ok() && socket.write_all(&byte).is_ok() {}
    });
    for spread in ["none", "backup"] {
        let (mut running, [first, second]) = start(&namespace, &origin, spread);
        let mut visitor = connect(running.public("echo"));
        visitor.set_read_timeout(Some(LONG)).unwrap();
        let mut echo = |byte: u8| {
            visitor.write_all(&[byte]).unwrap();
            let mut back = [0];
            visitor.read_exact(&mut back).unwrap();
            assert_eq!(back, [byte]);
        };
        echo(1);
        // Too young a connection is dialled anew after a pause.
        std::thread::sleep(Duration::from_secs(3));
        for (turn, (goes, comes)) in [
            ("addr del 10.97.20.2/24 dev near0", "addr add 10.97.20.2/24 dev near0"),
            ("link set near0 down", "link set near0 up"),
        ]
        .into_iter()
        .enumerate()
        {
            let before = resumes(&mut running, &second);
            let begin = Instant::now();
            namespace.ip(goes);
            wait("the other path", SOON, || {
                (resumes(&mut running, &second) > before).then_some(())
            });
            let took = begin.elapsed();
            println!("{spread}: `{goes}`: moved after {took:?}");
            assert!(took < MOVES, "{goes}: {took:?}");
            echo(2);
            let before = resumes(&mut running, &first);
            let begin = Instant::now();
            namespace.ip(comes);
            // At most 5 s between two attempts, instead of a minute.
            wait("the first path", SOON * 2, || {
                (resumes(&mut running, &first) > before).then_some(())
            });
            println!("{spread}: `{comes}`: back after {:?}", begin.elapsed());
            echo(3 + u8::try_from(turn).unwrap());
        }
    }
}
