//! The log as a file: its mode, its rotation by the daemon or by another program, and the error at
//! the start if the file cannot be opened.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{Origin, SOON, Scheme, Setup, wait};
use crate::reload::outcome;

#[test]
fn a_log_file_is_private_turned_and_found_again_after_others_turned_it() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TCP).service("echo", origin.port());
    let file = setup.dir().join("own.log");
    let [first, moved] = ["own.log.1", "own.log.old"].map(|name| setup.dir().join(name));
    // Beside the configuration.
    setup
        .client_lines
        .push_str("log: { level: trace, file: own.log, rotate: { size: 64KiB, keep: 1 } }\n");
    // Of an earlier start, and nearly full.
    fs::write(&file, "an earlier line\n".repeat(4090)).unwrap();
    let mut running = setup.start();
    let read = || fs::read_to_string(&file).unwrap();
    wait("the first lines", SOON, || {
        read().contains("service echo is published at ").then_some(())
    });
    assert!(!read().contains('\u{1b}'), "no colours");
    assert!(!read().contains("an earlier line"), "it was turned");
    assert_eq!(running.client().log(), "", "nothing of it on standard error");
    let full = fs::read_to_string(&first).unwrap();
    assert!(full.starts_with("an earlier line\n") && full.len() <= 64 << 10, "{}", full.len());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    fs::rename(&file, &moved).unwrap();
    assert_eq!(outcome(running.reload("client")).0, Some(0));
    running.client().terminate();
    assert!(running.client().wait_end(SOON).success());
    assert!(
        read().contains("reloaded: nothing to apply") && read().contains("stopped"),
        "{}",
        read()
    );
    assert!(!fs::read_to_string(&moved).unwrap().contains("stopped"));
}

#[test]
fn a_log_that_cannot_be_opened_is_told_before_anything_starts() {
    let mut running = Setup::new(Scheme::TCP).start_server();
    running.edit_client(|text| text + "log: { file: no/such/folder/log }\n");
    running.start_client();
    assert_eq!(running.client().wait_end(SOON).code(), Some(1));
    running.client().wait_one_line(&["log.file", "no/such/folder/log", "No such file"], SOON);
}
