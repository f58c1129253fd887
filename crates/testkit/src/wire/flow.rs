//! A conversation over UDP on a path. The target sees it as coming from one port, and a NAT can
//! change the port.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::late::Late;
use super::{Shared, Way, lock};

/// The maximum length of a datagram, in bytes.
const LONGEST: usize = 65_535;

/// The interval at which a thread that waits for the target checks whether the port was changed.
const LOOK: Duration = Duration::from_millis(50);

/// The minimum interval between two datagrams while a path trickles; a datagram that arrives
/// earlier is lost.
const TRICKLE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Flow {
    client: SocketAddr,
    near: Arc<UdpSocket>,
    far: Mutex<Arc<UdpSocket>>,
    swallows: [AtomicBool; 2],
    last: Mutex<Option<Instant>>,
    seen: AtomicU64,
    /// Delay lines up and down, set when the path gets a delay.
    late: OnceLock<[Late; 2]>,
}

impl Flow {
    pub(super) fn new(
        client: SocketAddr,
        near: Arc<UdpSocket>,
        target: SocketAddr,
    ) -> io::Result<Self> {
        Ok(Self {
            client,
            near,
            far: Mutex::new(Arc::new(towards(target)?)),
            swallows: [AtomicBool::new(false), AtomicBool::new(false)],
            last: Mutex::default(),
            seen: AtomicU64::new(0),
            late: OnceLock::new(),
        })
    }

    pub(super) const fn client(&self) -> SocketAddr {
        self.client
    }

    /// Whether neither direction swallows datagrams.
    pub(super) fn is_sound(&self) -> bool {
        self.swallows.iter().all(|swallows| !swallows.load(Ordering::SeqCst))
    }

    pub(super) fn swallow(&self, way: Way) {
        if way != Way::Down {
            self.swallows[0].store(true, Ordering::SeqCst);
        }
        if way != Way::Up {
            self.swallows[1].store(true, Ordering::SeqCst);
        }
    }

    /// From now on, datagrams come from another port.
    pub(super) fn rebind(&self, target: SocketAddr) -> io::Result<()> {
        *lock(&self.far) = Arc::new(towards(target)?);
        Ok(())
    }

    /// Forwards a datagram from the client.
    pub(super) fn up(self: &Arc<Self>, datagram: &[u8], shared: &Shared) {
        if self.passes(0, datagram.len(), shared) {
            self.deliver(0, datagram, shared);
        }
    }

    /// Delivers a datagram at once or after the path's delay.
    fn deliver(self: &Arc<Self>, way: usize, datagram: &[u8], shared: &Shared) {
        let delay = shared.delay();
        if delay.is_zero() {
            return self.arrive(way, datagram);
        }
        let late = self.late.get_or_init(|| {
            [0, 1].map(|way| {
                let flow = Arc::downgrade(self);
                Late::new(move |datagram| {
                    flow.upgrade().iter().for_each(|flow| flow.arrive(way, datagram));
                })
            })
        });
        late[way].send(datagram, delay);
    }

    fn arrive(&self, way: usize, datagram: &[u8]) {
        // A path loses datagrams that it cannot send.
        let _ = match way {
            0 => Arc::clone(&lock(&self.far)).send(datagram),
            _ => self.near.send_to(datagram, self.client),
        };
    }

    /// Forwards the target's datagrams while the process runs.
    pub(super) fn carry_down(self: &Arc<Self>, shared: &Shared) {
        let mut buf = vec![0; LONGEST];
        loop {
            let far = Arc::clone(&lock(&self.far));
            let Ok(n) = far.recv(&mut buf) else { continue };
            if self.passes(1, n, shared) {
                self.deliver(1, &buf[..n], shared);
            }
        }
    }

    fn passes(&self, way: usize, bytes: usize, shared: &Shared) -> bool {
        if self.swallows[way].load(Ordering::SeqCst) || !shared.is_sound_for_datagrams() {
            return false;
        }
        let nth = self.seen.fetch_add(1, Ordering::Relaxed);
        if shared.loses(nth) || bytes > shared.longest.load(Ordering::Relaxed) {
            return false;
        }
        if shared.trickles() {
            let mut last = lock(&self.last);
            if last.is_some_and(|last| last.elapsed() < TRICKLE) {
                return false;
            }
            *last = Some(Instant::now());
        }
        if !shared.policers[way].passes(bytes) {
            return false;
        }
        shared.count(bytes);
        // The datagram that was counted may have started the swallowing.
        !self.swallows[way].load(Ordering::SeqCst)
    }
}

fn towards(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(target.ip(), 0))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}
