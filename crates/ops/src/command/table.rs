//! The table of commands: the name of each command on the control socket, its path in the API, and
//! how the API parses it. A command of both channels needs one row here and one arm in `run`.

use serde::Deserialize;

use super::form::{Form, Misread};
use super::{Command, patch};
use crate::clients::{HoldOrder, LimitOrder};
use crate::enrol::Order;
use crate::requests::RequestFilter;
use crate::status::StreamNumber;

/// The default limit of listed streams.
const STREAMS: usize = 100;

/// The highest permitted limit of listed streams in the API.
const STREAMS_MAX: usize = 1_000_000;

/// The longest timeout of a ping, in milliseconds: the longest time that a daemon waits.
const PING_MILLIS_MAX: u64 = 10_000;

/// The default timeout of a ping, in milliseconds, as in `tunnel ping`.
const PING_MILLIS: u64 = 2_000;

/// A command.
#[derive(Debug)]
pub struct Entry {
    /// The name on the control socket: the field `command` of a request.
    pub name: &'static str,
    pub method: Method,
    /// The path in the API, below `/api/v1`.
    pub path: &'static str,
    pub reading: Reading,
}

/// The method of a request (RFC 9110 section 9). `Get` changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// How the API parses a command.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// From path and query.
    Plain(fn(&Given) -> Result<Command, Misread>),
    /// Also from the body, which must be JSON.
    Body(&'static Form, fn(&Given, &[u8]) -> Result<Command, Misread>),
}

/// The named parameters of a request outside its body: named segments of the path, and fields of
/// the query.
#[derive(Debug, Default)]
pub struct Given {
    pub path: Vec<(String, String)>,
    pub query: Vec<(String, String)>,
}

impl Given {
    fn segment(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, text)| text)
    }

    fn name(&self) -> String {
        self.segment("name").to_owned()
    }

    /// A field of the query. A repeated field has no defined value.
    fn field(&self, name: &str) -> Result<Option<&str>, Misread> {
        let mut all = self.query.iter().filter(|(key, _)| key == name);
        let first = all.next().map(|(_, text)| &**text);
        match all.next() {
            None => Ok(first),
            Some(_) => Err(Misread::Query(format!("`{name}` is given twice"))),
        }
    }

    fn number<T: std::str::FromStr>(&self, name: &str, must: &str) -> Result<Option<T>, Misread> {
        let wrong = |()| Misread::Query(format!("the query must be such as {must}"));
        self.field(name)?.map(|text| text.parse().map_err(drop)).transpose().map_err(wrong)
    }
}

const LOG: Form =
    Form { is: "an object", example: r#"{"filter":"debug"}"#, keys: &["filter"], required: 1 };

const ENROLMENT: Form = Form {
    is: "an object",
    example: r#"{"name":"office","allow_tcp":["10000-10100"]}"#,
    keys: &[
        "name",
        "allow_tcp",
        "allow_udp",
        "allow_http",
        "allow_tls",
        "allow_forward",
        "allow_visit",
        "allow_shared",
        "renew",
    ],
    required: 1,
};

const RIGHTS: Form = Form {
    is: "an object",
    example: r#"{"allow_tcp":["10000-10100"]}"#,
    keys: &[
        "allow_tcp",
        "allow_udp",
        "allow_http",
        "allow_tls",
        "allow_forward",
        "allow_visit",
        "allow_shared",
    ],
    required: 0,
};

const LIMITS: Form = Form {
    is: "an object",
    example: r#"{"streams":"100","ports":"none"}"#,
    keys: &["streams", "new_per_second", "up", "down", "ports", "hosts"],
    required: 0,
};

const HOLD: Form = Form {
    is: "an object",
    example: r#"{"retry_after":"10m"}"#,
    keys: &["page", "retry_after"],
    required: 0,
};

const INVITATION: Form = Form {
    is: "an object",
    example: r#"{"service":"ssh","visitor":"laptop"}"#,
    keys: &["service", "visitor", "existing"],
    required: 1,
};

const LISTS: Form = Form {
    is: "an object",
    example: r#"{"publish":["10022=22"],"without":["web"]}"#,
    keys: &["publish", "options", "forward", "without", "save"],
    required: 0,
};

const SPEEDTEST: Form =
    Form { is: "an object", example: r#"{"millis":5000}"#, keys: &["millis"], required: 1 };

/// The body of `allow`: an [`Order`] without the name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rights {
    allow_tcp: Vec<String>,
    allow_udp: Vec<String>,
    allow_http: Vec<String>,
    allow_tls: Vec<String>,
    allow_forward: Vec<String>,
    allow_visit: Vec<String>,
    allow_shared: bool,
}

impl Rights {
    fn of(self, name: String) -> Order {
        let Self {
            allow_tcp,
            allow_udp,
            allow_http,
            allow_tls,
            allow_forward,
            allow_visit,
            allow_shared,
        } = self;
        Order {
            name,
            allow_tcp,
            allow_udp,
            allow_forward,
            allow_http,
            allow_tls,
            allow_visit,
            allow_shared,
            renew: false,
        }
    }
}

/// The body of `limit`: a [`LimitOrder`] without the name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Limits {
    streams: Option<String>,
    new_per_second: Option<String>,
    up: Option<String>,
    down: Option<String>,
    ports: Option<String>,
    hosts: Option<String>,
}

/// The body of `hold`: a [`HoldOrder`] without the name.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Hold {
    page: Option<String>,
    retry_after: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Filter {
    filter: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    millis: u64,
}

/// All commands.
pub const TABLE: &[Entry] = &[
    plain("status", Method::Get, "/status", |_| Ok(Command::Status)),
    plain("stop", Method::Post, "/stop", |given| {
        let now = match given.field("now")? {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(Misread::Query("`now` is true or false".to_owned())),
        };
        Ok(Command::Stop { now })
    }),
    plain("reload", Method::Post, "/reload", |_| Ok(Command::Reload)),
    plain("configuration", Method::Get, "/config", |_| Ok(Command::Configuration)),
    body("amend", Method::Patch, "/config", &patch::FORM, |_, body| {
        let (operations, text) = patch::change(body)?;
        Ok(Command::Amend { operations, text, tag: None })
    }),
    body("foresee", Method::Post, "/config/check", &patch::FORM, |_, body| {
        let (operations, text) = patch::change(body)?;
        Ok(Command::Foresee { operations, text })
    }),
    plain("undo", Method::Post, "/config/undo", |_| Ok(Command::Undo)),
    body("enroll", Method::Post, "/enrolments", &ENROLMENT, |_, body| {
        ENROLMENT.object(body).map(Command::Enroll)
    }),
    plain("revoke", Method::Delete, "/enrolments/{name}", |given| {
        Ok(Command::Revoke { name: given.name() })
    }),
    plain("clients", Method::Get, "/clients", |_| Ok(Command::Clients)),
    plain("client", Method::Get, "/clients/{name}", |given| {
        Ok(Command::Client { name: given.name() })
    }),
    body("allow", Method::Post, "/clients/{name}/rights", &RIGHTS, |given, body| {
        let rights: Rights = RIGHTS.object(body)?;
        Ok(Command::Allow(rights.of(given.name())))
    }),
    body("deny", Method::Delete, "/clients/{name}/rights", &RIGHTS, |given, body| {
        let rights: Rights = RIGHTS.object(body)?;
        Ok(Command::Deny(rights.of(given.name())))
    }),
    plain("kick", Method::Delete, "/clients/{name}/session", |given| {
        Ok(Command::Kick { name: given.name() })
    }),
    body("limit", Method::Patch, "/clients/{name}/limits", &LIMITS, |given, body| {
        let Limits { streams, new_per_second, up, down, ports, hosts } = LIMITS.object(body)?;
        let name = given.name();
        Ok(Command::Limit(LimitOrder { name, streams, new_per_second, up, down, ports, hosts }))
    }),
    body("hold", Method::Put, "/clients/{name}/hold", &HOLD, |given, body| {
        let Hold { page, retry_after } = HOLD.object(body)?;
        Ok(Command::Hold(HoldOrder { name: given.name(), page, retry_after, off: false }))
    }),
    plain("hold", Method::Delete, "/clients/{name}/hold", |given| {
        let (page, retry_after) = (None, None);
        Ok(Command::Hold(HoldOrder { name: given.name(), page, retry_after, off: true }))
    }),
    body("lists", Method::Patch, "/lists", &LISTS, |_, body| {
        LISTS.object(body).map(Command::Lists)
    }),
    plain("requests", Method::Get, "/requests", |given| {
        let text = |name| given.field(name).map(|text| text.map(str::to_owned));
        let class = match given.field("status")? {
            None => None,
            Some(text) => match text.strip_suffix("xx").map(str::parse::<u8>) {
                Some(Ok(class @ 1..=5)) => Some(class),
                Some(_) | None => {
                    return Err(Misread::Query("`status` is 1xx, 2xx, 3xx, 4xx or 5xx".to_owned()));
                }
            },
        };
        let since = given.number("since", "since=7, where since is a number")?;
        let (service, method, path) = (text("service")?, text("method")?, text("path")?);
        Ok(Command::Requests(RequestFilter { service, method, class, path, since }))
    }),
    plain("request", Method::Get, "/requests/{id}", |given| {
        let secrets = match given.field("secrets")? {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(_) => return Err(Misread::Query("`secrets` is 0 or 1".to_owned())),
        };
        Ok(Command::Request { id: request(given)?, secrets })
    }),
    plain("replay", Method::Post, "/requests/{id}/replay", |given| {
        Ok(Command::Replay { id: request(given)? })
    }),
    body("invite", Method::Post, "/visitors", &INVITATION, |_, body| {
        INVITATION.object(body).map(Command::Invite)
    }),
    plain("visitors", Method::Get, "/visitors", |_| Ok(Command::Visitors)),
    plain("uninvite", Method::Delete, "/visitors/{name}", |given| {
        Ok(Command::Uninvite { visitor: given.name() })
    }),
    plain("streams", Method::Get, "/streams", |given| {
        let must = "service=web&limit=100, where limit is a number";
        let limit = given.number("limit", must)?.unwrap_or(STREAMS);
        if limit > STREAMS_MAX {
            return Err(Misread::Query(format!("limit: at most {STREAMS_MAX}")));
        }
        Ok(Command::Streams { service: given.field("service")?.map(str::to_owned), limit })
    }),
    plain("kill", Method::Delete, "/streams/{link}/{stream}", |given| {
        let text = format!("{}/{}", given.segment("link"), given.segment("stream"));
        let unknown = "no such stream: two numbers name one, with a `u` before that of a flow";
        let number = text.parse().map_err(|_| Misread::Unknown(unknown))?;
        let StreamNumber { link, kind, number: stream } = number;
        Ok(Command::Kill { link, stream, kind })
    }),
    plain("reconnect", Method::Post, "/reconnect", |given| {
        Ok(Command::Reconnect { client: given.field("client")?.map(str::to_owned) })
    }),
    plain("log", Method::Get, "/log", |_| Ok(Command::Log { filter: None })),
    body("log", Method::Put, "/log", &LOG, |_, body| {
        let Filter { filter } = LOG.object(body)?;
        Ok(Command::Log { filter: Some(filter) })
    }),
    plain("events", Method::Get, "/events", |_| Ok(Command::Events)),
    plain("ping", Method::Get, "/ping", |given| {
        let must = "timeout_millis=2000, where timeout_millis is a number";
        let timeout_millis = given.number("timeout_millis", must)?.unwrap_or(PING_MILLIS);
        if timeout_millis > PING_MILLIS_MAX {
            return Err(Misread::Query(format!("timeout_millis: at most {PING_MILLIS_MAX}")));
        }
        Ok(Command::Ping { timeout_millis })
    }),
    plain("nat", Method::Get, "/nat", |_| Ok(Command::Nat)),
    plain("test", Method::Post, "/services/{name}/test", |given| {
        let client = given.field("client")?.map(str::to_owned);
        Ok(Command::Test { service: given.name(), client })
    }),
    body("speedtest", Method::Post, "/speedtest", &SPEEDTEST, |_, body| {
        let Span { millis } = SPEEDTEST.object(body)?;
        Ok(Command::Speedtest { millis })
    }),
    plain("connect", Method::Post, "/connect", |given| {
        let must = || Misread::Query("the query must be such as target=127.0.0.1:22".to_owned());
        Ok(Command::Connect { target: given.field("target")?.ok_or_else(must)?.to_owned() })
    }),
];

/// The number of a request in a path.
fn request(given: &Given) -> Result<u64, Misread> {
    given.segment("id").parse().map_err(|_| Misread::Unknown("no such request: a number names one"))
}

const fn plain(
    name: &'static str,
    method: Method,
    path: &'static str,
    read: fn(&Given) -> Result<Command, Misread>,
) -> Entry {
    Entry { name, method, path, reading: Reading::Plain(read) }
}

const fn body(
    name: &'static str,
    method: Method,
    path: &'static str,
    form: &'static Form,
    read: fn(&Given, &[u8]) -> Result<Command, Misread>,
) -> Entry {
    Entry { name, method, path, reading: Reading::Body(form, read) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JSON library lists the commands in its message about an unknown one.
    fn commands() -> Vec<String> {
        let unknown = serde_json::from_str::<Command>(r#"{"command":"?"}"#).unwrap_err();
        let text = unknown.to_string();
        text.split('`').skip(3).step_by(2).map(str::to_owned).collect()
    }

    /// The commands of the control socket alone: they start programs, or let somebody in.
    const NOT_IN_API: [&str; 4] = ["console", "restart", "share", "upgrade"];

    #[test]
    fn the_control_socket_and_the_api_have_the_same_commands() {
        let mut commands = commands();
        assert!(NOT_IN_API.iter().all(|name| commands.iter().any(|known| known == name)));
        commands.retain(|name| !NOT_IN_API.contains(&name.as_str()));
        assert!(commands.len() > 15, "{commands:?}");
        for command in &commands {
            assert!(TABLE.iter().any(|entry| entry.name == command), "{command} is not in the API");
        }
        for entry in TABLE {
            assert!(
                commands.iter().any(|name| name == entry.name),
                "{} has no command",
                entry.name
            );
        }
        let places: std::collections::HashSet<_> =
            TABLE.iter().map(|entry| (entry.method.name(), entry.path)).collect();
        assert_eq!(places.len(), TABLE.len(), "two commands have one place");
    }

    #[test]
    fn a_request_of_the_api_is_the_command_of_its_row() {
        let given = Given {
            path: ["name", "link", "stream", "id"]
                .map(|key| (key.to_owned(), "7".to_owned()))
                .into(),
            query: vec![("target".to_owned(), "a:1".to_owned())],
        };
        for entry in TABLE {
            let command = match entry.reading {
                Reading::Plain(read) => read(&given),
                Reading::Body(form, read) => {
                    assert!(form.keys.iter().all(|key| !key.is_empty()));
                    if !["amend", "foresee"].contains(&entry.name) {
                        let array = read(&given, b"[null, null]").unwrap_err();
                        assert_eq!(array, Misread::Data(form.must()), "{}", entry.name);
                    }
                    read(&given, form.example.as_bytes())
                }
            };
            let json = serde_json::to_value(command.unwrap()).unwrap();
            assert_eq!(json["command"], entry.name);
        }
        let ping = TABLE.iter().find(|entry| entry.name == "ping").unwrap();
        let Reading::Plain(read) = ping.reading else { panic!("a ping has no body") };
        for (millis, is_right) in [("10000", true), ("10001", false)] {
            let query = vec![("timeout_millis".to_owned(), millis.to_owned())];
            assert_eq!(read(&Given { query, ..Given::default() }).is_ok(), is_right, "{millis}");
        }
        let twice = [("target", "a:1"), ("target", "b:1")];
        let query = twice.map(|(key, text)| (key.to_owned(), text.to_owned())).into();
        let given = Given { query, ..Given::default() };
        assert_eq!(given.field("target"), Err(Misread::Query("`target` is given twice".into())));
    }
}
