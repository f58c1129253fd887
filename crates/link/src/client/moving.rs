//! Moves a link to another path: on command, where the new carrier is greeted before the old
//! carrier ends, and after a change of the network of this machine. The streams continue at the
//! byte.

use std::net::SocketAddr;
use std::vec;

use proto::CarrierNumber;

use super::keeper::Keeper;
use super::plan::PathChange;
use crate::inner::Link;
use crate::notices::Notice;
use crate::orders::{Destination, MoveError, MoveOrder, PathMove};

/// A move in progress.
pub(super) struct Moving {
    order: MoveOrder,
    /// The URLs of both paths.
    urls: PathMove,
    index: usize,
    /// The paths to try after this path.
    rest: vec::IntoIter<usize>,
    /// Why the paths before this path were not taken.
    failed: Vec<String>,
}

impl Link {
    /// Moves the link to the path with this URL, or to the path behind the present path. The
    /// streams continue. The link keeps the path until the path is lost or silent, or another path
    /// is faster. Only a client moves its links.
    ///
    /// # Errors
    /// Why the link was not moved.
    pub async fn move_to(&self, to: Option<&str>) -> Result<PathMove, MoveError> {
        let to = to.map_or(Destination::Next, |to| Destination::Url(to.to_owned()));
        self.order_move(to).await
    }

    /// Dials the path of the link anew, because the way of the carrier is out of date, and moves
    /// the link to the new carrier. If the path fails, the other paths are tried in their order.
    /// The streams continue. Only a client moves its links.
    ///
    /// # Errors
    /// Why no path was taken. The link keeps its carrier.
    pub async fn renew_path(&self) -> Result<PathMove, MoveError> {
        self.order_move(Destination::Anew).await
    }

    async fn order_move(&self, to: Destination) -> Result<PathMove, MoveError> {
        if self.has_ended() {
            return Err(MoveError::Interrupted);
        }
        let (order, outcome) = MoveOrder::new(to);
        self.inner.orders.give(order);
        self.inner.notices.add(Notice::Move);
        outcome.await.unwrap_or(Err(MoveError::Interrupted))
    }

    /// Checks the path of the link after a change of the network of this machine: as
    /// [`Self::leave_addresses`], and the peer is asked for a sign of life on a carrier that stays.
    /// If there is none within about a second, the link moves. Only a client moves its links.
    pub fn network_changed(&self, is_usable: impl Fn(SocketAddr) -> bool) {
        self.leave_addresses(is_usable);
        if !self.has_ended() {
            self.inner.machine.borrow_mut().ask();
            self.inner.commanded();
            self.inner.notices.add(Notice::NetworkChanged);
        }
    }

    /// Ends the carriers whose source address this machine does not have any more, as `is_usable`
    /// says. The streams continue over the standby or the next carrier.
    pub fn leave_addresses(&self, is_usable: impl Fn(SocketAddr) -> bool) {
        self.end_carriers(|number, peer| {
            let is_gone = peer.connection.is_some_and(|ends| !is_usable(ends.local));
            if is_gone {
                let (link, carrier) = (self.serial(), number.0);
                tracing::debug!(link, carrier, "the address of a carrier is gone");
            }
            is_gone
        });
    }

    /// Ends the carriers of which `is_it` is true, as if they were lost. The streams continue over
    /// the standby or the next carrier.
    pub fn end_carriers(&self, is_it: impl Fn(CarrierNumber, &transport::Peer) -> bool) {
        let mut ending = Vec::new();
        self.each_carrier(|number, peer| {
            if is_it(number, peer) {
                ending.push(number);
            }
        });
        // The standby first, so that it does not take over if it ends as well.
        ending.into_iter().rev().for_each(|number| self.inner.carrier_ended(number));
    }
}

impl Moving {
    /// Begins a move from the path `from`. `None`: no carrier is needed, and the command is
    /// answered.
    pub(super) fn begin(order: MoveOrder, keeper: &Keeper, from: usize) -> Option<Self> {
        let paths = &keeper.client.paths;
        let url = |index: usize| paths.get(index).map_or_else(String::new, |path| path.url.clone());
        let found = match &order.to {
            Destination::Anew => Ok(from),
            Destination::Next if paths.len() < 2 => Err(MoveError::OnlyPath),
            Destination::Next => Ok((from + 1) % paths.len()),
            // Several paths may have one URL.
            Destination::Url(to) if *to == url(from) => Ok(from),
            Destination::Url(to) => {
                let found = paths.iter().position(|path| path.url == *to);
                found.ok_or_else(|| MoveError::Unknown(to.clone()))
            }
        };
        let renews = matches!(order.to, Destination::Anew);
        match found {
            Ok(index) if index != from || renews => {
                let urls = PathMove { from: url(from), to: url(index) };
                let mut rest = if renews { keeper.order() } else { Vec::new() };
                rest.retain(|path| *path != index);
                Some(Self { order, urls, index, rest: rest.into_iter(), failed: Vec::new() })
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

    /// Whether the path was dialled anew, and no command has named it.
    pub(super) const fn renews(&self) -> bool {
        matches!(self.order.to, Destination::Anew)
    }

    /// The path to dial after the path has failed, and why; `None`: there is no other path.
    pub(super) fn next(&mut self, keeper: &Keeper, why: &str) -> Option<(usize, PathChange)> {
        let next = self.rest.next()?;
        let to = keeper.client.paths.get(next)?.url.clone();
        let from = std::mem::replace(&mut self.urls.to, to);
        self.failed.push(format!("{from} failed ({why})"));
        self.index = next;
        Some((next, PathChange::Failed(self.failed.clone())))
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
