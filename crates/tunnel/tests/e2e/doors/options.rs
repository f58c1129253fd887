//! Options of services on the command line: what the person is told, and what visitors get.

use std::fs;

use super::origin::Web;
use super::{Doors, curl, fetch};
use crate::harness::{LONG, Scheme, run, tunnel, wait};
use crate::reload::outcome;

fn code(http: u16, args: &[&str]) -> String {
    let output = curl(http, &[&["-o", "/dev/null", "-w", "%{http_code}"], args].concat());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_service_is_published_with_a_password_a_path_networks_and_an_end() {
    let doors = Doors::new(Scheme::TLS);
    let (http, dir) = (doors.http, doors.setup.dir().to_owned());
    let [web, api] = ["web", "api"].map(|name| Web::start(&dir, name));
    let mut running = doors.start(&[("http://other.example", web.port, "")]);
    let socket = running.file("client.sock");
    let publish = |args: &[&str]| {
        let mut command = tunnel(&["publish", "--control"]);
        outcome(run(command.arg(&socket).args(args)))
    };
    let users = dir.join("users");
    fs::write(&users, "# people\nann:her password\n").unwrap();
    let users = format!("@{}", users.display());
    let at = "http://app.example";

    // The URL has the port of the door and the path.
    let service = format!("{at}={}", web.port);
    let (status, said, complaint) = publish(&[&service, "--name", "app", "--basic-auth", &users]);
    assert_eq!(status, Some(0), "{said} {complaint}");
    assert!(complaint.contains("the network reads the passwords of visitors"), "{complaint}");
    assert_eq!(said, format!("app -> {at}:{http}\n"));
    let pair = format!("{at}={}", api.port);
    let (status, said, complaint) = publish(&[&pair, "--path", "/api", "--for", "1d"]);
    assert_eq!((status, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(said.contains(&format!(" -> {at}:{http}/api, until ")), "{said}");
    assert_eq!(code(http, &[&format!("{at}/")]), "401");
    assert_eq!(code(http, &["-u", "ann:her password", &format!("{at}/")]), "200");
    assert!(fetch(http, &[&format!("{at}/api/x")]).contains("\"name\": \"api\""));

    // A later option leaves the password in force. A password among the arguments is warned of.
    let (status, said, _) =
        publish(&[&service, "--name", "app", "--allow-from", "192.0.2.0/24,::1"]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(code(http, &["-u", "ann:her password", &format!("{at}/")]), "403");
    let networks = "127.0.0.0/8,::1";
    let (status, ..) = publish(&[&service, "--name", "app", "--allow-from", networks]);
    assert_eq!(status, Some(0));
    assert_eq!(code(http, &[&format!("{at}/")]), "401");
    let (_, _, complaint) = publish(&[&service, "--name", "app", "--basic-auth", "bob:secret"]);
    assert!(complaint.contains("--basic-auth: every user of this machine"), "{complaint}");
    assert_eq!(code(http, &["-u", "bob:secret", &format!("{at}/")]), "200");

    // What cannot be is told, with the remedy, and changes nothing.
    for (args, parts) in [
        (["1=1", "--allow-from", "10.0.0.0/99"], ["`10.0.0.0/99` is not", "hint: for example"]),
        (
            ["1=1", "--path", "/x"],
            ["`path` has no effect at tcp://:1", "http:// and https:// names"],
        ),
        (
            ["1=1", "--basic_auth", "u:p"],
            ["--basic_auth", "similar argument exists: '--basic-auth'"],
        ),
        (["1=1", "--for", "soon"], ["`soon` is not a duration", "250ms, 10s"]),
        (["1=1", "--basic-auth", "@/no/file"], ["/no/file", "No such file"]),
    ] {
        let (status, said, complaint) = publish(&args);
        assert_eq!(status, Some(2), "{said} {complaint}");
        assert!(parts.iter().all(|part| complaint.contains(part)), "{complaint}");
    }
    let (status, _, complaint) = publish(&["1=1", "2=2", "--name", "x"]);
    assert_eq!(status, Some(2));
    assert!(complaint.contains("a second service named x (hint: publish one"), "{complaint}");

    // The end comes by itself, and nothing of it is kept.
    let short = format!("http://short.example={}", web.port);
    let (status, said, complaint) = publish(&[&short, "--for", "2s"]);
    assert_eq!((status, complaint.as_str()), (Some(0), ""), "{said}");
    running.client().wait_line(&["the time of http-short.example is over"], LONG);
    wait("the name leads nowhere", LONG, || {
        (code(http, &["http://short.example/"]) == "404").then_some(())
    });
    let files = fs::read_dir(running.file("client-state")).unwrap();
    let mut kept = files.map(|file| file.unwrap().path());
    let kept = kept.find(|path| path.extension().is_some_and(|end| end == "yaml")).unwrap();
    let kept = fs::read_to_string(kept).unwrap();
    assert!(kept.contains("name: app") && !kept.contains("short"), "{kept}");
}
