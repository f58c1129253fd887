//! Messages and their fragments arrive as the bytes that they carry, and text is refused.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::tungstenite::peer::{
    Ours, Theirs, pattern, roles, roles_and_transports, their_close, within,
};

/// Lengths on both sides of each form of a length (RFC 6455 section 5.2) and of a record of TLS.
const LENGTHS: [usize; 13] =
    [0, 1, 3, 125, 126, 127, 16_383, 16_384, 65_527, 65_528, 65_535, 65_536, 1_000_000];

#[tokio::test]
async fn messages_of_every_length_arrive_at_either_end() {
    for setup in roles_and_transports() {
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        for length in LENGTHS {
            let payload = pattern(length);
            let talk = async {
                let ((), heard) = tokio::join!(
                    async { theirs.send(Message::Binary(payload.clone())).await.unwrap() },
                    ours.read_exactly(length)
                );
                assert_eq!(heard, payload, "{setup:?}: {length} bytes from them");
                let ((), heard) =
                    tokio::join!(ours.write([payload.clone()]), binary(&mut theirs, length));
                assert_eq!(heard, payload, "{setup:?}: {length} bytes from us");
            };
            within(talk).await;
        }
    }
}

/// Receives binary messages until their payloads are `length` bytes.
async fn binary(theirs: &mut Theirs, length: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let message = theirs.next().await.unwrap().unwrap();
        assert!(message.is_binary() && !message.is_empty(), "{message:?}");
        bytes.extend_from_slice(&message.into_data());
    }
    bytes
}

/// The fragments of one message that end at `cuts`, the last at the end of `payload`.
fn fragments(opcode: Data, payload: &Bytes, cuts: &[usize]) -> Vec<Message> {
    let ends = cuts.iter().copied().chain([payload.len()]);
    let mut begin = 0;
    let mut parts: Vec<Bytes> = Vec::new();
    for end in ends {
        parts.push(payload.slice(begin..end));
        begin = end;
    }
    let last = parts.len() - 1;
    let frame = |(i, part): (usize, Bytes)| {
        let opcode = if i == 0 { opcode } else { Data::Continue };
        Message::Frame(Frame::message(part, OpCode::Data(opcode), i == last))
    };
    parts.into_iter().enumerate().map(frame).collect()
}

#[tokio::test]
async fn fragments_of_every_split_bring_the_same_bytes() {
    for setup in roles() {
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let mut sent = Vec::new();
        let mut messages = Vec::new();
        let mut add = |payload: &Bytes, cuts: &[usize]| {
            sent.extend_from_slice(payload);
            messages.extend(fragments(Data::Binary, payload, cuts));
        };
        // Each split in two and in three, empty parts among them.
        let short = pattern(140);
        for first in 0..=short.len() {
            add(&short, &[first]);
            add(&short, &[first, first + (short.len() - first) / 2]);
        }
        let long = pattern(200_000);
        for size in [1000, 65_535, 65_536, 65_537, 199_999] {
            let cuts: Vec<usize> = (1..).map(|i| i * size).take_while(|&at| at < 200_000).collect();
            add(&long, &cuts);
        }
        let talk = async {
            let send = async {
                for message in messages {
                    theirs.feed(message).await.unwrap();
                }
                theirs.flush().await.unwrap();
            };
            let ((), heard) = tokio::join!(send, ours.read_exactly(sent.len()));
            assert!(heard == sent, "{setup:?}");
        };
        within(talk).await;
    }
}

#[tokio::test]
async fn control_frames_stand_between_fragments() {
    for setup in roles_and_transports() {
        let (lane, theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let (mut sink, mut stream) = theirs.split();
        let payload = pattern(3000);
        let send = async {
            for (i, part) in (0..).zip(fragments(Data::Binary, &payload, &[0, 1, 700, 2999])) {
                sink.send(part).await.unwrap();
                sink.send(Message::Pong(Bytes::from_static(b"unasked"))).await.unwrap();
                sink.send(Message::Ping(vec![i; 10].into())).await.unwrap();
            }
        };
        let read = async {
            let heard = ours.read_exactly(payload.len()).await;
            assert_eq!(heard, payload, "{setup:?}");
            // The last ping may follow the last byte.
            ours.read(100).await
        };
        let last_pong = async {
            while stream.next().await.unwrap().unwrap() != Message::Pong(vec![4; 10].into()) {}
        };
        let talk = async {
            tokio::select! {
                ((), ()) = async { tokio::join!(send, last_pong) } => {}
                more = read => panic!("{setup:?}: {more:?}"),
            }
        };
        within(talk).await;
    }
}

#[tokio::test]
async fn text_is_refused_with_1003() {
    let whole = |text: &str| vec![Message::text(text)];
    let cases = [
        whole(""),
        whole("text"),
        fragments(Data::Text, &pattern(100), &[0, 50]),
        [fragments(Data::Binary, &pattern(9), &[4]), whole("later")].concat(),
    ];
    for setup in roles() {
        for messages in cases.clone() {
            let (lane, mut theirs) = setup.connect().await;
            let ours = Ours::new(lane);
            let send = async {
                for message in messages {
                    theirs.send(message).await.unwrap();
                }
                their_close(&mut theirs).await
            };
            let (close, end) = within(async { tokio::join!(send, ours.read_to_end(|_| {})) }).await;
            assert_eq!(close, Some((1003, "a text message".to_owned())), "{setup:?}");
            let end = end.unwrap_err();
            assert!(end.contains("a text message (1003)"), "{end}");
        }
    }
}
