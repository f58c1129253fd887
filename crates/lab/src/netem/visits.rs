//! `netem --visits`: how soon a visitor of a private service is served through the server, beside a
//! visitor of a public service over the same path, and how soon the link between the two clients is
//! direct.
//!
//! ```text
//!   left: the visitors, the server, the visitor client    right: the client of the services, echo
//! ```

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path as File;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use testkit::stage::{Daemon, run, tunnel};

use super::ends::{Ends, ORIGIN};
use super::matrix::Plan;
use super::path::Path;
use super::report::of_wire;
use super::stream::{fresh, wait};
use super::systems::start;
use super::wire::Wire;
use crate::bench::load_program;
use xtask::site::Site;

/// Ports at the left end: of the server, of the public service, and of the forwards.
const SERVER: u16 = 7000;
const PUBLIC: u16 = 9000;
const RELAYED: u16 = 9001;
const AUTO: u16 = 9002;

/// Visitors of each way, in turns, behind the first visitor of a round.
const TURNS: usize = 5;

/// The most that the first byte over the relay takes of that of a public service.
const FLOOR: f64 = 1.2;

/// The time for a visitor, and for a direct path.
const PATIENCE: Duration = Duration::from_secs(15);

const ASK: Duration = Duration::from_millis(1);

/// The figures of all rounds, in milliseconds.
#[derive(Debug, Default)]
struct Figures {
    /// The first visitor of a visitor client, which makes the link between the two clients.
    first: Vec<f64>,
    relayed: Vec<f64>,
    public: Vec<f64>,
    /// Of one turn, the relayed way relative to the public one.
    ratios: Vec<f64>,
    /// From the first visitor to the move of the link to the direct path.
    direct: Vec<f64>,
}

/// Measures on each path of the plan, for `seconds` rounds each.
pub(super) fn run_all(site: &Site, path: &Path, plan: &Plan, binary: &File) -> Result<ExitCode> {
    let dir = site.target.join("netem");
    fresh(&dir)?;
    let ends = Ends::new(path)?;
    println!("{}\n", Ends::settings(path));
    let (mut cells, mut is_held) = (Vec::new(), true);
    for &rtt in &plan.rtts {
        for &loss in &plan.losses {
            let path = Path { rtt, loss, ..path.clone() };
            let wire = Wire::start(&ends, path.weather(), path.mtu, path.seed)?;
            let figures = measure(&ends, &dir.join("run"), binary, &load_program(site), plan)?;
            println!(
                "{rtt} ms, {loss} %, {} rounds; {}",
                plan.seconds,
                of_wire(&wire.finish()?, 0)
            );
            let ratio = quantile(&figures.ratios, 0.5);
            // A lost packet costs either way a retransmission, so that only the median is judged.
            let verdict = if ratio <= FLOOR { "held" } else { "missed" };
            for (what, values) in figures.all() {
                let [p50, p99] = [0.5, 0.99].map(|share| quantile(values, share));
                println!("  {what:34} p50 {p50:7.1}  p99 {p99:7.1}  ({})", values.len());
            }
            println!("  relayed to public, median of turns {ratio:.3}; at most {FLOOR}: {verdict}");
            is_held &= ratio <= FLOOR;
            let shown = figures.all().map(|(what, values)| (what.to_owned(), json!(values)));
            cells.push(json!({ "rtt_ms": rtt, "loss_percent": loss, "ratio": ratio,
                "ms": serde_json::Map::from_iter(shown) }));
        }
    }
    let file = dir.join("visits.json");
    fs::write(&file, format!("{:#}\n", json!(cells)))?;
    println!("{}", file.display());
    ensure!(!plan.check || is_held, "the first byte over the relay is late");
    Ok(ExitCode::SUCCESS)
}

impl Figures {
    fn all(&self) -> [(&'static str, &[f64]); 4] {
        [
            ("first byte of a public service", &self.public),
            ("first byte over the relay", &self.relayed),
            ("of the first visitor of all", &self.first),
            ("until the link is direct", &self.direct),
        ]
    }
}

fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

fn measure(ends: &Ends, dir: &File, binary: &File, load: &File, plan: &Plan) -> Result<Figures> {
    fresh(dir)?;
    let output = run(&mut tunnel(binary, &["generate", "token"]));
    ensure!(output.status.success(), "tunnel generate token: {output:?}");
    let token = String::from_utf8(output.stdout)?.trim().to_owned();
    let host = ends.left.address.to_string();
    let certs = ["generate", "certs", "--server", &host, "--output", &dir.display().to_string()];
    let output = run(&mut tunnel(binary, &certs));
    ensure!(output.status.success(), "tunnel generate certs: {output:?}");
    let files = Files { url: format!("tls://{host}:{SERVER}"), token, dir };
    let mut origin = ends.right.command(load);
    origin.args(["origin", "echo", "--listen", &format!("127.0.0.1:{ORIGIN}")]);
    let _origin = Daemon::start("origin", dir, &mut origin);
    wait(|| ends.right.listens(ORIGIN)).context("the echo does not listen")?;
    let _server = start(&ends.left, ("server", "server"), dir, binary, &files.server())?;
    wait(|| ends.left.listens(SERVER)).context("the server does not listen")?;
    let _home = start(&ends.right, ("home", "client"), dir, binary, &files.home())?;
    wait(|| ends.left.listens(PUBLIC)).context("the client does not log in")?;
    first_byte(PUBLIC)?;
    let mut figures = Figures::default();
    for _ in 0..plan.seconds {
        let visitor = start(&ends.left, ("visitor", "client"), dir, binary, &files.visitor())?;
        wait(|| visitor.log().contains("is connected to")).context("no log-in of the visitor")?;
        wait(|| ends.left.listens(AUTO)).context("no forward")?;
        figures.first.push(first_byte(RELAYED)?);
        let begin = Instant::now();
        first_byte(AUTO)?;
        while !visitor.log().contains("goes on over a direct path") {
            ensure!(begin.elapsed() < PATIENCE, "no direct path: {}", visitor.log());
            sleep(ASK);
        }
        figures.direct.push(begin.elapsed().as_secs_f64() * 1e3);
        for _ in 0..TURNS {
            let (public, relayed) = (first_byte(PUBLIC)?, first_byte(RELAYED)?);
            figures.public.push(public);
            figures.relayed.push(relayed);
            figures.ratios.push(relayed / public);
        }
    }
    Ok(figures)
}

/// The time from the connection of a visitor to the first byte of the echo, in milliseconds.
fn first_byte(port: u16) -> Result<f64> {
    let begin = Instant::now();
    let mut visitor = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    visitor.set_read_timeout(Some(PATIENCE))?;
    visitor.set_nodelay(true)?;
    visitor.write_all(b"?")?;
    visitor.read_exact(&mut [0]).with_context(|| format!("a visitor of port {port}"))?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

/// The configuration of the three daemons.
struct Files<'a> {
    url: String,
    token: String,
    dir: &'a File,
}

impl Files<'_> {
    fn own(&self, name: &str) -> String {
        let dir = self.dir.display();
        format!("state_dir: {dir}/state-{name}\ncontrol: {dir}/{name}.sock\nworkers: 1\n")
    }

    fn server(&self) -> String {
        let Self { url, token, dir } = self;
        let dir = dir.display();
        format!(
            "listen: [\"{url}\"]\ntls: {{ cert: {dir}/server.crt, key: {dir}/server.key }}\n\
             stun: 3478\n{}clients:\n  \
             - {{ name: home, token: \"{token}\", allow: {{ tcp: [\"{PUBLIC}\"] }} }}\n  \
             - {{ name: visitor, token: \"{token}\", allow: {{ visit: \"home/*\" }} }}\n",
            self.own("server")
        )
    }

    fn client(&self, name: &str) -> String {
        let Self { url, token, dir } = self;
        let dir = dir.display();
        format!(
            "servers: [\"{url}\"]\ntls: {{ ca: {dir}/ca.crt }}\nname: {name}\ntoken: \"{token}\"\n\
             connections: 1\n{}",
            self.own(name)
        )
    }

    fn home(&self) -> String {
        let token = &self.token;
        let target = format!("target: \"tcp://127.0.0.1:{ORIGIN}\"");
        let private = |name: &str| {
            format!(
                "  - {{ name: {name}, {target}, public: private, \
                 visitors: [{{ name: visitor, token: \"{token}\" }}] }}\n"
            )
        };
        format!(
            "{}services:\n  - {{ name: open, {target}, public: \"tcp://:{PUBLIC}\" }}\n{}{}",
            self.client("home"),
            private("relayed"),
            private("auto")
        )
    }

    fn visitor(&self) -> String {
        let token = &self.token;
        let forward = |port: u16, service: &str, way: &str| {
            format!(
                "  - {{ listen: \"tcp://127.0.0.1:{port}\", target: \"service://home/{service}\", \
                 token: \"{token}\", p2p: {way} }}\n"
            )
        };
        format!(
            "{}forwards:\n{}{}",
            self.client("visitor"),
            forward(RELAYED, "relayed", "relay"),
            forward(AUTO, "auto", "auto")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_list() {
        let values = [5.0, 1.0, 3.0];
        assert_eq!([0.0, 0.5, 0.99].map(|share| quantile(&values, share)), [1.0, 3.0, 5.0]);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
