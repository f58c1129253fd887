//! Shares of the descriptor table, so that a client, a service or a source with many connections
//! leaves room for others.
//!
//! A [`Holder`] holds seats, one for each socket of its visitors and targets. The bound is a
//! dynamic threshold (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory
//! packet switches", 1998): a holder may take another seat while it has fewer seats than there are
//! free descriptors, times a factor. While the table is far from full, the bound has no effect. One
//! greedy holder takes half of the table and two take a third each, so there is always room for a
//! holder with few seats.
//!
//! | holder | factor |
//! |---|---|
//! | a client of a server, while other clients also publish | 1 |
//! | the only publishing client; a service or a forward of a client process | 32 |
//! | the undecided visitors of doors, of which the oldest is evicted | 1 |
//! | a source of visitors: an IPv4 address, an IPv6 /64 prefix | 1 |
//!
//! All workers share a table. A seat costs a few atomic operations per connection.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use net::source::{Share, Shares};

/// The factor of a holder without rivals. It leaves 3 % of the table to a new rival, and to the
/// other services of the same owner.
const ALONE: u32 = 32;

/// The maximum number of descriptors by which visitors may exceed the share of a holder. A holder
/// has an accept loop for each port and worker, and seldom more than a few of them accept at the
/// same time.
const SLACK: u32 = 16;

/// The descriptors that holders share.
#[derive(Debug)]
pub struct Table {
    /// The number of descriptors that visitors and targets may use.
    ceiling: u32,
    seats: AtomicU32,
    /// An estimate of the number of other descriptors: listeners, links, files.
    others: AtomicU32,
    /// The number of holders of [`Kind::Rival`] with an entrance.
    rivals: AtomicU32,
    sources: Arc<Shares>,
}

/// A kind of holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A holder that must leave room for others of the same kind.
    Rival,
    /// One of several holders that belong to the same owner.
    Own,
    /// Connections that are not assigned to a holder yet.
    Unclaimed,
}

/// A client, a service, a forward or the visitors of doors.
#[derive(Debug)]
pub struct Holder {
    table: Arc<Table>,
    kind: Kind,
    seats: AtomicU32,
    entrances: AtomicU32,
}

/// The proof that a descriptor is counted for a holder. Dropping the seat returns it.
#[derive(Debug)]
pub struct Seat {
    holder: Arc<Holder>,
    of_source: Option<Share>,
}

/// The proof that a holder has an entrance for visitors.
#[derive(Debug)]
pub(crate) struct HasEntrance(Arc<Holder>);

impl Table {
    /// Makes a table of `ceiling` descriptors.
    #[must_use]
    pub fn new(ceiling: u32) -> Arc<Self> {
        let (seats, others, rivals) = Default::default();
        Arc::new(Self { ceiling, seats, others, rivals, sources: Shares::new(u32::MAX) })
    }

    fn free(&self) -> u32 {
        self.free_below(self.ceiling)
    }

    /// The number of free descriptors if the table had this size.
    fn free_below(&self, ceiling: u32) -> u32 {
        let used = self.seats.load(Ordering::Relaxed) + self.others.load(Ordering::Relaxed);
        ceiling.saturating_sub(used)
    }

    /// Estimates from the number of a new descriptor how many descriptors are not seats. A new
    /// descriptor has the lowest free number, so the number is at most the count of all
    /// descriptors. The estimate rises at once and falls slowly, because a gap in the table makes a
    /// number low.
    fn learn(&self, number: u32) {
        let seats = self.seats.load(Ordering::Relaxed);
        let least = number.saturating_sub(seats);
        let known = self.others.load(Ordering::Relaxed);
        if least != known {
            self.others.store(least.max(known.saturating_sub(1)), Ordering::Relaxed);
        }
    }
}

impl Holder {
    /// Makes a holder without seats.
    #[must_use]
    pub fn new(table: &Arc<Table>, kind: Kind) -> Arc<Self> {
        let (seats, entrances) = Default::default();
        Arc::new(Self { table: Arc::clone(table), kind, seats, entrances })
    }

    /// The number of seats.
    #[must_use]
    pub fn seats(&self) -> u32 {
        self.seats.load(Ordering::Relaxed)
    }

    /// The number of seats that the holder may have now.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most_of(self.table.free())
    }

    /// The number of seats that the holder may have while `free` descriptors are free.
    fn most_of(&self, free: u32) -> u32 {
        let is_alone = match self.kind {
            Kind::Rival => self.table.rivals.load(Ordering::Relaxed) < 2,
            Kind::Own => true,
            Kind::Unclaimed => false,
        };
        free.saturating_mul(if is_alone { ALONE } else { 1 })
    }

    /// Whether the holder may take one more seat.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.seats() < self.most()
    }

    /// Whether an accepted visitor may stay. An accept loop notices only with its last visitor that
    /// it must pause, so each loop may exceed the share by one visitor, and all together by `SLACK`
    /// descriptors. This adds `SLACK` to the table instead of the share, because the share of a
    /// holder without rivals falls by `ALONE` seats for each descriptor that is not a seat.
    #[must_use]
    pub fn bears(&self) -> bool {
        let ceiling = self.table.ceiling.saturating_add(SLACK);
        self.seats() < self.most_of(self.table.free_below(ceiling))
    }

    /// Takes a seat for a visitor whose socket was accepted. `source` is the address of the
    /// visitor; `None` means no bound, as for a reverse proxy. Returns `None` when the source holds
    /// more than its share. The caller has checked [`Self::bears`].
    #[must_use]
    pub fn seat(self: &Arc<Self>, socket: &impl AsFd, source: Option<IpAddr>) -> Option<Seat> {
        let number = u32::try_from(socket.as_fd().as_raw_fd()).unwrap_or(0);
        self.table.learn(number);
        let free = self.table.free();
        let of_source = match source {
            Some(_) => Some(self.table.sources.take_within(source, free)?),
            None => None,
        };
        Some(self.sit(of_source))
    }

    /// Takes a seat for a socket to be dialled. `None`: the holder has used up its share.
    #[must_use]
    pub fn seat_of_target(self: &Arc<Self>) -> Option<Seat> {
        self.has_room().then(|| self.sit(None))
    }

    fn sit(self: &Arc<Self>, of_source: Option<Share>) -> Seat {
        self.table.seats.fetch_add(1, Ordering::Relaxed);
        self.seats.fetch_add(1, Ordering::Relaxed);
        Seat { holder: Arc::clone(self), of_source }
    }

    pub(crate) fn enter(self: &Arc<Self>) -> HasEntrance {
        if self.entrances.fetch_add(1, Ordering::Relaxed) == 0 && self.kind == Kind::Rival {
            self.table.rivals.fetch_add(1, Ordering::Relaxed);
        }
        HasEntrance(Arc::clone(self))
    }
}

impl Seat {
    /// Whether the holder has taken less than a quarter of its share.
    pub(crate) fn has_ample_room(&self) -> bool {
        self.holder.seats().saturating_mul(4) < self.holder.most()
    }

    /// Counts the seat for another source: the visitor that a load balancer announced; `None` means
    /// no bound. False: the source holds more than its share, and the seat counts as before.
    #[must_use]
    pub fn count_for(&mut self, source: Option<IpAddr>) -> bool {
        let table = &self.holder.table;
        let share = match source {
            Some(_) => match table.sources.take_within(source, table.free()) {
                Some(share) => Some(share),
                None => return false,
            },
            None => None,
        };
        self.of_source = share;
        true
    }

    /// Moves the seat to another holder. False: that holder has used up its share, and the seat
    /// stays.
    #[must_use]
    pub fn move_to(&mut self, holder: &Arc<Holder>) -> bool {
        if Arc::ptr_eq(&self.holder, holder) {
            return true;
        }
        if !holder.has_room() {
            return false;
        }
        holder.seats.fetch_add(1, Ordering::Relaxed);
        self.holder.seats.fetch_sub(1, Ordering::Relaxed);
        self.holder = Arc::clone(holder);
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.holder.seats.fetch_sub(1, Ordering::Relaxed);
        self.holder.table.seats.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for HasEntrance {
    fn drop(&mut self) {
        let Holder { table, kind, entrances, .. } = &*self.0;
        if entrances.fetch_sub(1, Ordering::Relaxed) == 1 && *kind == Kind::Rival {
            table.rivals.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Takes as many seats as the holder may have.
    fn fill(holder: &Arc<Holder>) -> Vec<Seat> {
        std::iter::from_fn(|| holder.seat_of_target()).collect()
    }

    #[test]
    fn a_greedy_client_leaves_room_for_the_others() {
        let table = Table::new(900);
        let [a, b, c] = [(); 3].map(|()| Holder::new(&table, Kind::Rival));
        let entrances = [&a, &b, &c].map(Holder::enter);
        let of_a = fill(&a);
        assert_eq!(of_a.len(), 450, "half");
        let of_b = fill(&b);
        assert_eq!(of_b.len(), 225, "half of the rest");
        assert!(!a.has_room() && c.has_room());
        assert!(!a.bears());
        drop(of_a);
        assert_eq!(fill(&a).len(), 338, "the seats come back");
        drop((of_b, entrances));
        assert_eq!((a.seats(), b.seats(), table.free()), (0, 0, 900));
    }

    #[test]
    fn a_client_that_publishes_alone_may_have_nearly_all() {
        let table = Table::new(18_976);
        let [a, b] = [(); 2].map(|()| Holder::new(&table, Kind::Rival));
        let entrance = a.enter();
        let of_a = fill(&a);
        assert!(of_a.len() > 18_300, "{}", of_a.len());
        let second = a.enter();
        assert_eq!(a.most(), table.free() * ALONE, "two entrances of one client are no rivals");
        let of_b = b.enter();
        assert!(b.has_room() && !a.has_room());
        drop((of_a, of_b, second));
        assert_eq!(a.most(), 18_976 * ALONE);
        drop(entrance);
        assert_eq!(table.rivals.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_source_holds_no_more_than_is_free_over_all_holders() {
        let table = Table::new(10_000);
        let socket = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let [a, b] = [(); 2].map(|()| Holder::new(&table, Kind::Own));
        let (one, other) =
            ("2001:db8::1".parse::<IpAddr>().unwrap(), "192.0.2.1".parse::<IpAddr>().unwrap());
        let held: Vec<_> =
            (0..10_000).map_while(|n| [&a, &b][n % 2].seat(&socket, Some(one))).collect();
        // The descriptor number shows that some descriptors are not seats.
        assert!((4_900..=5_000).contains(&held.len()), "{}", held.len());
        assert!(a.seat(&socket, Some("2001:db8::2".parse().unwrap())).is_none(), "the same prefix");
        assert!(a.seat(&socket, Some(other)).is_some());
        assert!(a.seat(&socket, None).is_some(), "a reverse proxy is no source");
        drop(held);
        assert!(b.seat(&socket, Some(one)).is_some());
    }

    #[test]
    fn a_seat_moves_to_the_client_that_the_visitor_names() {
        let table = Table::new(100);
        let (doors, client) =
            (Holder::new(&table, Kind::Unclaimed), Holder::new(&table, Kind::Rival));
        let socket = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let mut seat = doors.seat(&socket, None).unwrap();
        assert!(seat.move_to(&client) && seat.move_to(&client));
        assert_eq!((doors.seats(), client.seats(), table.seats.load(Ordering::Relaxed)), (0, 1, 1));
        let _entrances = [client.enter(), Holder::new(&table, Kind::Rival).enter()];
        let _held = fill(&client);
        let mut late = doors.seat(&socket, None).unwrap();
        assert!(!late.move_to(&client));
        assert_eq!(doors.seats(), 1, "the seat stays where it was");
    }

    /// The visitor of one worker reveals that the table is full, while another worker accepts.
    #[test]
    fn a_visitor_stays_that_was_accepted_while_another_one_filled_the_table() {
        let table = Table::new(96);
        let alone = Holder::new(&table, Kind::Own);
        let held: Vec<_> = (0..68).map(|_| alone.sit(None)).collect();
        table.learn(90);
        assert!(alone.has_room());
        table.learn(96);
        assert!(!alone.has_room() && alone.bears(), "{} are free", table.free());
        table.learn(96 + SLACK);
        assert!(!alone.bears(), "the slack has an end");
        drop(held);
    }

    #[test]
    fn descriptors_that_are_no_seats_are_learnt_from_the_numbers() {
        let table = Table::new(1000);
        table.learn(300);
        assert_eq!(table.free(), 700);
        table.learn(100);
        assert_eq!(table.free(), 701, "a gap in the table is not believed at once");
        (0..1000).for_each(|_| table.learn(100));
        assert_eq!(table.free(), 900);
    }
}
