//! A browser as a visitor of a private service, as a plain value: bytes of carriers, requests and
//! the time go in; bytes for carriers, responses and events come out. The page around it owns the
//! WebSocket, the timer and the service worker (`page/`).
//!
//! ```text
//!   page ── WebSocket ── outer link ── server ── stream ── client with the service
//!                          └─ a stream is the carrier of the inner link ──┘
//!     └──── data channel ──── the next carrier of the inner link ────────────┘
//! ```
//!
//! | module | content |
//! |---|---|
//! | `end` | this end of a link: greetings of its carriers, the link itself, and which carrier lives |
//! | `visit` | the two links of a visit, and the requests over the inner link |
//! | `http` | a request as bytes, and a response from bytes |
//! | `news` | what comes out, as values and as bytes for the page |
//! | `memory` | the bytes that may wait for the page |
//! | `signal` | what the two clients tell each other about a data channel |
//! | `entropy` | random bytes from one seed of the page |
//! | `boundary` | the functions that the page calls, on wasm32 alone |

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub mod boundary;
mod end;
mod entropy;
mod http;
mod memory;
mod news;
mod signal;
mod visit;

pub use http::{BadRequest, Body, Request};
pub use news::{News, Path, State};
pub use visit::{BadVisit, Visit, Visitor};
