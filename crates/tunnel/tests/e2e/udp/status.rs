//! What people see of flows: status, lists, the end of a flow by hand, metrics.

use std::process::Output;

use super::{Echo, ask, one_service, service, start, visitor};
use crate::harness::{SOON, Scheme, run, tunnel, wait};
use testkit::stage::Running;

pub(super) fn command(running: &Running, role: &str, args: &[&str]) -> Output {
    let socket = running.file(&format!("{role}.sock"));
    run(tunnel(args).arg("--control").arg(socket))
}

pub(super) fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn flows_are_counted_listed_and_closed_by_hand() {
    let echo = Echo::start();
    let (setup, port) = one_service(Scheme::TLS, echo.port());
    let running = start(setup, 1);
    let visitors = [visitor(port), visitor(port), visitor(port)];
    for visitor in &visitors {
        ask(visitor, b"0123456789");
    }
    for role in ["server", "client"] {
        let counts = service(&running, role, "echo");
        assert_eq!((counts["flows"].as_u64(), counts["flows_total"].as_u64()), (Some(3), Some(3)));
        for (count, least) in
            [("datagrams_in", 3), ("datagrams_out", 3), ("bytes_in", 30), ("bytes_out", 30)]
        {
            assert!(counts[count].as_u64().unwrap() >= least, "{role} {count}: {counts}");
        }
        let list = text(&command(&running, role, &["streams"]));
        assert!(list.contains("/u") && list.contains("echo"), "{list}");
        assert!(text(&command(&running, role, &["status"])).contains("echo"));
    }
    let list = text(&command(&running, "server", &["streams", "--json"]));
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let flows = list["list"].as_array().unwrap();
    assert_eq!(flows.len(), 3, "{list}");
    assert!(flows.iter().all(|flow| flow["kind"] == "flow"), "{list}");
    let address = visitors[1].local_addr().unwrap().to_string();
    let flow = flows.iter().find(|flow| flow["socket"] == address).expect("its visitor");
    let id = flow["id"].as_str().unwrap();
    text(&command(&running, "server", &["streams", "--kill", id]));
    wait("the end of the flow at both ends", SOON, || {
        let flows = |role| service(&running, role, "echo")["flows"].as_u64();
        (flows("server") == Some(2) && flows("client") == Some(2)).then_some(())
    });
    assert!(!command(&running, "server", &["streams", "--kill", id]).status.success());
    ask(&visitors[1], b"a new flow");
}
