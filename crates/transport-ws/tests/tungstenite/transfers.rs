//! Large transfers in both directions at once. Hashes are compared.

use aws_lc_rs::digest::{Context, Digest, SHA256};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::tungstenite::peer::{Ours, roles_and_transports, within};

/// Bytes in each direction.
const TOTAL: usize = 12 << 20;

/// Pseudo-random messages of 1 to 200,000 bytes, `TOTAL` bytes together. Most are short or
/// unaligned.
fn messages(seed: u64) -> (Vec<Bytes>, Digest) {
    let mut state = seed;
    // Knuth's linear congruential generator (MMIX).
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let (mut messages, mut hash, mut left) = (Vec::new(), Context::new(&SHA256), TOTAL);
    while left > 0 {
        let most = [20, 2000, 200_000][usize::try_from(next() % 3).unwrap()];
        let size = usize::try_from(next() % most + 1).unwrap().min(left);
        let words = std::iter::repeat_with(|| next().to_le_bytes());
        let message: Bytes = words.flat_map(|word| [word[0], word[1]]).take(size).collect();
        hash.update(&message);
        left -= size;
        messages.push(message);
    }
    (messages, hash.finish())
}

#[tokio::test]
async fn both_directions_bring_every_byte_at_once() {
    let (from_us, our_hash) = messages(1);
    let (from_them, their_hash) = messages(2);
    for setup in roles_and_transports() {
        let (lane, theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let (mut sink, mut stream) = theirs.split();
        let they_send = async {
            for message in &from_them {
                sink.feed(Message::Binary(message.clone())).await.unwrap();
            }
            sink.flush().await.unwrap();
            sink
        };
        let they_read = async {
            let (mut hash, mut left) = (Context::new(&SHA256), TOTAL);
            while left > 0 {
                let bytes = stream.next().await.unwrap().unwrap().into_data();
                hash.update(&bytes);
                left -= bytes.len();
            }
            hash.finish()
        };
        // A Close ends both directions (RFC 6455 section 5.5.1), so it leaves after all bytes.
        let theirs = async {
            let (mut sink, hash) = tokio::join!(they_send, they_read);
            let normal = CloseFrame { code: 1000.into(), reason: "".into() };
            sink.send(Message::Close(Some(normal))).await.unwrap();
            hash
        };
        let we_send = async {
            for frames in from_us.chunks(50) {
                ours.write(frames.iter().cloned()).await;
            }
        };
        let we_read = async {
            let mut hash = Context::new(&SHA256);
            ours.read_to_end(|bytes| hash.update(bytes)).await.unwrap();
            hash.finish()
        };
        let all = async { tokio::join!(theirs, we_send, we_read) };
        let (they_heard, (), we_heard) = within(all).await;
        assert_eq!(they_heard.as_ref(), our_hash.as_ref(), "{setup:?}");
        assert_eq!(we_heard.as_ref(), their_hash.as_ref(), "{setup:?}");
    }
}
