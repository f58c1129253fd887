//! Heads and payloads, read and written.

use kcp_go::wire::{Command, Conversation, Head, Millis, Segment, Segments, Sn};

use crate::vectors::json::{cases, hex, number};

#[test]
fn segments_are_read_and_written_as_kcp_go_does() {
    for case in cases("segments") {
        let head = Head {
            conversation: Conversation(number(&case["conv"])),
            command: match number(&case["cmd"]) {
                81 => Command::Push,
                82 => Command::Ack,
                83 => Command::AskWindow,
                84 => Command::TellWindow,
                other => panic!("command {other}"),
            },
            fragments: number(&case["frg"]),
            window: number(&case["wnd"]),
            timestamp: Millis(number(&case["ts"])),
            sn: Sn(number(&case["sn"])),
            una: Sn(number(&case["una"])),
        };
        let (bytes, payload) = (hex(&case["bytes"]), hex(&case["data"]));
        let read: Vec<_> = Segments::new(head.conversation, &bytes).collect();
        assert_eq!(read, [Ok(Segment { head, payload: &payload })], "{}", case["name"]);
        let written = [&head.encode(number(&case["len"]))[..], &payload].concat();
        assert_eq!(written, bytes, "{}", case["name"]);
    }
}
