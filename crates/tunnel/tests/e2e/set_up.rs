//! A start without parameters in a terminal: the link to the set-up page, and what the page writes.
//! The page in a browser is in `tests/console/setup.mjs`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::stage::Daemon;

use crate::enrol::code;
use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, binary, connect, free_port, program, run, try_connect, wait,
};
use crate::reload::{echo, outcome};

/// What a start without parameters prints before its link.
const SAID: &str =
    "Set up in a browser of this machine, once and within 15 minutes: http://127.0.0.1:";

/// A shell line in a terminal of its own, in this folder and with a home there.
fn in_terminal(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(program("script"));
    command.args(["-qfec", line, "/dev/null"]).current_dir(dir);
    at_home(&mut command, dir);
    command
}

/// Folders of its own for a start that names none: the folders of this machine serve one server at
/// a time, and the cases run side by side.
fn at_home(command: &mut Command, dir: &Path) {
    command.env("HOME", dir).env("NO_COLOR", "1").env_remove("NOTIFY_SOCKET");
    command.env("STATE_DIRECTORY", dir.join("state")).env("RUNTIME_DIRECTORY", dir.join("run"));
}

/// The command in a network of its own, where the default port of a server is free. `None`: this
/// machine gives no network.
fn in_a_network(inner: Command) -> Option<Command> {
    let mut trial = Command::new("unshare");
    let trial = run(trial.args(["--net", "true"]));
    if !trial.status.success() {
        let reason = String::from_utf8_lossy(&trial.stderr).into_owned();
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        println!("not shown here: {reason}");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command.current_dir(inner.get_current_dir()?);
    at_home(&mut command, inner.get_current_dir()?);
    Some(command)
}

/// The set-up page behind a link, as a browser asks it.
struct Page {
    place: String,
    /// Words before `curl`.
    before: Vec<String>,
    token: String,
}

impl Page {
    /// Asks, with this token, `-` for a body of JSON.
    fn ask(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> (u16, Value) {
        let mut words = self.before.clone();
        words.push(program("curl").display().to_string());
        let mut curl = Command::new(words.remove(0));
        curl.args(words).args(["--silent", "--write-out", "\n%{http_code}", "--request", method]);
        curl.args(["--header", &format!("Authorization: Bearer {token}")]);
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data", &body.to_string()]);
        }
        let output = run(curl.arg(format!("{}{path}", self.place)));
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
    }

    /// Swaps the key of the link, which is good once.
    fn open(daemon: &Daemon, before: Vec<String>) -> Self {
        let line = daemon.wait_line(&[SAID], SOON);
        let at = line.find("http://").unwrap();
        let (place, key) = line[at..].trim().split_once("/#k=").unwrap();
        let page = Self { place: place.to_owned(), before, token: String::new() };
        let begin = || page.ask("POST", "/api/v1/sessions", key, None);
        let (status, begun) = begin();
        assert_eq!(status, 201, "{begun}");
        assert_eq!(begin().0, 401, "the key was used");
        Self { token: begun["token"].as_str().unwrap().to_owned(), ..page }
    }

    fn order(&self, path: &str, plan: &Value) -> (u16, Value) {
        self.ask("POST", path, &self.token, Some(plan))
    }
}

#[test]
fn a_client_is_set_up_by_the_page_and_serves() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).start_server();
    let (dir, public) = (TempDir::new().unwrap(), free_port());
    let code = code(&running, &["away", "--allow-tcp", &public.to_string()]);
    let line = format!("{} client", binary().display());
    let client = Daemon::start("client", dir.path(), &mut in_terminal(dir.path(), &line));
    // What it said before the page existed.
    client.wait_line(&["no configuration file: looked for client.yaml in"], SOON);
    let page = Page::open(&client, Vec::new());
    let (status, facts) = page.ask("GET", "/api/v1/setup", &page.token, None);
    assert_eq!((status, &facts["role"], &facts["taken"]), (200, &json!("client"), &json!([])));

    // What is wrong is told, and costs neither the code nor a file.
    let plan = |code: &str, target: &str| json!({ "role": "client", "code": code, "public": public.to_string(), "target": target });
    let check = "/api/v1/setup/check";
    let target = format!("127.0.0.1:{}", origin.port());
    for (plan, says) in [
        (plan("enroll1.nonsense", &target), "the code is damaged"),
        (plan(&code, "tsl://a:1"), "--publish"),
    ] {
        let (status, draft) = page.order(check, &plan);
        assert_eq!((status, &draft["ok"]), (200, &json!(false)), "{draft}");
        assert!(draft["problems"].to_string().contains(says), "{draft}");
        assert_eq!(page.order("/api/v1/setup", &plan).0, 422);
    }
    let right = plan(&code, &target);
    let (_, draft) = page.order(check, &right);
    assert_eq!(draft["ok"], true, "{draft}");
    let text = draft["text"].as_str().unwrap();
    assert!(text.contains("name: \"away\"\ntoken: \"(secret)\"\n"), "{text}");
    assert!(text.contains(&public.to_string()) && text.contains(&target), "{text}");
    let file = dir.path().join("client.yaml");
    assert!(!file.exists(), "a check writes nothing");

    // A file that comes meanwhile stays as it is.
    fs::write(&file, "# Mine.\n").unwrap();
    let (status, said) = page.order("/api/v1/setup", &right);
    assert!(status == 422 && said.to_string().contains("there already"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "# Mine.\n");
    fs::remove_file(&file).unwrap();

    let (status, written) = page.order("/api/v1/setup", &right);
    assert_eq!((status, &written["role"]), (201, &json!("client")), "{written}");
    assert!(written["path"].as_str().unwrap().ends_with("/client.yaml"), "{written}");
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let kept = fs::read_to_string(&file).unwrap();
    let token = kept.lines().find_map(|line| line.strip_prefix("token: ")).unwrap();
    assert!(!draft.to_string().contains(token) && !written.to_string().contains(token));
    wait("the service", LONG, || try_connect(public).ok());
    echo(&connect(public), 1);
    assert!(!client.log().contains(&page.token) && !client.log().contains(token));
    // The port of the page is closed.
    let port = page.place.rsplit_once(':').unwrap().1.parse().unwrap();
    wait("the end of the page", SOON, || try_connect(port).err());
    end(&dir.path().join("client.yaml"));
}

/// Ends the daemon of a file, which runs below another program.
fn end(file: &Path) {
    let mut stop = Command::new(binary());
    stop.args(["stop", "--now", "--config"]).arg(file);
    at_home(&mut stop, file.parent().unwrap());
    let (exit, _, complaint) = outcome(run(&mut stop));
    assert_eq!(exit, Some(0), "{complaint}");
}

#[test]
fn without_a_terminal_on_both_sides_or_with_a_flag_there_is_no_page() {
    let dir = TempDir::new().unwrap();
    let mut bare = Command::new(binary());
    bare.arg("client").current_dir(dir.path());
    at_home(&mut bare, dir.path());
    let (exit, said, complaint) = outcome(run(&mut bare));
    assert_eq!((exit, said.as_str()), (Some(2), ""), "{complaint}");
    assert!(complaint.contains("looked for client.yaml") && !complaint.contains("http://"));
    let binary = binary();
    let binary = binary.display();
    for line in [
        format!("{binary} client </dev/null"),
        format!("{binary} client | cat"),
        format!("{binary} client --only"),
    ] {
        let output = run(&mut in_terminal(dir.path(), &line));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("looked for client.yaml") && !said.contains("http://"), "{said}");
    }
}

#[test]
fn a_server_without_a_terminal_has_no_page_no_thread_of_it_and_no_port() {
    let dir = TempDir::new().unwrap();
    let mut bare = Command::new(binary());
    bare.arg("server").current_dir(dir.path());
    let Some(mut command) = in_a_network(bare) else { return };
    let mut server = Daemon::start("server", dir.path(), &mut command);
    server.wait_line(&["listening for clients on tls://", ":7000"], SOON);
    server.wait_line(&["tunnel client --server", "--name home --token-file home.token"], SOON);
    let threads = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let names = threads.map(|one| fs::read_to_string(one.unwrap().path().join("comm")).unwrap());
    let names: Vec<_> = names.map(|name| name.trim().to_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with("tunnel")), "{names:?}");
    assert!(!names.iter().any(|name| name == "tunnel-set-up"), "{names:?}");
    // State 0A is LISTEN: nothing of this network listens but the server at port 7000.
    let namespace = format!("--net=/proc/{}/ns/net", server.id());
    let mut listed = Command::new("nsenter");
    let listed = run(listed.arg(namespace).args(["cat", "/proc/net/tcp", "/proc/net/tcp6"]));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let listening: Vec<_> = listed.lines().filter(|line| line.contains(" 0A ")).collect();
    assert!(!listening.is_empty(), "{listed}");
    assert!(listening.iter().all(|line| line.contains(":1B58 ")), "{listed}");
    assert!(!server.log().contains("http://"), "{}", server.log());
    server.terminate();
    server.wait_end(LONG);
}

#[test]
fn a_server_starts_as_ever_and_goes_on_with_the_file_of_the_page() {
    let dir = TempDir::new().unwrap();
    let line = format!("{} server", binary().display());
    let Some(mut command) = in_a_network(in_terminal(dir.path(), &line)) else { return };
    let mut server = Daemon::start("server", dir.path(), &mut command);
    // The server serves, and tells what it has told before the page existed.
    server.wait_line(&["listening for clients on tls://", ":7000"], SOON);
    server.wait_line(&["tunnel client --server", "--name home --token-file home.token"], SOON);
    let namespace = format!("--net=/proc/{}/ns/net", server.id());
    let page = Page::open(&server, vec!["nsenter".to_owned(), namespace]);
    let (_, facts) = page.ask("GET", "/api/v1/setup", &page.token, None);
    assert_eq!((&facts["role"], &facts["client"]), (&json!("server"), &json!("home")), "{facts}");
    let plan = |listen: &str| {
        json!({
            "role": "server", "listen": listen, "client": "home", "ports": "10022, 10080-10090",
            "console": facts["console"],
        })
    };
    let (_, draft) = page.order("/api/v1/setup/check", &plan("tls://127.0.0.1:70000"));
    assert_eq!(
        (&draft["ok"], &draft["problems"][0]["line"]),
        (&json!(false), &json!(2)),
        "{draft}"
    );
    let (status, written) = page.order("/api/v1/setup", &plan("tls://127.0.0.1:7001"));
    assert_eq!(status, 201, "{written}");
    let elsewhere = written["elsewhere"].as_str().unwrap();
    assert!(elsewhere.contains("tunnel client --server tls://127.0.0.1:7001 --name home"));
    assert!(elsewhere.contains("may publish ports 10022, 10080-10090"), "{elsewhere}");
    server.wait_line(&["listening for clients on tls://127.0.0.1:7001"], LONG);
    server.wait_line(&["the configuration is", "server.yaml"], SOON);
    server.wait_line(&["admin API on http://127.0.0.1:7070"], SOON);
    let secret = fs::read_to_string(dir.path().join("admin.token")).unwrap();
    for name in ["server.yaml", "admin.token"] {
        let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    // The client of the first start is still that of the server.
    let file = fs::read_to_string(dir.path().join("server.yaml")).unwrap();
    let kept = file.lines().find_map(|line| line.trim().strip_prefix("token_file: \"")).unwrap();
    let token = fs::read_to_string(kept.trim_end_matches('"')).unwrap();
    assert!(server.log().contains(&format!("printf %s {token} > home.token")), "on the terminal");
    assert!(!written.to_string().contains(&token) && !written.to_string().contains(&secret));
    end(&dir.path().join("server.yaml"));
    server.wait_end(LONG);
}
