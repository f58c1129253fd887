//! The admin API before judges that nobody here wrote: schemathesis asks whatever its OpenAPI document
//! allows and much that it does not, promtool reads the metrics. What a build with the feature `otlp`
//! pushes is read by the classes of opentelemetry-proto. The daemons'
//! files are open to patches: whatever passes the checks of a start may come in force, and `admin` waits
//! for another one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use testkit::stage::{Origin, Scheme, Setup, free_port};

use crate::child::{capture, cargo, find, run, run_tests};
use crate::python;
use crate::site::Site;

/// Schemathesis in the version that the document was written with, as a later one may ask for more; and
/// the messages of OTLP for Python, compiled from its definition.
const PACKAGES: &[&str] = &["schemathesis==4.32.5", "opentelemetry-proto==1.45.2"];

/// What takes them.
const COLLECTOR: &str = "crates/xtask/src/api/collector.py";

/// Of each operation.
const EXAMPLES: &str = "40";

/// Of the collector.
const KEY: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u";

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// `Some`: why it cannot be judged here.
pub(crate) fn check(site: &Site) -> Result<Option<String>> {
    let tools = site.target.join("tools");
    fs::create_dir_all(&tools)?;
    let (Some(promtool), Some(bin)) =
        (promtool(&tools)?, python::with(&tools.join("venv"), PACKAGES)?)
    else {
        let text = "promtool (Debian package prometheus) or schemathesis and opentelemetry-proto (pip) cannot be had";
        return Ok(Some(text.to_owned()));
    };
    let binary = site.daemon()?;
    let dir = site.target.join("api");
    // What a former run left.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let example = site.root.join("examples/prometheus/prometheus.yml");
    run(Command::new(&promtool).args(["check", "config", "--syntax-only"]).arg(example))?;
    let ports = [free_port(), free_port()];
    let origin = Origin::echo();
    let mut setup = Setup::kept(&binary, Scheme::Tls, &dir).service("echo", origin.port());
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
        judge.current_dir(&dir).args(["run", &url, "--seed", "1", "--max-examples", EXAMPLES]);
        // What a port or a forward may be is more than a pattern says.
        judge.args(["--exclude-checks", "positive_data_acceptance"]);
        judge.args(["--header", &format!("Authorization: Bearer {TOKEN}"), "--no-color"]);
        run(judge.env("NO_COLOR", "1"))?;
        running.wait_echo(running.public("echo"));
    }
    drop(running);
    judge_push(site, &bin.join("python"))?;
    Ok(None)
}

/// Unit tests of the feature, and two daemons that have it.
fn judge_push(site: &Site, python: &Path) -> Result<()> {
    println!("OTLP");
    let feature = ["--package", "tunnel", "--features", "otlp"];
    let tests = [&["test"][..], &feature, &["--bins", "otlp::"]].concat();
    ensure!(run_tests(&mut cargo(&site.root, &tests))?.passed > 0, "no test of the feature");
    run(&mut cargo(&site.root, &[&["build"][..], &feature].concat()))?;
    let dir = site.target.join("otlp");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let ports = [free_port(), free_port()];
    let collector = free_port();
    let origin = Origin::echo();
    let binary = site.target.join("debug/tunnel");
    let mut setup = Setup::kept(&binary, Scheme::Tcp, &dir).service("echo", origin.port());
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

/// The program alone, unpacked: installing its package would start a server.
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
