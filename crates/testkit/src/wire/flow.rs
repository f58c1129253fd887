//! A conversation over UDP on a path: to the target it comes from one port, which a NAT can change.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Shared, Way, lock};

/// The longest datagram.
const LONGEST: usize = 65_535;

/// How often a thread that waits for the target looks whether the port was changed.
const LOOK: Duration = Duration::from_millis(50);

/// Between two datagrams while a path trickles; what comes sooner is lost.
const TRICKLE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Flow {
    client: SocketAddr,
    near: Arc<UdpSocket>,
    far: Mutex<Arc<UdpSocket>>,
    swallows: [AtomicBool; 2],
    last: Mutex<Option<Instant>>,
    seen: AtomicU64,
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
        })
    }

    pub(super) const fn client(&self) -> SocketAddr {
        self.client
    }

    /// Whether it has not been swallowed in any way.
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

    /// From now on it comes from another port.
    pub(super) fn rebind(&self, target: SocketAddr) -> io::Result<()> {
        *lock(&self.far) = Arc::new(towards(target)?);
        Ok(())
    }

    /// A datagram from the client.
    pub(super) fn up(&self, datagram: &[u8], shared: &Shared) {
        if self.passes(0, datagram.len(), shared) {
            let far = Arc::clone(&lock(&self.far));
            // A path loses what it cannot send.
            let _ = far.send(datagram);
        }
    }

    /// Carries what the target says, as long as the process lives.
    pub(super) fn carry_down(&self, shared: &Shared) {
        let mut buf = vec![0; LONGEST];
        loop {
            let far = Arc::clone(&lock(&self.far));
            let Ok(n) = far.recv(&mut buf) else { continue };
            if self.passes(1, n, shared) {
                let _ = self.near.send_to(&buf[..n], self.client);
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
        shared.count(bytes);
        // What was counted may have been what kills.
        !self.swallows[way].load(Ordering::SeqCst)
    }
}

fn towards(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(target.ip(), 0))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}
