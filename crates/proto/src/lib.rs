//! The tunnel protocol as plain values. Bytes, commands and the current time go in; bytes, events
//! and the next deadline come out. The crate has no socket, clock, task, lock or randomness.
//! `SPEC.md` is the wire format.
//!
//! | module | content |
//! |---|---|
//! | `link` | a link: streams and flows over carriers, resume, liveness, retirement |
//! | `stream` | a stream: two directions, credit, replay, and when its state may be dropped |
//! | `flow` | datagrams of many flows: queues, fragments |
//! | [`greeting`] | how both ends authenticate each other before any frame |
//! | [`control`] | the messages of the control stream: services, terms, results |
//! | `frame`, `wire` | the table of frames, and bounded reading and writing of fields |
//! | `open` | the content of an OPEN frame: target, priority, visitor |
//! | `id`, `offset`, `instant` | identifiers, byte offsets and points in time as types |
//! | `code`, `violation` | reason codes on the wire, and the scope of a violation |
//! | `budget`, `limits` | the memory of streams, windows and replay; limits of streams |
//! | `pages` | payload in pipes of the kernel |
//! | `measure` | measurements with the far end as the target |
//! | `visitors`, `network`, `special` | who may visit, by address; addresses that a rule must name |
//! | `http`, `http_error`, `redirect`, `hashed` | how a server handles requests: options, why they are refused, redirects, password hashes |
//! | `pattern` | patterns of names: visitors of a private service, services that a client may visit |
//! | `balance` | the rules that distribute visitors |
//! | `dscp` | the code point (DSCP) of packets |
//! | `unix`, `scoped` | the address of a Unix socket; a link-local address with its interface |
//! | [`text`] | characters that no text of the protocol contains |

mod balance;
mod budget;
mod code;
pub mod control;
mod dscp;
mod flow;
mod frame;
pub mod greeting;
mod hashed;
mod http;
mod http_error;
mod id;
mod instant;
mod limits;
mod link;
mod measure;
mod network;
mod offset;
mod open;
mod pages;
mod pattern;
mod redirect;
mod scoped;
mod special;
mod stream;
#[cfg(test)]
mod testing;
pub mod text;
mod unix;
mod violation;
mod visitors;
mod wire;

pub use balance::Balance;
pub use budget::{Budget, Share, Unlimited};
pub use code::{GoAwayReason, ResetCode};
pub use dscp::Dscp;
pub use flow::{DATAGRAM_MAX, FlowCounts, FlowDrops, FlowKey, Volume};
pub use frame::{HEAD, Head, Kind, MAX_OPEN, MAX_PAYLOAD};
pub use hashed::{ARGON2_MEMORY_MAX, BCRYPT_COST_MAX, HashError, PasswordHash};
pub use http::{Compress, FieldEdits, HttpOptions, Sticky, TargetProtocol};
pub use http_error::{
    CREDENTIALS_MAX, EDITS_MAX, FIELD_NAME_MAX, HASHES_MAX, HttpOptionError, PORTS_MAX,
};
pub use id::{CarrierNumber, FlowId, InstanceId, LinkId, Side, StreamId};
pub use instant::Instant;
pub use limits::{Bounds, Limits};
pub use link::{
    Attach, Event, LaneInput, Link, LinkConfig, Outgoing, Preview, Stall, StreamCounts, StreamKey,
};
pub use measure::{Measure, TALLY, Tally, UnknownMeasure};
pub use network::{NETWORKS_MAX, Network, Networks};
pub use open::{Hop, NodeQuestion, Open, Priority, Target, VisitorFields};
pub use pages::{Pages, frame_of_pages};
pub use pattern::{NamePattern, NamePatternError};
pub use redirect::Redirect;
pub use scoped::{ScopedAddr, ScopedAddrError};
pub use special::Special;
pub use unix::{UnixAddr, UnixAddrError};
pub use violation::{Initiator, Scope, Violation, ViolationCode};
pub use visitors::Visitors;

/// Bytes of a DATA frame's header, in front of the payload. Read buffers leave this room, so that
/// the header is written in place and the payload is never copied.
pub const HEAD_ROOM: usize = 12;
