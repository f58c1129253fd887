//! The harness of the fuzz target, which the replay of its corpus uses as well.

use super::fec::{Decoder, Load, Parity, Rebuilt};
use super::wire::{Ack, Body, Content, PacketHead, PacketNumber, Run};

/// Bytes that the decoder may keep.
const MOST: usize = 10_000;

/// Any packets, each with a byte for its length in front: they are read, what is read is written as
/// it was, and memory stays bounded.
pub fn packets(data: &[u8]) {
    let mut decoder = Decoder::new(MOST);
    let mut rest = data;
    while let Some((&length, after)) = rest.split_first() {
        let (packet, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        if let Ok(head) = PacketHead::decode(packet) {
            assert_eq!(head.encode(), packet[..head.encode().len()]);
        }
        let Ok(content) = Content::decode(packet) else { continue };
        if let Some(ack) = content.ack {
            read_ack(&ack);
        }
        let mut again = Vec::new();
        Content::put_head(content.ack.as_ref(), content.control, &content.body, &mut again);
        assert!(again.len() <= packet.len() && again[0] == packet[0]);
        let mut rebuilt = Rebuilt::default();
        match content.body {
            Body::Empty
            | Body::Datagram(_)
            | Body::Challenge(_)
            | Body::Answer(_)
            | Body::Close { .. } => {}
            Body::Segments(body) => read_run(body),
            Body::Data(shard, load, body) => {
                if decoder.data(shard, load, body, &mut rebuilt) && load == Load::Segments {
                    read_run(body);
                }
                let mut again = Rebuilt::default();
                assert!(!decoder.data(shard, load, body, &mut again) && again.is_empty());
            }
            Body::Parity { shard, k, is_final, parity } => {
                decoder.parity(Parity { shard, k, is_final }, parity, &mut rebuilt);
            }
        }
        assert!(decoder.held() <= MOST);
        rebuilt.iter().for_each(|(_, body)| read_run(body));
    }
}

fn read_run(body: &[u8]) {
    for segment in Run::new(body).into_iter().flatten().map_while(Result::ok) {
        assert!(segment.payload.len() <= body.len());
    }
}

fn read_ack(ack: &Ack) {
    let mut below = u64::MAX;
    for (first, last) in ack.packets(PacketNumber(1 << 40)) {
        assert!(first <= last && last.0 < below);
        below = first.0;
    }
    for (_, count) in ack.segments() {
        assert!(count > 0);
    }
}
