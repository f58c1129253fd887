//! Replays the fuzz corpora through the decoders and the link.

use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_its_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[
            ("control", proto::control::fuzz),
            ("frames", testkit::pair::ops::frames),
            ("greeting_client", proto::greeting::fuzz_client),
            ("greeting_server", proto::greeting::fuzz_server),
            ("link_ops", |data| {
                testkit::pair::ops::run(data, 1);
            }),
        ],
    );
}
