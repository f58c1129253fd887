//! The turns of clients at the certificate authority: the last order of each client, and the number
//! of first orders that the client may still make. Pure: the time is an argument.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The number of first orders that a client may make at once, and then per day. Failed orders
/// count.
pub(crate) const ORDERS: u32 = 100;

/// The number of first orders of all clients by one account at once, and then per 3 hours. Let's
/// Encrypt permits 300 orders of an account in 3 hours, and renewals beyond that.
pub(crate) const ORDERS_ALL: u32 = 150;

/// The time after which an account may make one more order.
const PER_ORDER_ALL: Duration = Duration::from_secs(3 * 3600 / ORDERS_ALL as u64);

/// The time after which a client may make one more order.
const PER_ORDER: Duration = Duration::from_secs(24 * 3600 / ORDERS as u64);

/// The orders of one client.
#[derive(Debug)]
struct Orders {
    /// The number of the last order, over all clients.
    last: u64,
    /// When all first orders are accounted for at the even rate; see the generic cell rate
    /// algorithm (ITU-T I.371).
    paid: Instant,
    /// The time of the last order.
    at: Instant,
}

/// The orders of all clients.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    clients: HashMap<Arc<str>, Orders>,
    /// When the first orders of each account are accounted for, as `Orders::paid`.
    accounts: HashMap<usize, Instant>,
    orders: u64,
    /// The client and the account of the last order, if it was a first order.
    counted: Option<(Arc<str>, usize)>,
}

impl Turns {
    /// The number of the last order of a client. A client without an order comes first.
    pub(crate) fn last(&self, client: &str) -> u64 {
        self.clients.get(client).map_or(0, |turn| turn.last)
    }

    /// When the client may make its next first order; `None`: at any time.
    pub(crate) fn allowed(&self, client: &str) -> Option<Instant> {
        self.clients.get(client)?.paid.checked_sub(PER_ORDER * (ORDERS - 1))
    }

    /// When an account may make its next first order; `None`: at any time.
    pub(crate) fn allowed_to(&self, account: usize) -> Option<Instant> {
        self.accounts.get(&account)?.checked_sub(PER_ORDER_ALL * (ORDERS_ALL - 1))
    }

    /// Counts an order. Renewals only take a turn: their number follows from the number of first
    /// orders.
    pub(crate) fn count(
        &mut self,
        client: &Arc<str>,
        account: usize,
        is_renewal: bool,
        now: Instant,
    ) {
        self.orders += 1;
        let new = || Orders { last: 0, paid: now, at: now };
        let turn = self.clients.entry(Arc::clone(client)).or_insert_with(new);
        (turn.last, turn.at) = (self.orders, now);
        self.counted = (!is_renewal).then(|| (Arc::clone(client), account));
        if !is_renewal {
            turn.paid = turn.paid.max(now) + PER_ORDER;
            let paid = self.accounts.entry(account).or_insert(now);
            *paid = (*paid).max(now) + PER_ORDER_ALL;
        }
    }

    /// The order that was counted last was not made, because another node of the cluster has the
    /// right to order, or has ordered the certificate. The client has had its turn all the same.
    pub(crate) fn take_back(&mut self) {
        let Some((client, account)) = self.counted.take() else { return };
        if let Some(turn) = self.clients.get_mut(&client) {
            turn.paid = turn.paid.checked_sub(PER_ORDER).unwrap_or(turn.paid);
        }
        if let Some(paid) = self.accounts.get_mut(&account) {
            *paid = paid.checked_sub(PER_ORDER_ALL).unwrap_or(*paid);
        }
    }

    /// Removes the clients that made no order for a day and whose quota is full.
    pub(crate) fn forget(&mut self, now: Instant) {
        let is_recent = |turn: &Orders| now.saturating_duration_since(turn.at) < PER_ORDER * ORDERS;
        self.clients.retain(|_, turn| turn.paid > now || is_recent(turn));
        self.accounts.retain(|_, paid| *paid > now);
    }
}
