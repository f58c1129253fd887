//! Everything between sockets and streams: listening, admission, dialling, and the byte pump.
//!
//! `relay` uses the stream interface of `transport` ([`transport::Inlet`], [`transport::Outlet`],
//! [`transport::Connector`]) and does not depend on `link`. All of its code runs on the thread of
//! one worker.
//!
//! ```text
//!   listen ──socket──> serve_visitor ──Connector::open──> link ──> far side
//!                          │ Pump                                    │ Open
//!                          ▼                                         ▼
//!                      visitor socket                     connect_stream ──dial──> target socket
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`mod@listen`], `listen_unix` | the accept loop of one listening socket, and the guard that ends it |
//! | [`admit`] | limits of live streams: a [`Permit`] is the proof of admission |
//! | `announced` | the PROXY header by which a load balancer announces the visitor's address |
//! | [`balance`] | which of several targets gets the next visitor |
//! | `bridge` | joins two streams, on one worker or two; a stream as the lane of a carrier |
//! | `connection_table` | the connections and flows without a link |
//! | [`dial`] | name resolution, racing of IPv6 and IPv4, errors as reset codes |
//! | [`flows`] | datagrams: the flows of a UDP socket, and one socket per flow to a target |
//! | `attention` | detects that a far end vanished while bytes to it are unacknowledged |
//! | `look` | peeks at the first bytes of a connection, which stay in its socket |
//! | `pipe` | the two halves of a stream's near end: `Pipe` takes bytes inline, `Pump` reads |
//! | `settings` | the settings that all streams of a service share on a worker |
//! | `bucket` | a byte rate, shared by streams and workers without a lock |
//! | `pace` | how many bytes a stream may move now, by its rates |
//! | `passage` | joins two pumps of this process without a link |
//! | `duplex` | a stream without a socket, for a part of the daemon that reads and writes its bytes |
//! | `eviction` | evicts flows when a socket is needed |
//! | [`proxy`] | SOCKS5 and HTTP proxies, at a forward and as a target |
//! | `proxy_header` | the PROXY protocol header that announces the visitor's address to a target |
//! | `rest` | idle connections without a link: no task, no registration in the runtime |
//! | `room` | the part of the descriptor table that visitors and targets may fill |
//! | [`shares`] | how clients, services and sources share the descriptor table |
//! | [`sniff`] | detects the protocol of a visitor; parses the TLS ClientHello |
//! | `socket` | a TCP or Unix socket, one type for both halves |
//! | `held` | the memory of visitors that is not charged to a stream |
//! | `source` | the visitor of an incoming stream or flow, and the source for which it counts |
//! | `stall_pressure` | less kernel memory per stream when many streams are stalled |
//! | `straight` | the default target of a port, whose visitors are connected without a link |
//! | [`visitor`], [`target`] | the two ends of a stream, built from the modules above |
//! | [`watch`] | the events of streams: the state of the target, the access log |
//! | [`stats`] | plain counters per service and worker |
//! | `throttle` | at most one log line per period |
//! | `fuzz` | the harnesses of the fuzz targets |

pub mod admit;
mod announced;
mod attention;
pub mod balance;
mod bridge;
mod bucket;
mod connection_table;
pub mod dial;
mod duplex;
mod eviction;
pub mod flows;
#[doc(hidden)]
pub mod fuzz;
mod held;
pub mod listen;
mod listen_unix;
mod look;
mod pace;
mod passage;
mod pipe;
pub mod proxy;
mod proxy_header;
mod rest;
mod room;
mod settings;
pub mod shares;
pub mod sniff;
mod socket;
mod source;
mod stall_pressure;
pub mod stats;
mod straight;
pub mod target;
mod throttle;
pub mod visitor;
pub mod watch;

pub use admit::{Gate, Permit};
pub use announced::{Announced, HEADER_WAIT, HeaderError, announced};
pub use attention::Attended;
pub use bridge::{
    Carried, Crossing, FlowSpan, LaneBreaker, Span, StreamLane, bridge, bridge_flow, carry_lane,
    flow_span, span,
};
pub use connection_table::{ConnectionEntry, ConnectionTable};
pub use dial::{Allow, Destination, DialAccount, DialError, Dialled, Dials, TargetAddr};
pub use duplex::{Duplex, accept_duplex, open_duplex};
pub use flows::{
    DropReason, FlowBounds, FlowCaller, FlowEntry, FlowHandler, FlowSettings, FlowStats,
    FlowTargets, FormerFlow, ListeningFlows, MovedSocket, connect_flow, join_flow, listen_flows,
};
pub use held::Held;
pub use listen::{Handler, Listening, adopt, listen};
pub use listen_unix::{ListeningUnix, listen_unix};
pub use look::{LOOK_MAX, look};
pub use passage::{join, lead};
pub use pipe::{Http, Layered, Leaving, Onward, RetryHandler, Spectator, StreamInlet, Why};
pub use proto::control::Timeouts;
pub use proxy::{
    Connectors, Credentials, Exit, Links, Proxy, ProxyKind, exit_stream, serve_connect, serve_proxy,
};
pub use proxy_header::{ProxyVersion, proxy_header, with_fields};
pub use room::Room;
pub use settings::{Settings, socket_options};
pub use shares::{Holder, Seat};
pub use socket::{Detached, Seated, Socket};
pub use source::Visitor;
pub use stats::{REQUEST_BOUNDS, Requests, Stats, open_error_code};
pub use straight::{FirstWord, Straight, serve_here, serve_layered_here};
pub use target::{Caller, Layer, LayerError, Report, Targets, connect_stream, refuse_stream};
pub use visitor::{Retry, bar_socket, drop_socket, refuse_socket, serve_layered, serve_visitor};
pub use watch::{End, Visit, Watcher};
