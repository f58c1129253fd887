//! The foundation of all roles: workers, sessions, entrances, and the backends of their visitors.
//!
//! `relay` and `link` meet here. No file of this crate depends on a role: the state of a role on a
//! worker is looked up by its type ([`session::State`]), and the actions of a role for a link or a
//! visitor are behind a trait. The crates above are `targets`, `peer`, `survey`, `probes` and
//! `doors`, and the roles `server`, `client` and `proxy`.
//!
//! | module | content |
//! |---|---|
//! | `workers` | threads with a runtime each |
//! | `session` | all links between one client process and one server, and the state of a worker |
//! | `accept` | the stages between the accept and the stream of a backend |
//! | `entrance`, `listeners` | listening addresses whose visitors become streams |
//! | `names` | the table that maps hosts of HTTP and TLS visitors to entrances |
//! | `backends`, `aim` | the backends of an entrance: session, target, terms, admission |
//! | `answer` | the server's own responses to visitors of a name |
//! | `health` | whether a target serves, as observed by its streams |
//! | `unauthenticated`, `pending` | connections before their log-in, or before their first bytes |
//! | `passwords`, `auth_failures` | the checks of visitors' passwords, and the brake on guessing |
//! | `taken_over` | visitors that a previous process accepted |
//! | `tcp_info` | the kernel's statistics of the sockets of carriers |
//! | `limits`, `descriptors` | limits of the process: streams and their rates, descriptors |
//! | `memory`, `parts` | the memory budget of the process, and the use of each source and client |

pub mod accept;
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
