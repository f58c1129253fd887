//! `tunnel share`: a target at a name for the time of a command.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use testkit::stage::{Daemon, Running};

use super::origin::Web;
use super::{Doors, curl, fetch, published};
use crate::harness::{Origin, SOON, Scheme, Setup, connect, run, tunnel, wait};
use crate::reload::{echo, outcome};

fn doors() -> Doors {
    Doors::with(Scheme::TLS, ", domain: own.example", "")
}

/// `tunnel share …` beside the running client.
pub(super) fn share(running: &Running, name: &str, args: &[&str]) -> Daemon {
    let mut command = tunnel(&["share"]);
    command.arg("--control").arg(running.file("client.sock")).args(args);
    Daemon::start(name, running.dir(), &mut command)
}

/// The address that the command has printed: the first word of the line.
fn address(share: &Daemon) -> String {
    let line = share.wait_line(&[" -> "], SOON);
    line.split(' ').next().unwrap().to_owned()
}

/// Waits until the door knows the name no more.
fn gone(http: u16, url: &str) {
    wait("the name is gone", SOON, || {
        let head = curl(http, &["--head", url]).stdout;
        String::from_utf8_lossy(&head).starts_with("HTTP/1.1 404").then_some(())
    });
}

#[test]
fn a_port_has_a_name_until_the_command_is_killed_and_its_requests_are_shown() {
    let doors = doors();
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "a");
    let mut running = doors.start(&[("http://other.example.com", web.port, "")]);
    let mut share = share(&running, "share", &[&web.port.to_string()]);
    let url = address(&share);
    assert!(url.starts_with("http://") && url.contains("-home.own.example"), "{url}");
    let host = url.split('/').nth(2).unwrap().split(':').next().unwrap();
    let inside = format!("http://{host}");
    assert!(fetch(http, &[&format!("{inside}/one?x=1")]).contains("\"name\": \"a\""));
    share.wait_line(&["127.0.0.1  GET /one?x=1  200"], SOON);
    fetch(http, &["--data", "abc", &format!("{inside}/two")]);
    share.wait_line(&["127.0.0.1  POST /two  "], SOON);

    // A reload leaves it, and it is in no file.
    let reload = |running: &Running| {
        let mut command = tunnel(&["reload"]);
        outcome(run(command.arg("--control").arg(running.file("client.sock"))))
    };
    assert_eq!(reload(&running).0, Some(0));
    assert!(fetch(http, &[&inside]).contains("\"name\": \"a\""));
    let word = host.strip_suffix("-home.own.example").unwrap();
    for folder in ["client-state", "server-state", "."] {
        for file in fs::read_dir(running.file(folder)).into_iter().flatten().flatten() {
            let is_log = file.file_name().to_string_lossy().contains("log");
            let text = fs::read(file.path()).unwrap_or_default();
            let has = String::from_utf8_lossy(&text).contains(word);
            assert!(is_log || !has, "{} keeps {word}", file.path().display());
        }
    }
    // Nobody else ends it by its name.
    let mut withdraw = tunnel(&["unpublish", &format!("share-{word}")]);
    withdraw.arg("--control").arg(running.file("client.sock"));
    assert_eq!(outcome(run(&mut withdraw)).0, Some(2));

    share.signal(Signal::KILL);
    gone(http, &inside);
    running.client().wait_line(&["shared no more"], SOON);
    assert!(fetch(http, &["http://other.example.com/"]).contains("\"name\": \"a\""));
    share.wait_end(SOON);
}

#[test]
fn a_folder_a_file_a_password_and_one_visit() {
    let doors = doors();
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "a");
    let running = doors.start(&[("http://other.example.com", web.port, "")]);
    let site = dir.join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("a b.txt"), "the file").unwrap();
    fs::write(site.join("secret.txt"), "not shared").unwrap();

    let folder = share(&running, "folder", &[site.to_str().unwrap(), "--at", "docs"]);
    address(&folder);
    let inside = "http://docs-home.own.example";
    assert!(fetch(http, &[inside]).contains("secret.txt"), "the folder is listed");
    assert_eq!(fetch(http, &[&format!("{inside}/a%20b.txt")]), "the file");
    folder.wait_line(&["GET /a%20b.txt  200  8 B"], SOON);
    drop(folder);
    gone(http, inside);

    let file = site.join("a b.txt");
    let args = [file.to_str().unwrap(), "--at", "one", "--once", "--password", "ann:key"];
    let mut file = share(&running, "file", &args);
    assert!(address(&file).starts_with("http://"), "no certificate is for the name");
    file.wait_line(&["warning: http://one-home.own.example", " is not encrypted"], SOON);
    let inside = "http://one-home.own.example";
    let code = |args: &[&str]| {
        let all = [&["--output", "/dev/null", "--write-out", "%{http_code}"], args].concat();
        String::from_utf8(curl(http, &all).stdout).unwrap()
    };
    assert_eq!(code(&[inside]), "401");
    let secret = format!("{inside}/secret.txt");
    assert_eq!(code(&["--user", "ann:key", &secret]), "404", "the other files are not shared");
    // Programs that show a link ask for its head or for a part first.
    let name = format!("{inside}/a%20b.txt");
    assert_eq!(code(&["--head", "--user", "ann:key", &name]), "200");
    assert_eq!(code(&["--range", "0-2", "--user", "ann:key", &name]), "206");
    let got = fetch(http, &["--location", "--user", "ann:key", inside]);
    assert_eq!(got, "the file", "the folder leads to the file");
    assert!(file.wait_end(SOON).success(), "{}", file.log());
    gone(http, inside);

    // Nobody listens at port 1.
    let closed = share(&running, "closed", &["1", "--at", "closed"]);
    address(&closed);
    assert_eq!(code(&["http://closed-home.own.example"]), "502");
    closed.wait_line(&["127.0.0.1  target not reached: tcp://localhost:1: "], SOON);
}

/// The visitors of a share know its address, and perhaps its password.
#[test]
fn no_other_command_takes_the_address_of_a_share_and_its_time_ends_though_its_command_is_stopped() {
    let doors = doors();
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let (web, other) = (Web::start(&dir, "a"), Web::start(&dir, "b"));
    let running = doors.start(&[("http://other.example.com", web.port, "")]);
    let (port, of_other) = (web.port.to_string(), other.port.to_string());
    let first = share(&running, "first", &[&port, "--at", "blog", "--password", "ann:key"]);
    address(&first);
    let inside = "http://blog-home.own.example";
    let mut second = share(&running, "second", &[&of_other, "--at", "blog"]);
    assert!(!second.wait_end(SOON).success());
    assert!(
        second.log().contains("another command shares at http://blog-home"),
        "{}",
        second.log()
    );
    let mut publish = tunnel(&["publish", &format!("http://blog-{{name}}={of_other}")]);
    let (code, _, complaint) =
        outcome(run(publish.arg("--control").arg(running.file("client.sock"))));
    assert_eq!(code, Some(2), "{complaint}");
    assert!(complaint.contains("a command shares at http://blog-home"), "{complaint}");
    let head = String::from_utf8(curl(http, &["--head", inside]).stdout).unwrap();
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    assert!(fetch(http, &["--user", "ann:key", inside]).contains("\"name\": \"a\""));
    drop(first);
    gone(http, inside);

    let mut timed = share(&running, "timed", &[&port, "--at", "short", "--for", "5s"]);
    address(&timed);
    timed.signal(Signal::STOP);
    gone(http, "http://short-home.own.example");
    timed.signal(Signal::CONT);
    timed.wait_end(SOON);
}

#[test]
fn without_a_domain_it_is_a_port_and_a_wrong_word_is_no_port() {
    let origin = Origin::echo();
    let running = Setup::new(Scheme::TLS).service("echo", origin.port()).start();
    // The only port that the client may have is free again.
    let mut withdraw = tunnel(&["unpublish", "echo"]);
    withdraw.arg("--control").arg(running.file("client.sock"));
    assert_eq!(outcome(run(&mut withdraw)).0, Some(0));
    let share = share(&running, "share", &[&origin.port().to_string(), "--json"]);
    let line = share.wait_line(&["\"shared\""], SOON);
    let at = line.rsplit("tcp://").next().unwrap();
    let port = at.split(|c: char| !c.is_ascii_digit() && c != ':' && c != '.').next().unwrap();
    let port = port.rsplit(':').next().unwrap().parse().unwrap();
    {
        let visitor = connect(port);
        echo(&visitor, 7);
    }
    share.wait_line(&["\"connection\"", "\"bytes_in\":"], SOON);
    for (args, why) in [
        (&["nothing-here"][..], "is no port, no address, and no file here"),
        (&["80", "--at", "a/b"], "is no word"),
        (&["80", "--at", "http://x.example.com"], "x.example.com"),
    ] {
        let mut command = tunnel(&["share"]);
        command.arg("--control").arg(running.file("client.sock")).args(args);
        let (code, _, complaint) = outcome(run(&mut command));
        assert!(matches!(code, Some(1 | 2)) && complaint.contains(why), "{args:?}: {complaint}");
    }
}

#[test]
fn without_a_running_client_the_command_starts_one_that_ends_with_it() {
    let doors = doors();
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let web = Web::start(&dir, "a");
    let mut running = doors.start(&[("http://other.example.com", web.port, "")]);
    published(&running, 1);
    running.client().terminate();
    running.client().wait_end(SOON);
    let home = dir.join("home");
    fs::create_dir(&home).unwrap();
    let start = |folder: &Path| {
        let mut command = tunnel(&["share", &web.port.to_string(), "--at", "solo"]);
        command.arg("--config").arg(running.file("client.yaml")).current_dir(folder);
        command.env("XDG_RUNTIME_DIR", &home).env("HOME", &home);
        Daemon::start("share", &dir, &mut command)
    };
    let mut share = start(&home);
    address(&share);
    let inside = "http://solo-home.own.example";
    assert!(fetch(http, &[inside]).contains("\"name\": \"a\""));
    // The services of the file belong to its own daemon.
    let other = curl(http, &["--head", "http://other.example.com"]).stdout;
    assert!(!String::from_utf8_lossy(&other).starts_with("HTTP/1.1 200"), "{other:?}");
    share.signal(Signal::KILL);
    share.wait_end(SOON);
    gone(http, inside);
}
