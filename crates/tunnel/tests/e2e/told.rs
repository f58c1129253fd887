//! What a person is told at the terminal by a command, and not in the log of the daemon alone.

use crate::harness::{Origin, Scheme, Setup, free_port, run, tunnel};
use crate::reload::outcome;

#[test]
fn an_open_proxy_is_a_warning_at_the_terminal_that_opens_it() {
    let running = Setup::new(Scheme::TLS).start();
    let socket = running.file("client.sock");
    let command = |args: &[&str]| {
        outcome(run(tunnel(&args[..1]).arg("--control").arg(&socket).args(&args[1..])))
    };
    let open = "everybody who reaches this address can use the proxy (hint: add `basic_auth";
    for scheme in ["socks5", "http-proxy"] {
        let url = format!("{scheme}://0.0.0.0:{}", free_port());
        let (code, said, complaint) = command(&["forward", &url]);
        assert_eq!(code, Some(0), "{complaint}");
        assert!(said.contains(&format!("forward {url}")), "{said}");
        assert!(complaint.starts_with("warning: ") && complaint.contains(open), "{complaint}");
    }
    let (code, _, complaint) = command(&["forward", &format!("socks5://{}", free_port())]);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    // A reload is about what is new.
    let (code, _, complaint) = command(&["reload"]);
    assert_eq!((code, complaint.as_str()), (Some(0), ""));
    // A reload of a file with such a listener says the same.
    running.edit_client(|text| {
        format!("{text}forwards: [{{ listen: 'socks5://0.0.0.0:{}' }}]\n", free_port())
    });
    let (code, _, complaint) = command(&["reload"]);
    assert_eq!(code, Some(0), "{complaint}");
    assert!(complaint.contains("client.yaml:") && complaint.contains(open), "{complaint}");
}

fn json(said: &str) -> serde_json::Value {
    serde_json::from_str(said).unwrap_or_else(|why| panic!("{why}: {said}"))
}

#[test]
fn the_pin_of_the_server_is_in_status_clients_and_check() {
    let running = Setup::new(Scheme::TLS).start();
    let of = |role: &str, args: &[&str]| {
        let socket = running.file(&format!("{role}.sock"));
        let said = outcome(run(tunnel(&args[..1]).arg("--control").arg(socket).args(&args[1..])));
        assert_eq!((said.0, said.2.as_str()), (Some(0), ""), "{args:?}");
        said.1
    };
    let check = |role: &str, args: &[&str]| {
        let mut command = tunnel(&["check"]);
        let said = outcome(run(command.arg(running.file(&format!("{role}.yaml"))).args(args)));
        assert_eq!(said.0, Some(0), "{}", said.2);
        said.1
    };
    let status = json(&of("server", &["status", "--json"]));
    let pin = status["pins"][0].as_str().unwrap().to_owned();
    assert!(pin.starts_with("sha256:") && status["pins"].as_array().unwrap().len() == 1, "{pin}");
    // The log of the start has the same pin.
    assert!(running.server.log().contains(&pin), "{pin}");
    let line = format!("pin of the server {pin}\n");
    for said in [of("server", &["status"]), of("server", &["clients"]), check("server", &[])] {
        assert!(said.contains(&line), "{said}");
    }
    assert_eq!(json(&of("server", &["clients", "--json"]))["pin"], pin);
    assert_eq!(json(&check("server", &["--json"]))["pins"][0], pin);
    // The client knows which pin it trusts.
    assert_eq!(json(&of("client", &["status", "--json"]))["pins"][0], pin);
    assert_eq!(json(&check("client", &["--json"]))["pins"][0], pin);
    let line = format!("trusts a server with the pin {pin}\n");
    for said in [of("client", &["status"]), check("client", &[])] {
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn commands_that_answer_answer_in_json_too() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    let port = free_port();
    setup.allow.push(port);
    let running = setup.start();
    let of = |role: &str, args: &[&str]| {
        let socket = running.file(&format!("{role}.sock"));
        outcome(run(tunnel(&args[..1]).arg("--control").arg(socket).args(&args[1..])))
    };
    running.wait_links(2);
    let pair = format!("{port}={}", origin.port());
    let (code, said, why) = of("client", &["publish", "--json", &pair]);
    assert_eq!((code, why.as_str()), (Some(0), ""), "{said}");
    let name = format!("tcp-{port}");
    let published = &json(&said)["published"][0];
    assert_eq!(published["name"], name, "{said}");
    assert_eq!(published["addresses"][0], format!("tcp://127.0.0.1:{port}"));
    // What is refused is in the answer, and the exit code says so.
    let denied = free_port();
    let pair = format!("{denied}={}", origin.port());
    let (code, said, _) = of("client", &["publish", "--json", &pair]);
    assert_eq!(code, Some(1), "{said}");
    assert!(json(&said)["failed"].to_string().contains("is not allowed"), "{said}");
    let (code, said, _) = of("client", &["unpublish", "--json", &name]);
    assert_eq!(code, Some(0), "{said}");
    let applied = json(&said)["applied"].to_string();
    assert!(applied.contains(&format!("{name} is published no more")), "{applied}");
    let (code, said, _) = of("server", &["reload", "--json"]);
    assert_eq!((code, &json(&said)["applied"]), (Some(0), &serde_json::json!([])));

    let (code, said, why) = of("server", &["enroll", "--json", "guest"]);
    assert_eq!((code, why.as_str()), (Some(0), ""));
    let code = json(&said);
    assert!(code["code"].as_str().unwrap().starts_with("enroll1."), "{said}");
    assert_eq!((&code["name"], &code["valid_seconds"]), (&"guest".into(), &600.into()));
    assert!(code["servers"][0].as_str().unwrap().starts_with("tls://"), "{said}");
    assert!(code["pin"].as_str().unwrap().starts_with("sha256:"), "{said}");

    // A wrong file is an answer as well.
    let file = running.file("wrong.yaml");
    std::fs::write(&file, "listen: tls://[::]:7000\nkeepalive: soon\n").unwrap();
    let (code, said, _) = outcome(run(tunnel(&["check", "--json"]).arg(&file)));
    let checked = json(&said);
    assert_eq!((code, &checked["valid"]), (Some(2), &false.into()));
    assert!(checked["problems"][0].as_str().unwrap().contains("wrong.yaml:2:12"), "{said}");
    let (code, said, _) =
        outcome(run(tunnel(&["check", "--json"]).arg(running.file("client.yaml"))));
    let checked = json(&said);
    assert_eq!(
        (code, &checked["valid"], &checked["role"]),
        (Some(0), &true.into(), &"client".into())
    );
}
