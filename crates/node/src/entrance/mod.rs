//! An entrance: a listening address whose visitors become streams of a session. On a server an
//! entrance belongs to a published service, on a client to a forward. Both use the same code.
//!
//! ```text
//!   accepted on worker w --> live link on w? ------------------> stream
//!                              | no
//!                              +--> worker with a live link ----> socket handed over --> stream
//!                              | none
//!                              +--> held until a link is live: at most 10 s in all, over workers
//!                                   and flaps, at most 1,024 visitors per session
//! ```
//!
//! The socket of a visitor has a seat in the client's share of the descriptors ([`relay::shares`]).
//! A visitor beyond the share waits in the kernel's queue, or is refused.
//!
//! A visitor whose address may not visit (`allow_from`, `deny_from`) is turned away at once.
//!
//! A name has an entrance without a listener: a door finds the entrance and admits the visitor by
//! [`visit`]. A refused visitor that speaks HTTP gets a page, any other a reset.
//!
//! A visitor is admitted by the rules in force at that moment. If the rules have changed while a
//! visitor was held or moved to another worker, or since the last request of a keep-alive
//! connection, the visitor returns to its door ([`Lead`]).
//!
//! For a Unix socket, one worker accepts all visitors and distributes them to the workers
//! round-robin.
//!
//! | file | content |
//! |---|---|
//! | `shared` | the part of an entrance that all workers share |
//! | `on_worker` | an entrance that is open on one worker, and the settings of its streams |
//! | `guard` | a listener that closes with its entrance |
//! | `tcp` | visitors that a worker accepts itself, over TCP or a Unix socket |
//! | `udp` | flows of a UDP port |
//! | `name` | visitors that a door has directed here by their host |
//! | `proxy` | visitors that name their target by SOCKS5 or to an HTTP proxy |
//! | `announcers` | the load balancers that announce the address of a visitor |
//! | `admit` | from the visitor to the stream, or to the reason for the refusal |
//! | `again` | failover from a refused stream of a shared entrance to another client |
//! | `hold` | the move to another worker, and the wait for a link |
//! | `open` | opens and closes entrances on all workers |
//! | `watch` | target state and access log, from the streams of an entrance |
//! | `openings` | the entrances of the process's own configuration, and their changes by a reload |

mod admit;
mod again;
mod announcers;
mod guard;
mod hold;
mod name;
mod on_worker;
mod open;
mod openings;
mod proxy;
mod shared;
mod tcp;
mod udp;
mod watch;

pub use admit::{Affinity, Attempts, EnteringVisitor, VisitorOrigin, visit};
pub use again::is_counted;
pub use announcers::{Announcers, Balancers};
pub use name::{Lead, NameDoor, NameVisitor};
pub use on_worker::{Entrances, OpenEntrance, served_by, settings_of, stats_of};
pub use open::{
    close_everywhere, forget_everywhere, open_everywhere, pass_on_everywhere, renew_flows,
};
pub use openings::{Absent, Bound, Open, Opening, Openings};
pub use proxy::{NamedServices, connectors};
pub use shared::{Entrance, next_id};
pub use watch::{ForwardWatch, TargetWatch};
