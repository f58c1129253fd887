//! `basic_auth` with hashes of passwords, and `basic_auth_file`.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::origin::Web;
use super::{Doors, curl};
use crate::harness::{SOON, Scheme, binary, program, run, tunnel, wait};

/// The status of a request with this user and password.
fn ask(http: u16, url: &str, pair: &str) -> String {
    let output = curl(http, &["-o", "/dev/null", "-w", "%{http_code}", "-u", pair, url]);
    String::from_utf8(output.stdout).unwrap()
}

/// A line `ann:hash` that `tunnel generate password` makes.
fn generated(user: &str, password: &str) -> String {
    let mut command = tunnel(&["generate", "password", user]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{password}\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Lines as `htpasswd -nB` makes them, with the test vectors of OpenWall's crypt_blowfish, and one
/// of `htpasswd -nm`.
const BOB: &str = "bob:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
const DAN: &str = "dan:$2y$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK";
const WEAK: &str = "bob:$apr1$gpsX5z4k$ZsmjUHzHDxZdNvm8zDx4i/";

#[test]
fn hashes_of_both_kinds_admit_and_a_changed_file_is_published_without_a_reload() {
    let doors = Doors::new(Scheme::TCP);
    let dir = doors.setup.dir().to_owned();
    let users = dir.join("users");
    fs::write(&users, format!("# people\n{}\n", BOB)).unwrap();
    let web = Web::start(&dir, "web");
    let http = doors.http;
    let keys = format!(
        ", basic_auth: [\"{}\", \"eve:plain password\"], basic_auth_file: \"{}\"",
        generated("ann", "her password"),
        users.display()
    );
    let mut running = doors.start(&[("http://a.example", web.port, &keys)]);
    let url = "http://a.example/";
    for (pair, status) in [
        ("ann:her password", "200"),
        ("bob:U*U", "200"),
        ("eve:plain password", "200"),
        ("ann:U*U", "401"),
        ("nobody:her password", "401"),
    ] {
        assert_eq!(ask(http, url, pair), status, "{pair}");
    }
    // A bad file changes nothing and says why.
    fs::write(&users, format!("{}\n", WEAK)).unwrap();
    running.client().wait_line(&["basic_auth_file", "line 1", "tunnel generate password"], SOON);
    assert_eq!(ask(http, url, "bob:U*U"), "200");
    fs::write(&users, format!("{}\n", DAN)).unwrap();
    wait("the changed file is published", SOON, || {
        (ask(http, url, "dan:U*U*") == "200").then_some(())
    });
    assert_eq!(ask(http, url, "bob:U*U"), "401", "who is gone stays out");
    assert_eq!(ask(http, url, "ann:her password"), "200");
}

/// Runs a program at a terminal of its own, types when the terminal is silent, and tells how the
/// program ended and what the terminal was and is.
const TERMINAL: &str = r#"
import fcntl, os, pty, signal, subprocess, sys, termios, time
typed, program = sys.argv[1], sys.argv[2:]
ours, theirs = pty.openpty()
before = termios.tcgetattr(theirs)
def prepare():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # A suite in the background ignores these signals, and its programs would do so as well.
    for name in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)
child = subprocess.Popen(program, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
    start_new_session=True, preexec_fn=prepare)
while termios.tcgetattr(theirs)[3] & termios.ECHO:
    assert child.poll() is None, child.returncode
    time.sleep(0.01)
if typed.startswith('SIG'):
    os.write(ours, b'sec')
    child.send_signal(getattr(signal, typed))
else:
    os.write(ours, typed.encode().decode('unicode_escape').encode('latin1'))
said = child.communicate(timeout=60)[0].decode()
same = termios.tcgetattr(theirs) == before
print(child.returncode, 'as before' if same else 'changed', said[:9].strip())
"#;

#[test]
fn a_signal_at_the_prompt_for_a_password_leaves_the_terminal_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("terminal.py");
    fs::write(&script, TERMINAL).unwrap();
    for (typed, outcome) in [
        // A signal ends the program.
        (r"secret\x03", "-2 as before"),
        (r"secret\x1c", "-3 as before"),
        // The signal of another program as well.
        ("SIGTERM", "-15 as before"),
        ("SIGHUP", "-1 as before"),
        ("SIGINT", "-2 as before"),
        ("SIGQUIT", "-3 as before"),
        (r"secreX\x7ft\n", "0 as before $argon2id"),
        // Arrow keys and the like belong to no password.
        (r"sec\x1b[Dret\n", "2 as before"),
        (r"secret\x1a\n", "2 as before"),
        // The end of the input ends the password, too.
        (r"secret\x04\x04", "0 as before $argon2id"),
    ] {
        let mut python = Command::new(program("python3"));
        // A core of the program would be there.
        python.current_dir(dir.path());
        python.arg(&script).arg(typed).arg(binary()).args(["generate", "password"]);
        let done = run(&mut python);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(said.trim(), outcome, "{typed}: {done:?}");
    }
}
