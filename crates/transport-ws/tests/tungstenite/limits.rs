//! Limits: a message of more than 16 MiB is refused, a claimed length takes no memory, and our own
//! messages keep within 64 KiB.

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::tungstenite::peer::{Ours, Setup, pattern, roles, their_close, within};

const LIMIT: usize = 16 << 20;

/// The most memory that our end may hold beside the caller's buffer, in bytes.
const HELD: usize = 64 << 10;

/// The fragments of a message, `size` bytes each, `length` bytes together.
fn fragments(length: usize, size: usize) -> Vec<Message> {
    let payload = Bytes::from(vec![0x5a; length]);
    let parts: Vec<Bytes> =
        (0..length).step_by(size).map(|at| payload.slice(at..length.min(at + size))).collect();
    let last = parts.len() - 1;
    let frame = |(i, part): (usize, Bytes)| {
        let opcode = if i == 0 { Data::Binary } else { Data::Continue };
        Message::Frame(Frame::message(part, OpCode::Data(opcode), i == last))
    };
    parts.into_iter().enumerate().map(frame).collect()
}

#[tokio::test]
async fn a_message_at_the_limit_passes_through_little_memory() {
    for setup in roles() {
        for size in [LIMIT, 1 << 20] {
            let (lane, mut theirs) = setup.connect().await;
            let ours = Ours::new(lane);
            let send = async {
                for message in fragments(LIMIT, size) {
                    theirs.feed(message).await.unwrap();
                }
                theirs.flush().await.unwrap();
            };
            let read = async {
                let mut left = LIMIT;
                while left > 0 {
                    left -= ours.read(64 << 10).await.unwrap().len();
                    assert!(ours.held() <= HELD, "{setup:?}: {} bytes held", ours.held());
                }
            };
            within(async { tokio::join!(send, read) }).await;
        }
    }
}

#[tokio::test]
async fn a_message_above_the_limit_is_refused_with_1009() {
    for setup in roles() {
        for (size, before) in [(LIMIT + 1, 0), (1 << 20, LIMIT), (LIMIT, LIMIT)] {
            let (lane, theirs) = setup.connect().await;
            let ours = Ours::new(lane);
            let (mut sink, mut stream) = theirs.split();
            let send = async {
                for message in fragments(LIMIT + 1, size) {
                    sink.send(message).await.unwrap();
                }
                std::future::pending().await
            };
            let answered = async {
                tokio::select! {
                    close = their_close(&mut stream) => close,
                    () = send => None,
                }
            };
            let mut heard = 0;
            let read = ours.read_to_end(|bytes| heard += bytes.len());
            let (close, end) = within(async { tokio::join!(answered, read) }).await;
            let text = "a message of more than 16 MiB";
            assert_eq!(close, Some((1009, text.to_owned())), "{setup:?}");
            let end = end.unwrap_err();
            assert!(end.contains(&format!("{text} (1009)")), "{end}");
            // Of the frame that is too long, nothing is passed on.
            assert!(heard <= before, "{setup:?}: {heard} bytes");
        }
    }
}

/// The library cannot claim more than it sends, so the head is written below it.
#[tokio::test]
async fn a_claimed_length_takes_no_memory() {
    for setup in roles() {
        let masked = if setup.theirs == Role::Client { 0x80 } else { 0 };
        let claim = |length: u64| {
            let mut head = vec![0x82, masked | 127];
            head.extend(length.to_be_bytes());
            head.extend(if masked > 0 { &[0; 4][..] } else { &[] });
            head
        };
        let (lane, mut theirs) = setup.connect().await;
        let ours = Ours::new(lane);
        let start = [claim(LIMIT as u64), b"start".to_vec()].concat();
        theirs.get_mut().write_all(&start).await.unwrap();
        let read = within(ours.read(1000)).await.unwrap();
        assert_eq!((&read[..], read.capacity()), (&b"start"[..], 1000));
        assert!(ours.held() <= HELD, "{setup:?}: {} bytes held", ours.held());

        for (length, code) in [(LIMIT as u64 + 1, 1009), (u64::MAX >> 1, 1009), (u64::MAX, 1002)] {
            let (lane, mut theirs) = setup.connect().await;
            let ours = Ours::new(lane);
            theirs.get_mut().write_all(&claim(length)).await.unwrap();
            let talk = async { tokio::join!(their_close(&mut theirs), ours.read_to_end(|_| {})) };
            let (close, end) = within(talk).await;
            assert_eq!(close.unwrap().0, code, "{setup:?}");
            assert!(end.unwrap_err().contains(&format!("({code})")), "{setup:?}");
            assert!(ours.held() <= HELD, "{setup:?}: {} bytes held", ours.held());
        }
    }
}

#[tokio::test]
async fn our_messages_keep_within_64_kib() {
    let most = Some(64 << 10);
    let config = WebSocketConfig::default().max_frame_size(most).max_message_size(most);
    for setup in roles() {
        let (lane, mut theirs) = Setup { config: Some(config), ..setup }.connect().await;
        let ours = Ours::new(lane);
        let sent = pattern(1_000_000);
        let mut left = sent.len() + 100 * 5000;
        let read = async {
            while left > 0 {
                left -= theirs.next().await.unwrap().unwrap().len();
            }
        };
        let frames = [sent].into_iter().chain(vec![pattern(5000); 100]);
        within(async { tokio::join!(read, ours.write(frames)) }).await;
    }
}
