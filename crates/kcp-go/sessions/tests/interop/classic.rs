//! The classic machine and kcp-go.

use std::time::Duration;

use kcp_go::classic::{Classic, Config, Flush, Packet};
use kcp_go::wire::{Command, Content, Conversation, Millis, Segments, oob_head};

use crate::drive::{End, Line, Transfer, summary};
use crate::path;
use crate::peer::Peer;

const CONVERSATION: Conversation = Conversation(0x8123_4567);

/// The settings of kcptun's profile `fast3`.
const QUICK: Config = Config {
    conversation: CONVERSATION,
    mtu: 1_350,
    is_quick: true,
    interval: 10,
    resend: 2,
    is_controlled: false,
    send_window: 256,
    receive_window: 256,
    is_stream: true,
};

/// The longest piece that an application writes.
const PIECE: usize = 8 << 10;

struct ClassicEnd {
    session: Classic,
    ack_no_delay: bool,
    next_flush: Duration,
    conversation: Conversation,
    /// How often the peer asked for the window.
    questions: u32,
    /// Datagrams beside the session that are to be sent, and those that came.
    to_send: Vec<Vec<u8>>,
    out_of_band: Vec<Vec<u8>>,
}

impl ClassicEnd {
    fn new(config: Config) -> Self {
        Self {
            session: Classic::new(config),
            ack_no_delay: false,
            next_flush: Duration::ZERO,
            conversation: config.conversation,
            questions: 0,
            to_send: Vec::new(),
            out_of_band: Vec::new(),
        }
    }
}

fn clock(now: Duration) -> Millis {
    Millis(u32::try_from(now.as_millis()).unwrap())
}

impl End for ClassicEnd {
    fn input(&mut self, now: Duration, datagram: &[u8], sink: &mut dyn FnMut(&[u8])) {
        let segments = match Content::of(datagram).unwrap() {
            Content::Segments(segments) | Content::Data { segments, .. } => segments,
            // Without parity the session repairs losses by itself.
            Content::Parity { .. } => return,
            Content::OutOfBand { conversation, payload } => {
                assert_eq!(conversation, self.conversation);
                return self.out_of_band.push(payload.to_vec());
            }
        };
        for segment in Segments::new(self.conversation, segments).map(Result::unwrap) {
            self.questions += u32::from(segment.head.command == Command::AskWindow);
        }
        let (now, ack_no_delay) = (clock(now), self.ack_no_delay);
        self.session.input(now, Packet::Regular, ack_no_delay, segments, sink).unwrap();
    }

    fn turn(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) -> Duration {
        self.to_send.drain(..).for_each(|datagram| sink(&datagram));
        if now >= self.next_flush {
            let next = self.session.flush(clock(now), Flush::Full, sink);
            self.next_flush = now + Duration::from_millis(next.into());
        }
        self.next_flush
    }

    fn write(&mut self, now: Duration, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> usize {
        let mut taken = 0;
        for piece in bytes.chunks(PIECE) {
            if !self.session.write(clock(now), piece, sink) {
                break;
            }
            taken += piece.len();
        }
        taken
    }

    fn read(&mut self, to: &mut [u8]) -> Option<usize> {
        self.session.recv(to).ok()
    }

    fn is_acknowledged(&self) -> bool {
        self.session.backlog() == 0
    }
}

/// Dials a stock peer that sends everything back.
fn dial(config: Config, flags: &[&str], loss: f64, length: usize) {
    let transfer = Transfer::new(length, length);
    let count = length.to_string();
    let (peer, port) = Peer::serve(&[&["-echo", "-receive", &count], flags].concat());
    let mut line = Line::to(port, path(loss), 1);
    let came = transfer.run(&mut ClassicEnd::new(config), &mut line);
    assert_eq!(summary(&came), transfer.expected(), "what came back");
    assert_eq!(peer.next("received"), transfer.expected(), "what the peer got");
}

/// Takes a stock peer that dials, and both send.
fn serve(config: Config, flags: &[&str], loss: f64, length: usize) {
    let transfer = Transfer::new(length, length);
    let mut line = Line::bind(path(loss), 2);
    let (count, address) = (length.to_string(), format!("127.0.0.1:{}", line.port()));
    let own = ["-dial", &address, "-send", &count, "-receive", &count];
    let peer = Peer::start(&[&own, flags].concat());
    let first = line.accept();
    let conversation = u32::from_le_bytes(first[..4].try_into().unwrap());
    let config = Config { conversation: Conversation(conversation), ..config };
    let came = transfer.run(&mut ClassicEnd::new(config), &mut line);
    let mut said = [peer.next(""), peer.next("")];
    said.sort();
    let expected =
        [format!("received {}", transfer.expected()), format!("sent {}", summary(&came))];
    assert_eq!(said, expected);
}

#[test]
fn a_stock_server_and_this_client_exchange_bytes_at_any_loss() {
    for (loss, length) in [(0.0, 2_000_000), (0.05, 500_000), (0.2, 300_000)] {
        dial(QUICK, &[], loss, length);
    }
}

#[test]
fn a_stock_client_and_this_server_exchange_bytes_at_any_loss() {
    for (loss, length) in [(0.0, 2_000_000), (0.05, 500_000), (0.2, 300_000)] {
        serve(QUICK, &[], loss, length);
    }
}

#[test]
fn settings_need_not_be_those_of_the_peer() {
    let slow = Config { is_quick: false, interval: 40, resend: 0, is_controlled: true, ..QUICK };
    dial(slow, &["-stream=false", "-acknodelay"], 0.02, 100_000);
    let defaults = ["-nodelay", "0", "-interval", "100", "-resend", "0", "-nc", "0"];
    dial(QUICK, &defaults, 0.02, 100_000);
    let narrow = Config { mtu: 200, is_stream: false, send_window: 5, receive_window: 5, ..QUICK };
    dial(narrow, &["-sndwnd", "7", "-rcvwnd", "9", "-mtu", "300"], 0.02, 50_000);
    serve(narrow, &["-sndwnd", "7", "-rcvwnd", "9", "-mtu", "1500"], 0.02, 50_000);
}

#[test]
fn a_stock_peer_asks_for_a_window_that_closed() {
    let length = 200_000;
    let transfer = Transfer { reads: Duration::from_millis(800), ..Transfer::new(1, length) };
    let count = length.to_string();
    let (peer, port) = Peer::serve(&["-send", &count]);
    let mut line = Line::to(port, path(0.05), 3);
    let mut end = ClassicEnd::new(Config { receive_window: 32, ..QUICK });
    end.ack_no_delay = true;
    let came = transfer.run(&mut end, &mut line);
    assert_eq!(peer.next("sent"), summary(&came));
    assert!(end.questions > 0, "the window never closed");
}

#[test]
fn a_peer_that_listens_anew_takes_a_new_session() {
    let (mut peer, port) = Peer::serve(&["-receive", "50000"]);
    for (conversation, shards) in [(7, (0, 0)), (8, (10, 3)), (9, (3, 2))] {
        peer.listen(shards.0, shards.1);
        let transfer = Transfer::new(50_000, 0);
        let config = Config { conversation: Conversation(conversation), ..QUICK };
        let mut line = Line::to(port, path(0.0), 4);
        transfer.run(&mut ClassicEnd::new(config), &mut line);
        assert_eq!(peer.next("received"), transfer.expected());
    }
}

#[test]
fn a_stock_peer_with_fec_takes_segments_without_it() {
    for shards in [["10", "3"], ["3", "2"], ["1", "1"]] {
        let flags = ["-datashard", shards[0], "-parityshard", shards[1]];
        dial(QUICK, &flags, 0.05, 300_000);
    }
}

#[test]
fn a_datagram_out_of_band_comes_back() {
    let flags = ["-echo", "-oob", "-receive", "60000", "-datashard", "10", "-parityshard", "3"];
    let (peer, port) = Peer::serve(&flags);
    let mut line = Line::to(port, path(0.0), 5);
    let mut end = ClassicEnd::new(QUICK);
    // Before its first echo the peer may not be ready for datagrams out of band.
    let mut came = Transfer::new(10_000, 10_000).run(&mut end, &mut line);
    let payload = b"beside the stream";
    let head = oob_head(CONVERSATION, payload.len()).unwrap();
    end.to_send = vec![[&head[..], payload].concat()];
    came.extend(Transfer::new(50_000, 50_000).run(&mut end, &mut line));
    assert_eq!(summary(&came), peer.next("received"));
    assert!(!end.out_of_band.is_empty(), "nothing came back");
    assert!(end.out_of_band.iter().all(|came| came == payload), "{:?}", end.out_of_band);
}
