//! No kept input of a fuzz target breaks its decoder.

use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_its_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[
            ("envelopes", kcp::envelope::fuzz::datagrams),
            ("fec_groups", kcp::fec::fuzz::groups),
            ("fec_shards", kcp::fec::fuzz::shards),
        ],
    );
}
