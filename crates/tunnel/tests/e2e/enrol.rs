//! `tunnel enroll`: a new client logs in with a one-time code.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testkit::stage::{Daemon, Running};

use crate::harness::{
    Origin, SOON, Scheme, Setup, binary, connect, free_port, program, run, try_connect, tunnel,
    wait,
};
use crate::reload::{echo, outcome};

pub(crate) type Said = (Option<i32>, String, String);

/// `tunnel enroll …` of the running server.
pub(crate) fn enroll(running: &Running, args: &[&str]) -> Said {
    let control = running.file("server.sock");
    let mut command = tunnel(&["enroll", "--control"]);
    outcome(run(command.arg(control).args(args)))
}

/// The code in what was said.
fn code_in(said: &str) -> String {
    let code = said.split_whitespace().find(|word| word.starts_with("enroll1."));
    code.unwrap_or_else(|| panic!("no code in {said}")).to_owned()
}

pub(crate) fn code(running: &Running, args: &[&str]) -> String {
    let (exit, said, complaint) = enroll(running, args);
    assert_eq!((exit, complaint.as_str()), (Some(0), ""), "{said}");
    code_in(&said)
}

/// A free port that a client may publish by default.
pub(crate) fn default_port() -> u16 {
    let range = 10_000..=10_999;
    // Tests run at the same time in processes of their own.
    let first = range.start() + (std::process::id() % 500) as u16;
    let mut ports = (first..=*range.end()).filter(|port| TcpListener::bind(("::", *port)).is_ok());
    ports.next().unwrap()
}

/// `tunnel allow …` of the running server.
pub(crate) fn allow(running: &Running, args: &[&str]) -> Said {
    let control = running.file("server.sock");
    outcome(run(tunnel(&["allow", "--control"]).arg(control).args(args)))
}

/// `tunnel client --enroll CODE …` with its file in `dir`.
pub(crate) fn redeem(dir: &Path, code: &str, args: &[&str]) -> Command {
    let mut command = tunnel(&["client", "--enroll", code, "--config"]);
    command.arg(dir.join("home.yaml")).arg("--control").arg(dir.join("c.sock")).args(args);
    command.env("HOME", dir);
    command
}

/// What has to fail.
pub(crate) fn refused(dir: &Path, code: &str, args: &[&str]) -> Said {
    let said = outcome(run(&mut redeem(dir, code, args)));
    assert_eq!(said.1, "");
    said
}

/// Ends a server that runs below another program, which only takes its terminal away.
struct Below<'a>(&'a Path);

impl Drop for Below<'_> {
    fn drop(&mut self) {
        let number = fs::read_to_string(self.0.join("lock")).unwrap_or_default();
        drop(Command::new("kill").args(["-9", number.trim()]).output());
    }
}

#[test]
fn two_commands_on_two_machines_publish_a_port() {
    let (server, client) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (origin, port, public) = (Origin::echo(), free_port(), free_port());
    // Only a terminal is shown the code.
    let mut command = Command::new(program("script"));
    let binary = binary();
    let binary = binary.display();
    let line = format!(
        "{binary} server --listen tls://127.0.0.1:{port} --state-dir {} --enroll home \
         --allow-tcp {public}",
        server.path().join("state").display()
    );
    command.args(["-qfec", &line, "/dev/null"]).env("HOME", server.path()).env("NO_COLOR", "1");
    command.env_remove("NOTIFY_SOCKET");
    let mut first = Daemon::start("server", server.path(), &mut command);
    let state = server.path().join("state");
    let below = Below(&state);
    let said = first.wait_line(&["tunnel client --enroll "], SOON);
    let publish = format!("tcp://:{public}=tcp://127.0.0.1:{}", origin.port());
    let mut command = redeem(client.path(), &code_in(&said), &["--publish", &publish]);
    let mut second = Daemon::start("client", client.path(), &mut command);
    second.wait_line(&["client `home` is enrolled", "home.yaml"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    echo(&connect(public), 1);
    let file = client.path().join("home.yaml");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = server.path().join("state/clients/home.yaml");
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    // What the client logs in with is nowhere on the server.
    let text = fs::read_to_string(&file).unwrap();
    let token = text.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    assert!(!fs::read_to_string(&kept).unwrap().contains(token.trim_matches('"')));
    assert!(!first.log().contains("refused our certificate"), "{}", first.log());

    // The same two commands again: what they made is used, and no new door opens.
    second.terminate();
    second.wait_end(SOON);
    drop(below);
    first.wait_end(SOON);
    let mut command = Command::new(program("script"));
    command.args(["-qfec", &line, "/dev/null"]).env("HOME", server.path()).env("NO_COLOR", "1");
    let first = Daemon::start("server again", server.path(), &mut command);
    let _below = Below(&state);
    first.wait_line(&["client `home` has been enrolled already"], SOON);
    let mut command = redeem(client.path(), &code_in(&said), &[]);
    let second = Daemon::start("client again", client.path(), &mut command);
    second.wait_line(&["is there already: the code is not used"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    echo(&connect(public), 2);
    assert!(!first.log().contains("enroll1."));
}

#[test]
fn a_joined_code_enrols_at_each_server() {
    let (origin, public) = (Origin::echo(), default_port());
    let servers = [Setup::new(Scheme::TLS).start_server(), Setup::new(Scheme::TLS).start_server()];
    let of_second = code(&servers[1], &["away"]);
    let (exit, _, complaint) = enroll(&servers[0], &["else", "--add", &of_second]);
    assert_eq!(exit, Some(2), "{complaint}");
    assert!(complaint.contains("--add: a code of client `away`, not of `else`"), "{complaint}");
    let joined = code(&servers[0], &["away", "--add", &of_second]);
    assert!(!joined.contains(&of_second), "each server's code is whole inside");
    let dir = TempDir::new().unwrap();
    let publish = format!("tcp://:{public}=tcp://127.0.0.1:{}", origin.port());
    let mut command = redeem(dir.path(), &joined, &["--publish", &publish]);
    let mut client = Daemon::start("client", dir.path(), &mut command);
    client.wait_line(&["client `away` is enrolled", "home.yaml"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    echo(&connect(public), 1);
    let text = fs::read_to_string(dir.path().join("home.yaml")).unwrap();
    assert!(text.contains("\nuse: failover\n"), "{text}");
    let tokens: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("    token: ")).collect();
    assert!(tokens.len() == 2 && tokens[0] != tokens[1], "{text}");
    client.terminate();
    client.wait_end(SOON);

    // A used code of the second server leaves the first server, and the file says so.
    let dir = TempDir::new().unwrap();
    let (exit, _, complaint) = enroll(&servers[1], &["--revoke", "away"]);
    assert_eq!(exit, Some(0), "{complaint}");
    let (exit, _, complaint) = enroll(&servers[0], &["--revoke", "away"]);
    assert_eq!(exit, Some(0), "{complaint}");
    let of_first = code(&servers[0], &["away"]);
    let by_hand = format!("{of_first}+{of_second}");
    let mut command = redeem(dir.path(), &by_hand, &["--publish", &publish]);
    let client = Daemon::start("client", dir.path(), &mut command);
    client.wait_line(&["home.yaml lacks a server", "the code is not good"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    let text = fs::read_to_string(dir.path().join("home.yaml")).unwrap();
    assert!(text.contains("    token: ") && !text.contains("use:"), "{text}");
    drop(client);

    // A second run with a good code of the second server adds that server alone.
    let of_second = code(&servers[1], &["away"]);
    let again = format!("{of_first}+{of_second}");
    let mut command = redeem(dir.path(), &again, &["--publish", &publish]);
    let client = Daemon::start("client", dir.path(), &mut command);
    client.wait_line(&["home.yaml is there already and lacks the server at"], SOON);
    client.wait_line(&["client `away` is enrolled at"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    let text = fs::read_to_string(dir.path().join("home.yaml")).unwrap();
    assert!(text.matches("token: ").count() == 2 && text.contains("use: failover"), "{text}");
}

#[test]
fn a_code_works_once_and_only_whole_and_gives_the_rights_it_was_made_with() {
    for scheme in [Scheme::TLS, Scheme::WSS, Scheme::TCP] {
        let origin = Origin::echo();
        let (public, other) = (free_port(), free_port());
        let running = Setup::new(scheme).start_server();
        let dir = TempDir::new().unwrap();
        let allowed = public.to_string();
        let code = code(&running, &["away", "--allow-tcp", &allowed]);
        for cut in ["", &code[..30], &code[..code.len() - 3]] {
            let (exit, _, complaint) = refused(dir.path(), cut, &[]);
            assert_eq!(exit, Some(2), "{complaint}");
            assert!(complaint.starts_with("--enroll: "), "{complaint}");
        }
        // What is wrong beside it does not cost it, nor does a server that is not there.
        let (exit, _, complaint) = refused(dir.path(), &code, &["--publish", "tcp://:1=tsl://a:1"]);
        assert_eq!(exit, Some(2));
        assert!(complaint.contains("--publish"), "{complaint}");
        let nobody = format!("tls://127.0.0.1:{}", free_port());
        let (exit, _, complaint) = refused(dir.path(), &code, &["--server", &nobody]);
        assert_eq!(exit, Some(1));
        assert!(complaint.contains("still good"), "{complaint}");
        assert!(!dir.path().join("home.yaml").exists());

        let publish = |port| format!("tcp://:{port}=tcp://127.0.0.1:{}", origin.port());
        let (mine, not_mine) = (publish(public), publish(other));
        let args = ["--publish", mine.as_str(), "--publish", &not_mine];
        let client = Daemon::start("client", dir.path(), &mut redeem(dir.path(), &code, &args));
        let advice = format!("add `{other}` to `allow.tcp`");
        client.wait_line(&["is not published", "not allowed to client `away`", &advice], SOON);
        wait("the service", SOON, || try_connect(public).ok());
        echo(&connect(public), 1);
        assert!(try_connect(other).is_err());

        let second = TempDir::new().unwrap();
        let (exit, _, complaint) = refused(second.path(), &code, &[]);
        assert_eq!(exit, Some(1));
        assert!(complaint.contains("the code is not good (any more)"), "{complaint}");
        assert_eq!(fs::read_dir(second.path()).unwrap().count(), 0, "nothing is left behind");
        running.server.wait_line(&["client `away`", "its code is not good (any more)"], SOON);
    }
}

/// Runs the command that a refusal has named last.
fn run_printed(running: &Running, said: &str) -> Said {
    let (_, command) = said.rsplit_once("or run there: tunnel allow ").unwrap();
    let args: Vec<_> = command.split_whitespace().collect();
    allow(running, &args)
}

#[test]
fn a_client_has_the_default_ports_and_a_refusal_names_the_command_that_gives_another() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).start_server();
    let (exit, said, _) = enroll(&running, &["away"]);
    assert_eq!(exit, Some(0));
    assert!(
        said.contains("Client `away` may publish ports 10000-10999 of TCP and UDP.\n"),
        "{said}"
    );
    let (dir, public) = (TempDir::new().unwrap(), default_port());
    let other = free_port();
    let publish = |port| format!("tcp://:{port}=tcp://127.0.0.1:{}", origin.port());
    let args = [public, 22, other].map(publish);
    let args: Vec<_> = args.iter().flat_map(|pair| ["--publish", pair]).collect();
    let mut command = redeem(dir.path(), &code_in(&said), &args);
    let client = Daemon::start("away", dir.path(), &mut command);
    let may = "`away` is enrolled; it may publish ports 10000-10999 of TCP and UDP; its config";
    client.wait_line(&[may], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    let at_22 = "add `22` to `allow.tcp` of this client on the server, or run there: \
                 tunnel allow away --tcp 22";
    let refusal = format!("tunnel allow away --tcp {other}");
    client.wait_line(&["tcp-22 is not published", at_22], SOON);
    running.server.wait_line(&["not published", at_22], SOON);
    running.server.wait_line(&["not published", &refusal], SOON);
    let line = client.wait_line(&["is not published", &refusal], SOON);
    let stays = connect(public);
    echo(&stays, 1);
    let file = running.file("state/clients/away.yaml");
    fs::write(&file, format!("{}# Mine.\n", fs::read_to_string(&file).unwrap())).unwrap();

    // Wrong values change nothing.
    let before = fs::read_to_string(&file).unwrap();
    for (args, word) in [
        (&["away", "--tcp", &other.to_string(), "x"][..], "--tcp: `x` is not a port"),
        (&["away", "--forward", "x"], "--forward: "),
        (&["nobody", "--tcp", "22"], "no client `nobody`"),
        (&["a b", "--tcp", "22"], "a name is 1 to 64"),
    ] {
        let (exit, said, complaint) = allow(&running, args);
        assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
        assert!(complaint.contains(word), "{complaint}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert!(try_connect(other).is_err());

    let both = format!("ports 10000-10999, {other}, UDP ports 10000-10999");
    let now = format!("client `away` may publish {both}\n");
    assert_eq!(run_printed(&running, &line), (Some(0), now.clone(), String::new()));
    wait("the service that waited", SOON, || try_connect(other).ok());
    echo(&connect(other), 2);
    client.wait_line(&[&format!("service tcp-{other} is published at ")], SOON);
    running.server.wait_line(&["rights were added", "away"], SOON);
    let after = fs::read_to_string(&file).unwrap();
    assert_eq!(after, before.replacen("10999\"]", &format!("10999\", {other}]"), 1));
    // The second time it is there already, and it is what a reload reads.
    assert_eq!(run_printed(&running, &line).1, now);
    assert_eq!(fs::read_to_string(&file).unwrap(), after);
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
    echo(&stays, 3);
}

#[test]
fn a_client_of_the_file_gets_a_right_and_nothing_else_of_the_file_is_applied() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let mut running = setup.start_server();
    let port = running.public("echo");
    running.edit_server(|text| {
        text.replace(&format!("tcp: [\"{port}\"]"), "tcp: [1]")
            .replace("clients:\n", "clients: # Mine.\n")
    });
    assert_eq!(outcome(running.reload("server")).1, "client home changed\n");
    running.start_client();
    let refusal = format!("or run there: tunnel allow home --tcp {port}");
    let line = running.client().wait_line(&["echo is not published", &refusal], SOON);
    running.server.wait_line(&["not published", &refusal], SOON);
    // A change that waits for a reload goes on waiting.
    running.edit_server(|text| {
        let token = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";
        text.replace("# Mine.\n", &format!("# Mine.\n  - {{ name: new, token: {token} }}\n"))
    });
    let now = format!("client `home` may publish ports 1, {port}\n");
    assert_eq!(run_printed(&running, &line), (Some(0), now, String::new()));
    running.wait_echo(port);
    let text = fs::read_to_string(running.file("server.yaml")).unwrap();
    assert!(text.contains(&format!("tcp: [1, {port}]")) && text.contains("# Mine."), "{text}");
    assert_eq!(outcome(running.reload("server")).1, "client new added\n");
}

#[test]
fn who_was_enrolled_stays_after_a_restart_and_goes_when_it_is_revoked() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let mut running = setup.start();
    let (dir, public) = (TempDir::new().unwrap(), default_port());
    let publish = format!("tcp://:{public}=tcp://127.0.0.1:{}", origin.port());
    let first = code(&running, &["away"]);
    let mut command = redeem(dir.path(), &first, &["--publish", &publish]);
    let client = Daemon::start("away", dir.path(), &mut command);
    wait("the service", SOON, || try_connect(public).ok());
    let stays = connect(running.public("echo"));
    echo(&stays, 1);
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
    running.server.kill();
    running.server.wait_end(SOON);
    running.start_server_again();
    wait("the service", SOON, || try_connect(public).ok());

    // Another machine under the same name: the first one is out.
    let (again, moved) = (TempDir::new().unwrap(), free_port());
    let publish = format!("tcp://:{moved}=tcp://127.0.0.1:{}", origin.port());
    assert_eq!(allow(&running, &["away", "--tcp", &moved.to_string()]).0, Some(0));
    let second = code(&running, &["--renew", "away"]);
    let mut command = redeem(again.path(), &second, &["--publish", &publish]);
    let successor = Daemon::start("away again", again.path(), &mut command);
    wait("the other service", SOON, || try_connect(moved).ok());
    client.wait_line(&["wrong token"], SOON);
    wait("the end of the first service", SOON, || try_connect(public).err());

    running.wait_echo(running.public("echo"));
    let stays = connect(running.public("echo"));
    echo(&stays, 2);
    let (exit, said, _) = enroll(&running, &["--revoke", "away"]);
    assert_eq!((exit, said.as_str()), (Some(0), "client away removed: its connections end\n"));
    wait("the end of the service", SOON, || try_connect(moved).err());
    successor.wait_line(&["wrong token"], SOON);
    assert_eq!(enroll(&running, &["--revoke", "away"]).0, Some(1));
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
    echo(&stays, 3);
}

#[test]
fn a_name_that_is_configured_meanwhile_is_not_taken_by_its_code() {
    let running = Setup::new(Scheme::TLS).start();
    let given = code(&running, &["away"]);
    let token = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";
    running.edit_server(|text| {
        text.replace("clients:\n", &format!("clients:\n  - {{ name: away, token: {token} }}\n"))
    });
    assert_eq!(outcome(running.reload("server")).1, "client away added\n");
    let dir = TempDir::new().unwrap();
    let (exit, _, complaint) = refused(dir.path(), &given, &[]);
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("not good (any more)"), "{complaint}");
    // The configured one is neither replaced nor put out.
    // A code that nobody has used can be taken back.
    let unused = code(&running, &["third"]);
    assert_eq!(enroll(&running, &["--revoke", "third"]).0, Some(0));
    assert_eq!(refused(dir.path(), &unused, &[]).0, Some(1));
    assert_eq!(enroll(&running, &["--revoke", "away"]).0, Some(2));
    assert_eq!(outcome(running.reload("server")).1, "nothing to apply\n");
}

#[test]
fn a_system_without_authorities_comes_in_by_the_pin_and_gets_no_plain_way() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    let plain = format!("tcp://127.0.0.1:{}", free_port());
    setup.more_listen.push(plain.clone());
    let running = setup.start_server();
    let (dir, public) = (TempDir::new().unwrap(), default_port());
    let given = code(&running, &["away"]);
    let publish = format!("tcp://:{public}=tcp://127.0.0.1:{}", origin.port());
    let file = dir.path().join("code");
    fs::write(&file, format!("{given}\n")).unwrap();
    let inner = redeem(dir.path(), "-", &["--publish", &publish]);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" < \"$CODE\"", "sh"]).env("CODE", &file);
    command.arg(inner.get_program()).args(inner.get_args()).env("HOME", dir.path());
    command.env("NO_COLOR", "1").env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nowhere");
    let client = Daemon::start("away", dir.path(), &mut command);
    client.wait_line(&["connected to tls://"], SOON);
    wait("the service", SOON, || try_connect(public).ok());
    let made = fs::read_to_string(dir.path().join("home.yaml")).unwrap();
    assert!(made.contains("pin: \"sha256:"), "{made}");
    assert!(!made.contains(&plain), "{made}");
    assert!(!client.log().contains(&given));
}

#[test]
fn a_server_whose_client_was_enrolled_starts_without_a_flag_as_well() {
    let (dir, port) = (TempDir::new().unwrap(), free_port());
    let listen = format!("tls://127.0.0.1:{port}");
    let state = dir.path().join("state");
    let start = |name: &str, more: &[&str]| {
        let mut command = tunnel(&["server", "--listen", &listen, "--state-dir"]);
        command.arg(&state).args(more).env("HOME", dir.path());
        Daemon::start(name, dir.path(), &mut command)
    };
    let rights = ["--enroll", "home", "--allow-tcp", "8080"];
    let mut first = start("first", &rights);
    // Off a terminal the log has no code, and the command that has gives the same rights.
    first.wait_line(&["tunnel enroll home --allow-tcp '8080'"], SOON);
    first.wait_line(&["serving clients on"], SOON);
    let control = state.join("server.sock");
    let mut command = tunnel(&["enroll", "home", "--allow-tcp", "8080", "--control"]);
    let (exit, said, _) = outcome(run(command.arg(&control)));
    assert_eq!(exit, Some(0));
    let mut command =
        redeem(dir.path(), &code_in(&said), &["--forward", "tcp://127.0.0.1:0=tcp://a:1"]);
    let mut client = Daemon::start("client", dir.path(), &mut command);
    client.wait_line(&["connected to"], SOON);
    first.terminate();
    first.wait_end(SOON);
    let again = start("again", &[]);
    again.wait_line(&["client home has connected"], SOON);
    assert!(!state.join("home.token").exists());
    client.terminate();
    client.wait_end(SOON);
}

#[test]
fn what_cannot_be_enrolled_is_told_and_a_wrong_file_of_a_client_changes_nothing() {
    let mut running = Setup::new(Scheme::TLS).start();
    for (args, word) in [
        (&["home"][..], "in the server's configuration"),
        (&["a b"], "a name is 1 to 64"),
        (&["away", "--allow-tcp", "x"], "--allow-tcp: `x` is not a port"),
        (&["away", "--allow-forward", "x"], "--allow-forward: "),
    ] {
        let (exit, said, complaint) = enroll(&running, args);
        assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
        assert!(complaint.contains(word), "{complaint}");
    }
    let control = running.file("client.sock");
    let (exit, _, complaint) = outcome(run(tunnel(&["enroll", "away", "--control"]).arg(&control)));
    assert_eq!(exit, Some(1));
    assert!(complaint.contains("this is a client"), "{complaint}");

    // Files that somebody has put there.
    let folder = running.file("state/clients");
    fs::create_dir_all(&folder).unwrap();
    let token = "token: \"q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi\"\n";
    for (file, text, word) in [
        ("away.yaml", "name: other\n", "belongs in another file"),
        ("home.yaml", "name: home\n", "is in the configuration, too"),
        ("away.yaml", "name: away\nalow: {}\n", "away.yaml:2:1: alow"),
    ] {
        fs::write(folder.join(file), format!("{text}{token}")).unwrap();
        let (exit, said, complaint) = outcome(running.reload("server"));
        assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
        assert!(complaint.contains(word), "{complaint}");
        fs::remove_file(folder.join(file)).unwrap();
    }
    let client = running.client();
    assert!(client.is_running());
}

/// What is started by these words has a folder on a disk of 16 KiB as its `$1`, which is full until
/// the first command has ended. The command is run twice.
const ON_A_FULL_DISK: &str = "mount -t tmpfs -o size=16k none \"$1\" && \
    { cat /dev/zero >\"$1/full\" 2>/dev/null || true; } && full=\"$1/full\" && shift && \
    { \"$@\" && echo unexpected || echo \"exit code $?\" >&2; } && rm \"$full\" && exec \"$@\"";

#[test]
fn a_full_disk_of_the_client_does_not_use_up_the_code() {
    let running = Setup::new(Scheme::TLS).start_server();
    let dir = TempDir::new().unwrap();
    let words = ["--mount", "--propagation", "private", "sh", "-c"];
    let mut trial = Command::new("unshare");
    trial.args(words).arg("mount -t tmpfs none \"$1\"").arg("sh").arg(dir.path());
    let trial = run(&mut trial);
    if !trial.status.success() {
        let reason = String::from_utf8_lossy(&trial.stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        println!("not shown here: {reason}");
        return;
    }
    let code = code(&running, &["away"]);
    let client = redeem(dir.path(), &code, &[]);
    let mut command = Command::new("unshare");
    command.args(words).arg(ON_A_FULL_DISK).arg("sh").arg(dir.path());
    command.arg(client.get_program()).args(client.get_args()).env("HOME", dir.path());
    command.env_remove("NOTIFY_SOCKET");
    let client = Daemon::start("client", running.dir(), &mut command);
    client.wait_line(&["home.yaml", "still good", "No space left on device"], SOON);
    client.wait_line(&["exit code 1"], SOON);
    client.wait_line(&["client `away` is enrolled"], SOON);
    running.server.wait_line(&["client away has connected"], SOON);
    assert!(!client.log().contains("is there already"), "{}", client.log());
}
