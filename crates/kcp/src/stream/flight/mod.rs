//! Transmissions in flight: detects lost transmissions, and determines when to send a probe.
//!
//! Each transmission has a number. It is lost when enough later transmissions have arrived: by
//! count as in RFC 5681 and RFC 9002 section 6.1.1, or by time as in RACK (RFC 8985). If the path
//! reorders, the count is not used and the time grows. When no acknowledgement arrives, probes are
//! sent at growing intervals (RFC 8985 section 7; RFC 9002 section 6.2).
//!
//! The work per acknowledgement is constant, amortised. Transmissions are in the order in which
//! they were sent. Both criteria hold for all transmissions before the first transmission for which
//! they do not hold, and ended transmissions are removed from the front.

mod rtt;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use rtt::Rtt;

/// The denominator of the reordering window, as a fraction of the round trip: RFC 9002 section
/// 6.1.2.
const LATE: u32 = 8;

/// The number of rounds without reordering after which a path counts as one without reordering. RFC
/// 8985 section 6.2, step 4, uses 16 recoveries.
const FORGET: u32 = 16;

/// The interval of probes doubles at most this number of times.
const BACKOFF_MAX: u32 = 8;

/// After this number of successive unanswered probes, the state of the path is discarded.
const PERSISTENT: u32 = 3;

/// A transmission with the data that the owner needs when it is acknowledged or lost.
#[derive(Clone, Copy, Debug)]
pub struct Transmission<C> {
    /// When it was sent.
    pub at: Instant,
    /// Its size in bytes.
    pub bytes: u32,
    /// The data of the owner.
    pub cargo: C,
    /// The sender had no more data to send.
    pub is_limited: bool,
    is_open: bool,
}

/// The transmissions of one direction.
#[derive(Debug)]
pub struct Flight<C> {
    /// The round trip. The owner adds the samples.
    pub rtt: Rtt,
    /// Transmission `first + n` is at index `n`.
    log: VecDeque<Transmission<C>>,
    first: u64,
    in_flight: u64,
    /// The newest transmission that has arrived, and the time when it was sent.
    newest: Option<(u64, Instant)>,
    /// The reordering threshold in transmissions. 0: no threshold.
    pub overtake: u64,
    /// The time by which a transmission may be late, in eighths of the round trip.
    late: u32,
    /// Rounds until reordering is forgotten.
    reorders_for: u32,
    round_end: u64,
    last_sent: Option<Instant>,
    /// The number of probes since the last acknowledgement.
    probes: u32,
    /// The time at which an overtaken transmission counts as lost.
    overdue: Option<Instant>,
}

impl<C: Copy> Flight<C> {
    /// Nothing is under way. `overtake` is the reordering threshold in transmissions; 0: none.
    pub const fn new(overtake: u64) -> Self {
        Self {
            rtt: Rtt::new(),
            log: VecDeque::new(),
            first: 0,
            in_flight: 0,
            newest: None,
            overtake,
            late: 1,
            reorders_for: 0,
            round_end: 0,
            last_sent: None,
            probes: 0,
            overdue: None,
        }
    }

    /// The path has changed. Transmissions in flight stay, and a probe is sent in time.
    pub fn path_changed(&mut self) {
        self.rtt = Rtt::new();
        self.probes = 0;
        (self.late, self.reorders_for) = (1, 0);
    }

    /// A transmission is sent. Returns its number.
    pub fn sent(&mut self, now: Instant, bytes: u32, cargo: C, is_limited: bool) -> u64 {
        let number = self.next();
        self.log.push_back(Transmission { at: now, bytes, cargo, is_limited, is_open: true });
        self.in_flight += u64::from(bytes);
        self.last_sent = Some(now);
        number
    }

    /// A transmission is sent that is not acknowledged. It only takes a number.
    pub fn passed(&mut self, now: Instant, bytes: u32, cargo: C, is_limited: bool) {
        self.log.push_back(Transmission { at: now, bytes, cargo, is_limited, is_open: false });
        self.trim();
    }

    /// The number of the next transmission.
    pub fn next(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// Transmissions before this one have ended.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// Bytes in flight.
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    fn get(&mut self, number: u64) -> Option<&mut Transmission<C>> {
        self.log.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// A transmission has arrived. `None` if it had ended before. `is_certain`: this transmission
    /// has arrived, and not an earlier copy. An earlier copy would make all transmissions in flight
    /// look overtaken.
    pub fn arrived(&mut self, number: u64, is_certain: bool) -> Option<Transmission<C>> {
        let ended = self.end(number)?;
        if is_certain && self.newest.is_none_or(|(newest, _)| newest < number) {
            self.newest = Some((number, ended.at));
        }
        Some(ended)
    }

    fn end(&mut self, number: u64) -> Option<Transmission<C>> {
        let transmission = self.get(number).filter(|transmission| transmission.is_open)?;
        transmission.is_open = false;
        let ended = *transmission;
        self.in_flight = self.in_flight.saturating_sub(ended.bytes.into());
        self.trim();
        Some(ended)
    }

    /// A transmission that counted as lost has arrived, so the path reorders.
    pub fn reordered(&mut self) {
        // The limit is one round trip, as in RFC 8985 section 6.2, step 4.
        self.late = (self.late + 1).min(LATE);
        self.reorders_for = FORGET;
    }

    /// The peer has acknowledged a transmission.
    pub fn acknowledged(&mut self) {
        self.probes = 0;
        if self.newest.is_some_and(|(newest, _)| newest >= self.round_end) {
            self.round_end = self.next();
            self.reorders_for = self.reorders_for.saturating_sub(1);
            if self.reorders_for == 0 {
                self.late = 1;
            }
        }
    }

    /// The next transmission that counts as lost now.
    pub fn pop_lost(&mut self, now: Instant) -> Option<(u64, Transmission<C>)> {
        self.overdue = None;
        let (newest, newest_at) = self.newest?;
        // The transmission at the front has not ended.
        let front = self.log.front()?;
        if self.first >= newest {
            return None;
        }
        let by_count =
            self.reorders_for == 0 && self.overtake > 0 && newest - self.first >= self.overtake;
        let longer = self.rtt.longer();
        let due = front.at + longer + (longer * self.late / LATE).max(Duration::from_millis(1));
        if !by_count && (due > now || front.at > newest_at) {
            self.overdue = Some(due);
            return None;
        }
        self.pop_any()
    }

    /// Declares all transmissions in flight lost. Returns the next transmission.
    pub fn pop_any(&mut self) -> Option<(u64, Transmission<C>)> {
        let number = self.first;
        Some((number, self.end(number)?))
    }

    fn trim(&mut self) {
        while self.log.front().is_some_and(|transmission| !transmission.is_open) {
            self.log.pop_front();
            self.first += 1;
        }
    }

    /// Gives memory back.
    pub fn rest(&mut self) {
        if self.log.is_empty() {
            self.log.shrink_to(8);
        }
    }

    /// When an overtaken transmission is lost by time.
    pub const fn overdue(&self) -> Option<Instant> {
        self.overdue
    }

    /// When a probe has to be sent. `None` while nothing is in flight. The peer may wait for
    /// `ack_delay` before it acknowledges.
    pub fn probe_due(&self, ack_delay: Duration, least: Duration) -> Option<Instant> {
        let sent = self.last_sent.filter(|_| self.in_flight > 0)?;
        let wait = self.rtt.timeout(ack_delay, least);
        Some(sent + wait * 2_u32.pow(self.probes.min(BACKOFF_MAX)))
    }

    /// No probe waits for an answer.
    pub const fn is_answered(&self) -> bool {
        self.probes == 0
    }

    /// A probe is sent. Returns whether the number of unanswered probes makes the state of the path
    /// void.
    pub const fn probed(&mut self) -> bool {
        self.probes += 1;
        self.probes == PERSISTENT
    }
}

/// What only sessions without packet numbers ask, in which a segment names its transmission.
impl<C: Copy> Flight<C> {
    /// Whether a transmission has arrived that was sent at least `by` transmissions later.
    pub fn is_overtaken(&self, number: u64, by: u64) -> bool {
        self.newest.is_some_and(|(newest, _)| newest >= number + by)
    }

    /// The data of a transmission that is still in the log.
    pub fn cargo(&mut self, number: u64) -> Option<C> {
        self.get(number).map(|transmission| transmission.cargo)
    }

    /// A transmission does not count any more, because its content is sent again.
    pub fn withdraw(&mut self, number: u64) {
        self.end(number);
    }
}
