//! Flows follow their targets. A connected socket keeps the target's address and the local address
//! for its lifetime. An active flow gets a new socket when one of them is wrong:
//!
//! * the name of the target resolves to other addresses. A flow with answers moves when two lookups
//!   agree, because a name may rotate through the members of a pool;
//! * the target refuses datagrams, and its name has another address;
//! * this machine now sends from another address, and no answers arrive.
//!
//! If there are fallback targets, a flow ends when its target refuses datagrams, or is silent while
//! other targets answer: the next datagram of its peer begins a flow to another target.
//!
//! A flow whose target answers from an address of its name keeps its socket and its port.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;

use net::socket::canonical;
use tokio::time::{Instant, sleep, timeout};

use super::all::FlowTargets;
use super::flow::Target;
use crate::TargetAddr;
use crate::dial::addresses_of;

/// The interval between checks of all flows.
const ROUND: Duration = Duration::from_secs(2);

/// The interval between lookups of the names of answered flows, in rounds: 14 s. Two lookups and a
/// round complete within 30 s, the usual shortest TTL of DNS records of hosts that change address.
const NAMES: u32 = 7;

/// The maximum number of names to resolve in a round. A program at a SOCKS5 proxy may have many;
/// the others are resolved in later rounds.
const LOOKUPS: usize = 64;

/// The addresses of each name, from the last lookup.
type Known = HashMap<TargetAddr, Vec<SocketAddr>>;

/// Starts a task that follows the targets of flows, unless it is running. The task ends when there
/// are no flows.
pub(super) fn start(targets: &Rc<FlowTargets>) {
    if !targets.is_followed.replace(true) {
        tokio::task::spawn_local(follow(Rc::downgrade(targets)));
    }
}

async fn follow(targets: Weak<FlowTargets>) {
    let mut known = Known::new();
    for round in 1_u32.. {
        sleep(ROUND).await;
        let Some(targets) = targets.upgrade() else { return };
        if targets.is_empty() {
            return targets.is_followed.set(false);
        }
        let now = Instant::now();
        // A parked flow sends nothing, so its target owes no answer.
        for flow in targets.select(|flow| !flow.is_parked() && flow.must_report_silence(now)) {
            flow.leaves_silence(now);
        }
        let with_names = round % NAMES == 0;
        let chosen = targets.select(|flow| {
            !flow.is_parked() && (flow.is_in_doubt(now) || (with_names && flow.has_name()))
        });
        drop(targets);
        let mut groups = HashMap::<TargetAddr, Vec<Rc<Target>>>::new();
        for flow in chosen {
            if flow.leaves_target() {
                continue;
            }
            let address = flow.address.borrow().clone();
            if groups.len() < LOOKUPS || groups.contains_key(&address) {
                groups.entry(address).or_default().push(flow);
            }
        }
        let mut found = Known::new();
        for (address, flows) in groups {
            let before = known.get(&address).filter(|_| with_names);
            if let Some(addresses) = look_again(&address, flows, before).await {
                found.insert(address, addresses);
            }
        }
        if with_names {
            known = found;
        }
    }
}

/// Resolves a target, and replaces the sockets of its flows where necessary. Returns the sorted
/// addresses; `before` are the addresses of the previous lookup.
async fn look_again(
    address: &TargetAddr,
    flows: Vec<Rc<Target>>,
    before: Option<&Vec<SocketAddr>>,
) -> Option<Vec<SocketAddr>> {
    let first = flows.first()?;
    let settings = Rc::clone(&first.settings);
    // All flows to an address have the same rule: that of their service, or of their client.
    let lookup = addresses_of(address, first.allow.as_ref(), &settings.lookups);
    let found = timeout(settings.dial, lookup).await.ok()?.ok()?;
    let mut sorted = found.clone();
    sorted.sort_unstable();
    let is_settled = before == Some(&sorted);
    let now = Instant::now();
    // The local address of a new socket, by the target's address.
    let mut from = HashMap::<SocketAddr, Option<IpAddr>>::new();
    for flow in flows {
        // A flow may have switched to another target during the lookup.
        if *flow.address.borrow() != *address {
            continue;
        }
        let Some((target, bound)) = flow.ends() else { continue };
        let is_in_doubt = flow.is_in_doubt(now);
        let is_wrong = if !found.contains(&target) {
            is_in_doubt || is_settled
        } else if !is_in_doubt {
            false
        } else if flow.was_refused_lately() && found.len() > 1 {
            true
        } else {
            let local = || net::udp::local_address(target, &settings.socket).ok();
            let from = from.entry(target).or_insert_with(local);
            from.is_some_and(|from| Some(from) != bound)
        };
        if is_in_doubt {
            flow.judged(now);
        }
        if is_wrong {
            tracing::debug!(
                target = %address, former = %canonical(target),
                "a flow to {address} gets a new socket: its target or the way there has changed"
            );
            flow.renew(found.clone());
        }
    }
    Some(sorted)
}
