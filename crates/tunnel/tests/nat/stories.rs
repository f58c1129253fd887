//! Streams go on while paths come and go, and while the server is away. A router opens a port.

use std::time::Instant;

use testkit::cage::{Network, opened, outer_v4};
use testkit::stage::{LONG, wait};

use crate::load::{Session, Transfer};
use crate::stage::Stage;
use crate::{dscp, in_a_cage};

const MB: u64 = 1_000_000;

/// Runs a story in a cage. `None`: there is no such story.
pub(crate) fn run(name: &str) -> Option<String> {
    Some(match name {
        "paths of 40 MB" => paths_come_and_go(40 * MB),
        "paths of 200 MB" => paths_come_and_go(200 * MB),
        "webrtc" => webrtc_comes_and_goes(),
        "server" => the_server_dies(),
        "port" => a_router_opens_a_port(),
        "dscp" => dscp::packets_have_their_marks(),
        _ => return None,
    })
}

/// A stage whose both ends are behind a NAT, with a transfer and a session of `ssh`.
fn busy(least: u64) -> (Stage, Transfer, Session) {
    let stage = Stage::with_ssh([Network::Plain, Network::Plain]);
    let transfer = Transfer::start(stage.visit(), least);
    let session = Session::by_ssh(stage.ssh("cat"));
    (stage, transfer, session)
}

/// Relayed, direct, cut, relayed, direct.
fn paths_come_and_go(least: u64) -> String {
    let (stage, transfer, session) = busy(least);
    let all_pass = || {
        session.passes();
        transfer.passes(2 * MB);
    };
    all_pass();
    stage.wait_all("laptop", "direct");
    all_pass();
    let relayed = stage.relayed("home");
    stage.cut();
    let cut = Instant::now();
    stage.wait_all("laptop", "relayed");
    let back = cut.elapsed().as_millis();
    all_pass();
    assert!(stage.relayed("home") > relayed, "bytes after the cut count as those of the server");
    stage.mend();
    let mended = Instant::now();
    stage.wait_all("laptop", "direct");
    let again = mended.elapsed().as_millis();
    all_pass();
    let longest = session.end().as_millis();
    let bytes = transfer.end();
    format!(
        "{bytes} bytes each way; relayed {back} ms after the cut, direct {again} ms after its end; \
         the longest echo took {longest} ms"
    )
}

/// The same over data channels.
fn webrtc_comes_and_goes() -> String {
    let stage = Stage::over_webrtc([Network::Plain, Network::Plain]);
    let transfer = Transfer::start(stage.visit(), 10 * MB);
    stage.wait_all("laptop", "direct");
    for path in stage.paths("laptop") {
        assert!(path["pair"].as_str().unwrap().starts_with("WebRTC with "), "{path}");
    }
    transfer.passes(2 * MB);
    stage.cut();
    stage.wait_all("laptop", "relayed");
    transfer.passes(2 * MB);
    stage.mend();
    stage.wait_all("laptop", "direct");
    transfer.passes(2 * MB);
    format!("{} bytes each way", transfer.end())
}

fn the_server_dies() -> String {
    let (mut stage, transfer, session) = busy(10 * MB);
    stage.wait_all("laptop", "direct");
    stage.kill_server();
    for client in [&stage.laptop, &stage.home] {
        client.wait_line(&["lost the server"], LONG);
    }
    for _ in 0..3 {
        session.passes();
        transfer.passes(2 * MB);
    }
    stage.start_server_again();
    for client in [&stage.laptop, &stage.home] {
        client.wait_line(&["is connected to", "again, after"], LONG);
    }
    // Signals pass again: of a new visitor, and of the link that there is.
    let _phone = stage.start_phone();
    let by_phone = Session::start(stage.visit_by_phone());
    by_phone.passes();
    stage.wait_all("phone", "direct");
    by_phone.passes();
    stage.cut();
    stage.wait_all("laptop", "relayed");
    session.passes();
    transfer.passes(2 * MB);
    stage.mend();
    stage.wait_all("laptop", "direct");
    session.passes();
    transfer.passes(2 * MB);
    by_phone.end();
    let longest = session.end().as_millis();
    format!("{} bytes each way; the longest echo took {longest} ms", transfer.end())
}

/// The visitor's router opens a port, by which two symmetric NATs meet.
fn a_router_opens_a_port() -> String {
    let mut stage = Stage::new([Network::Pcp, Network::Symmetric]);
    let outer = format!("{}:", outer_v4(1));
    let session = Session::start(stage.visit());
    session.passes();
    stage.wait_all("laptop", "direct");
    let (paths, ports) = (stage.paths("laptop"), opened());
    assert_eq!(ports.len(), paths.len(), "{ports:?}, {paths:?}");
    for path in &paths {
        let pair = path["pair"].as_str().unwrap();
        let mapped = pair.strip_prefix("mapped ").and_then(|pair| pair.strip_prefix(&outer));
        let port = mapped.and_then(|rest| rest.split(' ').next());
        let rule = format!("dport {} dnat", port.unwrap_or_else(|| panic!("{pair}")));
        assert!(ports.iter().any(|opened| opened.contains(&rule)), "{pair}: {ports:?}");
    }

    let nat = stage.ask("laptop", "nat");
    assert_eq!(nat["router"]["protocol"], "PCP", "{nat}");
    assert!(nat["router"]["outer"].as_str().unwrap().starts_with(&outer), "{nat}");
    assert_eq!(nat["ipv4"]["mapping"], "per_destination", "{nat}");
    assert_eq!(nat["peers"][2]["path"], "direct", "{nat}");
    let nat = stage.ask("home", "nat");
    assert!(nat["router"]["protocol"].is_null(), "{nat}");
    let why = "the router answers neither PCP, NAT-PMP nor UPnP";
    assert_eq!(nat["router"]["error"], why, "{nat}");
    wait("the port of `tunnel nat` is closed", LONG, || (opened() == ports).then_some(()));
    session.passes();
    session.end();
    stage.laptop.terminate();
    stage.laptop.wait_end(LONG);
    assert_eq!(opened(), Vec::<String>::new(), "after `laptop` has ended");
    format!("by {}", paths[0]["pair"])
}

#[test]
fn a_transfer_and_a_session_outlive_paths_that_come_and_go() {
    in_a_cage("paths of 40 MB");
}

#[test]
fn a_transfer_outlives_data_channels_that_come_and_go() {
    in_a_cage("webrtc");
}

#[test]
fn a_direct_path_serves_without_the_server_and_signals_pass_when_it_is_back() {
    in_a_cage("server");
}

#[test]
fn a_port_of_one_router_joins_two_symmetric_nats_and_closes_with_its_client() {
    in_a_cage("port");
}

mod long {
    #[test]
    fn a_transfer_of_200_mb_outlives_paths_that_come_and_go() {
        super::in_a_cage("paths of 200 MB");
    }
}
