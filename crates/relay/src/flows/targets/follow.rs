//! Flows follow their targets. A connected socket keeps the target's address and its own for ever.
//! A flow that is in use gets another socket when one of them is wrong:
//!
//! * the name of the target leads to other addresses. A flow that is answered moves when two
//!   lookups agree, because a name may stand for a pool whose members take turns;
//! * the target refuses what it gets, and its name has another address;
//! * this machine sends from another address now, and no answers come.
//!
//! A flow whose target refuses what it gets, or answers nothing while other targets answer, ends
//! where these stand in: the next datagram of its peer begins a flow to one of them.
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

/// How often flows are looked at.
const ROUND: Duration = Duration::from_secs(2);

/// The rounds after which the names of answered flows are looked up: 14 s. Two lookups and a round
/// are over within 30 s, the shortest time to live that records of moving machines usually have.
const NAMES: u32 = 7;

/// Names that are looked up in a round. A program at a SOCKS5 proxy may have many; the others have
/// their turn in later rounds.
const LOOKUPS: usize = 64;

/// The addresses of each name, as they were found last.
type Known = HashMap<TargetAddr, Vec<SocketAddr>>;

/// Follows the targets of flows, in a task that lives while there are flows.
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
        for flow in targets.select(|flow| flow.must_report_silence(now)) {
            flow.leaves_silence(now);
        }
        let with_names = round % NAMES == 0;
        let chosen =
            targets.select(|flow| flow.is_in_doubt(now) || (with_names && flow.has_name()));
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

/// Looks a target up, and gives other sockets to those of its flows that need them. Returns the
/// addresses in order; `before` are those of an earlier lookup.
async fn look_again(
    address: &TargetAddr,
    flows: Vec<Rc<Target>>,
    before: Option<&Vec<SocketAddr>>,
) -> Option<Vec<SocketAddr>> {
    let first = flows.first()?;
    let settings = Rc::clone(&first.settings);
    // The flows of an address have the same rule: that of their service, or of their client.
    let lookup = addresses_of(address, first.allow.as_ref(), &settings.lookups);
    let found = timeout(settings.dial, lookup).await.ok()?.ok()?;
    let mut sorted = found.clone();
    sorted.sort_unstable();
    let is_settled = before == Some(&sorted);
    let now = Instant::now();
    // The address that a new socket would send from, by the target's address.
    let mut from = HashMap::<SocketAddr, Option<IpAddr>>::new();
    for flow in flows {
        // A flow may have taken another target during the lookup.
        if *flow.address.borrow() != *address {
            continue;
        }
        let Some((target, local)) = flow.ends() else { continue };
        let is_in_doubt = flow.is_in_doubt(now);
        let is_wrong = if !found.contains(&target) {
            is_in_doubt || is_settled
        } else if !is_in_doubt {
            false
        } else if flow.was_refused_lately() && found.len() > 1 {
            true
        } else {
            let from = from.entry(target).or_insert_with(|| net::udp::local_address(target).ok());
            from.is_some_and(|from| Some(from) != local)
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
