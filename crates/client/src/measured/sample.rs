//! What the workers count of the links of a client, twice a second or once.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use net::tcp_info::{Ends, Kernel};
use node::session::{Handle, Worker};
use rustix::time::{ClockId, clock_gettime};
use transport::Connection;

/// The counters of a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkCounts {
    pub(super) session: u64,
    pub(super) serial: u64,
    /// Whether the link has a carrier.
    pub(super) is_live: bool,
    /// Payload bytes so far: those to the server that it has consumed, and those from it.
    pub(super) bytes: [u64; 2],
    /// Packets sent over the active carrier and those of them that were lost, where the transport
    /// counts them.
    pub(super) packets: Option<(u32, [u64; 2])>,
    /// The TCP connection of the active carrier, and the number of the carrier.
    pub(super) tcp: Option<(u32, Connection)>,
}

/// The counters of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerCounts {
    pub(super) links: Vec<LinkCounts>,
    /// The processor time of the thread so far.
    pub(super) cpu: Option<Duration>,
}

/// Asks all workers. A worker that has stopped has no links.
pub(super) async fn all(handles: &[Handle]) -> Vec<WorkerCounts> {
    let mut counts = Vec::with_capacity(handles.len());
    for handle in handles {
        counts.push(handle.call(of).await.unwrap_or_default());
    }
    counts
}

fn of(worker: &Rc<Worker>) -> WorkerCounts {
    let links = worker.state.all_links().into_iter().map(|(session, link)| {
        let active = link.active_carrier();
        let (mut packets, mut tcp) = (None, None);
        link.each_carrier(|number, peer| {
            if Some(number) == active {
                tcp = peer.connection.map(|ends| (number.0, ends));
                packets = peer.watch.as_ref().map(|watch| {
                    let stats = watch.stats();
                    (number.0, [stats.sent_packets, stats.lost_packets])
                });
            }
        });
        let (received, sent, _) = link.totals();
        LinkCounts {
            session: session.id,
            serial: link.serial(),
            is_live: link.is_live() && !link.is_going_away(),
            bytes: [sent.saturating_sub(link.retained()), received],
            packets,
            tcp,
        }
    });
    let cpu = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).ok();
    WorkerCounts { links: links.collect(), cpu }
}

/// The packets that each TCP connection has sent and repeated, by the serial of the link and the
/// number of the carrier. Asks the kernel, on a thread that may wait.
pub(super) async fn packets_of_tcp(
    connections: Vec<((u64, u32), Connection)>,
) -> HashMap<(u64, u32), [u64; 2]> {
    let ask = move || {
        let Ok(mut kernel) = Kernel::open() else { return HashMap::new() };
        let told = connections.into_iter().filter_map(|(whose, Connection { local, remote })| {
            let (_, info) = kernel.ask(Ends { local, remote }).ok()??;
            Some((whose, [info.sent_segments?, info.retransmitted_segments?]))
        });
        told.collect()
    };
    tokio::task::spawn_blocking(ask).await.unwrap_or_default()
}
