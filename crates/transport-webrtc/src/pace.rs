//! ICE checks are paced while their receiver has not answered ([`crate::gate`]): the addresses are
//! from an unauthenticated peer, which may have named those of others (RFC 8445 section 14.2,
//! section 19.5.1). Each socket keeps the order of its checks; the pace is that of the peer, over
//! all its connections ([`punch::Pace`]).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use net::dscp;
use punch::Turn;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, sleep_until};

use crate::candidate::MAX_CANDIDATES;
use crate::gate::Gate;

/// The time between two checks (Ta of RFC 8445 section 14.2).
const PAUSE: Duration = Duration::from_millis(50);

/// The queue of a socket.
pub(crate) struct Pace {
    queue: Arc<Queue>,
    task: AbortHandle,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    work: Notify,
}

#[derive(Default)]
struct State {
    /// At most one check for each address.
    waiting: VecDeque<(SocketAddr, Vec<u8>)>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Queues a check. A newer check replaces an older one to the same address; if the queue is
    /// full, the check is dropped and retransmitted later.
    fn take(&mut self, to: SocketAddr, check: &[u8]) {
        if let Some((_, older)) = self.waiting.iter_mut().find(|(address, _)| *address == to) {
            check.clone_into(older);
        } else if self.waiting.len() < MAX_CANDIDATES {
            self.waiting.push_back((to, check.to_owned()));
        }
    }
}

impl Pace {
    pub(crate) fn new(socket: Weak<UdpSocket>, gate: &Arc<Gate>) -> Self {
        let queue = Arc::new(Queue::default());
        let task = send(Arc::clone(&queue), socket, Arc::clone(gate));
        let task = spawn_local(task).abort_handle();
        Self { queue, task }
    }

    /// Queues a check.
    pub(crate) fn take(&self, to: SocketAddr, check: &[u8]) {
        self.queue.lock().take(to, check);
        self.queue.work.notify_one();
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends the checks, one at a time.
async fn send(queue: Arc<Queue>, socket: Weak<UdpSocket>, gate: Arc<Gate>) {
    loop {
        let check = queue.lock().waiting.pop_front();
        let Some((to, check)) = check else {
            queue.work.notified().await;
            continue;
        };
        if !leaves(&gate, to, &check).await {
            continue;
        }
        let Some(socket) = socket.upgrade() else { return };
        // A lost check is retransmitted.
        let _ = match gate.hops(to, Instant::now().into_std()) {
            Some(hops) => socket.try_io(Interest::WRITABLE, || {
                dscp::send_within(&*socket, (to, None), &check, (0, hops))
            }),
            None => socket.send_to(&check, to).await.map(drop),
        };
        drop(socket);
        sleep(PAUSE).await;
    }
}

/// Waits until a check may be sent. `false`: its address gets no more checks.
async fn leaves(gate: &Gate, to: SocketAddr, check: &[u8]) -> bool {
    loop {
        match gate.ask(to, check, Instant::now().into_std()) {
            Turn::Now => return true,
            Turn::Later(at) => sleep_until(at.into()).await,
            Turn::Never => return false,
        }
    }
}

/// Whether a datagram is a STUN Binding request (RFC 8489 section 5).
pub(crate) fn is_check(datagram: &[u8]) -> bool {
    datagram.starts_with(&[0, 1]) && datagram.get(4..8) == Some(&[0x21, 0x12, 0xa4, 0x42])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::WebrtcSettings;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([198, 51, 100, 7], port))
    }

    #[test]
    fn checks_wait_in_order_and_once_for_each_address() {
        let mut state = State::default();
        for round in 0..3 {
            for port in 1..=20 {
                state.take(address(port), &[round]);
            }
        }
        let waiting: Vec<_> =
            state.waiting.iter().map(|(to, check)| (to.port(), check[0])).collect();
        let expected: Vec<_> = (1..=16).map(|port| (port, 2)).collect();
        assert_eq!(waiting, expected, "the newest of each address, and a bounded number");
    }

    #[test]
    fn a_check_is_told_from_other_datagrams() {
        let request = [0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42, 0, 0];
        assert!(is_check(&request));
        let mut response = request;
        response[0] = 1;
        assert!(!is_check(&response));
        assert!(!is_check(&[22, 0xfe, 0xfd]));
        assert!(!is_check(&[0, 1]));
    }

    /// In virtual time, so that the pauses are exact.
    #[tokio::test(start_paused = true)]
    async fn checks_leave_one_after_the_other() {
        tokio::task::LocalSet::new()
            .run_until(async {
                let [here, there] = [UdpSocket::bind("127.0.0.1:0").await.unwrap(), {
                    UdpSocket::bind("127.0.0.1:0").await.unwrap()
                }];
                let here = Arc::new(here);
                let gate = Arc::new(Gate::new(&WebrtcSettings::default()).unwrap());
                let pace = Pace::new(Arc::downgrade(&here), &gate);
                let begin = Instant::now();
                for round in 0..3_u32 {
                    pace.take(there.local_addr().unwrap(), &[0, 1]);
                    let mut buf = [0; 10];
                    assert_eq!(there.recv(&mut buf).await.unwrap(), 2);
                    assert!(begin.elapsed() >= PAUSE * round, "{:?}", begin.elapsed());
                }
            })
            .await;
    }
}
