//! The set-up page of `tunnel server` and `tunnel client` without a file and without flags, in a
//! terminal: the file that it writes, and how the daemon continues with it.

use std::io::{self, IsTerminal, Write as _, stdin, stdout};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::{env, fs};

use admin::SetUpPage;
use anyhow::{Context, bail};
use ops::enrol::{Code, Order, PORTS};
use ops::revision::Finding;
use ops::setup::{Draft, Facts, Plan, SetUp, Written};
use ops::state::{Places, StateDir};
use ops::{Life, Role, WrongConfig, term};
use zeroize::Zeroizing;

use crate::cli::{ClientArgs, DaemonArgs, ServerArgs};
use crate::first_start::{self, Invitation, NAME};
use crate::input::absolute;
use crate::quoted::quoted;
use crate::{enroll, found, load};

/// The first port of a web console, and the number of ports that are tried.
const CONSOLE: u16 = 7070;
const CONSOLES: u16 = 10;

/// The token of the web console, beside the file.
const ADMIN_TOKEN: &str = "admin.token";

/// The text that replaces a secret.
const HIDDEN: &str = config::edit::SECRET;

/// Whether this start has no parameters, and a terminal on which the user sees its link. A process
/// without a terminal has no set-up page.
pub(crate) fn is_wanted() -> bool {
    env::args_os().len() == 2 && stdin().is_terminal() && stdout().is_terminal()
}

/// Opens the page beside a server that runs without a file, and prints its link. The server drains
/// when a file is written.
pub(crate) fn beside_server(state: &Arc<StateDir>, life: Life) -> Option<SetUpPage> {
    let maker = Maker { role: Role::Server, state: Some(Arc::clone(state)) };
    let opened = SetUpPage::start(Arc::new(maker), move || life.drain());
    match opened.and_then(|page| tell(&page).map(|()| page)) {
        Ok(page) => Some(page),
        Err(why) => {
            tracing::warn!("there is no set-up page: {why:#}");
            None
        }
    }
}

/// Opens the page for a client that has no file, and starts the daemon with the file that is
/// written.
///
/// # Errors
/// No file was written in time, or the daemon cannot start.
pub(crate) fn instead(nothing: &WrongConfig) -> anyhow::Result<()> {
    term::err(logging::trouble(&nothing.to_string()));
    let page = SetUpPage::start(Arc::new(Maker { role: Role::Client, state: None }), || {})?;
    tell(&page)?;
    match page.wait() {
        Some(role) => go_on_as(role),
        None => Err(WrongConfig::one(
            "the time of the set-up page is over (hint: start `tunnel client` again)".to_owned(),
        )
        .into()),
    }
}

fn tell(page: &SetUpPage) -> anyhow::Result<()> {
    let minutes = SetUpPage::lasts().as_secs() / 60;
    Ok(term::out(format_args!(
        "Set up in a browser of this machine, once and within {minutes} minutes: {}",
        page.link()
    ))?)
}

/// Restarts as `tunnel server` or `tunnel client`, which find the file. Returns only with an error.
pub(crate) fn go_on_as(role: Role) -> anyhow::Result<()> {
    let program = env::current_exe().context("the path of this program")?;
    let error = Command::new(&program).arg(role.name()).exec();
    Err(error).with_context(|| format!("starting {}", program.display()))
}

/// Makes the file of a new daemon in the working directory.
struct Maker {
    /// The role of the command line.
    role: Role,
    /// The state directory of the server that already runs.
    state: Option<Arc<StateDir>>,
}

/// A file that has not been written.
struct Drafted {
    /// The shown text, without secrets.
    text: Zeroizing<String>,
    /// The text for validation: it contains tokens that are not stored anywhere.
    judged: Zeroizing<String>,
}

impl SetUp for Maker {
    fn facts(&self) -> Facts {
        let is_there = |name: &&str| found::here(name).is_some();
        Facts {
            role: self.role,
            folder: env::current_dir().unwrap_or_default(),
            taken: [found::SERVER, found::CLIENT]
                .iter()
                .filter(|name| is_there(name))
                .map(ToString::to_string)
                .collect(),
            listen: first_start::listen().to_owned(),
            client: NAME.to_owned(),
            ports: PORTS.to_owned(),
            console: free_console(),
            ends_seconds: 0,
        }
    }

    fn draft(&self, plan: &Plan) -> Draft {
        let path = file_of(plan.role);
        let name = path.display().to_string();
        let mut draft = Draft { path: absolute(&path).unwrap_or(path), ..Draft::default() };
        let finding = |line: &String| Finding::read(&name, line);
        let drafted = match self.drafted(plan) {
            Ok(drafted) => drafted,
            Err(why) => {
                draft.problems = problems(&why).iter().map(finding).collect();
                return draft;
            }
        };
        draft.text = drafted.text.to_string();
        match judge(plan, &drafted) {
            Ok((runs, warnings)) => (draft.ok, draft.runs, draft.warnings) = (true, runs, warnings),
            Err(why) => draft.problems = why.0.iter().map(finding).collect(),
        }
        draft
    }

    fn write(&self, plan: &Plan) -> anyhow::Result<Written> {
        judge(plan, &self.drafted(plan)?)?;
        if !plan.console.is_empty() {
            make_admin_token()?;
        }
        match plan.role {
            Role::Client => write_client(plan),
            Role::Server | Role::Proxy | Role::Run => self.write_server(plan),
        }
    }
}

impl Maker {
    fn drafted(&self, plan: &Plan) -> anyhow::Result<Drafted> {
        match plan.role {
            Role::Client => {
                let (code, args) = client_of(plan)?;
                let (lists, more) = (load::asked_lists(&args)?, admin_lines(plan, None));
                let text = |token: &str, more: &str| {
                    enroll::drafted(&args, code.clone(), token, (&lists, more))
                };
                let stand_in = ops::token()?;
                let judged = text(&stand_in, &admin_lines(plan, Some(&stand_in)))?;
                Ok(Drafted { text: text(HIDDEN, &more)?, judged })
            }
            Role::Server | Role::Proxy | Role::Run => {
                let folder = match &self.state {
                    Some(state) => state.path().to_owned(),
                    None => Places::of_process().state_dir()?,
                };
                let stand_in = ops::token()?;
                let text = server_text(plan, &folder, None).into();
                Ok(Drafted { text, judged: server_text(plan, &folder, Some(&stand_in)).into() })
            }
        }
    }

    fn write_server(&self, plan: &Plan) -> anyhow::Result<Written> {
        let state = match &self.state {
            Some(state) => Arc::clone(state),
            None => Arc::new(StateDir::open(Places::of_process().state_dir()?)?),
        };
        let token = if plan.client.is_empty() {
            None
        } else {
            Some(first_start::token(&state, &plan.client)?)
        };
        let path = file_of(Role::Server);
        write_new(&path, server_text(plan, state.path(), None).as_bytes())?;
        let args = ServerArgs { daemon: with(&path), ..ServerArgs::default() };
        let made = load::server(&args, None, None).map_err(anyhow::Error::from);
        let elsewhere = made.and_then(|loaded| {
            let listen = &loaded.config.listen;
            let speaks_tls = listen.iter().any(|at| at.endpoint.scheme.tls);
            let pin = speaks_tls
                .then(|| families::identity::identity(&loaded.config.tls, state.path()))
                .transpose()?
                .map(|identity| identity.pin().to_string());
            let urls: Vec<_> = listen.iter().map(|at| at.endpoint.to_string()).collect();
            let ports = list(&plan.ports);
            let rights = Order::new(&plan.client, [&ports, &ports], &[]).rights();
            Ok(token.map(|token| {
                let (name, token) = (plan.client.clone(), Some(token));
                let invitation = Invitation { name, token, pin, rights, public: Vec::new() };
                (invitation.text(&urls, true), invitation.text(&urls, false))
            }))
        });
        let elsewhere = elsewhere.inspect_err(|_| drop(fs::remove_file(&path)))?;
        if let Some((text, _)) = &elsewhere {
            // The page shows the commands as well, without the token.
            drop(term::out(text));
        }
        let elsewhere = elsewhere.map(|(_, text)| text);
        written(Role::Server, &path, plan, elsewhere)
    }
}

fn write_client(plan: &Plan) -> anyhow::Result<Written> {
    let (code, args) = client_of(plan)?;
    let path = file_of(Role::Client);
    let lists = load::asked_lists(&args)?;
    enroll::enroll_new(&args, code, &path, (&lists, &admin_lines(plan, None)))?;
    written(Role::Client, &path, plan, None)
}

fn written(
    role: Role,
    path: &Path,
    plan: &Plan,
    elsewhere: Option<String>,
) -> anyhow::Result<Written> {
    Ok(Written { role, path: absolute(path)?, elsewhere, console: !plan.console.is_empty() })
}

/// The file that a start without `--config` finds.
fn file_of(role: Role) -> PathBuf {
    if role == Role::Client { found::CLIENT } else { found::SERVER }.into()
}

/// The arguments of a daemon with this file.
fn with(path: &Path) -> DaemonArgs {
    DaemonArgs { config: Some(path.to_owned()), ..DaemonArgs::default() }
}

/// The code of a plan, and its service as flags.
fn client_of(plan: &Plan) -> anyhow::Result<(Code, ClientArgs)> {
    let code = Code::read(&plan.code).map_err(WrongConfig::one)?;
    if code.renew {
        let why = "this code gives a client that has a file a new token (hint: tunnel client \
                   --enroll CODE, in the folder of that file)";
        return Err(WrongConfig::one(why.to_owned()).into());
    }
    let publish = match (plan.public.as_str(), plan.target.as_str()) {
        (_, "") => Vec::new(),
        ("", target) => vec![target.to_owned()],
        (public, target) => vec![format!("{public}={target}")],
    };
    Ok((code, ClientArgs { publish, ..ClientArgs::default() }))
}

/// The lines of `admin`. `token`: the token itself, instead of its file.
fn admin_lines(plan: &Plan, token: Option<&str>) -> String {
    if plan.console.is_empty() {
        return String::new();
    }
    let token = match token {
        Some(token) => format!("token: {}", quoted(token)),
        None => format!("token_file: {ADMIN_TOKEN}"),
    };
    format!("admin:\n  listen: {}\n  {token}\n", quoted(&plan.console))
}

/// The file of a server. `token`: the token itself, instead of files.
fn server_text(plan: &Plan, state: &Path, token: Option<&str>) -> String {
    let items = |list: Vec<String>| {
        let items: Vec<_> = list.iter().map(|item| quoted(item)).collect();
        items.join(", ")
    };
    let mut text = format!(
        "# Made by the set-up page of tunnel.\nlisten: [{}]\n{}",
        items(list(&plan.listen)),
        admin_lines(plan, token)
    );
    if !plan.client.is_empty() {
        let proof = match token {
            Some(token) => format!("token: {}", quoted(token)),
            None => {
                let file = state.join(first_start::token_file(&plan.client));
                format!("token_file: {}", quoted(&file.display().to_string()))
            }
        };
        let ports = items(list(&plan.ports));
        text.push_str(&format!(
            "clients:\n  - name: {}\n    {proof}\n    allow: {{ tcp: [{ports}], udp: [{ports}] }}\n",
            quoted(&plan.client)
        ));
    }
    text
}

fn list(text: &str) -> Vec<String> {
    let items = text.split([',', ' ']).map(str::trim).filter(|item| !item.is_empty());
    items.map(str::to_owned).collect()
}

/// Validates a file that does not exist yet as the daemon does, and checks for obstacles. Returns
/// its effects, and warnings.
fn judge(plan: &Plan, drafted: &Drafted) -> Result<(Vec<String>, Vec<String>), WrongConfig> {
    let path = file_of(plan.role);
    let text = Some(drafted.judged.to_string());
    let judged = if plan.role == Role::Client {
        let args = ClientArgs { daemon: with(&path), ..ClientArgs::default() };
        let loaded = load::client(&args, text)?;
        (loaded.config.summary(), loaded.warnings)
    } else {
        let args = ServerArgs { daemon: with(&path), ..ServerArgs::default() };
        let loaded = load::server(&args, None, text)?;
        (loaded.config.summary(), loaded.warnings)
    };
    let at = path.display();
    if found::here(&at.to_string()).is_some() {
        let why = format!("{at}: the file is there already, and is not overwritten");
        return Err(WrongConfig::one(why));
    }
    if let Ok(console) = plan.console.parse::<SocketAddr>()
        && let Err(why) = TcpListener::bind(console)
    {
        let why = format!("{at}: admin.listen: {console}: {why} (hint: choose another port)");
        return Err(WrongConfig::one(why));
    }
    Ok(judged)
}

/// A free address for the web console.
fn free_console() -> String {
    let ports = CONSOLE..CONSOLE + CONSOLES;
    let mut all = ports.map(|port| format!("127.0.0.1:{port}"));
    all.find(|address| TcpListener::bind(address).is_ok()).unwrap_or_default()
}

/// Generates the token of the web console, unless it exists.
fn make_admin_token() -> anyhow::Result<()> {
    let path = Path::new(ADMIN_TOKEN);
    if found::here(ADMIN_TOKEN).is_some() {
        return Ok(());
    }
    write_new(path, Zeroizing::new(ops::token()?).as_bytes())
}

/// Writes a new file with mode 0600.
fn write_new(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let what = || format!("making {}", path.display());
    let mut file = match files::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{} is there already, and is not overwritten", path.display())
        }
        file => file.with_context(what)?,
    };
    let filled = file.write_all(bytes).and_then(|()| file.sync_all());
    filled.inspect_err(|_| drop(fs::remove_file(path))).with_context(what)
}

/// The problems of an error, one line each.
fn problems(why: &anyhow::Error) -> Vec<String> {
    match why.downcast_ref::<WrongConfig>() {
        Some(wrong) => wrong.0.clone(),
        None => vec![format!("{why:#}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(client: &str) -> Plan {
        let text = str::to_owned;
        Plan {
            role: Role::Server,
            listen: text("tls://127.0.0.1:7000, quic://127.0.0.1:7000"),
            client: text(client),
            ports: text("10022, 10080-10090"),
            ..Plan::default()
        }
    }

    #[test]
    fn the_file_of_a_server_has_what_was_chosen_and_no_token() {
        let token = ops::token().unwrap();
        let plan = Plan { console: "127.0.0.1:7070".to_owned(), ..server("home") };
        let text = server_text(&plan, Path::new("/state"), None);
        assert_eq!(
            text,
            "# Made by the set-up page of tunnel.\n\
             listen: [\"tls://127.0.0.1:7000\", \"quic://127.0.0.1:7000\"]\n\
             admin:\n  listen: \"127.0.0.1:7070\"\n  token_file: admin.token\n\
             clients:\n  - name: \"home\"\n    token_file: \"/state/home.token\"\n    \
             allow: { tcp: [\"10022\", \"10080-10090\"], udp: [\"10022\", \"10080-10090\"] }\n"
        );
        // What is judged has the same lines, so that problems stand at their places.
        let judged = server_text(&plan, Path::new("/state"), Some(&token));
        assert_eq!(judged.lines().count(), text.lines().count());
        let none = server_text(&server(""), Path::new("/state"), None);
        assert!(!none.contains("clients") && !none.contains("admin"), "{none}");
    }

    #[test]
    fn what_a_person_types_stays_a_text_of_the_file() {
        let plan = Plan {
            listen: "tls://a\"\nadmin: {".to_owned(),
            console: "x\ny: z".to_owned(),
            ..server("${HOME}")
        };
        let text = server_text(&plan, Path::new("/state"), None);
        let keys: Vec<_> = text.lines().filter(|line| !line.starts_with([' ', '#'])).collect();
        assert_eq!(keys.len(), 3, "{text}");
        assert!(text.contains("name: \"$${HOME}\""), "{text}");
    }

    #[test]
    fn a_file_that_is_there_is_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("server.yaml"), dir.path().join("link.yaml"));
        write_new(&path, b"first").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for taken in [&path, &link] {
            let why = write_new(taken, b"second").unwrap_err().to_string();
            assert!(why.contains("is not overwritten"), "{why}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"first");
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_code_that_renews_and_a_text_that_is_no_code_are_told() {
        let plan = Plan { role: Role::Client, code: "nonsense".to_owned(), ..Plan::default() };
        let why = client_of(&plan).unwrap_err();
        assert_eq!(problems(&why), ["this is no code of `tunnel enroll`"]);
    }
}
