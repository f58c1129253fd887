//! `tunnel connect`: standard streams to a target, as ssh's ProxyCommand.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::harness::{
    Origin, SOON, Scheme, Setup, binary, bytes, free_port, program, run, side_by_side, start_sshd,
    tunnel,
};

const MB: u64 = 1_000_000;

#[test]
fn ssh_and_rsync_run_over_tunnel_connect() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let mut setup = Setup::new(scheme);
        let (port, _sshd, options) = start_sshd(setup.dir());
        setup.more_targets.push(format!("127.0.0.1:{port}"));
        let mut running = setup.start();
        running.client().wait_line(&["is connected to"], SOON);
        let socket = running.file("client.sock");
        let command = format!(
            "ProxyCommand={} connect --control {} %h:%p",
            binary().display(),
            socket.display()
        );
        let ssh = || {
            let mut ssh = Command::new(program("ssh"));
            ssh.args(&options).args(["-o", &command, "-p", &port.to_string()]);
            ssh
        };
        let output = run(ssh().args(["127.0.0.1", "echo over $((40 + 2))"]));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "over 42\n");

        let [from, to] = ["from", "to"].map(|name| running.file(name));
        fs::create_dir(&from).unwrap();
        bytes::send(File::create(from.join("big")).unwrap(), 20 * MB);
        let words: Vec<_> = options.iter().map(|word| format!("'{word}'")).collect();
        let shell = format!("ssh {} -o '{command}' -p {port}", words.join(" "));
        let mut rsync = Command::new(program("rsync"));
        rsync.args(["--archive", "--rsh", &shell]).arg(&from);
        let output = run(rsync.arg(format!("127.0.0.1:{}", to.display())));
        assert!(output.status.success(), "{output:?}");
        bytes::expect(File::open(to.join("from/big")).unwrap(), 20 * MB);
    });
}

#[test]
fn both_directions_end_on_their_own_and_a_refusal_has_its_reason() {
    // Reads to the end, then answers.
    let origin = Origin::start(|stream| {
        bytes::expect(&stream, 3 * MB);
        bytes::expect_end(&stream);
        bytes::send(&stream, 3 * MB);
    });
    let (mut setup, closed) = (Setup::new(Scheme::TLS), free_port());
    setup.more_targets.extend([origin.port(), closed].map(|port| format!("127.0.0.1:{port}")));
    let mut running = setup.start();
    running.client().wait_line(&["is connected to"], SOON);
    let socket = running.file("client.sock");
    let connect = |target: String| {
        let mut command = tunnel(&["connect", &target]);
        command.arg("--control").arg(&socket);
        command
    };
    let mut command = connect(format!("127.0.0.1:{}", origin.port()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let sender = std::thread::spawn(move || {
        bytes::send(&mut input, 3 * MB);
        input.flush().unwrap();
    });
    bytes::expect(output, 3 * MB);
    sender.join().unwrap();
    assert!(child.wait().unwrap().success());

    for (target, word) in [
        (format!("127.0.0.1:{closed}"), "refused"),
        (format!("127.0.0.1:{}", free_port()), "allow.forward"),
        ("127.0.0.1".to_owned(), "port"),
    ] {
        let refused = run(connect(target.clone()).stdin(Stdio::null()));
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains(word), "{target}: {error}");
        assert!(refused.stdout.is_empty());
    }
}
