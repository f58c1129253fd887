//! `cargo xtask api`: third-party tools test the admin API.
//!
//! Schemathesis sends requests that the OpenAPI document allows, and many that it forbids. promtool
//! reads the metrics. The classes of opentelemetry-proto decode the pushes of a build with the
//! feature `otlp`. kubernetes-validate compares the manifests of `examples/` with the
//! schemas of Kubernetes. The daemons' files accept patches: a patch that passes the checks of a
//! start may take effect, and changes to `admin` wait for the next start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use testkit::stage::{Origin, Scheme, Setup, free_port};

use xtask::child::{capture, cargo, find, run};
use xtask::site::Site;
use xtask::verdict::SKIPPED;
use xtask::{options, packages, python};

/// Schemathesis, pinned because a later version may test more than the document was written for,
/// and the messages of OTLP for Python, compiled from their definition.
const PACKAGES: &[&str] =
    &["schemathesis==4.32.5", "opentelemetry-proto==1.45.2", "kubernetes-validate==1.37.0"];

/// The program that receives the pushes.
const COLLECTOR: &str = "crates/lab/src/api/collector.py";

/// The options of `cargo xtask api`.
#[derive(Debug)]
struct Options {
    /// Requests that schemathesis makes of each operation.
    examples: u32,
    /// The daemon. `None`: it is built.
    binary: Option<PathBuf>,
    /// The daemon with the feature `otlp`. `None`: it is built.
    otlp_binary: Option<PathBuf>,
}

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let mut options = Options { examples: 40, binary: None, otlp_binary: None };
    let parsed = options::parse(args, |name, value| {
        match name {
            "--examples" => options.examples = options::number(name, value)?,
            "--binary" => options.binary = Some(std::path::absolute(value)?),
            "--otlp-binary" => options.otlp_binary = Some(std::path::absolute(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    });
    let mut hindered = None;
    let code = options::then(parsed, || {
        hindered = check(&Site::here()?, &options)?;
        Ok(())
    });
    let Some(reason) = hindered else { return code };
    println!("{reason}");
    ExitCode::from(SKIPPED)
}

/// The collector's key.
const KEY: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// Tests the API. `Some` is the reason why it cannot be tested on this machine.
fn check(site: &Site, options: &Options) -> Result<Option<String>> {
    if let Some(reason) = packages::lacking(&["curl", "python3"]) {
        return Ok(Some(reason));
    }
    let tools = site.target.join("tools");
    fs::create_dir_all(&tools)?;
    let (Some(promtool), Some(bin)) =
        (promtool(&tools)?, python::with(&tools.join("venv"), PACKAGES)?)
    else {
        let text = "promtool (Debian package prometheus) or schemathesis, opentelemetry-proto and kubernetes-validate (pip) cannot be had";
        return Ok(Some(text.to_owned()));
    };
    let binary = options.binary.clone().map_or_else(|| site.daemon(), Ok)?;
    let dir = site.target.join("api");
    // Remove the files of an earlier run.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let example = site.root.join("examples/prometheus/prometheus.yml");
    run(Command::new(&promtool).args(["check", "config", "--syntax-only"]).arg(example))?;
    let ports = [free_port(), free_port()];
    let origin = Origin::echo();
    for manifest in ["kubernetes/server", "kubernetes/client", "cluster/kubernetes"] {
        let manifest = site.root.join(format!("examples/{manifest}.yaml"));
        run(Command::new(bin.join("kubernetes-validate"))
            .args(["--strict", "--quiet"])
            .arg(manifest))?;
    }
    let mut setup = Setup::kept(&binary, Scheme::TLS, &dir).service("echo", origin.port());
    for (lines, port) in [&mut setup.server_lines, &mut setup.client_lines].into_iter().zip(ports) {
        lines.push_str(&format!("admin: {{ listen: 127.0.0.1:{port}, token: {TOKEN} }}\n"));
    }
    let running = setup.start();
    running.wait_echo(running.public("echo"));
    for (role, port) in ["server", "client"].into_iter().zip(ports) {
        println!("{role}: metrics");
        judge_metrics(&promtool, port)?;
        println!("{role}: API");
        let url = format!("http://127.0.0.1:{port}/api/v1/openapi.json");
        let mut judge = Command::new(bin.join("schemathesis"));
        judge.current_dir(&dir).args([
            "run",
            &url,
            "--seed",
            "1",
            "--max-examples",
            &options.examples.to_string(),
        ]);
        // A pattern cannot express all rules for ports and forwards, so the daemon may refuse valid
        // data. Answers to wrong tokens wait for seconds, and tests of `admin` cover them.
        judge.args(["--exclude-checks", "positive_data_acceptance,ignored_auth"]);
        // The daemon lives on, the stream of events has no end, and a speed test takes its time.
        judge.args(["--exclude-path-regex", "^/api/v1/(stop|events|speedtest)$"]);
        judge.args(["--header", &format!("Authorization: Bearer {TOKEN}"), "--no-color"]);
        // The document names two places of a token. schemathesis makes up a token for the place
        // that has none, and the answer to a wrong token waits for up to 3.2 s.
        judge.args(["--header", &format!("X-Tunnel-Token: {TOKEN}")]);
        run(judge.env("NO_COLOR", "1"))?;
        // The requests have limited the client at random, perhaps to a stream per second.
        let mut free = Command::new(&binary);
        free.args(["clients", "limit", "home", "--control"]).arg(running.file("server.sock"));
        for limit in ["streams", "new-per-second", "up", "down"] {
            free.args([&format!("--{limit}"), "none"]);
        }
        run(&mut free)?;
        running.wait_echo(running.public("echo"));
    }
    drop(running);
    judge_push(site, &bin.join("python"), options.otlp_binary.clone())?;
    Ok(None)
}

/// Checks the pushes of two daemons.
fn judge_push(site: &Site, python: &Path, binary: Option<PathBuf>) -> Result<()> {
    println!("OTLP");
    let binary = if let Some(binary) = binary {
        binary
    } else {
        run(&mut cargo(&site.root, &["build", "--package", "tunnel", "--features", "otlp"]))?;
        site.target.join("debug/tunnel")
    };
    let dir = site.target.join("otlp");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let ports = [free_port(), free_port()];
    let collector = free_port();
    let origin = Origin::echo();
    let mut setup = Setup::kept(&binary, Scheme::TCP, &dir).service("echo", origin.port());
    for (lines, port) in [&mut setup.server_lines, &mut setup.client_lines].into_iter().zip(ports) {
        lines.push_str(&format!(
            "admin: {{ listen: 127.0.0.1:{port}, token: {TOKEN} }}\n\
             otlp: {{ endpoint: \"http://127.0.0.1:{collector}\", interval: 1s, \
             headers: {{ X-Key: {KEY} }} }}\nlog: {{ level: trace }}\n"
        ));
    }
    let running = setup.start();
    running.wait_echo(running.public("echo"));
    let ports = ports.map(|port| port.to_string());
    let mut judge = Command::new(python);
    judge.arg(site.root.join(COLLECTOR));
    judge.args([&collector.to_string(), TOKEN, KEY]).args(ports);
    run(&mut judge)?;
    let logs = [running.server.log(), fs::read_to_string(dir.join("client.log"))?];
    for log in logs {
        ensure!(log.contains("metrics are pushed again"), "no word of it: {log}");
        ensure!(!log.contains(KEY), "the key of the collector: {log}");
    }
    Ok(())
}

fn judge_metrics(promtool: &Path, port: u16) -> Result<()> {
    let url = format!("http://127.0.0.1:{port}/metrics");
    let token = format!("Authorization: Bearer {TOKEN}");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--header", &token, &url]);
    let mut page = curl.stdout(Stdio::piped()).spawn().context("starting curl")?;
    let input = page.stdout.take().context("curl has an output")?;
    let said = Command::new(promtool).args(["check", "metrics"]).stdin(input).output()?;
    ensure!(page.wait()?.success(), "curl {url}");
    let said_text = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
    ensure!(said.status.success() && said_text.is_empty(), "promtool: {said_text}");
    Ok(())
}

/// The program promtool alone, unpacked: installing its package would start a server.
fn promtool(tools: &Path) -> Result<Option<PathBuf>> {
    if let Some(found) = find("promtool") {
        return Ok(Some(found));
    }
    let there = tools.join("usr/bin/promtool");
    if there.exists() {
        return Ok(Some(there));
    }
    let fetch =
        ["-c", "apt-get download --quiet=2 prometheus && dpkg-deb --extract prometheus_*.deb ."];
    let (good, said) = capture(Command::new("sh").args(fetch).current_dir(tools))?;
    println!("{}", said.trim());
    Ok((good && there.exists()).then_some(there))
}
