//! The table of commands, the one list of them, and commands whose type is not known.

use std::any::Any;

use super::clients::{Allow, Deny, Enroll, Kick, ListClients, Revoke, ShowClient};
use super::cluster::{ListClusterClients, Locate, Rekey, ShowCluster};
use super::configuration::{Amend, Foresee, ListKeys, ReadConfig, Undo};
use super::context::Context;
use super::contract::{About, Command};
use super::fields::{self, Fields, Unread, fields_of};
use super::form::{Misread, brief};
use super::life::{OpenConsole, ReadStatus, Reload, Restart, Stop};
use super::line;
use super::measure::{PingLinks, ProbeNat, TestSpeed};
use super::records::{FollowEvents, Replay, SetLog, ShowRequest};
use super::response::ApiResponse;
use super::route::Given;
use super::services::{ListVisitors, TestService, Uninvite};
use super::traffic::{Connect, Kill, ListStreams, MoveLinks, Reconnect};
use crate::SendFuture;
use crate::clients::{HoldOrder, LimitOrder};
use crate::lists::ListChange;
use crate::requests::RequestFilter;
use crate::share::ShareOrder;
use crate::targets::DrainOrder;
use crate::upgrade::UpgradeOrder;
use crate::visit::InviteOrder;

/// All commands.
pub const TABLE: &[Entry] = &[
    Entry::of::<ReadStatus>(),
    Entry::of::<Stop>(),
    Entry::of::<Reload>(),
    Entry::of::<UpgradeOrder>(),
    Entry::of::<Restart>(),
    Entry::of::<OpenConsole>(),
    Entry::of::<ReadConfig>(),
    Entry::of::<ListKeys>(),
    Entry::of::<Amend>(),
    Entry::of::<Foresee>(),
    Entry::of::<Undo>(),
    Entry::of::<Enroll>(),
    Entry::of::<Revoke>(),
    Entry::of::<ListClients>(),
    Entry::of::<ShowClient>(),
    Entry::of::<Allow>(),
    Entry::of::<Deny>(),
    Entry::of::<Kick>(),
    Entry::of::<LimitOrder>(),
    Entry::of::<HoldOrder>(),
    Entry::of::<Locate>(),
    Entry::of::<ShowCluster>(),
    Entry::of::<ListClusterClients>(),
    Entry::of::<Rekey>(),
    Entry::of::<ListChange>(),
    Entry::of::<ShareOrder>(),
    Entry::of::<TestService>(),
    Entry::of::<DrainOrder>(),
    Entry::of::<InviteOrder>(),
    Entry::of::<ListVisitors>(),
    Entry::of::<Uninvite>(),
    Entry::of::<RequestFilter>(),
    Entry::of::<ShowRequest>(),
    Entry::of::<Replay>(),
    Entry::of::<ListStreams>(),
    Entry::of::<Kill>(),
    Entry::of::<Reconnect>(),
    Entry::of::<MoveLinks>(),
    Entry::of::<Connect>(),
    Entry::of::<SetLog>(),
    Entry::of::<FollowEvents>(),
    Entry::of::<PingLinks>(),
    Entry::of::<ProbeNat>(),
    Entry::of::<TestSpeed>(),
];

/// A command of the table.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub about: About,
    fields: fn() -> &'static [&'static str],
    of_line: fn(Fields<'_>) -> Result<Box<dyn AnyCommand>, Unread>,
    of_request: fn(Given<'_>) -> Result<Box<dyn AnyCommand>, Misread>,
}

impl Entry {
    const fn of<C: Command>() -> Self {
        Self {
            about: C::ABOUT,
            fields: fields_of::<C>,
            of_line: |of| Ok(Box::new(fields::read::<C>(of)?)),
            of_request: |given| Ok(Box::new(C::read(given)?)),
        }
    }

    /// The names of its fields.
    pub fn fields(&self) -> &'static [&'static str] {
        (self.fields)()
    }

    /// Reads a request of the API.
    ///
    /// # Errors
    /// The request is not in order. The message says what would be right.
    pub fn read(&self, given: Given<'_>) -> Result<Box<dyn AnyCommand>, Misread> {
        (self.of_request)(given)
    }
}

/// A command of any type.
pub trait AnyCommand: Any + Send + Sync {
    /// Carries the command out.
    fn run<'a>(
        &'a self,
        cx: &'a Context<'a>,
    ) -> SendFuture<'a, anyhow::Result<Box<dyn AnyAnswer + 'a>>>;

    /// The line of the request.
    #[cfg(test)]
    fn request(&self) -> Vec<u8>;
}

impl dyn AnyCommand {
    /// The command, if its type is `C`.
    pub fn of_type<C: Command>(&self) -> Option<&C> {
        (self as &dyn Any).downcast_ref()
    }
}

impl<C: Command> AnyCommand for C {
    fn run<'a>(
        &'a self,
        cx: &'a Context<'a>,
    ) -> SendFuture<'a, anyhow::Result<Box<dyn AnyAnswer + 'a>>> {
        Box::pin(async move {
            let answer = Command::run(self, cx).await?;
            Ok(Box::new(Answered { command: self, answer }) as Box<dyn AnyAnswer>)
        })
    }

    #[cfg(test)]
    fn request(&self) -> Vec<u8> {
        line::request(self).unwrap()
    }
}

/// An answer of any type.
pub trait AnyAnswer: Send + Sync {
    /// The line of the control socket.
    ///
    /// # Errors
    /// The answer is no JSON.
    fn line(&self) -> serde_json::Result<Vec<u8>>;

    /// The response of the API.
    ///
    /// # Errors
    /// The answer is no JSON.
    fn response(&self) -> serde_json::Result<ApiResponse>;
}

/// A command and its answer.
struct Answered<'a, C: Command> {
    command: &'a C,
    answer: C::Answer,
}

impl<C: Command> AnyAnswer for Answered<'_, C> {
    fn line(&self) -> serde_json::Result<Vec<u8>> {
        line::answer(C::ABOUT.answer, &serde_json::to_vec(&self.answer)?)
    }

    fn response(&self) -> serde_json::Result<ApiResponse> {
        self.command.response(&self.answer)
    }
}

/// Why a line of the control socket is not understood. The messages of the JSON library name types
/// of this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotUnderstood {
    #[error("not understood: {EXAMPLE}")]
    NoRequest,
    #[error(
        "the daemon, of version {}, does not know the command `{}`; after an update, restart the \
         daemon", env!("CARGO_PKG_VERSION"), brief(.0)
    )]
    Unknown(String),
    #[error("the command `{0}` lacks a field, or a field has a wrong value; {EXAMPLE}")]
    Fields(&'static str),
}

const EXAMPLE: &str = r#"a request is one line with a JSON object such as {"command":"status"}"#;

/// Reads a request of the control socket.
///
/// # Errors
/// It is no request, or one of another version.
pub fn read_line(line: &[u8]) -> Result<Box<dyn AnyCommand>, NotUnderstood> {
    let (name, fields) = line::parts(line).ok_or(NotUnderstood::NoRequest)?;
    let Some(entry) = TABLE.iter().find(|entry| entry.about.name == name) else {
        return Err(NotUnderstood::Unknown(name));
    };
    (entry.of_line)(fields).map_err(|_| NotUnderstood::Fields(entry.about.name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::route::ApiRoute;
    use super::*;

    /// The commands of the control socket alone: they start programs, or let somebody in.
    const NOT_IN_API: [&str; 4] = ["console", "restart", "share", "upgrade"];

    fn routes() -> impl Iterator<Item = (&'static Entry, &'static ApiRoute)> {
        TABLE.iter().flat_map(|entry| entry.about.routes.iter().map(move |route| (entry, route)))
    }

    #[test]
    fn the_control_socket_and_the_api_have_the_same_commands() {
        assert!(TABLE.len() > 15);
        for entry in TABLE {
            let is_in_api = !NOT_IN_API.contains(&entry.about.name);
            assert_eq!(!entry.about.routes.is_empty(), is_in_api, "{}", entry.about.name);
            assert!(
                !entry.about.help.is_empty() && !entry.about.help.ends_with('.'),
                "{}",
                entry.about.name
            );
        }
        let names: HashSet<_> = TABLE.iter().map(|entry| entry.about.name).collect();
        assert_eq!(names.len(), TABLE.len(), "two commands have one name");
        let all: HashSet<_> = routes().map(|(_, at)| (at.method.name(), at.path)).collect();
        assert_eq!(all.len(), routes().count(), "two commands have one route");
    }

    #[test]
    fn a_request_of_the_api_is_the_command_of_its_row_and_so_is_its_line() {
        let given = |route: &'static ApiRoute, body: &'static str| Given {
            route,
            path: ["name", "link", "stream", "id"]
                .map(|key| (key.to_owned(), "7".to_owned()))
                .into_iter()
                .filter(|(key, _)| route.path.contains(&format!("{{{key}}}")))
                .collect(),
            query: vec![("target".to_owned(), "a:1".to_owned())],
            body: body.as_bytes(),
        };
        for (entry, route) in routes() {
            if let Some(form) = route.body
                && !["amend", "foresee"].contains(&entry.about.name)
            {
                let array = entry.read(given(route, "[null, null]")).err();
                assert_eq!(array, Some(Misread::Data(form.must())), "{}", entry.about.name);
                let known = |key: &&&str| entry.fields().contains(*key);
                assert!(form.required.iter().chain(form.without).all(|key| known(&key)));
            }
            let read = entry.read(given(route, route.body.map_or("", |form| form.example)));
            let line = read.unwrap_or_else(|why| panic!("{}: {why}", entry.about.name)).request();
            let start = format!("{{\"command\":\"{}\"", entry.about.name);
            assert!(line.starts_with(start.as_bytes()), "{}", String::from_utf8_lossy(&line));
            let again = read_line(&line).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(again.request(), line);
        }
        let (ping, route) = routes().find(|(entry, _)| entry.about.name == "ping").unwrap();
        for (millis, is_right) in [("10000", true), ("10001", false)] {
            let query = vec![("timeout_millis".to_owned(), millis.to_owned())];
            let read = ping.read(Given { query, ..given(route, "") });
            assert_eq!(read.is_ok(), is_right, "{millis}");
        }
        let (connect, route) = routes().find(|(entry, _)| entry.about.name == "connect").unwrap();
        let twice = [("target", "a:1"), ("target", "b:1")];
        let query = twice.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        let read = connect.read(Given { query, ..given(route, "") });
        assert_eq!(read.err(), Some(Misread::Query("`target` is given twice".into())));
    }
}
