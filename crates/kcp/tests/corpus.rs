//! No kept input of a fuzz target breaks its decoder, and no random input does.

use proptest::collection::vec;
use proptest::prelude::*;
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

proptest! {
    #[test]
    fn no_random_input_breaks_fec(data in vec(any::<u8>(), 0..300)) {
        kcp::fec::fuzz::groups(&data);
        kcp::fec::fuzz::shards(&data);
    }
}
