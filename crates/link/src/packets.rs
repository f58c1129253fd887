//! The datagrams of a carrier whose transport supports datagrams, and their scheduling against
//! streams.
//!
//! Such a transport sends datagrams before the bytes of lanes, so continuous datagrams would starve
//! all streams. Therefore, as long as streams have bytes in flight, the transport gets no more
//! bytes of datagrams than it has sent bytes of lanes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::CarrierNumber;
use tokio::time::Sleep;
use transport::{Carried, Datagrams};

use crate::inner::Inner;
use crate::read_end::ReadEnd;

/// The numbers of bytes and datagrams received in one turn before other tasks run. A transport
/// drops datagrams that its reader does not take in time.
const BUDGET: usize = 256 << 10;
const DATAGRAMS: usize = 512;

/// The number of bytes taken from the link at once. The link can no longer drop datagrams that wait
/// for the transport.
const BATCH: usize = 64 << 10;

/// The datagrams of a carrier.
pub(crate) struct Packets {
    datagrams: RefCell<Box<dyn Datagrams>>,
    sending: RefCell<Sending>,
}

#[derive(Default)]
struct Sending {
    /// Datagrams from the link that the transport has not taken yet.
    waiting: VecDeque<Bytes>,
    turns: Turns,
    /// The timer that runs during the turn of the streams.
    pause: Option<Pin<Box<Sleep>>>,
}

impl fmt::Debug for Packets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").finish_non_exhaustive()
    }
}

impl Packets {
    /// Returns `None` if the peer takes no datagrams, so that they are sent as frames.
    pub(crate) fn new(datagrams: Option<Box<dyn Datagrams>>) -> Option<Self> {
        let datagrams = datagrams.filter(|datagrams| datagrams.limit() > 0)?;
        Some(Self { datagrams: RefCell::new(datagrams), sending: RefCell::default() })
    }

    /// Sends waiting datagrams as a part of the writer's turn. Returns the number of bytes.
    pub(crate) fn write(
        &self,
        cx: &mut Context<'_>,
        link: &Inner,
        number: CarrierNumber,
    ) -> io::Result<usize> {
        let Sending { waiting, turns, pause } = &mut *self.sending.borrow_mut();
        let mut datagrams = self.datagrams.borrow_mut();
        let mut written = 0;
        while !waiting.is_empty() || link.machine.borrow().has_packets(number) {
            let now = crate::now();
            if waiting.is_empty() {
                let mut machine = link.machine.borrow_mut();
                let round_trip = machine.round_trip().unwrap_or_default();
                let carried = datagrams.carried();
                let share =
                    turns.share(now, carried, round_trip, || machine.has_payload_under_way());
                if share == 0 {
                    // The streams may send now. The timer wakes the writer if no stream does.
                    let pause = pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(PAUSE)));
                    pause.as_mut().reset(tokio::time::Instant::from_std(now + PAUSE));
                    let _ = pause.as_mut().poll(cx);
                    break;
                }
                let most = (datagrams.limit(), share.min(BATCH));
                let taken = machine.poll_packets(now, number, most, waiting);
                turns.taken(taken);
                if waiting.is_empty() {
                    break;
                }
            }
            let before: usize = waiting.iter().map(Bytes::len).sum();
            let polled = datagrams.poll_send(cx, waiting)?;
            written += before - waiting.iter().map(Bytes::len).sum::<usize>();
            if polled.is_pending() || written >= BUDGET {
                break;
            }
        }
        if written > 0 {
            // The sent datagrams expect an answer, so the deadlines of silence start.
            link.timer.rearm(link.machine.borrow().poll_timeout());
        }
        Ok(written)
    }
}

/// Receives the datagrams of a carrier until the carrier is lost.
pub(crate) async fn run(link: &Rc<Inner>, packets: &Packets, number: CarrierNumber) -> ReadEnd {
    poll_fn(|cx| {
        let now = crate::now();
        let turn = link.begin_turn();
        let (mut bytes, mut count) = (0, 0);
        let end = loop {
            if bytes >= BUDGET || count >= DATAGRAMS {
                cx.waker().wake_by_ref();
                break None;
            }
            let received = packets.datagrams.borrow_mut().poll_recv(cx);
            let packet = match received {
                Poll::Pending => break None,
                Poll::Ready(Err(error)) => break Some(ReadEnd::Lost(error)),
                Poll::Ready(Ok(packet)) => packet,
            };
            link.heard.set(link.heard.get() + 1);
            bytes += packet.len();
            count += 1;
            let event = link.machine.borrow_mut().handle_packet(now, number, packet);
            match event {
                Ok(Some(event)) => link.dispatch(now, event),
                Ok(None) => {}
                Err(violation) => break Some(ReadEnd::Violation(violation)),
            }
        };
        turn.end(now);
        end.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The number of bytes by which datagrams may be ahead of lanes.
const LEAD: i64 = 32 << 10;

/// The number of bytes that may be packet headers and acknowledgements, which are no progress of
/// lanes.
const HEADS: u64 = 2 << 10;

/// The time after which a writer of datagrams checks the lanes again.
const PAUSE: Duration = Duration::from_millis(1);

/// The bounds of the time for which datagrams wait for lanes that could send but do not: one round
/// trip of the path.
const PATIENCE: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(250)];

/// After this wait, datagrams have the path exclusively for this multiple of the wait.
const ALONE: u32 = 8;

/// The interval at which the streams are polled for bytes in flight.
const ASK: Duration = Duration::from_millis(2);

/// The scheduling of datagrams and lanes. The transport sends datagrams first. So it gets datagrams
/// in portions, as long as streams have bytes in flight: the next portion follows when lanes have
/// sent as many bytes, or when lanes do not send although they could.
#[derive(Debug, Default)]
struct Turns {
    /// The number of bytes of datagrams passed to the transport.
    given: u64,
    /// The number of bytes of lanes sent at the last check.
    others: u64,
    /// The number of bytes by which datagrams are ahead of lanes. Datagrams are behind by at most
    /// the bytes that lanes have sent since the last check.
    lead: i64,
    /// The time since which lanes could send but do not.
    silent_since: Option<Instant>,
    alone_until: Option<Instant>,
    /// Whether streams had bytes in flight; `ask_at` is the time of the next poll.
    streams_send: bool,
    ask_at: Option<Instant>,
}

impl Turns {
    /// Returns how many bytes of datagrams may be passed to the transport now.
    fn share(
        &mut self,
        now: Instant,
        carried: Carried,
        round_trip: Duration,
        streams_send: impl FnOnce() -> bool,
    ) -> usize {
        if self.ask_at.is_none_or(|at| at <= now) {
            self.streams_send = streams_send();
            self.ask_at = Some(now + ASK);
        }
        let own = self.given.saturating_sub(carried.waiting);
        let others = carried.packets.saturating_sub(own);
        let progress = others.saturating_sub(self.others);
        self.others = others.max(self.others);
        if progress > 0 {
            let progress = i64::try_from(progress).unwrap_or(i64::MAX);
            self.lead = self.lead.saturating_sub(progress).max(-progress);
        }
        if !self.streams_send || self.alone_until.is_some_and(|until| until > now) {
            self.lead = 0;
            return usize::MAX;
        }
        self.alone_until = None;
        let share = usize::try_from(LEAD - self.lead).unwrap_or(0);
        let is_silent = share == 0 && carried.waiting == 0 && progress < HEADS;
        if !is_silent {
            self.silent_since = None;
        } else {
            let patience = round_trip.clamp(PATIENCE[0], PATIENCE[1]);
            if now.saturating_duration_since(*self.silent_since.get_or_insert(now)) >= patience {
                self.silent_since = None;
                self.alone_until = Some(now + patience * ALONE);
                self.lead = 0;
                return usize::MAX;
            }
        }
        share
    }

    fn taken(&mut self, bytes: usize) {
        self.given += bytes as u64;
        self.lead += bytes as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The behaviour of the streams in a test.
    #[derive(Clone, Copy, PartialEq)]
    enum Streams {
        None,
        /// The streams have more bytes than the path takes.
        Bulk,
        /// The streams wait for their receivers.
        Blocked,
    }

    /// A path of 10 MB/s that sends datagrams before lanes, in steps of 1 ms. Returns the bytes of
    /// each in a second.
    fn second(streams: Streams, datagram_rate: u64) -> [u64; 2] {
        let start = crate::now();
        let (mut turns, mut carried) = (Turns::default(), Carried::default());
        let mut sent = [0, 0];
        let mut offered = 0;
        for ms in 0..1_000 {
            let now = start + Duration::from_millis(ms);
            offered += datagram_rate / 1_000;
            let has_streams = || streams != Streams::None;
            let rtt = Duration::from_millis(20);
            let share = turns.share(now, carried, rtt, has_streams) as u64;
            // The transport has a buffer of 256 KiB.
            let give = share.min(offered).min((256 << 10) - carried.waiting);
            turns.taken(give as usize);
            offered -= give;
            carried.waiting += give;
            let own = carried.waiting.min(10_000);
            carried.waiting -= own;
            let other = if streams == Streams::Bulk { 10_000 - own } else { own / 40 };
            carried.packets += own + other;
            sent[0] += own;
            sent[1] += other;
        }
        sent
    }

    #[test]
    fn datagrams_without_end_leave_a_half_to_streams() {
        let [own, others] = second(Streams::Bulk, 100_000_000);
        assert!(own > 4_000_000 && others > 4_000_000, "{own} {others}");
    }

    #[test]
    fn few_datagrams_go_first_and_the_streams_get_the_rest() {
        let [own, others] = second(Streams::Bulk, 1_000_000);
        assert!(own > 980_000 && others > 8_500_000, "{own} {others}");
    }

    #[test]
    fn datagrams_alone_get_everything() {
        let [own, _] = second(Streams::None, 100_000_000);
        assert!(own > 9_900_000, "{own}");
    }

    #[test]
    fn datagrams_beside_streams_that_do_not_send_get_nearly_everything() {
        let [own, _] = second(Streams::Blocked, 100_000_000);
        assert!(own > 8_500_000, "{own}");
    }
}
