//! Drives a `proto::Link` over carriers. This crate is the place where the protocol meets sockets
//! and timers.
//!
//! ```text
//!   carrier --> reader --+--> Outlet::deliver (inline, no task in between)
//!                        |
//!                  proto::Link (RefCell, one thread)
//!                        |
//!   carrier <-- writer <-+--- Inlet::send (woken once per turn of the runtime)
//! ```
//! [`Link`] is the handle of a link. [`client`] dials, greets and resumes without end. [`server`]
//! greets incoming carriers. All state of a link lives on one worker.
//!
//! The files lie in layers:
//!
//! ```text
//!   client/  server/             policy: which paths, whose carriers
//!   dial  greet  backoff         a path is dialled, a carrier greets; pauses
//!   attach  handle               carriers come; the owner's operations
//!   writer  accept  timer        the tasks of a link
//!   reader/                      the task that reads
//!   io                           what the tasks of a carrier share
//!   packets  lanes/  outbox      the datagrams, the further lanes and the queue of a carrier
//!   guard  gathered  read_end    a panic ends its link alone; payloads that go together; the end
//!                                of reading
//!   drive  dispatch  end  retire     what follows an input or a command
//!   inlet  flow                  the commands of a stream and of a flow
//!   inner                        the link, its owner
//!   pages                        payload as pages: when, and what is kept of it
//!   budget  charge  strain       the memory of a link and of a carrier; a slow path
//!   wakers  alarm  tasks  notices  retirement  state  system    plain state, time and randomness
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
mod greet;
mod guard;
mod handle;
mod inlet;
mod inner;
mod io;
mod lanes;
mod notices;
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
pub use state::{End, Settings, State};
pub(crate) use system::now;
pub use system::random;
