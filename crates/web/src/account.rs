//! The memory of one visitor's connection, charged to the budget of the process.
//!
//! Mandatory state of a connection or a request is admitted or refused: [`Account::open`] and
//! [`Account::take`]. Buffers may grow while [`Account::may_grow`] permits; otherwise they stay at
//! their smallest size, and no more is read until they are drained. A connection holds at most a
//! fraction of what it leaves to all others (Choudhury and Hahne, "Dynamic Queue Length Thresholds
//! for Shared-Memory Packet Switches", IEEE/ACM Transactions on Networking 6(2), 1998). So a later
//! visitor is served while many others hold all that they may have.

use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    task::{Context, Waker},
};

use bytes::{Buf, Bytes};
use proto::Budget;

/// Growing buffers leave the budget divided by this number free, as the windows of streams do for
/// new streams.
const GROWTH_RESERVE: u64 = 4;
/// Connections and requests leave the budget divided by this number free, for memory that cannot be
/// refused.
const RESERVE: u64 = 8;

/// A connection may hold the free memory divided by this number. Of 48 MiB the first gets 12 MiB,
/// which is enough for 128 requests, and after 20 greedy connections a new one still gets its
/// share.
const SHARE: u64 = 4;
/// The bytes that a connection may hold as long as they are free: its buffers and one request.
const FIRST: u64 = 128 * 1024;

/// The size of hyper's smallest reads and of its initial header buffer, in bytes.
pub(crate) const SMALL: usize = 8 * 1024;

/// The cost of a visitor over HTTP/1: hyper's read and write buffers, and its tasks. 1,000 idle
/// visitors after a response, each with a connection to its target, took 24 KiB each.
pub(crate) const H1: u64 = 20 * 1024;
/// The cost of a visitor over HTTP/2: the frame buffers and HPACK tables of both directions, and
/// its tasks. 600 idle visitors took 19 KiB each; an incomplete frame takes 16 KiB more.
pub(crate) const H2: u64 = 36 * 1024;
/// The cost of a connection that carries another protocol: two sockets and a task.
pub(crate) const SWITCHED: u64 = 4 * 1024;
/// The cost of a request: its task, the state of its HTTP/2 stream, its field table, and the small
/// block that a piece of a body pins.
pub(crate) const REQUEST: u64 = 12 * 1024;
/// The response header size that is covered by the memory of a request.
const SMALL_HEAD: u64 = 2 * 1024;
/// The cost of a response that refuses a request.
const REFUSED: u64 = 3 * 1024;
/// The cost of a connection to a target: hyper's two buffers, the stream, and its task.
pub(crate) const UPSTREAM: u64 = 20 * 1024;
/// The overhead of a piece of a body: its entry in the queue of hyper or h2, and its frame.
const PIECE: u64 = 512;

/// The memory that one connection of a visitor holds.
pub struct Account {
    budget: RefCell<Rc<dyn Budget>>,
    held: Cell<u64>,
    /// The part of `held` that stays until the end of the connection.
    base: Cell<u64>,
    /// Bytes of response headers that may be in the write buffer.
    heads: Cell<u64>,
    /// Whether the connection must end, because no response can be sent.
    exhausted: Cell<bool>,
    refusals: RefCell<Option<Rc<dyn Fn()>>>,
}

impl Account {
    /// Opens an account for a connection that takes `bytes` before its first request, in addition
    /// to what [`serve`](crate::serve()) takes. `None`: the budget is too small.
    #[must_use]
    pub fn open(budget: Rc<dyn Budget>, bytes: u64) -> Option<Rc<Self>> {
        let account = Self {
            budget: RefCell::new(budget),
            held: Cell::new(0),
            base: Cell::new(0),
            heads: Cell::new(0),
            exhausted: Cell::new(false),
            refusals: RefCell::default(),
        };
        account.extend(bytes).then(|| Rc::new(account))
    }

    /// Moves the connection to the budget of another visitor, whose request a reverse proxy sends.
    /// The memory that it holds is charged to that budget from now on. Returns whether the budget
    /// has room for requests.
    pub(crate) fn move_to(&self, budget: Rc<dyn Budget>) -> bool {
        let held = self.held.get();
        budget.charge(held);
        let before = self.budget.replace(budget);
        before.release(held);
        self.spare(RESERVE) > 0
    }

    /// Sets the callback for each visitor and each request that is refused for lack of memory.
    pub fn on_refusal(&self, call: Rc<dyn Fn()>) {
        *self.refusals.borrow_mut() = Some(call);
    }

    /// The bytes that the connection holds.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.get()
    }

    pub(crate) fn count_refusal(&self) {
        let call = self.refusals.borrow().clone();
        if let Some(call) = call {
            call();
        }
    }

    /// Takes bytes until the end of the connection, if the budget allows it.
    pub(crate) fn extend(&self, bytes: u64) -> bool {
        let may = self.affords(bytes);
        if may {
            self.charge(bytes);
            self.base.set(self.base.get() + bytes);
        }
        may
    }

    /// Releases bytes that [`Self::extend`] has taken.
    pub(crate) fn shorten(&self, bytes: u64) {
        let bytes = bytes.min(self.base.get());
        self.base.set(self.base.get() - bytes);
        self.release(bytes);
    }

    /// Whether the connection may take `bytes` more of mandatory memory.
    pub(crate) fn affords(&self, bytes: u64) -> bool {
        self.has(bytes, RESERVE)
    }

    /// Whether a buffer may take `bytes` more.
    pub(crate) fn may_grow(&self, bytes: u64) -> bool {
        self.has(bytes, GROWTH_RESERVE)
    }

    fn spare(&self, reserve: u64) -> u64 {
        self.budget.borrow().left().saturating_sub(self.budget.borrow().total() / reserve)
    }

    fn has(&self, bytes: u64, reserve: u64) -> bool {
        let spare = self.spare(reserve);
        let held = self.held.get().saturating_add(bytes);
        // Held memory is not reclaimed, so each connection leaves a share to later ones.
        held <= spare / SHARE || (held <= FIRST && bytes <= spare)
    }

    /// Takes `bytes` of mandatory memory for a request.
    pub(crate) fn take(self: &Rc<Self>, bytes: u64) -> Option<Hold> {
        self.affords(bytes).then(|| self.hold(bytes))
    }

    /// Charges `bytes` that are already in use.
    pub(crate) fn hold(self: &Rc<Self>, bytes: u64) -> Hold {
        self.charge(bytes);
        Hold { account: Rc::clone(self), bytes: Cell::new(bytes) }
    }

    /// Charges the cost of refusing a request. If the budget has less, the connection ends.
    pub(crate) fn refuse(self: &Rc<Self>) -> Hold {
        if self.budget.borrow().left() < REFUSED {
            self.exhaust();
        }
        self.hold(REFUSED)
    }

    /// Ends the connection: its next read fails.
    fn exhaust(&self) {
        self.exhausted.set(true);
    }

    pub(crate) const fn is_exhausted(&self) -> bool {
        self.exhausted.get()
    }

    fn charge(&self, bytes: u64) {
        self.budget.borrow().charge(bytes);
        self.held.set(self.held.get() + bytes);
    }

    fn release(&self, bytes: u64) {
        self.budget.borrow().release(bytes);
        self.held.set(self.held.get().saturating_sub(bytes));
    }

    /// Charges a response header that is about to be written. Returns false if the budget is too
    /// small. An admitted request gets its response regardless of what its connection holds, unless
    /// the header is long.
    pub(crate) fn head_queued(&self, bytes: u64) -> bool {
        let may =
            self.affords(bytes) || (bytes <= SMALL_HEAD && bytes <= self.spare(GROWTH_RESERVE));
        if may {
            self.charge(bytes);
            self.heads.set(self.heads.get() + bytes);
        }
        may
    }

    /// Releases written headers: all of them, or a part. The streams of a visitor take turns, so
    /// each write includes some of the queued headers.
    pub(crate) fn heads_written(&self, all: bool) {
        let kept = if all { 0 } else { self.heads.get() / 2 };
        self.release(self.heads.replace(kept) - kept);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.borrow().release(self.held.get());
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.held.get()).finish()
    }
}

/// Charged bytes of an account. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Hold {
    account: Rc<Account>,
    bytes: Cell<u64>,
}

impl Hold {
    /// Sets the current size.
    pub(crate) fn set(&self, bytes: u64) {
        let before = self.bytes.replace(bytes);
        if bytes > before {
            self.account.charge(bytes - before);
        } else if bytes < before {
            self.account.release(before - bytes);
        }
    }

    pub(crate) const fn account(&self) -> &Rc<Account> {
        &self.account
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.account.release(self.bytes.get());
    }
}

/// The queued pieces of one body for the visitor.
pub(crate) struct Share {
    account: Rc<Account>,
    held: Cell<u64>,
    waker: Cell<Option<Waker>>,
}

impl Share {
    pub(crate) fn new(account: &Rc<Account>) -> Rc<Self> {
        let account = Rc::clone(account);
        Rc::new(Self { account, held: Cell::new(0), waker: Cell::new(None) })
    }

    pub(crate) const fn account(&self) -> &Rc<Account> {
        &self.account
    }

    /// Whether the body may queue one more piece of up to `most` bytes. The first piece is always
    /// accepted, so a body with too little memory is slow but does not stall. Otherwise the task of
    /// `cx` is woken once the pieces of this body are written.
    pub(crate) fn may_take(&self, most: u64, cx: &Context<'_>) -> bool {
        if self.held.get() == 0 || self.account.may_grow(most) {
            return true;
        }
        self.waker.set(Some(cx.waker().clone()));
        false
    }

    /// Charges a piece that was cut out of a block of `block` bytes. A small piece is copied, so
    /// that it does not pin the block.
    pub(crate) fn charge(self: &Rc<Self>, bytes: Bytes, block: usize) -> Piece {
        let (bytes, size) = unpinned(bytes, block);
        let cost = size as u64 + PIECE;
        self.held.set(self.held.get() + cost);
        self.account.charge(cost);
        Piece { bytes, cost, share: Rc::clone(self) }
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.held.get()).finish()
    }
}

/// Returns the bytes, copied if they are a small part of their block, and the size of the memory
/// that they pin.
pub(crate) fn unpinned(bytes: Bytes, block: usize) -> (Bytes, usize) {
    if bytes.len() < block / 4 {
        let bytes = Bytes::copy_from_slice(&bytes);
        let size = bytes.len();
        return (bytes, size);
    }
    let size = bytes.len().max(block);
    (bytes, size)
}

/// A piece of a response body, which is charged until it is written or dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    bytes: Bytes,
    cost: u64,
    share: Rc<Share>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        self.bytes.copy_to_bytes(count)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let share = &self.share;
        share.account.release(self.cost);
        share.held.set(share.held.get() - self.cost);
        if share.held.get() == 0
            && let Some(waker) = share.waker.take()
        {
            waker.wake();
        }
    }
}
