//! Ends of connections: a Close of either end with its code and reason, and no Close at all.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use crate::tungstenite::peer::{Ours, pattern, roles, roles_and_transports, their_close, within};

/// They close with `code`. The result is the end of our lane and the Close that they receive.
async fn closed_with(
    setup: crate::tungstenite::peer::Setup,
    close: Option<(u16, &str)>,
) -> (Result<(), String>, Option<(u16, String)>) {
    let (lane, mut theirs) = setup.connect().await;
    let ours = Ours::new(lane);
    let close = close.map(|(code, text)| CloseFrame { code: code.into(), reason: text.into() });
    let talk = async {
        theirs.close(close).await.unwrap();
        their_close(&mut theirs).await
    };
    let listen = async {
        let end = ours.read_to_end(|_| {}).await;
        if end.is_ok() {
            ours.close().await;
        }
        end
    };
    let (answer, end) = within(async { tokio::join!(talk, listen) }).await;
    (end, answer)
}

#[tokio::test]
async fn a_close_of_theirs_that_is_no_complaint_is_a_clean_end() {
    for setup in roles_and_transports() {
        for close in [None, Some((1000, "")), Some((1000, "done")), Some((1001, "going away"))] {
            let (end, answer) = closed_with(setup, close).await;
            assert_eq!(end, Ok(()), "{setup:?} {close:?}");
            assert_eq!(answer, Some((1000, String::new())), "{setup:?} {close:?}");
        }
    }
}

#[tokio::test]
async fn a_complaint_of_theirs_is_the_error_with_its_code_and_reason() {
    let long = "é".repeat(61);
    let cases = [
        (1002, ""),
        (1003, "no binary"),
        (1009, "too big"),
        (1011, "line\nbreak \u{1b}[1m"),
        (1013, &long),
        (3000, "registered"),
        (4999, "private"),
    ];
    for setup in roles() {
        for (code, reason) in cases {
            let (end, answer) = closed_with(setup, Some((code, reason))).await;
            let wanted = format!("the peer closed the WebSocket with {code} {reason:?}");
            assert_eq!(end, Err(wanted), "{setup:?}");
            assert_eq!(answer, Some((1000, String::new())), "{setup:?} {code}");
        }
    }
}

#[tokio::test]
async fn a_code_that_must_not_be_sent_is_refused_with_1002() {
    for setup in roles() {
        for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535] {
            let (end, answer) = closed_with(setup, Some((code, ""))).await;
            assert!(end.unwrap_err().contains("must not be sent (1002)"), "{setup:?} {code}");
            assert_eq!(answer.unwrap().0, 1002, "{setup:?} {code}");
        }
    }
}

#[tokio::test]
async fn our_close_follows_all_bytes_and_is_answered() {
    for setup in roles_and_transports() {
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let payload = pattern(300_000);
        let talk = async {
            let mut heard = Vec::new();
            let close = loop {
                let message = theirs.next().await.unwrap().unwrap();
                if message.is_close() {
                    break message;
                }
                heard.extend_from_slice(&message.into_data());
            };
            assert_eq!(heard, payload, "{setup:?}");
            let normal = CloseFrame { code: 1000.into(), reason: "".into() };
            assert_eq!(close, tokio_tungstenite::tungstenite::Message::Close(Some(normal)));
            // The library answers a Close while it waits for the next message.
            assert!(theirs.next().await.is_none(), "{setup:?}");
        };
        let speak = async {
            ours.write([payload.clone()]).await;
            ours.close().await;
            ours.read_to_end(|bytes| panic!("payload {bytes:?}")).await.unwrap();
            // Now the connection below may end.
            ours.close().await;
        };
        within(async { tokio::join!(talk, speak) }).await;
    }
}

#[tokio::test]
async fn a_half_closed_connection_still_carries_the_other_direction() {
    for setup in roles_and_transports() {
        let (lane, theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let (mut sink, mut stream) = theirs.split();
        let payload = pattern(300_000);
        let talk = async {
            sink.send(tokio_tungstenite::tungstenite::Message::Close(None)).await.unwrap();
            let mut heard = Vec::new();
            loop {
                let message = stream.next().await.unwrap().unwrap();
                if message.is_close() {
                    break;
                }
                heard.extend_from_slice(&message.into_data());
            }
            assert!(heard == payload, "{setup:?}");
        };
        let speak = async {
            ours.read_to_end(|bytes| panic!("payload {bytes:?}")).await.unwrap();
            ours.write([payload.clone()]).await;
            ours.close().await;
        };
        within(async { tokio::join!(talk, speak) }).await;
    }
}

#[tokio::test]
async fn an_end_without_a_close_is_an_error_at_the_other_end() {
    for setup in roles() {
        let (lane, theirs) = setup.connect().await;
        drop(theirs);
        let end = within(Ours::new(lane).read_to_end(|_| {})).await.unwrap_err();
        assert!(end.contains("without a Close"), "{setup:?}: {end}");

        let (lane, mut theirs) = setup.connect().await;
        drop(lane);
        let end = within(theirs.next()).await.unwrap().unwrap_err();
        let wanted = ProtocolError::ResetWithoutClosingHandshake;
        assert!(matches!(&end, Error::Protocol(error) if *error == wanted), "{setup:?}: {end}");
    }
}
