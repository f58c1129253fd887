//! What a running daemon tells about itself: the answer of `tunnel status`. Field names are an
//! interface (`--json`): they only grow.

use std::future::Future;
use std::pin::Pin;

use serde::{Deserialize, Serialize};

use crate::measure::Meter;
use crate::reload::Reloaded;
use crate::term;

/// A future that may be sent; the control socket runs beside the workers.
pub(crate) type SendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever can say how things are.
pub(crate) trait StatusSource: Send + Sync {
    /// Asks the workers. The caller sets a deadline.
    fn status(&self) -> SendFuture<'_, Status>;

    /// Reads the configuration again and applies what has changed. The error says what is wrong;
    /// nothing has changed then.
    fn reload(&self) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(async { anyhow::bail!("its configuration is read at its start only: restart it") })
    }

    /// Whoever can measure its links; a server cannot.
    fn meter(&self) -> Option<&dyn Meter> {
        None
    }
}

/// A daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    /// `server` or `client`.
    pub(crate) role: String,
    /// The client's name; empty for a server.
    pub(crate) name: String,
    /// Of the program.
    pub(crate) version: String,
    /// Of the process.
    pub(crate) pid: u32,
    /// Since the start.
    pub(crate) uptime_seconds: u64,
    /// `running`, `draining`, or what keeps it from running.
    pub(crate) state: String,
    /// Why the last reload changed nothing; absent when it was good, or there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reload_error: Option<String>,
    /// Where a server waits for clients: `tls://0.0.0.0:7000`.
    pub(crate) listen: Vec<String>,
    /// Tasks alive on all runtimes: what a leak shows first.
    pub(crate) tasks: u64,
    /// Of streams and their bytes.
    pub(crate) memory: Memory,
    /// Open files, of which every visitor is one.
    pub(crate) descriptors: Descriptors,
    /// A server has one per client process, a client one per server.
    pub(crate) sessions: Vec<Session>,
}

/// All links of one client process with one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Session {
    /// On a server the client's name, on a client the server's.
    pub(crate) peer: String,
    /// `up`, `connecting`, or the last error.
    pub(crate) state: String,
    /// By worker.
    pub(crate) links: Vec<Link>,
    /// What is published.
    pub(crate) services: Vec<Service>,
    /// Local listeners of a client whose targets the server dials.
    pub(crate) forwards: Vec<Service>,
}

/// The memory budget of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Memory {
    /// `memory_budget`.
    pub(crate) budget_bytes: u64,
    /// What streams, windows, replay and buffers take of it.
    pub(crate) used_bytes: u64,
}

/// The descriptor table of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Descriptors {
    /// In use.
    pub(crate) open: u64,
    /// How many there may be; absent where nothing limits them.
    pub(crate) limit: Option<u64>,
    /// How many more visitors find one: some are kept for links and commands.
    pub(crate) room: Option<u64>,
}

/// One authenticated mux.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Link {
    /// Number for logs; not the id.
    pub(crate) serial: u64,
    /// The worker it lives on.
    pub(crate) worker: usize,
    /// `up`, `stalled` while it has no carrier, or `going away`: it takes no new streams, another
    /// link does.
    pub(crate) state: String,
    /// Open at the moment.
    pub(crate) streams: u64,
    /// Its live connections.
    pub(crate) carriers: Vec<Carrier>,
}

/// One live connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Carrier {
    /// Growing within the link.
    pub(crate) number: u32,
    /// Scheme.
    pub(crate) transport: String,
    /// Address of the far end.
    pub(crate) peer: String,
    /// Smoothed round trip; absent before the first answer.
    pub(crate) rtt_micros: Option<u64>,
}

/// A service, or a forward.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    /// Its name; a forward has none.
    pub(crate) name: String,
    /// Where it is reached: `tcp://0.0.0.0:10022`.
    pub(crate) address: String,
    /// Where it leads, as far as this side knows.
    pub(crate) target: String,
    /// [`UP`], [`WAITING`], [`SUPERSEDED`], or why it is refused.
    pub(crate) state: String,
    /// Open at the moment.
    pub(crate) streams: u64,
    /// Since the start.
    pub(crate) streams_total: u64,
    /// Bytes from visitors towards the target since the start.
    pub(crate) bytes_in: u64,
    /// Bytes from the target towards visitors since the start.
    pub(crate) bytes_out: u64,
}

/// A service or forward that visitors reach.
pub(crate) const UP: &str = "up";

/// A service that no live link can carry, or whose registration is not answered yet.
pub(crate) const WAITING: &str = "waiting for the server";

/// A service of a client in whose place a newer process of the same name serves.
pub(crate) const SUPERSEDED: &str = "superseded";

/// For people: a head line and a table per session.
pub(crate) fn render(status: &Status) -> String {
    // The count of tasks is for programs that watch it.
    let Status {
        role,
        name,
        version,
        pid,
        uptime_seconds,
        state,
        reload_error,
        listen,
        tasks: _,
        memory,
        descriptors,
        sessions,
    } = status;
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    let uptime = duration(*uptime_seconds);
    let mut text = format!("tunnel {role}{name} {version}, {state}, up {uptime}, process {pid}\n");
    if let Some(why) = reload_error {
        text.push_str(&format!("not reloaded, running as before: {why}\n"));
    }
    for address in listen {
        text.push_str(&format!("listening on {address}\n"));
    }
    let links: usize = sessions.iter().map(|session| session.links.len()).sum();
    let count = |n: usize, word| term::count(u64::try_from(n).unwrap_or(u64::MAX), word);
    let [used, budget] = [memory.used_bytes, memory.budget_bytes].map(bytes);
    text.push_str(&format!(
        "{}, {}, {used} of {budget} memory budget in use\n",
        count(sessions.len(), "session"),
        count(links, "link")
    ));
    if let (Some(room), Some(limit)) = (descriptors.room, descriptors.limit) {
        let visitors = term::count(room, "more visitor");
        text.push_str(&format!("room for {visitors}, limit of open files {limit}\n"));
    }
    for session in sessions {
        text.push_str(&format!("\n{}: {}\n", session.peer, session.state));
        text.push_str(&indent(&links_table(&session.links)));
        text.push_str(&indent(&services_table(&session.services)));
        text.push_str(&indent(&forwards_table(&session.forwards)));
    }
    text
}

fn links_table(links: &[Link]) -> String {
    let mut rows = vec![titles(&["link", "worker", "state", "streams", "carrier", "peer", "rtt"])];
    for link in links {
        let own = [link.serial.to_string(), link.worker.to_string(), link.state.clone()];
        let own: Vec<String> = own.into_iter().chain([link.streams.to_string()]).collect();
        if link.carriers.is_empty() {
            rows.push(own.iter().cloned().chain(titles(&["-", "-", "-"])).collect());
        }
        for carrier in &link.carriers {
            let rtt = carrier.rtt_micros.map_or_else(|| "-".to_owned(), millis);
            let row = [format!("{} {}", carrier.number, carrier.transport), carrier.peer.clone()];
            rows.push(own.iter().cloned().chain(row).chain([rtt]).collect());
        }
    }
    table(&rows)
}

fn services_table(services: &[Service]) -> String {
    let heads = ["service", "address", "target", "state", "streams", "total", "in", "out"];
    let mut rows = vec![titles(&heads)];
    for service in services {
        rows.push([dash(&service.name)].into_iter().chain(cells(service)).collect());
    }
    let mut text = table(&rows);
    for Service { name, state, .. } in services.iter().filter(|s| brief(&s.state) == REFUSED) {
        text.push_str(&format!("{name} is not published: {state}\n"));
    }
    text
}

/// Without the name, which for a forward is address and target once more.
fn forwards_table(forwards: &[Service]) -> String {
    let heads = ["forward", "target", "state", "streams", "total", "in", "out"];
    let mut rows = vec![titles(&heads)];
    rows.extend(forwards.iter().map(|forward| cells(forward).collect()));
    table(&rows)
}

fn cells(service: &Service) -> impl Iterator<Item = String> {
    [
        dash(&service.address),
        dash(&service.target),
        brief(&service.state).to_owned(),
        service.streams.to_string(),
        service.streams_total.to_string(),
        bytes(service.bytes_in),
        bytes(service.bytes_out),
    ]
    .into_iter()
}

/// In the table for a reason, which has a line of its own below.
const REFUSED: &str = "refused";

/// The state of a service in a word, as one long cell would widen the table for all.
fn brief(state: &str) -> &str {
    match state {
        UP | SUPERSEDED => state,
        WAITING => "waiting",
        _ => REFUSED,
    }
}

/// Nothing at all when only the titles are there.
fn table(rows: &[Vec<String>]) -> String {
    if rows.len() > 1 { term::table(rows) } else { String::new() }
}

fn titles(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{minutes}m"),
        86_400.. => format!("{days}d{hours}h"),
    }
}

/// `1.4 GiB`: one digit behind the point, units of 1,024.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let power = (n.ilog2() / 10) as usize;
    let unit = 1_u64 << (10 * power);
    // In 128 bits, because a tenth of the largest unit still is a large number.
    let tenths = u128::from(n) * 10 / u128::from(unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power - 1])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample() -> Status {
        let carrier = Carrier {
            number: 2,
            transport: "tls".into(),
            peer: "192.0.2.7:40000".into(),
            rtt_micros: Some(12_345),
        };
        let service = Service {
            name: "ssh".into(),
            address: "tcp://0.0.0.0:10022".into(),
            state: "up".into(),
            streams: 1,
            streams_total: 20,
            bytes_in: 1536,
            bytes_out: 3 << 30,
            ..Service::default()
        };
        Status {
            role: "server".into(),
            version: "0.1.0".into(),
            pid: 42,
            uptime_seconds: 3_700,
            state: "running".into(),
            listen: vec!["tls://0.0.0.0:7000".into()],
            memory: Memory { budget_bytes: 3 << 30, used_bytes: 1536 },
            descriptors: Descriptors { open: 24, limit: Some(1024), room: Some(936) },
            sessions: vec![Session {
                peer: "home".into(),
                state: "up".into(),
                links: vec![
                    Link {
                        serial: 7,
                        state: "up".into(),
                        streams: 1,
                        carriers: vec![carrier],
                        worker: 1,
                    },
                    Link { serial: 8, state: "stalled".into(), ..Link::default() },
                ],
                services: vec![service],
                forwards: Vec::new(),
            }],
            ..Status::default()
        }
    }

    #[test]
    fn the_table_shows_what_matters() {
        let expected = "\
tunnel server 0.1.0, running, up 1h1m, process 42
listening on tls://0.0.0.0:7000
1 session, 2 links, 1.5 KiB of 3.0 GiB memory budget in use
room for 936 more visitors, limit of open files 1024

home: up
  link  worker  state    streams  carrier  peer             rtt
  7     1       up       1        2 tls    192.0.2.7:40000  12.3 ms
  8     0       stalled  0        -        -                -
  service  address              target  state  streams  total  in       out
  ssh      tcp://0.0.0.0:10022  -       up     1        20     1.5 KiB  3.0 GiB
";
        assert_eq!(render(&sample()), expected);
    }

    #[test]
    fn a_reason_does_not_widen_the_table() {
        let service = |name: &str, state: &str| Service {
            name: name.into(),
            state: state.into(),
            ..Service::default()
        };
        let why = "tcp://:22: port 22 is not among the ports that this client may publish";
        let services = [service("a", why), service("b", WAITING), service("c", SUPERSEDED)];
        let expected = "\
service  address  target  state       streams  total  in   out
a        -        -       refused     0        0      0 B  0 B
b        -        -       waiting     0        0      0 B  0 B
c        -        -       superseded  0        0      0 B  0 B
a is not published: tcp://:22: port 22 is not among the ports that this client may publish
";
        assert_eq!(services_table(&services), expected);
    }

    #[test]
    fn json_goes_there_and_back_and_unknown_fields_of_a_newer_daemon_are_skipped() {
        let mut value = serde_json::to_value(sample()).unwrap();
        value["later"] = 1.into();
        assert_eq!(serde_json::from_value::<Status>(value).unwrap(), sample());
    }

    #[test]
    fn byte_counts_of_any_size_are_readable() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1023.9 KiB");
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
    }
}
