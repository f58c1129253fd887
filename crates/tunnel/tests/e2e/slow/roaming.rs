//! A client whose machine changes its network: the client runs in a network namespace with two
//! interfaces.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use testkit::cage::{far_v4, in_cage, ip, uplinks, within};
use testkit::stage::Running;

use crate::harness::{LONG, Origin, SOON, Scheme, Setup, connect, free_port, wait};

/// The time in which a link moves: 250 ms until the change is complete and 1 s for an answer, and
/// as much for a busy machine. Without the announcements of the kernel, it is 3 s at least.
const MOVES: Duration = Duration::from_millis(2700);

/// The host of the client.
const HOST: &str = "laptop";

/// A server in the cage, and a client on a host that prefers the path over `near0`.
fn start(origin: &Origin, spread: &str) -> (Running, [String; 2]) {
    let mut setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let paths = [0, 1].map(|nth| format!("tls://{}:{}", far_v4(nth), free_port()));
    setup.more_listen.extend(paths.clone());
    setup
        .client_lines
        .push_str(&format!("connections: 1\nspread: {spread}\nlog: {{ level: debug }}\n"));
    setup.client_starter = ["ip", "netns", "exec", HOST].map(Into::into).to_vec();
    let own = format!("tls://127.0.0.1:{}", setup.server_port());
    let mut running = setup.start_server();
    running.edit_client(|text| text.replace(&own, &paths.join("\", \"")));
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
    in_cage(|| {
        uplinks(HOST, 2);
        let origin = within(HOST, Origin::echo);
        ["none", "backup"].into_iter().for_each(|spread| moves(&origin, spread));
    });
}

fn moves(origin: &Origin, spread: &str) {
    let (mut running, [first, second]) = start(origin, spread);
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
        ("addr del 10.97.0.2/24 dev near0", "addr add 10.97.0.2/24 dev near0"),
        ("link set near0 down", "link set near0 up"),
    ]
    .into_iter()
    .enumerate()
    {
        let before = resumes(&mut running, &second);
        let begin = Instant::now();
        ip(HOST, goes);
        wait("the other path", SOON, || (resumes(&mut running, &second) > before).then_some(()));
        let took = begin.elapsed();
        println!("{spread}: `{goes}`: moved after {took:?}");
        assert!(took < MOVES, "{goes}: {took:?}");
        echo(2);
        let before = resumes(&mut running, &first);
        let begin = Instant::now();
        ip(HOST, comes);
        // At most 5 s between two attempts, instead of a minute.
        wait("the first path", SOON * 2, || (resumes(&mut running, &first) > before).then_some(()));
        println!("{spread}: `{comes}`: back after {:?}", begin.elapsed());
        echo(3 + u8::try_from(turn).unwrap());
    }
}
