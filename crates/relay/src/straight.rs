//! Visitors that are connected with a target of this machine's side, without a link: the default
//! target of a port. Both ends are those of a stream, joined by a `passage`.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use proto::{Budget, ResetCode};
use tokio::task::spawn_local;

use crate::passage::{of_target, passage};
use crate::pipe::{Pipe, Pump};
use crate::visitor::refuse_socket;
use crate::{Caller, Held, Permit, Settings, Socket, Stats, TargetAddr, connect_stream};

/// What a connection costs without bytes that wait: two sockets with their registrations, two pipes
/// and the tasks of two pumps.
const STATE: u64 = 4 << 10;

/// Connects the visitors of one worker with a target.
pub struct Straight {
    target: TargetAddr,
    /// The settings of the visitors' ends, which have the time-outs and the counters.
    near: Rc<Settings>,
    /// The settings of the targets' ends.
    far: Rc<Settings>,
    budget: Rc<dyn Budget>,
}

impl Straight {
    /// Connections to `target`, whose memory is charged to `budget`.
    #[must_use]
    pub fn new(target: TargetAddr, settings: Rc<Settings>, budget: Rc<dyn Budget>) -> Rc<Self> {
        let far = Rc::new(of_target(&settings));
        Rc::new(Self { target, near: settings, far, budget })
    }

    /// The counters of the visitors.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.near.stats
    }

    /// The target.
    #[must_use]
    pub const fn target(&self) -> &TargetAddr {
        &self.target
    }

    /// Dials the target and carries the bytes of a visitor until both directions have ended. The
    /// visitor is reset when memory is short, without a permit, and when the target cannot be
    /// reached. Each of these is counted as refused.
    pub fn serve(&self, visitor: Socket, peer: Option<SocketAddr>, permit: Option<Permit>) {
        let held = permit.is_some().then(|| Held::draw(&self.budget, STATE)).flatten();
        let Some(held) = held else {
            return refuse_socket(visitor, &self.near, ResetCode::Limit);
        };
        let near = Pipe::new(Rc::clone(&self.near), peer);
        let caller = Caller { visitor: peer, ..Caller::default() };
        let inlet = passage(&self.budget, held, Rc::<Pipe>::clone(&near), |inlet| {
            connect_stream(self.target.clone(), caller, inlet, &self.far, None)
        });
        near.connect(visitor);
        spawn_local(Pump::new(near, inlet, permit));
    }
}

impl fmt::Debug for Straight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Straight({})", self.target)
    }
}
