//! The clients of a server: the answers of `tunnel clients`, and the changes of a client's entry.
//! Field names are an interface (`--json`): fields are added, and none is removed.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::WrongConfig;
use crate::cluster::{ClusterClient, clients_table};
use crate::enrol::{Allowed, Order};
pub use crate::hold::Held;
use crate::status::{ClientState, Session, State as _, Told, tables};
use crate::term::{self, Column, Drawn, Screen, Sheet, Table, bytes, duration, natural};

/// The longest reason of a refusal, in bytes. A reason may contain text of a peer.
pub const REASON_MAX: usize = 200;

/// The most clients on hold at a time.
pub const HOLDS_MAX: usize = 1_000;

/// The longest page of a hold, in bytes: with its escapes it fits into a request of the control
/// socket and of the API.
pub const HOLD_PAGE_MAX: usize = 32 << 10;

/// The default of `--retry-after`.
const RETRY_AFTER: &str = "10m";

/// The longest `--retry-after` in seconds: a month.
const RETRY_AFTER_MAX: u64 = 31 * 86_400;

/// The most pages of connected clients of a cluster that the list of a node looks at: 1,000
/// clients.
pub const READ_PAGES: u32 = 5;

/// The number of rights of a client that the list shows.
const RIGHTS_SHOWN: usize = 3;

/// All clients that a server knows: configured, enrolled and connected ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clients {
    /// The seconds since the start of the server. Information about a disconnected client covers
    /// this time.
    pub uptime_seconds: u64,
    /// The pin of the certificate that is presented to clients; absent without TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// The clients in the order of their names.
    pub list: Vec<Client>,
    /// In a cluster: the clients that this node does not know and that are connected to other
    /// nodes, in the order of their names. The first 1,000 connected clients of the cluster are
    /// looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<ClusterClient>,
    /// The cluster has further clients, which were not looked at.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Why the clients of other nodes are not known; absent where they are, and without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// The source from which a server knows a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The configuration file, or the flags of the server.
    #[default]
    File,
    /// A code of `tunnel enroll`.
    Enrolled,
    /// An answer of `auth.http`.
    Hook,
    /// `allow_any_client`.
    Any,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Enrolled => "enrolled",
            Self::Hook => "hook",
            Self::Any => "any",
        })
    }
}

/// A client that a server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// The name of the client.
    pub name: String,
    /// The source from which the server knows the client.
    pub from: Origin,
    /// Whether the client is connected. The text also has the duration and the hold.
    #[serde(flatten)]
    pub state: Told<ClientState>,
    /// The number of links; 0: the client is disconnected.
    pub links: u64,
    /// Whether the client stands by here: it is logged in, and another server of the client has
    /// its services.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
    /// The number of seconds since the last link lost its connection. Absent while any link has a
    /// connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled_seconds: Option<u64>,
    /// The number of seconds since the client disconnected. Absent while the client is connected,
    /// and before its first log-in since the server's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_seconds: Option<u64>,
    /// The address of the last log-in since the server's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The last refused log-in under this name since the server's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// In a cluster: the nodes at which the client is. The state is that at the node that was
    /// asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// The hold of the client; absent: the client is not on hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<Held>,
    /// The rights of the client.
    pub rights: Rights,
    /// Whether a renewed token waits for its first log-in, while the old token is still valid.
    pub renewal: bool,
}

/// A refused log-in. Any peer that claims the name may have caused it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refused {
    /// The seconds since the refusal.
    pub seconds_ago: u64,
    /// The address from which the log-in came.
    pub address: String,
    /// The reason, at most [`REASON_MAX`] bytes.
    pub reason: String,
}

/// The rights of a client, in the form of `allow` in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rights {
    /// TCP ports that the client may publish.
    pub tcp: Vec<String>,
    /// UDP ports that the client may publish.
    pub udp: Vec<String>,
    /// Hosts whose HTTP visitors the client may serve.
    pub http: Vec<String>,
    /// Hosts whose TLS visitors the client may serve.
    pub tls: Vec<String>,
    /// Whether services of the client may have `pass_through`.
    pub pass_through: bool,
    /// Whether services of the client may share their addresses with those of other clients.
    pub shared: bool,
    /// Whether services of the client may have `dscp`.
    pub dscp: bool,
    /// Targets on the server's side that the client may reach.
    pub forward: Vec<String>,
    /// Servers to which the server may lead the client.
    pub via: Vec<String>,
    /// Private services of other clients that the client may visit.
    pub visit: Vec<String>,
    /// Whether the client may invite visitors to its private services by codes.
    pub invite: bool,
    /// Whether the client may run a speed test.
    pub speedtest: bool,
}

/// One client in full.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// The client as in the list.
    #[serde(flatten)]
    pub client: Client,
    /// The limits of the client.
    pub limits: Limits,
    /// The sessions of the client, each with its links, services and forwards.
    pub sessions: Vec<Session>,
}

/// The limits of a client; absent: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Simultaneous streams.
    pub streams: Option<u32>,
    /// New streams per second.
    pub new_per_second: Option<u32>,
    /// Bytes per second from visitors to targets.
    pub up: Option<u64>,
    /// Bytes per second from targets to visitors.
    pub down: Option<u64>,
    /// Published ports.
    pub ports: Option<u32>,
    /// Published hosts.
    pub hosts: Option<u32>,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, new_per_second, up, down, ports, hosts } = self;
        let number = |limit: &Option<u32>| limit.map(|limit| limit.to_string());
        let rate = |rate: &Option<u64>| rate.map(|rate| format!("{}/s", bytes(rate)));
        let all = [
            ("streams", number(streams)),
            ("new_per_second", number(new_per_second)),
            ("up", rate(up)),
            ("down", rate(down)),
            ("ports", number(ports)),
            ("hosts", number(hosts)),
        ];
        for (n, (key, limit)) in all.into_iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            match limit {
                Some(limit) => write!(f, "{comma}{key} {limit}")?,
                None => write!(f, "{comma}{key} unlimited")?,
            }
        }
        Ok(())
    }
}

/// An order of `tunnel clients limit`. A limit without a value is unchanged, and the value `none`
/// removes a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitOrder {
    /// The name of the client.
    pub name: String,
    /// The limits, as in [`Limits`].
    #[serde(default)]
    pub streams: Option<String>,
    #[serde(default)]
    pub new_per_second: Option<String>,
    #[serde(default)]
    pub up: Option<String>,
    #[serde(default)]
    pub down: Option<String>,
    #[serde(default)]
    pub ports: Option<String>,
    #[serde(default)]
    pub hosts: Option<String>,
}

impl LimitOrder {
    /// The limits that the order sets, by the keys of the configuration.
    pub fn limits(&self) -> Vec<(&str, &str)> {
        let Self { name: _, streams, new_per_second, up, down, ports, hosts } = self;
        let all = [
            ("streams", streams),
            ("new_per_second", new_per_second),
            ("up", up),
            ("down", down),
            ("ports", ports),
            ("hosts", hosts),
        ];
        all.into_iter().filter_map(|(key, limit)| Some((key, limit.as_deref()?))).collect()
    }
}

/// An order of `tunnel clients hold`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldOrder {
    /// The name of the client.
    pub name: String,
    /// The HTML page, with the placeholders `{reason}` and `{status}`.
    #[serde(default)]
    pub page: Option<String>,
    /// The duration for `Retry-After`: `10m`.
    #[serde(default)]
    pub retry_after: Option<String>,
    /// Ends the hold.
    #[serde(default)]
    pub off: bool,
}

impl HoldOrder {
    /// The page.
    ///
    /// # Errors
    /// The page is too long.
    pub fn page(&self) -> Result<Option<&str>, WrongConfig> {
        match self.page.as_deref() {
            Some(page) if page.len() > HOLD_PAGE_MAX => Err(WrongConfig::one(format!(
                "the page has {} bytes; a page of a hold has at most {HOLD_PAGE_MAX}",
                page.len()
            ))),
            page => Ok(page),
        }
    }

    /// The seconds after which a visitor may retry.
    ///
    /// # Errors
    /// The text is not a duration in whole seconds between one second and a month.
    pub fn retry_after(&self) -> Result<u32, WrongConfig> {
        let text = self.retry_after.as_deref().unwrap_or(RETRY_AFTER);
        let span = text.parse::<config::Span>().map(config::Span::duration).ok();
        let seconds = span.filter(|span| span.subsec_nanos() == 0).map(|span| span.as_secs());
        let seconds = seconds.filter(|seconds| (1..=RETRY_AFTER_MAX).contains(seconds));
        seconds.and_then(|seconds| u32::try_from(seconds).ok()).ok_or_else(|| {
            WrongConfig::one(format!(
                "`{text}` is no time after which a visitor may try again: whole seconds up to a month, \
                 such as 90s, 10m or 2h"
            ))
        })
    }

    /// Checks that an order that ends a hold has no settings for a hold.
    ///
    /// # Errors
    /// It has.
    pub fn check_off(&self) -> Result<(), WrongConfig> {
        if self.page.is_none() && self.retry_after.is_none() {
            return Ok(());
        }
        let text = "an order that ends a hold has neither a page nor a time";
        Err(WrongConfig::one(text.to_owned()))
    }
}

/// A change of a client's entry in the configuration file, or in the client's own file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// More rights.
    Allow(Order),
    /// Fewer rights.
    Deny(Order),
    /// Other limits.
    Limit(LimitOrder),
}

impl Change {
    /// The name of the client.
    pub fn name(&self) -> &str {
        match self {
            Self::Allow(order) | Self::Deny(order) => &order.name,
            Self::Limit(order) => &order.name,
        }
    }
}

/// The rights and limits of a client after a [`Change`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The rights.
    pub allowed: Allowed,
    /// The limits.
    pub limits: Limits,
}

impl Client {
    /// The client `seconds` later, if only time has passed.
    #[must_use]
    pub fn aged(mut self, seconds: u64) -> Self {
        let older = |age: &mut Option<u64>| *age = age.map(|age| age.saturating_add(seconds));
        older(&mut self.stalled_seconds);
        older(&mut self.away_seconds);
        if let Some(refused) = &mut self.refused {
            refused.seconds_ago = refused.seconds_ago.saturating_add(seconds);
        }
        if let Some(hold) = &mut self.hold {
            hold.seconds = hold.seconds.saturating_add(seconds);
        }
        self.settled()
    }

    /// The client with the state derived from its links and its hold.
    #[must_use]
    pub fn settled(mut self) -> Self {
        let (state, since) = match (self.links, self.away_seconds, self.stalled_seconds) {
            (0, Some(seconds), _) => (ClientState::Away, Some(seconds)),
            (0, None, _) => (ClientState::NeverSeen, None),
            (1.., _, Some(seconds)) => (ClientState::Stalled, Some(seconds)),
            (1.., _, None) => (ClientState::Connected, None),
        };
        let since = since.map(|seconds| format!(" for {}", duration(seconds)));
        let links = (self.links > 0).then(|| format!(", {}", term::count(self.links, "link")));
        let text =
            [Some(state.text().to_owned()), since, links].into_iter().flatten().collect::<String>();
        let standby = (self.links > 0 && self.standby).then_some(", stands by");
        let hold = self.hold.map(|hold| format!(", on hold for {}", duration(hold.seconds)));
        let text = text + standby.unwrap_or_default() + &hold.unwrap_or_default();
        self.state = Told::because(state, text);
        self
    }

    fn node_list(&self) -> String {
        if self.nodes.is_empty() { "-".to_owned() } else { self.nodes.join(", ") }
    }

    fn refusal(&self) -> String {
        self.refused.as_ref().map_or_else(
            || "-".to_owned(),
            |Refused { seconds_ago, address, reason }| {
                format!("{} ago from {address}: {reason}", duration(*seconds_ago))
            },
        )
    }
}

impl Clients {
    /// Adds connected clients of the cluster: those that the list has get their nodes.
    pub fn join(&mut self, found: Vec<ClusterClient>) {
        let mut places: HashMap<String, usize> = HashMap::new();
        places.extend(self.list.iter().enumerate().map(|(n, client)| (client.name.clone(), n)));
        for client in found {
            let known = places.get(&client.name).and_then(|n| self.list.get_mut(*n));
            match known {
                Some(known) => known.nodes = client.node_names(),
                // This node has not heard of the end of its own links.
                None if client.nodes.iter().all(|node| node.here) => {}
                None => self.elsewhere.push(client),
            }
        }
    }
}

impl Rights {
    /// Everything that the client may publish.
    fn public(&self) -> Vec<String> {
        let hosts = |scheme: &str, hosts: &[String]| -> Vec<String> {
            hosts.iter().map(|host| format!("{scheme}://{host}")).collect()
        };
        let udp = hosts("udp", &self.udp);
        [self.tcp.clone(), udp, hosts("http", &self.http), hosts("tls", &self.tls)].concat()
    }

    fn short(&self) -> String {
        let list = |all: &[String]| match all.len() {
            0 => "nothing".to_owned(),
            1..=RIGHTS_SHOWN => all.join(", "),
            _ => {
                let (shown, rest) = all.split_at(RIGHTS_SHOWN);
                format!("{}, and {} more", shown.join(", "), rest.len())
            }
        };
        let mut rights = format!("publish {}; reach {}", list(&self.public()), list(&self.forward));
        if !self.via.is_empty() {
            rights.push_str(&format!("; go via the server to {}", list(&self.via)));
        }
        if !self.visit.is_empty() {
            rights.push_str(&format!("; visit {}", list(&self.visit)));
        }
        rights
    }
}

/// The list as a table.
pub fn render(clients: &Clients, screen: Screen) -> Drawn {
    let Clients { uptime_seconds, pin, list, elsewhere, more, unknown } = clients;
    let mut sheet = Sheet::new(screen);
    let tell_pin = |sheet: &mut Sheet| {
        if let Some(pin) = pin {
            sheet.line(format_args!("pin of the server {pin}"));
        }
    };
    if list.is_empty() {
        tell_pin(&mut sheet);
        sheet.line("the server knows no client");
        tell_elsewhere(&mut sheet, elsewhere, *more, unknown.as_deref());
        return sheet.finish();
    }
    // Without a cluster no client has a node.
    let has_nodes = list.iter().any(|client| !client.nodes.is_empty());
    let mut columns = vec![
        Column::new("client").text(),
        Column::new("from").worth(20),
        Column::new("state").text().state(),
        Column::new("last address").address().worth(60),
        Column::new("rights").text().worth(30),
        // `tunnel clients show` prints it in full.
        Column::new("last refusal").text().worth(10),
    ];
    if has_nodes {
        columns.insert(3, Column::new("nodes").text().worth(70));
    }
    let mut table = Table::new(columns);
    let mut list: Vec<_> = list.iter().collect();
    list.sort_by(|a, b| natural(&a.name, &b.name));
    for client in &list {
        let mut cells = vec![
            client.name.clone(),
            client.from.to_string(),
            client.state.to_string(),
            client.address.clone().unwrap_or_else(|| "-".to_owned()),
            client.rights.short(),
            client.refusal(),
        ];
        if has_nodes {
            cells.insert(3, client.node_list());
        }
        table.row_of(client.state.tone(), cells);
    }
    let all = term::count(u64::try_from(list.len()).unwrap_or(u64::MAX), "client");
    sheet.line(format_args!("{all}, server started {} ago", duration(*uptime_seconds)));
    tell_pin(&mut sheet);
    sheet.gap();
    sheet.table(&table);
    tell_elsewhere(&mut sheet, elsewhere, *more, unknown.as_deref());
    sheet.finish()
}

/// The clients of other nodes.
fn tell_elsewhere(
    sheet: &mut Sheet,
    elsewhere: &[ClusterClient],
    more: bool,
    unknown: Option<&str>,
) {
    if let Some(why) = unknown {
        sheet.gap();
        sheet.line(format_args!("the clients of other nodes are not known: {why}"));
    }
    if !elsewhere.is_empty() {
        sheet.gap();
        sheet.line("connected to other nodes:");
        sheet.gap();
        sheet.table(&clients_table(elsewhere));
    }
    if more {
        sheet.gap();
        sheet.line("the cluster has more clients: tunnel cluster clients");
    }
}

/// One client as text.
pub fn render_details(details: &Details, screen: Screen) -> Drawn {
    let Details { client, limits, sessions } = details;
    let list =
        |all: Vec<String>| if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
    let row = |key: &str, value: String| (key.to_owned(), value);
    let allowed = |is: bool| if is { "allowed" } else { "denied" }.to_owned();
    let mut rows = vec![
        row("from", client.from.to_string()),
        row("last address", client.address.clone().unwrap_or_else(|| "-".to_owned())),
        row("last refusal", client.refusal()),
        row("may publish", list(client.rights.public())),
        row("pass_through", allowed(client.rights.pass_through)),
        row("shared", allowed(client.rights.shared)),
        row("dscp", allowed(client.rights.dscp)),
        row("may reach", list(client.rights.forward.clone())),
        row("may go on to", list(client.rights.via.clone())),
        row("may visit", list(client.rights.visit.clone())),
        row("invitations", allowed(client.rights.invite)),
        row("speed tests", allowed(client.rights.speedtest)),
        row("limits", limits.to_string()),
    ];
    if !client.nodes.is_empty() {
        rows.push(row("nodes", client.node_list()));
    }
    if let Some(hold) = client.hold {
        rows.push(row("hold", hold.to_string()));
    }
    if client.renewal {
        let text = "renewed, and not used yet: the old token is valid until then";
        rows.push(row("token", text.to_owned()));
    }
    let mut sheet = Sheet::new(screen);
    sheet.state(format_args!("{}: ", client.name), (client.state.tone(), &client.state), "");
    sheet.indented(|sheet| sheet.pairs(&rows));
    for session in sessions {
        sheet.gap();
        sheet.state("session: ", (session.state.tone(), &session.state), "");
        tables(&mut sheet, session, None);
    }
    sheet.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::PlaceNode;

    fn client(name: &str) -> Client {
        let tcp = ["1", "2", "3", "4", "5"].map(str::to_owned).to_vec();
        let rights = Rights { tcp, speedtest: true, ..Rights::default() };
        Client { name: name.to_owned(), rights, ..Client::default() }
    }

    #[test]
    fn a_client_that_is_away_is_listed_with_what_is_known_of_it() {
        let refused = Refused {
            seconds_ago: 61,
            address: "192.0.2.1:5".into(),
            reason: "wrong\ntoken".into(),
        };
        let list = vec![
            Client { links: 2, address: Some("192.0.2.7:1".into()), ..client("a") },
            Client { away_seconds: Some(3700), from: Origin::Enrolled, ..client("b") },
            Client { links: 2, stalled_seconds: Some(18), ..client("bb") },
            Client { refused: Some(refused), ..client("c") },
            Client { hold: Some(Held { seconds: 90, ..Held::default() }), ..client("d") },
        ];
        let list = list.into_iter().map(Client::settled).collect();
        let clients = Clients { uptime_seconds: 5, list, ..Clients::default() };
        let text = render(&clients, Screen::PLAIN).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "5 clients, server started 5s ago");
        assert!(lines[7].contains("start, on hold for 1m30s"), "{text}");
        assert!(
            lines[3].contains("connected, 2 links") && lines[3].contains("192.0.2.7:1"),
            "{text}"
        );
        assert!(lines[3].contains("publish 1, 2, 3, and 2 more; reach nothing"), "{text}");
        assert!(lines[4].contains("enrolled  away for 1h1m"), "{text}");
        assert!(lines[5].contains("without a connection for 18s, 2 links"), "{text}");
        assert!(lines[6].contains("away since the server's start"), "{text}");
        assert!(lines[6].contains("1m1s ago from 192.0.2.1:5: wrong\\ntoken"), "{text}");
        let none = render(&Clients::default(), Screen::PLAIN);
        assert_eq!(none.as_str(), "the server knows no client\n");
        let pinned = Clients { pin: Some("sha256:x".into()), ..Clients::default() };
        let pinned = render(&pinned, Screen::PLAIN);
        assert_eq!(pinned.as_str(), "pin of the server sha256:x\nthe server knows no client\n");
    }

    #[test]
    fn a_node_lists_the_clients_of_other_nodes_too() {
        let node = |name: &str, here| PlaceNode {
            name: name.into(),
            here,
            alive: true,
            links: Some(1),
            ..PlaceNode::default()
        };
        let at = |name: &str, nodes: Vec<PlaceNode>| ClusterClient { name: name.into(), nodes };
        let list = vec![Client { links: 1, ..client("a") }, client("b")];
        let list = list.into_iter().map(Client::settled).collect();
        let mut clients = Clients { list, more: true, ..Clients::default() };
        clients.join(vec![
            at("a", vec![node("fra1", true), node("nyc1", false)]),
            at("b", vec![node("nyc1", false)]),
            at("gone", vec![node("fra1", true)]),
            at("office", vec![node("nyc1", false)]),
        ]);
        assert_eq!(clients.list[0].nodes, ["fra1", "nyc1"]);
        assert_eq!(clients.elsewhere, [at("office", vec![node("nyc1", false)])]);
        let text = render(&clients, Screen::PLAIN).to_string();
        assert!(text.contains("  fra1, nyc1  "), "{text}");
        let expected = "
connected to other nodes:

client  node  zone  links
office  nyc1  -     1

the cluster has more clients: tunnel cluster clients
";
        assert!(text.ends_with(expected), "{text}");
        let unknown = Clients { unknown: Some("it is away".into()), ..Clients::default() };
        let text = render(&unknown, Screen::PLAIN).to_string();
        assert!(text.contains("the clients of other nodes are not known: it is away"), "{text}");
    }

    #[test]
    fn an_order_of_a_hold_is_judged() {
        let after = |text: &str| {
            let retry_after = Some(text.to_owned());
            HoldOrder { retry_after, ..HoldOrder::default() }.retry_after().ok()
        };
        assert_eq!(HoldOrder::default().retry_after().ok(), Some(600));
        assert_eq!([after("90s"), after("2h")], [Some(90), Some(7200)]);
        for bad in ["0", "0s", "500ms", "1500ms", "800h", "soon", ""] {
            assert_eq!(after(bad), None, "{bad}");
        }
        let held = Held { seconds: 60, retry_after_seconds: 600, page: true };
        let text =
            "for 1m0s: visitors of its names get 503 with a page of its own, Retry-After 10m0s";
        assert_eq!(held.to_string(), text);
    }

    #[test]
    fn one_client_is_shown_in_full() {
        let limits = Limits { streams: Some(5), ports: Some(1), ..Limits::default() };
        let session = crate::status::sample().sessions.remove(0);
        let client = Client { renewal: true, ..client("home") };
        let details = Details { client, limits, sessions: vec![session.clone()] };
        let text = render_details(&details, Screen::PLAIN).to_string();
        for word in [
            "may publish   1, 2, 3, 4, 5\n",
            "pass_through  denied\n",
            "shared        denied\n",
            "dscp          denied\n",
            "limits        streams 5, new_per_second unlimited, up unlimited, down unlimited, ports 1, \
             hosts unlimited\n",
            "token         renewed, and not used yet",
            &session.services[0].name,
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let json = serde_json::to_string(&details).unwrap();
        assert_eq!(serde_json::from_str::<Details>(&json).unwrap(), details);
    }
}
