//! The room of visitors in the table of descriptors. The test has a process of its own, because a
//! thread of another test that closes a descriptor makes room.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test fails by panicking, and its visitors are threads that may wait"
)]

#[path = "pump/link.rs"]
#[allow(dead_code, reason = "other tests use the rest of the link")]
mod link;
#[path = "pump/rig.rs"]
#[allow(dead_code, reason = "other tests use the rest of the rig")]
mod rig;

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use relay::{Handler, Room, Socket, listen};
use rig::{run, until};

/// A handler that keeps every visitor.
#[derive(Debug, Default)]
struct Lobby(RefCell<Vec<Socket>>);

impl Handler for Lobby {
    fn handle(&self, socket: Socket, _peer: Option<SocketAddr>) {
        self.0.borrow_mut().push(socket);
    }
}

#[test]
fn visitors_wait_when_their_room_is_used_up_and_enter_when_others_leave() {
    run(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let visitors: Vec<_> = (0..30).map(|_| TcpStream::connect(address).unwrap()).collect();
        let lowest = listener.try_clone().unwrap().as_raw_fd();
        let ceiling = u32::try_from(lowest).unwrap() + 10;
        let room = Room::below(ceiling, ceiling + 10);
        let lobby = Rc::<Lobby>::default();
        let handler = Rc::<Lobby>::clone(&lobby);
        let _open = listen(listener, handler, room).unwrap();
        let mut entered = 0;
        while entered < visitors.len() {
            until(|| !lobby.0.borrow().is_empty()).await;
            // Twice the pause of the loop: no further visitor may be accepted in this time.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let inside = lobby.0.take();
            let beyond = inside.iter().filter(|socket| !room.holds(*socket)).count();
            assert!(beyond <= 1, "{beyond} of {} are beyond the room", inside.len());
            entered += inside.len();
        }
    });
}
