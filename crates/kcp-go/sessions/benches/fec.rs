//! FEC of kcp-go at 10/3 with shards of 1,500 bytes. The counter of items is shards of data, so
//! that the time of a group is divided by 10 for the figure of one shard. `cargo bench -p kcp-go`
//! in the folder of this workspace runs the benchmarks.

use std::time::Instant;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use kcp_go::fec::{Decoder, Encoder, Ratio, Settings, Shard};
use kcp_go::wire::ShardId;
use testkit::pair::epoch;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

const DATA: usize = 10;
const PARITY: usize = 3;
/// A whole datagram, without the head that is not part of the code.
const BODY: usize = 1500;
/// The segments are behind the size.
const SEGMENTS: usize = BODY - 2;

fn ratio() -> Ratio {
    Ratio::new(DATA, PARITY).expect("10/3 is a ratio")
}

fn encoder() -> Encoder {
    Encoder::new(Settings { ratio: ratio(), longest: SEGMENTS, pause: None })
}

/// One group: ten shards are pushed, three are polled.
fn encode(encoder: &mut Encoder, segments: &[u8], parity: &mut [u8], now: Instant) {
    for _ in 0..DATA {
        let _ = divan::black_box(encoder.push(divan::black_box(segments), now));
    }
    while let Some(length) = encoder.poll_parity(parity) {
        divan::black_box(&parity[..length]);
    }
}

#[divan::bench]
fn encode_group(bencher: Bencher<'_, '_>) {
    let (mut encoder, mut parity) = (encoder(), [0; BODY + 6]);
    let (segments, now) = ([0x5a; SEGMENTS], epoch());
    encode(&mut encoder, &segments, &mut parity, now);
    bencher
        .counter(ItemsCount::new(DATA))
        .bench_local(|| encode(&mut encoder, &segments, &mut parity, now));
}

/// One group from which `lost` data shards are missing. All shards of parity come behind the data,
/// so that those that are not needed are received as well.
#[divan::bench(args = [0, 1, 2, 3])]
fn decode_group(bencher: Bencher<'_, '_>, lost: usize) {
    let mut encoder = encoder();
    let (mut bodies, now) = (Vec::new(), epoch());
    for n in 0..DATA {
        let segments = [b'a' + u8::try_from(n).unwrap_or(0); SEGMENTS];
        let head = encoder.push(&segments, now).expect("it fits");
        bodies.push([&head[6..], &segments].concat());
    }
    let mut packet = [0; BODY + 6];
    while let Some(length) = encoder.poll_parity(&mut packet) {
        bodies.push(packet[6..length].to_vec());
    }
    let mut decoder = Decoder::new(ratio(), BODY);
    let mut first = 0;
    let mut receive = |bodies: &[Vec<u8>]| {
        for (position, body) in bodies.iter().enumerate().skip(lost) {
            let id = ShardId(first + u32::try_from(position).unwrap_or(0));
            let shard = Shard { id, is_data: position < DATA, body };
            for segments in decoder.handle_shard(shard).segments() {
                divan::black_box(segments);
            }
        }
        first = (first + 13) % 0xffff_fff7;
    };
    (0..8).for_each(|_| receive(&bodies));
    bencher.counter(ItemsCount::new(DATA)).bench_local(|| receive(divan::black_box(&bodies)));
}
