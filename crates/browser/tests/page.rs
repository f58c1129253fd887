//! The page around a visit, in Node with stand-ins for the browser: `page.mjs`.

use std::process::Command;

/// Anybody can make an address with a code, and writes the name of the service into it.
#[test]
fn an_address_with_a_code_takes_the_place_of_no_kept_visit_without_a_question() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page.mjs");
    let output = Command::new("node").arg(script).output();
    let output = output.expect("install nodejs (cargo xtask test does it)");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("held\n"), "{out}{err}");
}
