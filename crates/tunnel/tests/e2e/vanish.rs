//! Visitors and targets that vanish, and visitors who take the descriptors of others. The kernel
//! ends a connection whose far end is silent, so it is enough to see its timer; `slow/vanish.rs`
//! cuts a path and waits.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{
    Origin, SOON, Scheme, Setup, connect, free_port, try_connect, wait, wait_listening,
};

/// The time until the keepalive of the connection between these ports of this machine, as the end
/// `local` has it; `None`: there is no such connection, or its timer is another.
fn keepalive(local: u16, remote: u16) -> Option<Duration> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| fs::read_to_string(file).unwrap());
    let port = |field: &str| u16::from_str_radix(field.rsplit_once(':')?.1, 16).ok();
    tables.iter().flat_map(|table| table.lines().skip(1)).find_map(|line| {
        // proc_net_tcp(5) of the kernel's documentation: timer 2 is that of keepalive, and the time
        // is in hundredths of a second.
        let fields: Vec<_> = line.split_whitespace().collect();
        let is_asked = (port(fields[1]), port(fields[2])) == (Some(local), Some(remote));
        let (timer, left) = fields[5].split_once(':')?;
        let left = u64::from_str_radix(left, 16).ok()?;
        (is_asked && timer == "02").then(|| Duration::from_millis(left * 10))
    })
}

/// Waits until the end `local` probes the end `remote` after a silence of `seconds`.
fn is_probed(what: &str, local: u16, remote: u16, seconds: u64) {
    let left = wait(&format!("{what} is probed"), SOON, || keepalive(local, remote));
    // The timer may have run for a moment, and the kernel rounds its ticks up.
    assert!((seconds - 10..=seconds + 1).contains(&left.as_secs()), "{what}: {left:?}");
}

/// The ports from which connections lead to this port.
fn dialled_from(remote: u16) -> Vec<u16> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |field: &str| u16::from_str_radix(field.rsplit_once(':').unwrap().1, 16).unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = rows.filter(|fields| fields[3] == "01" && port(fields[2]) == remote);
    established.map(|fields| port(fields[1])).collect()
}

/// An answer of [`web`].
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A web server that answers each read with [`OK`].
fn web() -> Origin {
    Origin::start(|mut socket| {
        while socket.read(&mut [0; 1024]).is_ok_and(|size| size > 0) && socket.write_all(OK).is_ok()
        {
        }
    })
}

#[test]
fn every_socket_of_visitors_and_targets_is_probed() {
    let (origin, pages) = (Origin::echo(), web());
    let (target, pages) = (origin.port(), pages.port());
    let [quick, never, usual, exit, http, mux, forward, socks, admin] =
        [(); 9].map(|()| free_port());
    let mut setup = Setup::new(Scheme::TLS);
    setup.allow.extend([quick, never, usual, exit]);
    setup.more_rights.push("http: [a.example]".into());
    setup.more_targets.push(format!("127.0.0.1:{target}"));
    setup.more_listen.push(format!(
        "{{ url: \"mux://127.0.0.1:{mux}/t\", default: \"tcp://127.0.0.1:{target}\", silence: 100ms }}"
    ));
    writeln!(setup.server_lines, "http: {{ listen: [\"127.0.0.1:{http}\"] }}").unwrap();
    let token = setup.dir().join("admin.token");
    fs::write(&token, "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi").unwrap();
    writeln!(
        setup.server_lines,
        "admin: {{ listen: \"127.0.0.1:{admin}\", token_file: {} }}",
        token.display()
    )
    .unwrap();
    write!(
        setup.client_lines,
        "services:\n\
         \x20 - {{ name: quick, target: \"{target}\", public: \"tcp://:{quick}\", tcp_keepalive: 30s }}\n\
         \x20 - {{ name: never, target: \"{target}\", public: \"tcp://:{never}\", tcp_keepalive: 0 }}\n\
         \x20 - {{ name: usual, target: \"{target}\", public: \"tcp://:{usual}\" }}\n\
         \x20 - {{ name: exit, target: socks5, public: \"tcp://:{exit}\", allow_from: 127.0.0.1, \
               allow: [\"127.0.0.1:*\"] }}\n\
         \x20 - {{ name: web, target: \"{pages}\", public: \"http://a.example\", tcp_keepalive: 40s }}\n\
         forwards:\n\
         \x20 - {{ listen: \"tcp://127.0.0.1:{forward}\", target: \"tcp://127.0.0.1:{target}\" }}\n\
         \x20 - {{ listen: \"socks5://127.0.0.1:{socks}\" }}\n"
    )
    .unwrap();
    let running = setup.start();
    [quick, never, usual, exit].into_iter().for_each(|port| wait_listening(port, SOON));
    running.wait_echo(usual);

    let mut greeting = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    greeting.extend(target.to_be_bytes());
    let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec();
    for (what, port, says, answer, at_visitor, at_target) in [
        ("a port", quick, b"!".to_vec(), 1, 30, 30),
        ("a port with the default", usual, b"!".to_vec(), 1, 120, 120),
        ("a name", http, request, OK.len(), 40, 40),
        ("a default target", mux, b"SSH-2.0-x\r\n".to_vec(), 11, 120, 120),
        ("a forward", forward, b"!".to_vec(), 1, 120, 120),
        ("a proxy", socks, greeting.clone(), 12, 120, 120),
        ("an exit", exit, greeting, 12, 120, 120),
    ] {
        let target = if port == http { pages } else { target };
        let before = dialled_from(target);
        let mut visitor = connect(port);
        visitor.write_all(&says).unwrap();
        visitor.read_exact(&mut vec![0; answer]).unwrap();
        let own = visitor.local_addr().unwrap().port();
        is_probed(&format!("the visitor of {what}"), port, own, at_visitor);
        let mut dialled = dialled_from(target);
        dialled.retain(|port| !before.contains(port));
        assert!(!dialled.is_empty(), "{what}");
        for port in dialled {
            is_probed(&format!("the target of {what}"), port, target, at_target);
        }
    }
    let undecided = connect(http);
    is_probed("a visitor of a door", http, undecided.local_addr().unwrap().port(), 120);
    let scraper = connect(admin);
    is_probed("a client of the admin API", admin, scraper.local_addr().unwrap().port(), 120);
    let mut silent = connect(never);
    silent.write_all(b"!").unwrap();
    silent.read_exact(&mut [0]).unwrap();
    assert_eq!(keepalive(never, silent.local_addr().unwrap().port()), None);
}

/// Connects to a port and says nothing, until the queue is full.
fn silent(port: u16, count: usize) -> Vec<TcpStream> {
    (0..count).filter_map(|_| try_connect(port).ok()).collect()
}

/// The longest wait of a visitor: five times the second that a neighbour may cost. It was over 6 s
/// when a client could take all descriptors.
const PATIENCE: Duration = Duration::from_secs(5);

/// The echo of a byte within [`PATIENCE`].
fn is_served(port: u16) -> io::Result<()> {
    let mut visitor = connect(port);
    visitor.set_read_timeout(Some(PATIENCE))?;
    visitor.write_all(b"!")?;
    visitor.read_exact(&mut [0])
}

#[test]
fn visitors_of_one_client_leave_descriptors_for_those_of_another() {
    let (origin, pages) = (Origin::echo(), web());
    let (target, pages) = (origin.port(), pages.port());
    let mut setup = Setup::new(Scheme::TLS);
    let [a, a_http, b, http] = [(); 4].map(|()| free_port());
    setup.allow.extend([a, a_http]);
    setup.server_starter = ["prlimit", "--nofile=256:256"].map(OsString::from).into();
    let token = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";
    setup.more_rights.push("http: [a.example]".into());
    writeln!(
        setup.server_lines,
        "  - {{ name: other, token: \"{token}\", allow: {{ tcp: [\"{b}\"], http: [b.example] }} }}\n\
         http: {{ listen: [\"127.0.0.1:{http}\"] }}"
    )
    .unwrap();
    write!(
        setup.client_lines,
        "services:\n\
         \x20 - {{ name: a, target: \"{target}\", public: \"tcp://:{a}\" }}\n\
         \x20 - {{ name: web, target: \"{pages}\", public: \"http://a.example\" }}\n"
    )
    .unwrap();
    let running = setup.start();
    wait_listening(a, SOON);
    let home = fs::read_to_string(running.file("client.yaml")).unwrap();
    let home = home.split("token: \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let _other = running.start_another_client(|text| {
        let text = text.replace("name: home", "name: other").replace(&home, token);
        let text = text.replace(&format!("tcp://:{a}"), &format!("tcp://:{b}"));
        text.replace("a.example", "b.example")
    });
    wait_listening(b, SOON);
    running.wait_echo(a);
    running.wait_echo(b);

    let is_web_served = || {
        let mut visitor = connect(http);
        visitor.set_read_timeout(Some(PATIENCE)).unwrap();
        visitor.write_all(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n")?;
        let mut answer = [0; OK.len()];
        visitor.read_exact(&mut answer)?;
        assert_eq!(answer, OK);
        io::Result::Ok(())
    };
    // At the port of A.
    let crowd = silent(a, 400);
    running.server.wait_line(&["visitors wait", "share of the descriptors"], SOON);
    is_served(b).unwrap();
    is_web_served().unwrap();
    drop(crowd);
    running.wait_echo(a);
    // At the name of A, on kept connections.
    let crowd: Vec<_> = (0..400)
        .filter_map(|_| {
            let mut visitor = try_connect(http).ok()?;
            visitor.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").ok()?;
            Some(visitor)
        })
        .collect();
    is_served(b).unwrap();
    is_web_served().unwrap();
    drop(crowd);
    // At the door, without a word: the oldest leaves.
    let crowd = silent(http, 400);
    is_served(b).unwrap();
    is_web_served().unwrap();
    drop(crowd);
}
