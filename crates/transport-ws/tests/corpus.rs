//! Replays the kept inputs of the fuzz targets: no input may break its decoder.

use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[("ws_frames", transport_ws::fuzz::frames), ("ws_heads", transport_ws::fuzz::heads)],
    );
}
