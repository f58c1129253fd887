//! Doors: public ports that all clients share. The first bytes of a visitor name the host, and the
//! host leads to an entrance.
//!
//! ```text
//!   http door ── request header ─────┐
//!   tls door ─── ClientHello ────────┼── Names ──> entrance ──> stream of a client
//!   mux door ─── either of them ─────┘     │
//!       │                                  ├─ https: TLS ends here, then `web`
//!       ├─ carrier of a client             └─ nobody: a page, or an alert
//!       └─ default target
//! ```
//!
//! A door only peeks at the first bytes and leaves them in the socket ([`relay::look`]), so an
//! undecided connection costs no buffer, and its handler reads the connection from the start.
//! Undecided connections are bounded in time (`PATIENCE`), in bytes ([`relay::LOOK_MAX`]) and in
//! number (`UNDECIDED` per door and worker; the oldest connection of the source with the most is
//! evicted).
//!
//! | module | content |
//! |---|---|
//! | `doors` | what all doors share: settings, names, reverse proxies |
//! | `bound` | bound doors, from configured addresses to open doors |
//! | `port` | a door on one worker, and its undecided connections |
//! | `http` | HTTP by name: the byte path, and the connections that return from it |
//! | `tls` | TLS by name: passed through, or terminated here |
//! | `mux` | one port for carriers, TLS, HTTP and a default target |
//! | `secure` | visitors whose TLS is terminated here, on the byte path |
//! | `site` | services by name as `web` sees them |
//! | `upstream` | streams for the requests that `web` sends to a service |
//! | `hosts` | the names that clients publish |
//! | `remembered` | the names that are known while their clients are away |
//! | `holds` | clients whose names answer with a maintenance page |
//! | `certificates` | the settings of TLS termination |
//! | `answer` | the answers of the server itself |
//! | `behind` | the server behind the doors: carriers, WebRTC requests |
//! | `state` | the doors of one worker |

mod answer;
mod behind;
mod bound;
pub mod certificates;
mod doors;
pub mod holds;
pub mod hosts;
mod http;
mod mux;
mod port;
pub mod remembered;
mod secure;
mod site;
mod state;
mod tls;
mod upstream;

#[cfg(feature = "webrtc")]
pub use behind::AskedOffer;
pub use behind::Behind;
pub use bound::{BoundDoor, Opens, Place, close};
pub use doors::Doors;
pub use mux::Everything;
