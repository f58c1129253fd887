//! `tunnel share`: publishes a target until the command ends, and shows its visitors.
//!
//! ```text
//!   tunnel share ──control socket──► client of this machine ──► server
//!                ◄── visits ───────
//! ```
//!
//! The client withdraws the service as soon as the connection of the control socket ends, so
//! nothing is left after Ctrl-C or a SIGKILL. A client that stops, restarts or is upgraded ends the
//! connection as well: the command then shares again at the same address.

mod own;
mod what;
mod words;

use std::io::{IsTerminal as _, stderr, stdout};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use config::Moment;
use control::Instance;
use ops::command::{News, OpenConsole, ReadStatus};
use ops::lists::{Pair, ServiceOptions};
use ops::share::{ShareOrder, Shared, Visit, open_password};
use ops::status::{SessionState, bytes};
use ops::{ConsoleLink, Role, WrongConfig, qr, term};

use crate::cli::ShareArgs;
use crate::instances::find_role;
use crate::service_options;
use own::OwnClient;
use what::{What, deserted, places, what};

/// The longest wait for the server: at the start, and after the client has gone.
const PATIENCE: Duration = Duration::from_secs(60);

/// The interval of checks for the client.
const LOOK: Duration = Duration::from_millis(250);

/// The user name for a generated password (`--password`).
const USER: &str = "guest";

/// The status of a response with a part of a file (RFC 9110 section 15.3.7).
const PARTIAL_CONTENT: u16 = 206;

/// The length of a generated password in characters: 72 bits.
const PASSWORD: usize = 12;

/// Shares a target until the end.
pub(crate) fn share(args: &ShareArgs) -> anyhow::Result<()> {
    let what = what(&args.target)?;
    let end = args.lasting.map(|span| Instant::now() + span.duration());
    let options = options(args)?;
    let mut own = if starts_one(args) { OwnClient::start(args)? } else { None };
    let mut instance = connect(args, own.as_mut())?;
    let own_socket = own.as_ref().map(|own| own.socket.clone());
    let mut sharing =
        Sharing { args, end, own_socket, is_over: false, is_told: false, place: None };
    loop {
        await_server(&instance, own.as_mut())?;
        sharing.share(&instance, &what, &options)?;
        if sharing.is_over() {
            if sharing.is_over
                && let Some(own) = &mut own
            {
                own.drain();
            }
            return Ok(());
        }
        term::err("the client has ended; waiting for it");
        instance = again(args, own.as_mut(), end)?;
    }
}

/// Whether the command line requests a separate client, or no client runs here.
fn starts_one(args: &ShareArgs) -> bool {
    if args.enroll.is_some() || !args.server.is_empty() {
        return true;
    }
    args.which.control.is_none() && find_role(&args.which, Role::Client).is_err()
}

fn connect(args: &ShareArgs, own: Option<&mut OwnClient>) -> anyhow::Result<Instance> {
    match own {
        Some(own) => Instance::connect(&own.socket),
        None => find_role(&args.which, Role::Client).context(
            "a running client shares the target, and none is found (hint: --enroll CODE starts one \
             with a code of `tunnel enroll NAME` on the server; or --server URL, --config FILE)",
        ),
    }
}

/// Finds the client again after it has ended.
fn again(
    args: &ShareArgs,
    mut own: Option<&mut OwnClient>,
    end: Option<Instant>,
) -> anyhow::Result<Instance> {
    let last = Instant::now() + PATIENCE;
    loop {
        if let Some(own) = own.as_mut() {
            own.lives()?;
        }
        match connect(args, own.as_deref_mut()) {
            Ok(instance) => return Ok(instance),
            Err(why) if Instant::now() > last => return Err(why),
            Err(_) if end.is_some_and(|end| Instant::now() > end) => bail!("the time is over"),
            Err(_) => sleep(LOOK),
        }
    }
}

/// Waits until the client is connected to its server.
fn await_server(instance: &Instance, mut own: Option<&mut OwnClient>) -> anyhow::Result<()> {
    let last = Instant::now() + PATIENCE;
    let mut is_told = false;
    loop {
        let status = control::ask(instance, ReadStatus {})?;
        let Some(session) = status.sessions.first() else { return Ok(()) };
        let state = session.state.state();
        match state {
            SessionState::Up | SessionState::Idle => return Ok(()),
            SessionState::Refused => bail!("the server refuses the client: {}", session.state),
            _ if Instant::now() > last => {
                bail!("the client is not connected with its server: {}", session.state)
            }
            SessionState::Unreachable if !is_told => {
                is_told = true;
                term::err(format_args!("waiting for the server: {}", session.state));
            }
            SessionState::Connecting
            | SessionState::Unreachable
            | SessionState::Superseded
            | SessionState::Unknown => {}
        }
        if let Some(own) = own.as_mut() {
            own.lives()?;
        }
        sleep(LOOK);
    }
}

/// The options of the service. Shows a generated password.
fn options(args: &ShareArgs) -> anyhow::Result<ServiceOptions> {
    let basic_auth = match args.password.as_deref() {
        None => Vec::new(),
        Some("") => {
            let plain = |c: &char| c.is_ascii_alphanumeric();
            let secret: String = ops::token()?.chars().filter(plain).take(PASSWORD).collect();
            term::err(format_args!("user {USER}, password {secret}"));
            vec![Pair(format!("{USER}:{secret}"))]
        }
        Some(given) => service_options::pairs(given)?.into_iter().map(Pair).collect(),
    };
    let until = args.lasting.map(|span| Moment::of(SystemTime::now()).after(span.duration()));
    let mut options = ServiceOptions {
        basic_auth,
        allow_from: args.allow_from.clone(),
        until: until.map(|until| until.to_string()),
        ..ServiceOptions::default()
    };
    service_options::add_target_options(&mut options, &args.options)?;
    Ok(options)
}

/// Whether a visit uses up `--once`: the complete response to a GET, or a connection. Programs that
/// preview a link first request its header or a part of it.
fn is_last(visit: &Visit) -> bool {
    match visit {
        Visit::Request { method, status, cut, .. } => {
            let is_whole = |status| matches!(status, 200..300) && status != PARTIAL_CONTENT;
            method == "GET" && status.is_some_and(is_whole) && !cut
        }
        Visit::Connection { .. } => true,
        Visit::Failed { .. } => false,
    }
}

/// The state of the command over all clients.
struct Sharing<'a> {
    args: &'a ShareArgs,
    end: Option<Instant>,
    /// The control socket of a client that the command has started.
    own_socket: Option<PathBuf>,
    /// `--once` has had its visitor.
    is_over: bool,
    /// Whether the addresses were shown.
    is_told: bool,
    /// The published place, which should be the same the next time; the inner `None` is a port.
    place: Option<(Option<String>, String)>,
}

impl Sharing<'_> {
    fn is_over(&self) -> bool {
        self.is_over || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Shares until the end, or until the client has ended.
    fn share(
        &mut self,
        instance: &Instance,
        what: &What,
        options: &ServiceOptions,
    ) -> anyhow::Result<()> {
        let (tried, word) = match &self.place {
            Some((place, word)) => (vec![place.clone()], word.clone()),
            None => {
                let word = words::pair()?;
                let is_for_http =
                    !options.basic_auth.is_empty() || what.target.starts_with("file://");
                (places(self.args.at.as_deref(), &word, is_for_http)?, word)
            }
        };
        let mut refused = Vec::new();
        for (n, place) in tried.iter().enumerate() {
            let publish = match place {
                Some(public) => format!("{public}={}", what.target),
                None => what.target.clone(),
            };
            let mut options = options.clone();
            options.name = Some(format!("share-{word}"));
            let (only, no_requests) = (what.only.clone(), self.args.no_requests);
            let order = ShareOrder { publish, options, only, no_requests };
            let mut is_shared = false;
            let outcome = control::follow(instance, order, |news| {
                if let News::Shared(shared) = &news {
                    is_shared = true;
                    self.place = Some((place.clone(), word.clone()));
                    self.tell_shared(shared, what, &refused)?;
                } else {
                    self.tell(&news)?;
                }
                Ok(!self.is_over())
            });
            match outcome {
                Err(why) if !is_shared && !is_of_person(&why) && n + 1 < tried.len() => {
                    refused.push(format!("{why:#}"));
                }
                outcome => return outcome.map(drop),
            }
        }
        Ok(())
    }

    fn tell_shared(
        &mut self,
        shared: &Shared,
        what: &What,
        refused: &[String],
    ) -> anyhow::Result<()> {
        let asks = self.args.password.is_some() && !self.is_told;
        let warning = asks.then(|| open_password(&shared.addresses)).flatten();
        let warning = warning.map(|why| format!("warning: {why}"));
        if self.args.json {
            self.is_told = true;
            warning.iter().for_each(term::err);
            term::out(serde_json::to_string(&News::Shared(shared.clone()))?)?;
            return Ok(());
        }
        if std::mem::replace(&mut self.is_told, true) {
            term::err(format_args!("shared again at {}", shared.addresses.join(", ")));
            return Ok(());
        }
        for why in refused {
            term::err(format_args!("no name for it: {why}"));
        }
        for address in &shared.addresses {
            term::out(format_args!("{address} -> {}", what.shown))?;
        }
        let url = shared.addresses.iter().find(|address| address.starts_with("http"));
        if let Some(code) = url.filter(|_| stdout().is_terminal()).and_then(|url| qr::lines(url)) {
            term::out_bare(code)?;
        }
        let end = match self.args.lasting {
            Some(span) => format!("for {span}, or until Ctrl-C"),
            None => "until Ctrl-C".to_owned(),
        };
        let who =
            if self.args.password.is_some() { "" } else { "; whoever knows the address may visit" };
        term::err(format_args!("shared {end}{who}"));
        warning.iter().for_each(term::err);
        if url.is_some() && !self.args.no_requests {
            self.tell_requests();
        }
        if let Some(place) = deserted(&what.target) {
            term::err(format_args!(
                "nothing listens at {place} yet: visitors get an error until then"
            ));
        }
        Ok(())
    }

    /// Says where the requests can be inspected: a link to the console, or the command.
    fn tell_requests(&self) {
        let instance = match &self.own_socket {
            Some(socket) => Instance::connect(socket),
            None => find_role(&self.args.which, Role::Client),
        };
        // A link that is written to a file would not be read within the minute of its validity.
        let link = stderr().is_terminal().then(|| control::ask(&instance?, OpenConsole {}));
        if let Some(Ok(ConsoleLink { url, valid_seconds })) = link {
            term::err(format_args!("requests: {url} (good once, for {valid_seconds} s)"));
            return;
        }
        match &self.own_socket {
            Some(socket) => {
                term::err(format_args!("requests: tunnel requests --control {}", socket.display()));
            }
            None => term::err("requests: tunnel requests"),
        }
    }

    /// Reports the action of a visitor.
    fn tell(&mut self, news: &News) -> anyhow::Result<()> {
        if self.args.json && *news != News::Ok {
            term::out(serde_json::to_string(news)?)?;
        }
        if let News::Visit(visit) = news {
            if !self.args.json {
                term::out(line(visit, SystemTime::now()))?;
            }
            self.is_over |= self.args.once && is_last(visit);
        } else if let News::Lost(count) = news
            && !self.args.json
        {
            term::err(format_args!("{} not shown", term::count(*count, "visit")));
        }
        Ok(())
    }
}

/// Whether the error is about the words of the command line.
fn is_of_person(why: &anyhow::Error) -> bool {
    why.is::<WrongConfig>()
}

/// A line about a visit: time of day in UTC, visitor, request, response.
fn line(visit: &Visit, now: SystemTime) -> String {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    let time = format!("{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60);
    match visit {
        Visit::Request { visitor, method, path, status, bytes: length, millis, cut } => {
            let status = status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
            // Without a response the line already says so.
            let cut = if *cut && *length > 0 { "  cut off" } else { "" };
            format!(
                "{time}  {}  {method} {path}  {status}  {}  {millis} ms{cut}",
                visitor.as_deref().unwrap_or("-"),
                bytes(*length)
            )
        }
        Visit::Failed { visitor, reason } => {
            format!("{time}  {}  target not reached: {reason}", visitor.as_deref().unwrap_or("-"))
        }
        Visit::Connection { visitor, bytes_in, bytes_out, millis } => format!(
            "{time}  {}  {} in, {} out  {millis} ms",
            visitor.as_deref().unwrap_or("-"),
            bytes(*bytes_in),
            bytes(*bytes_out)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_visitor_request_and_answer() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 + 3723);
        let request = |status| Visit::Request {
            visitor: Some("192.0.2.7".into()),
            method: "GET".into(),
            path: "/a?b".into(),
            status,
            bytes: 2048,
            millis: 12,
            cut: false,
        };
        assert_eq!(
            line(&request(Some(200)), now),
            "01:02:03Z  192.0.2.7  GET /a?b  200  2.0 KiB  12 ms"
        );
        assert!(line(&request(None), now).contains("no answer"));
        let connection = Visit::Connection { visitor: None, bytes_in: 5, bytes_out: 7, millis: 1 };
        assert_eq!(line(&connection, now), "01:02:03Z  -  5 B in, 7 B out  1 ms");
        let reason = "tcp://localhost:3000: Connection refused".to_owned();
        let failed = Visit::Failed { visitor: Some("192.0.2.7".into()), reason };
        assert_eq!(
            line(&failed, now),
            "01:02:03Z  192.0.2.7  target not reached: tcp://localhost:3000: Connection refused"
        );
    }

    #[test]
    fn once_is_used_up_by_a_whole_answer_to_a_get() {
        let request = |method: &str, status, cut| Visit::Request {
            visitor: None,
            method: method.into(),
            path: "/".into(),
            status,
            bytes: 2048,
            millis: 12,
            cut,
        };
        let failed = Visit::Failed { visitor: None, reason: String::new() };
        for visit in [
            request("HEAD", Some(200), false),
            request("OPTIONS", Some(204), false),
            request("GET", Some(206), false),
            request("GET", Some(304), false),
            request("GET", Some(404), false),
            request("GET", Some(200), true),
            request("GET", None, true),
            failed,
        ] {
            assert!(!is_last(&visit), "{visit:?}");
        }
        assert!(is_last(&request("GET", Some(200), false)));
        let (visitor, bytes_in, bytes_out, millis) = Default::default();
        assert!(is_last(&Visit::Connection { visitor, bytes_in, bytes_out, millis }));
    }
}
