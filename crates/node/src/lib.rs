//! The floor of all roles: workers, sessions, entrances, and what serves their visitors.
//!
//! `relay` and `link` meet here. No file of this crate knows a role: what a role keeps on a worker
//! is found by its type ([`session::State`]), and what a role does for a link or a visitor stands
//! behind a trait. The rooms above are crates: `targets`, `peer`, `survey`, `probes` and `doors`,
//! and the roles `server`, `client` and `proxy`.
//!
//! | module | content |
//! |---|---|
//! | `workers` | threads with a runtime each |
//! | `session` | all links between one client process and one server, and the state of a worker |
//! | `entrance`, `listeners` | listening addresses whose visitors become streams |
//! | `names` | hosts that lead visitors of HTTP and TLS to entrances |
//! | `backends`, `aim` | what serves the visitors of an entrance: session, target, terms, admission |
//! | `answer` | what the server itself says to visitors of a name |
//! | `health` | whether a target serves, from what its streams tell |
//! | `unauthenticated`, `pending` | connections before their log-in, or before their first bytes |
//! | `passwords`, `auth_failures` | the checks of passwords of visitors, and the brake on guesses |
//! | `taken_over` | visitors that a former process accepted |
//! | `tcp_info` | what the kernel knows of the sockets of carriers |
//! | `limits`, `descriptors` | limits of the process: streams and their rates, descriptors |
//! | `memory`, `parts` | the memory of the process, and how much each source and client holds |

pub mod aim;
pub mod answer;
pub mod auth_failures;
pub mod backends;
pub mod descriptors;
pub mod entrance;
pub mod health;
pub mod limits;
pub mod listeners;
pub mod memory;
pub mod names;
pub mod parts;
pub mod passwords;
pub mod pending;
pub mod session;
pub mod taken_over;
pub mod tcp_info;
pub mod unauthenticated;
pub mod workers;
