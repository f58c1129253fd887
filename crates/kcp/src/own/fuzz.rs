//! The harness of the fuzz targets, also used to replay their corpora.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::fec::{Decoder, Load, Parity, Rebuilt};
use super::wire::{Ack, Body, ConnectionId, Content, PacketHead, PacketKind, PacketNumber, Run};
use super::{Config, Keys, Session};
use crate::Refused;

/// The memory limit of the decoder, in bytes.
const MOST: usize = 10_000;

/// Keys without encryption. The contents of a peer are arbitrary and authentic.
#[derive(Debug)]
struct Plain;

impl Keys for Plain {
    fn tag(&self) -> usize {
        0
    }

    fn seal(
        &mut self,
        _: PacketNumber,
        _: &[u8],
        _: &mut [u8],
        _: &mut [u8],
    ) -> Result<(), Refused> {
        Ok(())
    }

    fn open(
        &mut self,
        _: bool,
        _: PacketNumber,
        _: &[u8],
        text: &mut [u8],
    ) -> Result<usize, Refused> {
        Ok(text.len())
    }
}

/// Passes arbitrary contents of a peer with valid keys to a session that sends a stream and
/// datagrams. The session must keep its invariants. A byte for the time and a byte for the length
/// precede each content.
pub fn session(data: &[u8]) {
    let id = ConnectionId([0; 8]);
    #[expect(clippy::disallowed_methods, reason = "a harness begins now, and counts from there")]
    let mut now = Instant::now();
    let config = Config {
        send_window: 32,
        receive_window: 32,
        decode_memory: MOST,
        datagram_most: 600,
        ..Config::new((id, id), 300)
    };
    let mut session = Session::new(config, Box::new(Plain), now);
    let (mut rest, mut number) = (data, 0);
    while let Some((&[length, wait], after)) = rest.split_first_chunk() {
        let (content, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        now += Duration::from_millis(u64::from(wait) * u64::from(wait) / 16);
        session.handle_timeout(now);
        session.write(now, &mut Bytes::from_static(&[1; 900]));
        drop(session.send_datagram(Bytes::from_static(&[2; 100])));
        let head = PacketHead {
            kind: PacketKind::Sealed,
            phase: false,
            connection: id,
            number: PacketNumber(number),
        };
        // A gap now and then.
        number += 1 + u64::from(wait & 1);
        let mut datagram = head.encode().to_vec();
        datagram.extend_from_slice(content);
        session.handle_datagram(now, &mut datagram, wait & 2 != 0);
        if wait & 4 == 0 {
            while session.read(usize::MAX).is_some() {}
            while session.read_datagram().is_some() {}
        }
        for _ in 0..64 {
            let mut out = Vec::new();
            let Some(sent) = session.poll_transmit(now, &mut out) else { break };
            assert!(sent.length == out.len() && sent.length <= 600);
            let content = Content::decode(&out[super::wire::PACKET_HEAD..]);
            assert!(content.is_ok(), "it sends what can be read");
        }
        assert!(session.timeout().is_none_or(|at| at < now + Duration::from_secs(3_600)));
    }
}

/// Decodes arbitrary packets, each preceded by a byte for its length. A decoded packet must encode
/// to the same bytes, and memory must stay bounded.
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
            | Body::Close { .. }
            | Body::Padding(_) => {}
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
