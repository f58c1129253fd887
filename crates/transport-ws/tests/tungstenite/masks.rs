//! Masks (RFC 6455 sections 5.1 and 5.3): a client must mask, a server must not, and each frame has
//! a key of its own.

use std::collections::HashSet;

use futures_util::SinkExt as _;
use tokio::io::AsyncReadExt as _;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::tungstenite::peer::{Ours, roles_and_transports, their_close, within};

/// They send a message in the role of the other end: a client without a mask, a server with one.
#[tokio::test]
async fn an_end_that_masks_wrongly_is_refused_with_1002() {
    for setup in roles_and_transports() {
        let (lane, theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let (wrong, text) = match setup.theirs {
            Role::Client => (Role::Server, "a client's frame is not masked"),
            Role::Server => (Role::Client, "a server's frame is masked"),
        };
        let talk = async {
            let mut liar =
                WebSocketStream::from_raw_socket(theirs.into_inner(), wrong, setup.config).await;
            liar.send(Message::binary("payload")).await.unwrap();
            let socket = liar.into_inner();
            let mut theirs =
                WebSocketStream::from_raw_socket(socket, setup.theirs, setup.config).await;
            their_close(&mut theirs).await
        };
        let listen = ours.read_to_end(|bytes| panic!("payload {bytes:?}"));
        let (close, end) = within(async { tokio::join!(talk, listen) }).await;
        assert_eq!(close, Some((1002, text.to_owned())), "{setup:?}");
        let end = end.unwrap_err();
        assert!(end.contains(&format!("{text} (1002)")), "{end}");
    }
}

#[tokio::test]
async fn each_frame_of_ours_has_a_fresh_key() {
    const FRAMES: usize = 500;
    for setup in roles_and_transports().filter(|setup| setup.theirs == Role::Server) {
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let write = async {
            for _ in 0..FRAMES {
                ours.write([b"zero"[..].into()]).await;
            }
        };
        let read = async {
            let mut keys = HashSet::new();
            for _ in 0..FRAMES {
                let mut frame = [0; 10];
                theirs.get_mut().read_exact(&mut frame).await.unwrap();
                let [0x82, 0x84, key @ .., a, b, c, d] = frame else { panic!("{frame:?}") };
                let masked = [a, b, c, d];
                for i in 0..4 {
                    assert_eq!(masked[i] ^ key[i], b"zero"[i]);
                }
                keys.insert(key);
            }
            keys
        };
        let ((), keys) = within(async { tokio::join!(write, read) }).await;
        // 500 random keys of 32 bits are all different but once in 34,000 times; two pairs of equal
        // keys come once in 2 billion times.
        assert!(keys.len() >= FRAMES - 1, "{setup:?}: {} keys", keys.len());
    }
}
