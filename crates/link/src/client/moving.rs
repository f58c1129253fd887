//! Moves a link to another path: on command, where the new carrier is greeted before the old
//! carrier ends, and after a change of the network of this machine. The streams continue at the
//! byte.

use std::net::SocketAddr;

use crate::dial::Path;
use crate::inner::Link;
use crate::notices::Notice;
use crate::orders::{MoveError, MoveOrder, PathMove};

/// A move in progress.
pub(super) struct Moving {
    order: MoveOrder,
    /// The URLs of both paths.
    urls: PathMove,
    index: usize,
}

impl Link {
    /// Moves the link to the path with this URL, or to the path behind the present path. The
    /// streams continue. The link keeps the path until the path is lost or silent, or another path
    /// is faster. Only a client moves its links.
    ///
    /// # Errors
    /// Why the link was not moved.
    pub async fn move_to(&self, to: Option<&str>) -> Result<PathMove, MoveError> {
        if self.has_ended() {
            return Err(MoveError::Interrupted);
        }
        let (order, outcome) = MoveOrder::new(to.map(str::to_owned));
        self.inner.orders.give(order);
        self.inner.notices.add(Notice::Move);
        outcome.await.unwrap_or(Err(MoveError::Interrupted))
    }

    /// Checks the path of the link after a change of the network of this machine. `is_usable` says
    /// whether this machine still has a source address. A carrier whose address is gone ends, and
    /// the peer is asked for a sign of life on the other. If there is none within about a second,
    /// the link moves. Only a client moves its links.
    pub fn network_changed(&self, is_usable: impl Fn(SocketAddr) -> bool) {
        let mut gone = Vec::new();
        self.each_carrier(|number, peer| {
            if peer.connection.is_some_and(|ends| !is_usable(ends.local)) {
                gone.push(number);
            }
        });
        // The standby first, so that it does not take over if its address is gone as well.
        for number in gone.into_iter().rev() {
            tracing::debug!(
                link = self.serial(),
                carrier = number.0,
                "the address of a carrier is gone"
            );
            self.inner.carrier_ended(number);
        }
        if !self.has_ended() {
            self.inner.machine.borrow_mut().ask();
            self.inner.commanded();
            self.inner.notices.add(Notice::NetworkChanged);
        }
    }
}

impl Moving {
    /// Begins a move from the path `from`. `None`: no carrier is needed, and the command is
    /// answered.
    pub(super) fn begin(order: MoveOrder, paths: &[Path], from: usize) -> Option<Self> {
        let url = |index: usize| paths.get(index).map_or_else(String::new, |path| path.url.clone());
        let found = match &order.to {
            None if paths.len() < 2 => Err(MoveError::OnlyPath),
            None => Ok((from + 1) % paths.len()),
            // Several paths may have one URL.
            Some(to) if *to == url(from) => Ok(from),
            Some(to) => {
                let found = paths.iter().position(|path| path.url == *to);
                found.ok_or_else(|| MoveError::Unknown(to.clone()))
            }
        };
        match found {
            Ok(index) if index != from => {
                let urls = PathMove { from: url(from), to: url(index) };
                Some(Self { order, urls, index })
            }
            Ok(index) => {
                order.answer(Ok(PathMove { from: url(from), to: url(index) }));
                None
            }
            Err(why) => {
                order.answer(Err(why));
                None
            }
        }
    }

    /// The index of the path to dial.
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    /// Answers the command after the link has moved.
    pub(super) fn end(self) {
        self.order.answer(Ok(self.urls));
    }

    /// Answers the command after the attempt has failed.
    pub(super) fn fail(self, why: &str) {
        self.order.answer(Err(MoveError::Failed { to: self.urls.to, why: why.to_owned() }));
    }
}
