//! The conversations of the kill model.

use proto::Side::{Client, Server};
use proto::{ResetCode, Side, StreamId};
use testkit::pair::{Pair, open};

use crate::kill_model::PIECE;

/// A conversation: how it starts, and how an end handles a stream that the peer opens.
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) start: fn(&mut Pair),
    pub(crate) answer: fn(&mut Pair, Side, StreamId),
    pub(crate) check: fn(&Pair),
}

fn pieces(pair: &mut Pair, side: Side, id: StreamId, count: usize) {
    for n in 0..count {
        let byte = u8::try_from(usize::try_from(id.raw()).unwrap_or(0) * 16 + n).unwrap_or(0);
        pair.write(side, id, &vec![byte; PIECE]);
    }
    pair.finish(side, id);
}

fn expect_pieces(pair: &Pair, reader: Side, raw: u32, count: usize) {
    let seen = pair.seen(reader, StreamId::new(raw));
    assert_eq!(seen.reset, None, "no reset");
    assert!(seen.finished, "{reader:?} saw FIN of {raw}");
    assert_eq!(seen.got.len(), count * PIECE, "all bytes of {raw} to {reader:?}");
    for (n, part) in seen.got.chunks(PIECE).enumerate() {
        let byte = u8::try_from(raw as usize * 16 + n).unwrap_or(0);
        assert!(part.iter().all(|b| *b == byte), "exact bytes of {raw} to {reader:?}");
    }
}

/// Pieces that the opener and the other end send.
const SIZES: [(usize, usize); 3] = [(6, 5), (0, 3), (5, 0)];

pub(crate) const STORIES: &[Story] = &[
    Story {
        name: "both ways",
        start: |pair| {
            let id = pair.open(Client, &open("x"));
            pieces(pair, Client, id, SIZES[0].0);
        },
        answer: |pair, side, id| pieces(pair, side, id, SIZES[0].1),
        check: |pair| {
            expect_pieces(pair, Server, 1, SIZES[0].0);
            expect_pieces(pair, Client, 1, SIZES[0].1);
        },
    },
    Story {
        name: "down only, opened by the server",
        start: |pair| {
            let id = pair.open(Server, &open("x"));
            pieces(pair, Server, id, SIZES[1].0);
        },
        answer: |pair, side, id| pieces(pair, side, id, SIZES[1].1),
        check: |pair| {
            expect_pieces(pair, Client, 2, SIZES[1].0);
            expect_pieces(pair, Server, 2, SIZES[1].1);
        },
    },
    Story {
        name: "up only",
        start: |pair| {
            let id = pair.open(Client, &open("x"));
            pieces(pair, Client, id, SIZES[2].0);
        },
        answer: |pair, side, id| pieces(pair, side, id, SIZES[2].1),
        check: |pair| {
            expect_pieces(pair, Server, 1, SIZES[2].0);
            expect_pieces(pair, Client, 1, SIZES[2].1);
        },
    },
    Story {
        name: "three streams from both sides",
        start: |pair| {
            for side in [Client, Server, Client] {
                let id = pair.open(side, &open("x"));
                pieces(pair, side, id, 2);
            }
        },
        answer: |pair, side, id| pieces(pair, side, id, 1),
        check: |pair| {
            for (raw, opener) in [(1, Client), (2, Server), (3, Client)] {
                expect_pieces(pair, opener.peer(), raw, 2);
                expect_pieces(pair, opener, raw, 1);
            }
        },
    },
    Story {
        name: "one resets, one goes on",
        start: |pair| {
            for count in [2, 3] {
                let id = pair.open(Client, &open("x"));
                pieces(pair, Client, id, count);
            }
        },
        answer: |pair, side, id| {
            if id.raw() == 1 {
                pair.reset(side, id, ResetCode::Aborted);
            } else {
                pieces(pair, side, id, 2);
            }
        },
        check: |pair| {
            expect_pieces(pair, Server, 1, 2);
            assert_eq!(pair.seen(Client, StreamId::new(1)).reset, Some(ResetCode::Aborted));
            expect_pieces(pair, Server, 3, 3);
            expect_pieces(pair, Client, 3, 2);
        },
    },
    Story {
        name: "one is stopped, one goes on",
        start: |pair| {
            let stopped = pair.open(Client, &open("x"));
            pair.write(Client, stopped, &[1; 2 * PIECE]);
            let id = pair.open(Client, &open("x"));
            pieces(pair, Client, id, 3);
        },
        answer: |pair, side, id| {
            if id.raw() == 1 {
                pair.stop(side, id, ResetCode::Denied);
                pair.finish(side, id);
            } else {
                pieces(pair, side, id, 2);
            }
        },
        check: |pair| {
            let stopped = pair.seen(Client, StreamId::new(1));
            assert_eq!(stopped.stopped, Some(ResetCode::Denied));
            assert!(stopped.finished);
            expect_pieces(pair, Server, 3, 3);
            expect_pieces(pair, Client, 3, 2);
        },
    },
    Story {
        name: "a refused dial",
        start: |pair| {
            let id = pair.open(Client, &open("x"));
            pair.write(Client, id, b"early");
        },
        answer: |pair, side, id| {
            pair.reset(side, id, ResetCode::Refused);
            pair.stop(side, id, ResetCode::Refused);
        },
        check: |pair| {
            let seen = pair.seen(Client, StreamId::new(1));
            assert_eq!(seen.reset, Some(ResetCode::Refused));
            assert_eq!(seen.stopped, Some(ResetCode::Refused));
        },
    },
    Story {
        name: "refused in place of the first byte",
        start: |pair| {
            for _ in 0..2 {
                let id = pair.open(Client, &open("x"));
                pair.write(Client, id, b"early");
                pair.finish(Client, id);
            }
        },
        answer: |pair, side, id| {
            if id.raw() == 1 {
                pair.refuse(side, id, ResetCode::Refused);
                assert_eq!(pair.end(side).link.stream_count(), 0, "nothing is kept");
            } else {
                pieces(pair, side, id, 2);
            }
        },
        check: |pair| {
            // As below.
            let refused = pair.seen(Client, StreamId::new(1));
            assert!(matches!(refused.reset, Some(ResetCode::Refused | ResetCode::Shutdown)));
            assert!(refused.closed);
            expect_pieces(pair, Client, 3, 2);
            assert!(pair.seen(Server, StreamId::new(3)).finished);
        },
    },
    Story {
        name: "one stream too many",
        start: |pair| {
            for _ in 0..4 {
                let id = pair.open(Client, &open("x"));
                pieces(pair, Client, id, 1);
            }
        },
        answer: |pair, side, id| pieces(pair, side, id, 1),
        check: |pair| {
            for raw in [1, 3, 5] {
                expect_pieces(pair, Server, raw, 1);
                expect_pieces(pair, Client, raw, 1);
            }
            if pair.laned && pair.end(Server).streams.contains_key(&7) {
                // Its OPEN arrived after another stream had ended: lanes overtake the first lane.
                expect_pieces(pair, Server, 7, 1);
                return expect_pieces(pair, Client, 7, 1);
            }
            // The refusal is sent once; if it is lost with its carrier, RESUME only shows that the
            // stream has ended.
            let refused = pair.seen(Client, StreamId::new(7));
            assert!(matches!(refused.reset, Some(ResetCode::Limit | ResetCode::Shutdown)));
            assert!(refused.stopped.is_some() || refused.closed);
            assert!(!pair.end(Server).streams.contains_key(&7), "the acceptor never saw it");
        },
    },
];
