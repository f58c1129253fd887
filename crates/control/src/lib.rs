//! The control socket, over which commands such as `tunnel status` and `tunnel stop` talk to a
//! running daemon.
//!
//! The socket is a Unix socket of mode 0600, so only its user (and root) can send commands. Each
//! request and each answer is one line with a JSON object. A connection may carry several requests.
//!
//! | request | answer |
//! |---|---|
//! | `{"command":"status"}` | `{"status":{…}}` |
//! | `{"command":"configuration"}` | `{"configuration":{…}}` |
//! | `{"command":"amend","operations":[…]}` | `{"reloaded":{…}}` |
//! | `{"command":"foresee","operations":[…]}` | `{"foreseen":{…}}` |
//! | `{"command":"undo"}` | `{"reloaded":{…}}` |
//! | `{"command":"lists","publish":["3000"]}` | `{"reloaded":{…}}` |
//! | `{"command":"stop"}` | `{"stopping":{"pid":1}}` |
//! | `{"command":"ping","timeout_millis":2000}` | `{"pong":{…}}` |
//! | `{"command":"nat"}` | `{"nat":{…}}` |
//! | `{"command":"test","service":"web"}` | `{"tested":{…}}` |
//! | `{"command":"enroll","name":"home",…}` | `{"opened":{…}}` |
//! | `{"command":"allow","name":"home",…}` | `{"allowed":{…}}` |
//! | `{"command":"deny","name":"home",…}` | `{"allowed":{…}}`: the rights that are left |
//! | `{"command":"revoke","name":"home"}` | `{"revoked":true}` |
//! | `{"command":"streams","limit":100}` | `{"streams":{…}}` |
//! | `{"command":"requests"}`, `{"command":"request","id":7}` | `{"requests":{…}}`, `{"request":{…}}` |
//! | `{"command":"replay","id":7}` | `{"request":{…}}`: the new request |
//! | `{"command":"invite","service":"ssh"}` | `{"invitation":{…}}` |
//! | `{"command":"visitors"}` | `{"visitors":[…]}` |
//! | `{"command":"uninvite","visitor":"laptop"}` | `{"uninvited":{…}}` |
//! | `{"command":"clients"}` | `{"clients":{…}}` |
//! | `{"command":"client","name":"home"}` | `{"client":{…}}`, or `{"client":null}` |
//! | `{"command":"limit","name":"home","streams":"100"}` | `{"limited":{…}}` |
//! | `{"command":"hold","name":"home",…}` | `{"held":{…}}`, or `{"held":null}` if the hold ended |
//! | `{"command":"reconnect","client":"home"}` | `{"reconnected":{…}}` |
//! | `{"command":"kick","name":"home"}` | `{"kicked":true}` |
//! | `{"command":"kill","link":3,"stream":17}` | `{"killed":true}` |
//! | `{"command":"log","filter":"debug"}` | `{"log":{"filter":"debug"}}` |
//! | `{"command":"reload"}` | `{"reloaded":{…}}`, or `{"wrong":["…"]}` if the file has problems |
//! | `{"command":"upgrade","timeout_millis":60000}` | `{"upgraded":{…}}` once the new process serves |
//! | `{"command":"restart","name":"home"}` | `{"restarted":{…}}`, of `tunnel run` alone |
//! | `{"command":"share","publish":"3000"}` | `{"shared":{…}}`, then `{"visit":{…}}`, `{"lost":3}` or `"ok"` as long as the connection lasts |
//! | `{"command":"console"}` | `{"console":{"url":"…","valid_seconds":60}}` |
//! | `{"command":"events"}` | `"ok"`, then `{"event":{…}}`, `{"lost":3}` or `"ok"` without end |
//! | `{"command":"speedtest","millis":5000}` | several `{"progress":{…}}`, then `{"speed":{…}}` |
//! | `{"command":"connect","target":"db:5432"}` | `"ok"`, then the bytes of the target |
//! | anything else | `{"error":"…"}` |
//!
//! `serve` is the daemon's side, and `ask` is the side of the command line. `ops::command`
//! defines requests and answers. `socket_path` chooses and finds the paths of sockets.

mod ask;
mod denied;
mod serve;
mod socket_path;

pub use ask::{
    Connected, Instance, Left, Stopping, allow, change_lists, client, clients, connect, console,
    deny, enroll, events, hold, invite, kick, kill, limit, log, nat, ping, reconnect, reload,
    replay, request, requests, restart, revoke, share, speedtest, status, stop, streams, test,
    uninvite, upgrade, visitors,
};
pub use denied::Denied;
pub use serve::ControlSocket;
pub use socket_path::{Found, SocketPath, running};

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_requests_has_each_command() {
        let lines = include_str!("lib.rs").lines();
        let table: String = lines.filter(|line| line.starts_with("//! | `{")).collect();
        // `upgrade`, `restart`, `share`, `console` and `connect` are commands of the socket alone.
        let own = ["upgrade", "restart", "share", "console", "connect"];
        for name in ops::command::TABLE.iter().map(|entry| entry.name).chain(own) {
            assert!(table.contains(&format!(r#""command":"{name}""#)), "{name} has no row");
        }
    }
}
