//! Each end answers the pings of the other.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use crate::tungstenite::peer::{Ours, Setup, pattern, roles_and_transports, their_close, within};

#[tokio::test]
async fn their_ping_comes_back_as_a_pong_with_its_payload() {
    for setup in roles_and_transports() {
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let talk = async {
            for length in [0, 1, 4, 124, 125] {
                theirs.send(Message::Ping(pattern(length))).await.unwrap();
                let pong = theirs.next().await.unwrap().unwrap();
                assert_eq!(pong, Message::Pong(pattern(length)), "{setup:?}");
            }
            theirs.close(None).await.unwrap();
            their_close(&mut theirs).await
        };
        let listen = async {
            ours.read_to_end(|bytes| panic!("payload {bytes:?}")).await.unwrap();
            ours.close().await;
        };
        within(async { tokio::join!(talk, listen) }).await;
    }
}

#[tokio::test]
async fn they_answer_our_ping_and_the_connection_goes_on() {
    for setup in roles_and_transports() {
        let setup = Setup { ping_after: Duration::from_millis(20), ..setup };
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let talk = async {
            for _ in 0..3 {
                let ping = theirs.next().await.unwrap().unwrap();
                assert_eq!(ping, Message::Ping(Bytes::new()), "{setup:?}");
            }
            theirs.send(Message::binary(pattern(500))).await.unwrap();
            while theirs.next().await.unwrap().unwrap() != Message::binary(pattern(600)) {}
        };
        let listen = async {
            assert_eq!(ours.read_exactly(500).await, pattern(500));
            ours.write([pattern(600)]).await;
        };
        within(async { tokio::join!(talk, listen) }).await;
    }
}

#[tokio::test]
async fn a_control_frame_that_is_too_long_is_refused_with_1002() {
    for setup in roles_and_transports() {
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let talk = async {
            theirs.send(Message::Ping(pattern(126))).await.unwrap();
            their_close(&mut theirs).await
        };
        let (close, end) = within(async { tokio::join!(talk, ours.read_to_end(|_| {})) }).await;
        let text = "a control frame is fragmented or longer than 125 bytes";
        assert_eq!(close, Some((1002, text.to_owned())), "{setup:?}");
        assert!(end.unwrap_err().contains(text));
    }
}
