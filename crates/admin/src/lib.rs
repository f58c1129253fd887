//! The admin API: metrics, health, and what `tunnel status` and its like do, over HTTP and JSON.
//!
//! ```text
//!   /metrics                    Prometheus          /healthz /readyz     without the token
//!   /api/v1/…                   see openapi.json    /status              an active check
//! ```
//!
//! It has a thread and a runtime of its own and asks the workers as the control socket does: a slow
//! scrape, or a flood of them, costs the streams nothing but its processor time.
//!
//! | module | what |
//! |---|---|
//! | `guard` | who may ask: host, origin, token |
//! | `serve` | connections: so many, so long |
//! | `routes` | what is answered |
//! | `patch` | a change of the configuration as JSON has it |
//! | `metrics`, `page` | a status in figures, and those as Prometheus reads them |
//! | `api` | a running API |
//! | `otlp` | the same figures, pushed (cargo feature `otlp`) |

mod api;
mod guard;
mod metrics;
#[cfg(feature = "otlp")]
pub mod otlp;
mod page;
mod patch;
mod routes;
mod serve;
#[cfg(test)]
mod tests;

pub use api::AdminApi;
