//! What a person sees at a terminal of 80 columns: no line is longer, columns leave in the order of
//! their worth, and only states have a colour.

use std::process::Command;

use testkit::stage::Running;

use crate::harness::{Origin, Scheme, Setup, binary, program, run};

/// Runs a command at a pseudo-terminal of this many columns, and writes what it says.
const TERMINAL: &str = "
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    size = struct.pack('HHHH', 24, int(sys.argv[1]), 0, 0)
    fcntl.ioctl(0, termios.TIOCSWINSZ, size)
    os.execv(sys.argv[2], sys.argv[2:])
said = b''
while True:
    try:
        more = os.read(terminal, 65536)
    except OSError:
        break
    if not more:
        break
    said += more
os.waitpid(pid, 0)
sys.stdout.buffer.write(said.replace(b'\\r\\n', b'\\n'))
";

fn at_terminal(columns: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(program("python3"));
    command.args(["-c", TERMINAL, &columns.to_string()]).arg(binary()).args(arguments);
    command.env_remove("COLUMNS").env("TERM", "xterm").env("NO_COLOR", "1");
    command
}

fn said(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `tunnel …` of the daemon of this role, at a terminal.
fn ask(running: &Running, role: &str, columns: usize, arguments: &[&str]) -> Command {
    let mut command = at_terminal(columns, arguments);
    command.arg("--control").arg(running.file(&format!("{role}.sock")));
    command
}

fn assert_fits(text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "{line:?} in\n{text}");
    }
}

#[test]
fn tables_fit_a_terminal_of_80_columns_and_wide_shows_all() {
    let origin = Origin::echo();
    let long = "a-service-whose-name-is-longer-than-most-names-of-services-are";
    let setup = Setup::new(Scheme::TLS).service(long, origin.port()).service("b", origin.port());
    let running = setup.start();
    running.wait_links(2);
    for role in ["server", "client"] {
        let text = said(&mut ask(&running, role, 80, &["status"]));
        assert_fits(&text, 80);
        for shown in ["a-service-whose", "…", "127.0.0.1:", "up", "--wide shows all"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        let text = said(&mut ask(&running, role, 80, &["status", "--wide"]));
        for shown in [long, "total", "worker", "queue"] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(!text.contains("--wide"), "{text}");
    }
    let lists = [&["clients"][..], &["clients", "show", "home"], &["streams"]];
    for (arguments, columns) in lists.iter().flat_map(|of| [(of, 80), (of, 60)]) {
        assert_fits(&said(&mut ask(&running, "server", columns, arguments)), columns);
    }
    // A chosen width goes before that of the terminal.
    let mut chosen = ask(&running, "server", 80, &["status"]);
    assert!(said(chosen.env("COLUMNS", "300")).contains(long));
    // A pipe gets everything, and no colour.
    let socket = running.file("server.sock");
    let mut piped = crate::harness::tunnel(&["status", "--control"]);
    let text = said(piped.arg(socket).env_remove("NO_COLOR"));
    assert!(text.contains(long) && text.contains("worker") && !text.contains('\u{1b}'), "{text}");
}

/// Runs a command at a pseudo-terminal of this many rows until it has cleared the screen three
/// times, and writes the text of one screen.
const WATCHED: &str = "
import fcntl, os, pty, signal, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    size = struct.pack('HHHH', int(sys.argv[1]), 80, 0, 0)
    fcntl.ioctl(0, termios.TIOCSWINSZ, size)
    os.execv(sys.argv[2], sys.argv[2:])
clear, said = b'\\x1b[H\\x1b[J', b''
while said.count(clear) < 3:
    said += os.read(terminal, 65536)
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
sys.stdout.buffer.write(said.split(clear)[2].replace(b'\\r\\n', b'\\n'))
";

#[test]
fn a_watched_status_fits_the_height_of_its_terminal() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    for n in 0..20 {
        setup = setup.service(&format!("service-{n}"), origin.port());
    }
    let running = setup.start();
    running.wait_links(2);
    let watched = |rows: usize| {
        let mut command = Command::new(program("python3"));
        command.args(["-c", WATCHED, &rows.to_string()]).arg(binary());
        command.args(["status", "--watch", "1", "--control"]).arg(running.file("server.sock"));
        command.env_remove("COLUMNS").env_remove("LINES").env("TERM", "xterm");
        said(command.env("NO_COLOR", "1"))
    };
    let text = watched(20);
    assert_eq!(text.lines().count(), 19, "the last row is that of the cursor: {text}");
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("… and ") && last.ends_with(" more lines"), "{text}");
    assert!(text.starts_with("tunnel server ") && text.contains("service-0"), "{text}");
    let text = watched(60);
    assert!(text.contains("service-19") && !text.contains("more lines"), "{text}");
}

#[test]
fn states_are_green_at_a_terminal_unless_its_user_wants_no_colours() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    running.wait_links(2);
    let green = "\u{1b}[32mup\u{1b}[0m";
    let mut colours = ask(&running, "server", 80, &["status"]);
    let text = said(colours.env_remove("NO_COLOR"));
    assert!(text.contains(green) && text.contains("\u{1b}[32mrunning\u{1b}[0m"), "{text}");
    let text = said(&mut ask(&running, "server", 80, &["status"]));
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn help_and_problems_are_broken_at_blanks() {
    for arguments in [&["--help"][..], &["client", "--help"], &["server", "--help"]] {
        assert_fits(&said(&mut at_terminal(80, arguments)), 80);
    }
    let socket = "/nonexistent/a/folder/server.sock";
    for wrong in [
        &["status", "--control", socket][..],
        &["client", "--forward", "10022", "--config", socket],
        &["clients", "limit", "home"],
    ] {
        let output = run(&mut at_terminal(64, wrong));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() > 1, "{text}");
        assert_fits(&text, 64);
    }
}
