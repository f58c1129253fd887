//! The table against an oracle that looks at every flow, and under a flood.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const TIMES: FlowTimes = FlowTimes { unanswered: 30, answered: 120 };

fn route(number: u16) -> Route {
    let peer = SocketAddr::from(([192, 0, (number >> 8) as u8, number as u8], 1000));
    Route { peer, local: None }
}

fn after(start: Instant, millis: u64) -> Instant {
    start + Duration::from_millis(millis)
}

#[test]
fn sources_are_addresses_of_ipv4_and_networks_of_ipv6() {
    let of = |text: &str| Source::of(text.parse().unwrap());
    assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
}

#[test]
fn a_slot_does_not_name_the_next_flow_in_its_place() {
    let now = Instant::now();
    let mut table = Table::default();
    let (first, _) = table.insert(Some(route(1)), None, 1, now).unwrap();
    assert_eq!(table.remove(first), Some(1));
    let (second, _) = table.insert(Some(route(1)), None, 2, now).unwrap();
    assert_eq!((table.remove(first), table.value(first)), (None, None));
    assert!(!table.answer(first, now));
    assert_eq!(table.value(second), Some(&mut 2));
}

#[test]
fn a_flow_exists_once() {
    let now = Instant::now();
    let mut table = Table::default();
    table.insert(Some(route(1)), None, 1, now).unwrap();
    assert_eq!(table.insert(Some(route(1)), None, 2, now), Err(2));
}

/// 100,000 peers that nobody answers, beside 1,000 flows that were answered.
#[test]
fn a_flood_costs_bounded_memory_and_no_answered_flow() {
    let caps = FlowCaps { total: 4_096, per_source: 256 };
    let mut table = Table::new(caps);
    let start = Instant::now();
    let good: Vec<_> = (0..1_000)
        .map(|number| {
            let source = Some(Source::V6(number));
            let (slot, _) = table.insert(None, source, number, start).unwrap();
            assert!(table.answer(slot, start));
            slot
        })
        .collect();
    let mut left = 0;
    for number in 0..100_000_u32 {
        let peer = SocketAddr::from((number.to_be_bytes(), 5353));
        let source = Some(Source::of(peer.ip()));
        let now = after(start, u64::from(number / 100));
        let (_, gone) =
            table.insert(Some(Route { peer, local: None }), source, 1_000_000, now).unwrap();
        left += usize::from(gone.is_some_and(|value| value == 1_000_000));
        assert!(table.len() <= caps.total);
    }
    assert_eq!(left, 100_000 - (caps.total - 1_000));
    assert!(good.iter().enumerate().all(|(n, &slot)| table.value(slot) == Some(&mut (n as u64))));
    assert!(table.entries.len() <= caps.total && table.shares.len() <= caps.total);
    assert!(table.by_route.capacity() < 4 * caps.total);
    // Then all idle flows end, and their memory is returned.
    let mut ended = 0;
    while table.take_idle(after(start, 121_000), TIMES).is_some() {
        ended += 1;
    }
    assert_eq!((ended, table.entries.capacity(), table.by_route.capacity()), (caps.total, 0, 0));
}

#[test]
fn an_answered_flow_goes_only_for_its_own_source() {
    let mut table = Table::new(FlowCaps { total: 4, per_source: 2 });
    let start = Instant::now();
    let mine = Some(Source::V6(1));
    let add = |table: &mut Table<u32>, source, value, millis| {
        let now = after(start, millis);
        let (slot, gone) = table.insert(None, source, value, now)?;
        table.answer(slot, now);
        Ok::<_, u32>(gone)
    };
    assert_eq!(add(&mut table, mine, 1, 0), Ok(None));
    assert_eq!(add(&mut table, mine, 2, 0), Ok(None));
    assert_eq!(add(&mut table, Some(Source::V6(2)), 3, 0), Ok(None));
    assert_eq!(add(&mut table, Some(Source::V6(3)), 4, 0), Ok(None));
    assert_eq!(add(&mut table, Some(Source::V6(4)), 5, 2_000), Err(5), "the table is full");
    assert_eq!(table.admits(Some(Source::V6(4)), start), Err(IsFull::Table));
    assert_eq!(add(&mut table, mine, 6, 999), Err(6), "its flows are in use");
    assert_eq!(table.admits(mine, after(start, 999)), Err(IsFull::Source));
    assert_eq!(add(&mut table, mine, 7, 1_000), Ok(Some(1)), "its own source has its share");
}

/// A flow as the oracle sees it.
#[derive(Clone, Debug)]
struct Known {
    number: u16,
    source: Option<u64>,
    is_answered: bool,
    used: u64,
    /// Orders uses at the same time.
    use_number: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, Option<u64>),
    Touch(u16),
    Answer(u16),
    Remove(u16),
    Evict(u16),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0_u16..24;
    prop_oneof![
        4 => (number.clone(), prop::option::weighted(0.9, 0_u64..4))
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

    fn insert(
        &mut self,
        caps: FlowCaps,
        number: u16,
        source: Option<u64>,
        now: u64,
    ) -> Result<Option<u16>, ()> {
        if self.flows.iter().any(|known| known.number == number) {
            return Err(());
        }
        let mut gone = None;
        let of_source = self.flows.iter().filter(|known| known.source == source).count();
        if source.is_some() && of_source >= caps.per_source {
            gone =
                self.oldest(|known| known.source == source && !known.is_answered).or_else(|| {
                    // The one that goes is that which was unused for longest, not one of several.
                    let oldest = self.oldest(|known| known.source == source)?;
                    let known = self.flows.iter().find(|known| known.number == oldest)?;
                    (known.used + 1_000 <= now).then_some(oldest)
                });
            if gone.is_none() {
                return Err(());
            }
        } else if self.flows.len() >= caps.total {
            gone = Some(self.oldest(|known| !known.is_answered).ok_or(())?);
        }
        if let Some(gone) = gone {
            self.forget(gone);
        }
        self.uses += 1;
        let use_number = self.uses;
        self.flows.push(Known { number, source, is_answered: false, used: now, use_number });
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
        total in 1_usize..8,
        per_source in 1_usize..4,
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let caps = FlowCaps { total, per_source };
        let mut table = Table::new(caps);
        let mut oracle = Oracle::default();
        let start = Instant::now();
        let mut now = 0;
        for step in steps {
            let at = after(start, now);
            match step {
                Step::Insert(number, source) => {
                    let expected = oracle.insert(caps, number, source, now);
                    let inserted =
                        table.insert(Some(route(number)), source.map(Source::V6), number, at);
                    prop_assert_eq!(inserted.map(|(_, gone)| gone).map_err(|_| ()), expected);
                }
                Step::Touch(number) => {
                    let slot = table.find(&route(number));
                    prop_assert_eq!(slot.is_some(), oracle.touch(number, now).is_some());
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
                    let expected =
                        oracle.oldest(|known| !known.is_answered).filter(|&one| one != spared);
                    prop_assert_eq!(table.evict_unanswered(slot), expected);
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
