//! No target leads visitors to the daemon itself, and no request reads its environment.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::thread;

use serde_json::json;

use crate::admin::started;
use crate::harness::{Origin, SOON, Scheme, Setup, free_port, run, try_connect, tunnel, wait};
use crate::reload::outcome;

#[test]
fn a_session_leads_no_visitor_to_the_control_socket_and_reads_no_variable() {
    let origin = Origin::echo();
    let setup = Setup::new(Scheme::TLS).service("echo", origin.port());
    let (mut running, server, client) = started(setup);
    let control = running.file("client.sock");
    assert!(control.exists(), "{}", control.display());
    let port = free_port();
    let rights = json!({ "allow_tcp": [port.to_string()] });
    assert_eq!(server.send("POST", "/api/v1/clients/home/rights", &rights).0, 200);
    let publish = |target: &str| {
        let text = format!("tcp://:{port}={target}");
        client.send("PATCH", "/api/v1/lists", &json!({ "publish": [text] }))
    };

    // The socket and the API, as they are written.
    let (status, why) = publish(&format!("unix://{}", control.display()));
    assert!(
        status == 422 && why.to_string().contains("the control socket of this daemon"),
        "{why}"
    );
    let (status, why) = publish(&format!("tcp://localhost:{}", client.0));
    assert!(status == 422 && why.to_string().contains("the admin API"), "{why}");
    let (status, why) = publish("unix:///x/${PATH}");
    assert!(status == 422 && !why.to_string().contains("/bin"), "{why}");

    // A link that leads to the socket from another moment on.
    let folder = tempfile::tempdir().unwrap();
    let (app, link) = (folder.path().join("app.sock"), folder.path().join("link.sock"));
    let listener = UnixListener::bind(&app).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"app");
        }
    });
    symlink(&app, &link).unwrap();
    let (status, body) = publish(&format!("unix://{}", link.display()));
    assert_eq!(status, 200, "{body}");
    let said = || {
        let mut visitor = try_connect(port).ok()?;
        visitor.set_read_timeout(Some(SOON)).unwrap();
        let _ = visitor.write_all(b"{\"command\":\"console\"}\n");
        let mut said = String::new();
        let _ = visitor.read_to_string(&mut said);
        Some(said)
    };
    wait("the service", SOON, || said().filter(|said| said == "app"));
    fs::remove_file(&link).unwrap();
    symlink(&control, &link).unwrap();
    assert_eq!(said().unwrap_or_default(), "", "a visitor has asked the control socket");
    wait("the reason", SOON, || {
        let log = running.client().log();
        log.contains("leads to this daemon itself").then_some(())
    });

    // The file, before a start.
    let text = fs::read_to_string(running.file("client.yaml")).unwrap();
    let own = format!("unix://{}", control.display());
    let other = running.file("other.yaml");
    let target = origin.port().to_string();
    assert!(text.contains(&target), "{text}");
    let line = format!("control: \"{}\"\n", control.display());
    let text = text.lines().filter(|line| !line.starts_with("control:"));
    let text = text.map(|line| line.replace(&format!("tcp://127.0.0.1:{target}"), &own) + "\n");
    fs::write(&other, text.collect::<String>() + &line).unwrap();
    let (exit, _, complaint) = outcome(run(tunnel(&["check", "--config"]).arg(&other)));
    assert_eq!(exit, Some(2), "{complaint}");
    assert!(complaint.contains("the control socket of this daemon"), "{complaint}");
}
