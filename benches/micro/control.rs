//! The decoding of a client's set of services.

use bytes::Bytes;
use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use proto::control::{ControlDecoder, ControlMessage, Register, ServiceSpec, ServiceTerms};
use proto::greeting::Name;

#[divan::bench(args = [1, 100, 1000])]
fn register_decode(bencher: Bencher<'_, '_>, services: usize) {
    let service = |n| ServiceSpec {
        name: Name::new(&format!("service-{n}")).expect("a name"),
        public: vec![format!("tcp://:{}", 10_000 + n)],
        terms: ServiceTerms::default(),
    };
    let services_of_set = (0..services).map(service).collect();
    let set = Register { leaving: false, generation: 1, standby: false, services: services_of_set };
    let message: Bytes = ControlMessage::Register(set).encode().expect("it is within the limits");
    let mut decoder = ControlDecoder::new();
    bencher.counter(BytesCount::new(message.len())).counter(ItemsCount::new(services)).bench_local(
        || {
            let message = decoder.decode(&mut message.clone());
            assert!(matches!(message, Ok(Some(_))));
            message
        },
    );
}
