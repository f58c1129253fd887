//! Text of a hostile client that would forge a line of the log or command a terminal.

use proto::control::{ControlMessage, Register, ServiceSpec, ServiceTerms};
use proto::greeting::Name;
use proto::text;

use crate::floods::{really, stage};
use crate::harness::{SOON, Scheme, tunnel};
use crate::peer::{log_in, open, open_frame};

/// A line as the server writes it, behind a line end; and a command that clears the screen.
const FORGED: &str = "\n2026-01-01T00:00:00Z  INFO client connected client=\"root\"\u{1b}[2J";

/// A registration that our own encoder refuses.
fn registration() -> Vec<u8> {
    let placeholder = "#".repeat(FORGED.len());
    let service = ServiceSpec {
        name: Name::new("x").unwrap(),
        public: vec![format!("tcp://{placeholder}")],
        terms: ServiceTerms::default(),
    };
    let register =
        Register { generation: 1, services: vec![service], leaving: false, standby: false };
    let message = ControlMessage::Register(register).encode().unwrap().to_vec();
    let at = message.windows(FORGED.len()).position(|part| part == placeholder.as_bytes()).unwrap();
    [&message[..at], FORGED.as_bytes(), &message[at + FORGED.len()..]].concat()
}

#[test]
fn a_hostile_client_forges_no_line_of_the_log_and_commands_no_terminal() {
    for &scheme in Scheme::ALL {
        let (running, token, _echo) = stage(scheme, 1);
        really(async {
            let mut peer = log_in(&running, "flood", &token).await;
            peer.tell_bytes(&registration()).await;
            peer.expect_end().await;
            let mut peer = log_in(&running, "flood", &token).await;
            let target = open(1, &format!("tcp://{FORGED}:80"));
            peer.write(open_frame(0, &target).into(), true).await.unwrap();
            peer.expect_resets(1).await;
        });
        running.server.wait_line(&["protocol violation", "flood"], SOON);
        let status =
            tunnel(&["status", "--control"]).arg(running.file("server.sock")).output().unwrap();
        for said in [running.server.log(), String::from_utf8(status.stdout).unwrap()] {
            let is_bad = |c: char| c != '\n' && text::is_forbidden(c);
            assert!(!said.contains("client=\"root\"") && !said.contains(is_bad), "{said}");
        }
    }
}
