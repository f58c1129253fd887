//! The harnesses of the fuzz targets, which the replay of their corpora uses as well.

use std::time::Instant;

use super::{Decoder, Encoder, Ratio, Settings, Shard};
use crate::wire::Content;

/// The longest segments that the harnesses send.
const LONGEST: usize = 300;

/// Passes arbitrary datagrams to a decoder. Memory must stay bounded, and only possible shards may
/// be rebuilt. The first two bytes of `data` choose the ratio, and each datagram has its length in
/// front.
pub fn shards(data: &[u8]) {
    let Some((&[shards, parity], mut rest)) = data.split_first_chunk() else { return };
    let ratio = Ratio::new(usize::from(shards), usize::from(parity));
    let Some(ratio) = ratio else { return };
    let mut decoder = Decoder::new(ratio, LONGEST);
    while let Some((&length, behind)) = rest.split_first() {
        let (datagram, behind) =
            behind.split_at_checked(usize::from(length)).unwrap_or((behind, &[]));
        rest = behind;
        let Some(shard) = Content::of(datagram).as_ref().and_then(Shard::of) else { continue };
        let rebuilt = decoder.handle_shard(shard);
        for (body, segments) in rebuilt.bodies().zip(rebuilt.segments()) {
            assert!(body.len() <= LONGEST && segments.len() <= LONGEST);
        }
        let count = rebuilt.bodies().count();
        assert!(count <= decoder.ratio().data().min(decoder.ratio().parity()));
        assert!(decoder.open_groups() <= 4);
    }
}

/// A sender and a receiver with a path that loses and repeats datagrams as `data` says. A rebuilt
/// shard must have been sent. Parity that arrives after its group was decoded may rebuild a
/// received shard.
pub fn groups(data: &[u8]) {
    let Some((&[shards, parity, made], choices)) = data.split_first_chunk() else { return };
    let ratio = Ratio::new(usize::from(shards % 20), usize::from(parity % 20));
    let Some(ratio) = ratio else { return };
    let mut encoder = Encoder::new(Settings { ratio, longest: LONGEST, pause: None });
    let mut decoder = Decoder::new(ratio, LONGEST + 2);
    encoder.set_parity(usize::from(made));
    #[expect(clippy::disallowed_methods, reason = "a harness begins now, and counts from there")]
    let now = Instant::now();
    let mut sent = vec![vec![0; 4]]; // the segments of fillers
    let mut packet = [0; LONGEST + 8];
    for (n, &choice) in choices.iter().enumerate() {
        let length = 4 + usize::from(choice) % (LONGEST - 4);
        let segments: Vec<u8> = (0..length).map(|at| choice ^ at.to_le_bytes()[0]).collect();
        if choice % 32 == 31 {
            encoder.close_early();
        }
        while let Some(filler) = encoder.poll_filler(now) {
            receive(&mut decoder, &filler, &sent);
        }
        while let Some(length) = encoder.poll_parity(&mut packet) {
            receive(&mut decoder, &packet[..length], &sent);
        }
        let head = encoder.push(&segments, now);
        let Ok(head) = head else { panic!("message {n} of {length} bytes fits") };
        let shard = [&head[..], &segments].concat();
        sent.push(segments);
        // The datagram is delivered from zero to five times.
        for _ in 3..choice % 8 + 1 {
            receive(&mut decoder, &shard, &sent);
        }
    }
}

fn receive(decoder: &mut Decoder, datagram: &[u8], sent: &[Vec<u8>]) {
    let content = Content::of(datagram);
    let Some(shard) = content.as_ref().and_then(Shard::of) else { panic!("a shard was sent") };
    for segments in decoder.handle_shard(shard).segments() {
        assert!(sent.iter().any(|sent| sent == segments), "{segments:?} was not sent");
    }
}
