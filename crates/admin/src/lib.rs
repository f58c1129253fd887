//! The admin API: metrics, health, and commands such as `tunnel status`, over HTTP and JSON.
//!
//! ```text
//!   /  /console/…               the web console     without the token
//!   /metrics                    Prometheus          /healthz /readyz     without the token
//!   /api/v1/…                   see openapi.json    /status              an active check
//! ```
//!
//! The API has its own thread and runtime, and queries the workers as the control socket does. A
//! slow scrape or a flood of scrapes costs the streams only processor time.
//!
//! | module | content |
//! |---|---|
//! | `guard`, `host` | checks of each request: host, origin, token; the host, read strictly |
//! | `sessions` | the sessions of the web console, and the keys for them |
//! | `setup` | the set-up page of a start without parameters, at a port of its own |
//! | `console` | the embedded files of the web console |
//! | `brake` | the delay of answers to wrong tokens |
//! | `serve`, `places` | connections, limited in number and duration; which is closed for a new one |
//! | `routes` | the routes: those of the table of commands, and those of HTTP alone |
//! | `body` | the body of a request, and what is wrong with a request |
//! | `answer` | the outcome of a command as an answer of HTTP |
//! | `events` | what changes in the daemon, as server-sent events |
//! | `live` | figures of each second as lines, and rates of the past |
//! | `connect` | a request becomes the byte stream to a target |
//! | `metrics` | the figures of a status, and the memory of the process |
//! | `page` | their Prometheus form |
//! | `api` | a running API |
//! | `otlp` | pushes the same figures to a collector (cargo feature `otlp`) |

mod answer;
mod api;
mod body;
mod brake;
mod connect;
mod console;
mod events;
mod guard;
mod host;
mod live;
mod metrics;
#[cfg(test)]
mod openapi;
#[cfg(feature = "otlp")]
pub mod otlp;
mod page;
mod places;
mod routes;
mod serve;
mod sessions;
mod setup;
#[cfg(test)]
mod states;
#[cfg(test)]
mod tests;

pub use api::{AdminApi, ConsoleAccess};
pub use console::tag_of;
pub use setup::SetUpPage;
