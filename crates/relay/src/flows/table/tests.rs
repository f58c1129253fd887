//! The table against an oracle that looks at every flow, and under a flood.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TIMES: FlowTimes = FlowTimes { unanswered: 30, answered: 120 };

fn route(number: u16) -> Route {
    let peer = SocketAddr::from(([192, 0, (number >> 8) as u8, number as u8], 1000));
    Route { peer, local: None, dscp: 0 }
}

fn after(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

fn source(number: u32) -> Option<Source> {
    Some(IpAddr::from((0x0a00_0000 + number).to_be_bytes()).into())
}

fn bounded<V>(most: u32, per_source: u32) -> Table<V> {
    Table::new(Arc::new(FlowBounds::new(most, per_source)))
}

/// Adds a flow, and returns the evicted flow.
fn add<V>(
    table: &mut Table<V>,
    source: Option<Source>,
    value: V,
    now: Instant,
) -> Result<(Slot, Option<V>), V> {
    let mut gone = Vec::new();
    let slot = table.insert(None, source, value, now, &mut gone)?;
    assert!(gone.len() < 2);
    Ok((slot, gone.pop()))
}

#[test]
fn a_slot_does_not_name_the_next_flow_in_its_place() {
    let now = Instant::now();
    let mut table = Table::default();
    let none = &mut Vec::new();
    let first = table.insert(Some(route(1)), None, 1, now, none).unwrap();
    assert_eq!(table.remove(first), Some(1));
    let second = table.insert(Some(route(1)), None, 2, now, none).unwrap();
    assert_eq!((table.remove(first), table.value(first)), (None, None));
    assert!(!table.answer(first, now));
    assert_eq!(table.value(second), Some(&mut 2));
}

#[test]
fn a_flow_exists_once() {
    let now = Instant::now();
    let mut table = Table::default();
    let none = &mut Vec::new();
    table.insert(Some(route(1)), None, 1, now, none).unwrap();
    assert_eq!(table.insert(Some(route(1)), None, 2, now, none), Err(2));
}

/// 100,000 unanswered peers in 100 s, in parallel with 1,000 flows that send every 10 s and 1,000
/// whose only query was answered.
#[test]
fn a_flood_costs_bounded_memory_and_no_answered_flow() {
    let most = 4_096;
    let mut table = bounded(most, 256);
    let start = Instant::now();
    let good: Vec<_> = (0..2_000)
        .map(|number| {
            let (slot, _) = add(&mut table, source(number), number, start).unwrap();
            assert!(table.answer(slot, start));
            slot
        })
        .collect();
    let mut left = 0;
    for number in 0..100_000_u32 {
        let now = after(start, u64::from(number));
        if number % 10_000 == 0 {
            good.iter().take(1_000).for_each(|&slot| table.touch(slot, now));
        }
        let flood = Some(IpAddr::from((0x0b00_0000 + number).to_be_bytes()).into());
        let (_, gone) = add(&mut table, flood, 1_000_000, now).unwrap();
        left += u32::from(gone.is_some_and(|value| value == 1_000_000));
        assert!(table.len() <= most as usize);
    }
    assert_eq!(left, 100_000 - (most - 2_000));
    assert!(good.iter().zip(0..).all(|(&slot, n)| table.value(slot) == Some(&mut { n })));
    assert!(table.entries.len() <= most as usize && table.shares.len() <= most as usize);
    // Then all idle flows end, and their memory is returned.
    let mut ended = 0;
    while table.take_idle(after(start, 300_000), TIMES).is_some() {
        ended += 1;
    }
    assert_eq!((ended, table.entries.capacity(), table.bounds.live()), (most, 0, 0));
}

/// 40,000 spoofed sources per second, or ports of one source: an unanswered flow lasts for about as
/// long as a peer waits for the answer, so the process begins few flows.
#[test]
fn a_flood_replaces_its_own_flows_at_a_bounded_pace() {
    for (one_source, most) in [(false, 16_384), (true, 16_384), (false, 100)] {
        let mut table = bounded(most, most);
        let start = Instant::now();
        let mut started = 0;
        for number in 0..400_000_u32 {
            let now = start + Duration::from_micros(u64::from(number) * 25);
            let flood = if one_source { 0 } else { number };
            started += u32::from(add(&mut table, source(flood), number, now).is_ok());
        }
        // The first flows have the empty table, then 10 s follow.
        let bound = most + 2 * most.max(5_000) + 1_000;
        assert!(started <= bound, "{started} flows of {most}");
        assert!(started >= most + most / 5 * 9, "{started} flows of {most}");
    }
}

/// A pace that permits no pending flow to go spares the conversations of the same source, too.
#[test]
fn a_flood_of_one_source_costs_none_of_its_conversations() {
    let mut table = bounded(16_384, 100);
    let start = Instant::now();
    let talking: Vec<_> = (0..50)
        .map(|number| {
            let (slot, _) = add(&mut table, source(1), number, start).unwrap();
            table.answer(slot, start);
            table.touch(slot, start);
            slot
        })
        .collect();
    for number in 0..100_000_u32 {
        // From 2 s on, for 2.5 s: the conversations are quiet for less than 5 s.
        let now = start + Duration::from_micros(2_000_000 + u64::from(number) * 25);
        let _ = add(&mut table, source(1), 1_000 + number, now);
    }
    assert!(talking.iter().zip(0..).all(|(&slot, n)| table.value(slot) == Some(&mut { n })));
}

/// A resolver queries from one address and from a new port each time: no outstanding query is
/// evicted for another one, at any rate for which its share suffices.
#[test]
fn each_query_of_a_resolver_is_answered() {
    for (per_second, per_source) in [(80, 256), (2_000, 256), (20_000, 4_096)] {
        let mut table = bounded(16_384, per_source);
        let (start, took) = (Instant::now(), 50 * per_second / 1_000);
        let mut asked = std::collections::VecDeque::new();
        for number in 0..200_000_u64 {
            let now = start + Duration::from_micros(number * 1_000_000 / per_second);
            let (slot, _) = add(&mut table, source(1), number, now).unwrap();
            asked.push_back(slot);
            if asked.len() as u64 > took {
                let slot = asked.pop_front().unwrap();
                assert!(table.answer(slot, now), "query {} at {per_second}/s", number - took);
            }
            while table.take_idle(now, TIMES).is_some() {}
        }
    }
}

#[test]
fn a_lasting_flow_goes_only_for_its_own_source_or_when_it_was_left() {
    let mut table = bounded(4, 2);
    let start = Instant::now();
    let talk = |table: &mut Table<u32>, source, value, millis| {
        let now = after(start, millis);
        let (slot, gone) = add(table, source, value, now)?;
        table.answer(slot, now);
        table.touch(slot, now);
        Ok::<_, u32>(gone)
    };
    assert_eq!(talk(&mut table, source(1), 1, 0), Ok(None));
    assert_eq!(talk(&mut table, source(1), 2, 0), Ok(None));
    assert_eq!(talk(&mut table, source(2), 3, 0), Ok(None));
    assert_eq!(talk(&mut table, source(3), 4, 0), Ok(None));
    assert_eq!(talk(&mut table, source(4), 5, 29_999), Err(5), "the table is full");
    assert_eq!(table.admits(source(4).as_ref(), start), Err(IsFull::Table));
    assert_eq!(talk(&mut table, source(1), 6, 999), Err(6), "its flows are in use");
    assert_eq!(table.admits(source(1).as_ref(), after(start, 999)), Err(IsFull::Source));
    assert_eq!(talk(&mut table, source(1), 7, 1_000), Ok(Some(1)), "its own source has its share");
    assert_eq!(talk(&mut table, source(4), 8, 30_000), Ok(Some(2)), "nobody talks there");
}

#[test]
fn workers_share_the_bounds() {
    let bounds = Arc::new(FlowBounds::new(5, 3));
    let [mut one, mut other] = [(); 2].map(|()| Table::new(Arc::clone(&bounds)));
    let now = Instant::now();
    for value in 0..3 {
        let table = if value == 1 { &mut other } else { &mut one };
        assert_eq!(add(table, source(1), value, now).map(|(_, gone)| gone), Ok(None));
    }
    assert_eq!(add(&mut other, source(1), 3, now).map(|(_, gone)| gone), Ok(Some(1)));
    for value in 4..6 {
        assert_eq!(add(&mut other, source(2), value, now).map(|(_, gone)| gone), Ok(None));
    }
    assert_eq!(bounds.live(), 5);
    assert_eq!(add(&mut one, source(3), 6, now).map(|(_, gone)| gone), Ok(Some(0)));
    drop((one, other));
    assert_eq!(bounds.live(), 0);
}

#[test]
fn a_proxy_is_no_source() {
    let bounds = FlowBounds::new(1_000, 1).without(|ip| ip == IpAddr::from([10, 0, 0, 1]));
    let bounds = Arc::new(bounds);
    let mut table = Table::new(Arc::clone(&bounds));
    for (address, count) in [("10.0.0.2", 1), ("10.0.0.1", 500), ("::ffff:10.0.0.1", 499)] {
        let source = bounds.source(address.parse().unwrap());
        let start = table.len();
        for value in 0..500 {
            assert!(add(&mut table, source.clone(), value, Instant::now()).is_ok());
        }
        assert_eq!(table.len() - start, count, "{address}");
    }
    assert_eq!(table.len(), 1_000);
}

/// A flow as the oracle sees it.
#[derive(Clone, Debug)]
struct Known {
    number: u16,
    source: Option<u32>,
    is_answered: bool,
    /// The peer has sent after an answer.
    is_lasting: bool,
    used: u64,
    /// Orders uses at the same time.
    use_number: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, Option<u32>),
    Touch(u16),
    Answer(u16),
    Remove(u16),
    Evict(u16),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0_u16..24;
    prop_oneof![
        4 => (number.clone(), prop::option::weighted(0.9, 0_u32..4))
            .prop_map(|(number, source)| Step::Insert(number, source)),
        2 => number.clone().prop_map(Step::Touch),
        2 => number.clone().prop_map(Step::Answer),
        1 => number.clone().prop_map(Step::Remove),
        1 => number.prop_map(Step::Evict),
        1 => (0_u64..1_500).prop_map(Step::Wait),
        1 => (0_u64..20_000).prop_map(Step::Wait),
    ]
}

/// Looks at every flow for every question.
#[derive(Default)]
struct Oracle {
    flows: Vec<Known>,
    uses: u64,
}

impl Oracle {
    fn oldest(&self, wanted: impl Fn(&Known) -> bool) -> Option<u16> {
        let wanted = self.flows.iter().filter(|known| wanted(known));
        wanted.min_by_key(|known| known.use_number).map(|known| known.number)
    }

    fn forget(&mut self, number: u16) -> bool {
        let before = self.flows.len();
        self.flows.retain(|known| known.number != number);
        self.flows.len() < before
    }

    /// The flow to evict first, by the rules in the module documentation.
    fn first(&self, rules: &[(&str, u64)], now: u64, of: impl Fn(&Known) -> bool) -> Option<u16> {
        rules.iter().find_map(|&(state, quiet)| {
            self.oldest(|known| {
                let is_so = match state {
                    "pending" => !known.is_answered,
                    "answered" => known.is_answered && !known.is_lasting,
                    _ => known.is_lasting,
                };
                is_so && of(known) && known.used + quiet <= now
            })
        })
    }

    /// The flow to evict first for a flow of any source.
    fn evicted(&self, now: u64) -> Option<u16> {
        let pending = self.flows.iter().filter(|known| !known.is_answered).count();
        let rules = if pending * 2 >= self.flows.len() {
            &[("pending", 0)][..]
        } else {
            &[("pending", 5_000), ("answered", 1_000), ("lasting", 30_000), ("pending", 0)]
        };
        self.first(rules, now, |_| true)
    }

    fn insert(
        &mut self,
        (most, per_source): (usize, usize),
        number: u16,
        source: Option<u32>,
        now: u64,
    ) -> Result<Option<u16>, ()> {
        if self.flows.iter().any(|known| known.number == number) {
            return Err(());
        }
        let mut gone = None;
        let of_source = self.flows.iter().filter(|known| known.source == source).count();
        if source.is_some() && of_source >= per_source {
            let rules = [
                ("pending", 5_000),
                ("answered", 1_000),
                ("lasting", 5_000),
                ("answered", 10),
                ("pending", 0),
                ("lasting", 1_000),
            ];
            gone = Some(self.first(&rules, now, |known| known.source == source).ok_or(())?);
        } else if self.flows.len() >= most {
            gone = Some(self.evicted(now).ok_or(())?);
        }
        if let Some(gone) = gone {
            self.forget(gone);
        }
        self.uses += 1;
        let use_number = self.uses;
        let (is_answered, is_lasting) = (false, false);
        self.flows.push(Known { number, source, is_answered, is_lasting, used: now, use_number });
        Ok(gone)
    }

    fn touch(&mut self, number: u16, now: u64) -> Option<&mut Known> {
        self.uses += 1;
        let known = self.flows.iter_mut().find(|known| known.number == number)?;
        known.used = now;
        known.use_number = self.uses;
        Some(known)
    }

    fn end(known: &Known) -> u64 {
        known.used + if known.is_answered { 120_000 } else { 30_000 }
    }
}

proptest! {
    #[test]
    fn the_table_agrees_with_an_oracle_that_looks_at_every_flow(
        most in 1_usize..8,
        per_source in 1_usize..4,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut table = bounded(most as u32, per_source as u32);
        let mut oracle = Oracle::default();
        let start = Instant::now();
        let mut now = 0;
        for step in steps {
            let at = after(start, now);
            match step {
                Step::Insert(number, of) => {
                    let expected = oracle.insert((most, per_source), number, of, now);
                    let mut gone = Vec::new();
                    let of = of.and_then(source);
                    let is_admitted = table.admits(of.as_ref(), at).is_ok();
                    let inserted = table.insert(Some(route(number)), of, number, at, &mut gone);
                    prop_assert!(inserted.is_err() || is_admitted);
                    prop_assert!(gone.len() < 2 && (inserted.is_ok() || gone.is_empty()));
                    prop_assert_eq!(inserted.map(|_| gone.pop()).map_err(|_| ()), expected);
                }
                Step::Touch(number) => {
                    let slot = table.find(&route(number));
                    let known = oracle.touch(number, now);
                    prop_assert_eq!(slot.is_some(), known.is_some());
                    if let Some(known) = known {
                        known.is_lasting = known.is_answered;
                    }
                    if let Some(slot) = slot {
                        table.touch(slot, at);
                    }
                }
                Step::Answer(number) => {
                    let first = oracle.touch(number, now)
                        .map(|known| !std::mem::replace(&mut known.is_answered, true));
                    let slot = table.find(&route(number));
                    prop_assert_eq!(slot.map(|slot| table.answer(slot, at)), first);
                }
                Step::Remove(number) => {
                    let slot = table.find(&route(number));
                    let removed = slot.and_then(|slot| table.remove(slot));
                    prop_assert_eq!(removed.is_some(), oracle.forget(number));
                }
                Step::Evict(spared) => {
                    let Some(slot) = table.find(&route(spared)) else { continue };
                    let expected = oracle.evicted(now).filter(|&one| one != spared);
                    let candidate = table.candidate(Some(slot), at);
                    // The table looks on where the first to go is spared.
                    if expected.is_none() { continue }
                    prop_assert_eq!(candidate.and_then(|flow| table.evict(flow)), expected);
                    if let Some(number) = expected {
                        prop_assert!(oracle.forget(number));
                    }
                }
                Step::Wait(millis) => {
                    now += millis;
                    let at = after(start, now);
                    let mut ended = Vec::new();
                    while let Some(number) = table.take_idle(at, TIMES) {
                        ended.push(number);
                    }
                    ended.sort_unstable();
                    let mut expected: Vec<_> = oracle.flows.iter()
                        .filter(|known| Oracle::end(known) <= now)
                        .map(|known| known.number)
                        .collect();
                    expected.sort_unstable();
                    for &number in &expected {
                        prop_assert!(oracle.forget(number));
                    }
                    prop_assert_eq!(ended, expected);
                }
            }
            prop_assert_eq!(table.len(), oracle.flows.len());
            let next = oracle.flows.iter().map(Oracle::end).min().map(|end| after(start, end));
            prop_assert_eq!(table.next_idle(TIMES), next);
            for known in &oracle.flows {
                let slot = table.find(&route(known.number)).unwrap();
                prop_assert_eq!(table.value(slot).copied(), Some(known.number));
                prop_assert_eq!(table.is_answered(slot), known.is_answered);
            }
        }
    }
}
