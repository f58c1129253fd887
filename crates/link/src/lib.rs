//! Drives a `proto::Link` over carriers. This crate connects the protocol with sockets and timers.
//!
//! ```text
//!   carrier --> reader --+--> Outlet::deliver (inline, no task in between)
//!                        |
//!                  proto::Link (RefCell, one thread)
//!                        |
//!   carrier <-- writer <-+--- Inlet::send (woken once per turn of the runtime)
//! ```
//! [`Link`] is the handle of a link. [`client`] dials, greets and resumes endlessly. [`server`]
//! greets incoming carriers. All state of a link is on one worker.
//!
//! The files form layers:
//!
//! ```text
//!   client/  server/             policy: which paths, whose carriers
//!   dial  greet  backoff         the dial of a path, the greeting of a carrier; the backoff
//!   attach  handle               attaching carriers; the owner's operations
//!   writer  accept  timer        the tasks of a link
//!   reader/                      the task that reads
//!   io                           the state that the tasks of a carrier share
//!   packets  lanes/  outbox      the datagrams, the additional lanes and the queue of a carrier
//!   guard  gathered  read_end    a panic ends only its link; payloads written together; the end
//!                                of reading
//!   drive  dispatch  end  retire     the steps after an input or a command
//!   inlet  flow                  the commands of a stream and of a flow
//!   inner                        the link, its owner
//!   pages                        payload as pages: the rules, and the retained pages
//!   budget  charge               the memory of a link and of a carrier
//!   gauge  strain                the statistics of a carrier's connection; a slow path
//!   wakers  alarm  tasks  notices  orders  retirement  state  system    plain state, time and
//!                                randomness
//! ```

mod accept;
mod alarm;
mod attach;
mod backoff;
mod budget;
mod charge;
pub mod client;
mod dial;
mod dispatch;
mod drive;
mod end;
mod flow;
mod gathered;
mod gauge;
mod greet;
mod guard;
mod handle;
mod inlet;
mod inner;
mod io;
mod lanes;
mod notices;
mod orders;
mod outbox;
mod packets;
mod pages;
mod read_end;
mod reader;
mod retire;
mod retirement;
pub mod server;
mod state;
mod strain;
mod system;
mod tasks;
mod timer;
mod wakers;
mod writer;

pub use backoff::Retry;
pub use budget::{Held, Lease, ProcessBudget};
pub use dial::{Host, Path, dial};
pub use greet::GreetError;
pub use inner::{Link, Owner};
pub use orders::{MoveError, PathMove};
pub use state::{End, Settings, State};
pub(crate) use system::now;
pub use system::random;
