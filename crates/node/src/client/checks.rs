//! Checks of the targets of services with `health`: the client connects to the target and closes the
//! connection. Without `health` only visitors find out whether a target serves.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::{Check, Over, Service, Target};
use net::resolve::Lookups;
use relay::dial::dial;
use relay::{DialError, proxy_header};
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout_at};

use super::ClientShared;
use super::site::Site;
use super::targets::{address, proxy_version};
use crate::descriptors;

/// The longest pause between two looks at the configuration, which a reload may change.
const LOOK: Duration = Duration::from_secs(5);

/// The public address of a connection that has none.
const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Checks targets until the client leaves. Runs on one worker.
pub(super) async fn check_targets(shared: Arc<ClientShared>) {
    let mut due: HashMap<(String, String), Instant> = HashMap::new();
    loop {
        if shared.leaving.load(Ordering::Relaxed) {
            return;
        }
        let (config, now) = (shared.config.load_full(), Instant::now());
        let checked = config.services.iter().filter_map(|s| Some((s, s.health?)));
        let checked = checked.flat_map(|(service, check)| {
            service.targets().map(move |(target, _)| (service, target, check))
        });
        let mut next = HashMap::new();
        for (service, target, check) in checked {
            let which = (service.name.clone(), target.to_string());
            let mut at = due.get(&which).copied().unwrap_or(now);
            if at <= now {
                begin(&shared, service, target, check);
                at = now + check.interval.duration();
            }
            // A shorter interval takes effect at once.
            next.insert(which, at.min(now + check.interval.duration()));
        }
        due = next;
        let first = due.values().min().copied();
        let until = first.unwrap_or(now + LOOK).min(now + LOOK);
        tokio::time::sleep_until(until).await;
    }
}

/// Starts one check. A check that hangs delays no other check, and ends before the next check of the
/// same target begins, because its time-out is not longer than the interval.
fn begin(shared: &ClientShared, service: &Service, target: &Target, check: Check) {
    let (pool, layer) = (shared.pools.of(service), Site::of(service, target));
    let to = target.to_string();
    let Some(member) = pool.members().find(|member| member.watch.target == to).cloned() else {
        return;
    };
    let Some(target) = address(target, Over::Tcp).filter(|_| service.carries(Over::Tcp)) else {
        return;
    };
    let timeout = check.timeout.duration();
    // A target that expects a header would log a connection without one as broken.
    let version = service.proxy_protocol.map(proxy_version);
    let header = version.map(|version| proxy_header(version, None, NOWHERE));
    let end = Instant::now() + timeout;
    let lookups = Lookups::default();
    spawn_local(async move {
        let room = descriptors::room();
        match dial(&target, None, timeout, room, &lookups).await {
            Ok(dialled) => {
                if let Some(header) = header {
                    // The target accepted the connection, so a failure here says nothing new.
                    drop(timeout_at(end, dialled.write_all(&header)).await);
                }
                if let Some(layer) = layer {
                    // A target that speaks HTTP/2 alone has no certificate that this handshake would
                    // show.
                    let is_http2 = false;
                    let wrapped = timeout_at(end, layer.wrap(dialled.keep(), is_http2)).await;
                    return match wrapped {
                        Ok(Ok(_)) => member.note(Ok(())),
                        Ok(Err(reason)) => member.note(Err(&DialError::Layer { target, reason })),
                        Err(_) => member.note(Err(&DialError::Timeout(target))),
                    };
                }
                // A target that speaks first, or that logs resets, sees a clean end.
                drop(dialled.keep());
                member.note(Ok(()));
            }
            Err(error) => member.note(Err(&error)),
        }
    });
}
