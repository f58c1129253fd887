//! Replays the kept inputs of the fuzz target: no input may break its decoder.

use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[("webrtc_description", transport_webrtc::fuzz::description)],
    );
}
