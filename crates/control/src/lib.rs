//! The control socket, over which commands such as `tunnel status` and `tunnel stop` talk to a
//! running daemon.
//!
//! The socket is a Unix socket of mode 0600, so only its user (and root) can send commands. Each
//! request and each answer is one line with a JSON object. A connection may carry several requests.
//!
//! | line | what it is |
//! |---|---|
//! | `{"command":"kick","name":"home"}` | a request: the name of the command, and its fields |
//! | `{"kicked":true}` | an answer: one key, which the command has, with its value |
//! | `{"error":"…"}` | the request has failed |
//! | `{"wrong":["…"]}` | the request has failed, because of a wrong configuration or request: all problems |
//! | `"ok"`, `{"event":{…}}`, `{"progress":{…}}`, … | a message before the answer, or without end |
//!
//! [`ops::command::TABLE`] has all commands with their fields and the keys of their answers. An
//! endless command reports as long as the connection lasts. After the `"ok"` of `connect` follow
//! the bytes of the target.
//!
//! `serve` is the daemon's side, and `ask` is the side of the command line. `ops::command`
//! defines requests and answers. `socket_path` chooses and finds the paths of sockets.

mod ask;
mod denied;
mod serve;
mod socket_path;

pub use ask::{Connected, Instance, Left, ask, connect, events, follow, stop};
pub use denied::Denied;
pub use serve::ControlSocket;
pub use socket_path::{Found, SocketPath, running};
