//! What an encoder of FEC at 10/3 does with one shard of 1,500 bytes, on each kernel of this CPU.

use divan::Bencher;
use divan::counter::BytesCount;
use gf256::Kernel;

const PARITY: usize = 3;
/// A whole datagram.
const BODY: usize = 1500;

/// Room for the parity of a group, which begins with a cache line, as that of the encoder does.
#[repr(align(64))]
struct Targets([u8; PARITY * 1536]);

#[divan::bench(args = Kernel::all().iter().map(|kernel| kernel.name()).collect::<Vec<_>>())]
fn multiply_add(bencher: Bencher<'_, '_>, name: &str) {
    let all = Kernel::all();
    let kernel = all.iter().find(|kernel| kernel.name() == name).expect("it was listed");
    let (source, mut targets) = ([0x5a; BODY], Targets([0; PARITY * 1536]));
    bencher.counter(BytesCount::new(BODY)).bench_local(|| {
        kernel.multiply_add(
            divan::black_box(&[0x81, 0x96, 0xbf]),
            divan::black_box(&source),
            &mut targets.0,
            1536,
        );
    });
}
