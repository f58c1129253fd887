//! Public suites against names: h2spec, testssl.sh and the Autobahn testsuite. `cargo xtask test
//! conformance` builds and installs them, and runs these cases.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::stage::Daemon;

use super::{Doors, certificate, published};
use crate::harness::{SOON, Scheme, free_port, program, run, wait_listening};

/// The host of all names. Its certificate is made by the case.
const HOST: &str = "site.example.com";

/// The folder with the suites.
fn tools() -> PathBuf {
    let folder = std::env::var_os("TUNNEL_TEST_TOOLS");
    folder.expect("`cargo xtask test conformance` runs this case").into()
}

/// Doors with a certificate for the host.
fn doors() -> Doors {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, "", keys);
    certificate(doors.setup.dir(), "one", &format!("DNS:{HOST}"));
    doors
}

/// Doors with a service that answers with files.
fn with_files() -> Doors {
    let mut doors = doors();
    let folder = doors.setup.dir().join("www");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("index.html"), "text ".repeat(1000)).unwrap();
    let folder = folder.display();
    writeln!(
        doors.setup.client_lines,
        "services: [{{ name: site, target: \"file://{folder}\", public: \"https://{HOST}\" }}]"
    )
    .unwrap();
    doors
}

/// Runs a program for which the host leads to this machine: in a mount namespace with hosts of its
/// own.
fn at_home(dir: &Path, program: &Path, args: &[&str]) -> Output {
    let hosts = dir.join("hosts");
    fs::write(&hosts, format!("127.0.0.1 localhost {HOST}\n")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"").arg(hosts);
    run(command.arg(program).args(args).current_dir(dir))
}

#[test]
fn h2spec_finds_nothing_at_an_https_name() {
    let doors = with_files();
    let (tls, dir) = (doors.tls.to_string(), doors.setup.dir().to_owned());
    let running = doors.setup.start();
    published(&running, 1);
    let output = at_home(&dir, &tools().join("h2spec"), &[HOST, &tls]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(" 0 skipped, 0 failed"), "{said}");
}

/// Findings of testssl.sh that are none here: about the certificate of the case, which no authority
/// of the world made and no zone of the DNS knows; and that the visitor orders the cipher suites.
/// All of them are strong, and a visitor without AES in its processor prefers ChaCha20.
const NONE_HERE: [&str; 3] = ["cert_", "DNS_CAArecord", "cipher_order"];

#[test]
fn testssl_finds_nothing_at_an_https_name_and_at_a_listener_for_clients() {
    let doors = with_files();
    let (tls, dir) = (doors.tls, doors.setup.dir().to_owned());
    let clients = doors.setup.server_port();
    let running = doors.setup.start();
    published(&running, 1);
    for port in [tls, clients] {
        let report = dir.join(format!("{port}.json"));
        let mut testssl = Command::new(program("testssl"));
        testssl.args(["--quiet", "--color", "0", "--warnings", "off", "--ip", "127.0.0.1"]);
        testssl.args(["--nodns", "none", "--protocols", "--std", "--fs", "--server-preference"]);
        testssl.args(["--server-defaults", "--vulnerable", "--jsonfile"]).arg(&report);
        let output = run(testssl.arg(format!("{HOST}:{port}")));
        let said = String::from_utf8_lossy(&output.stdout);
        let text = fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {said}"));
        let findings: Vec<BTreeMap<String, String>> = serde_json::from_str(&text).unwrap();
        let bad: Vec<_> = findings
            .iter()
            .filter(|one| ["LOW", "MEDIUM", "HIGH", "CRITICAL"].contains(&&*one["severity"]))
            .filter(|one| !NONE_HERE.iter().any(|id| one["id"].starts_with(id)))
            .collect();
        assert!(bad.is_empty(), "{bad:#?}");
        let offers = findings.iter().find(|one| one["id"] == "TLS1_3").expect("it was looked at");
        assert!(offers["finding"].starts_with("offered"), "{offers:?}");
    }
}

/// A WebSocket server that returns each message.
const ECHO: &str = "
import asyncio, sys, websockets
async def echo(socket):
    async for message in socket:
        await socket.send(message)
async def main():
    async with websockets.serve(echo, '127.0.0.1', int(sys.argv[1]), max_size=None, ping_interval=None):
        await asyncio.get_running_loop().create_future()
asyncio.run(main())
";

/// Carries connections to a TLS port: the client of the suite sends no server name.
const TO_TLS: &str = "
import asyncio, ssl, sys
context = ssl._create_unverified_context()
context.set_alpn_protocols(['http/1.1'])
async def carry(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()
async def serve(reader, writer):
    far = await asyncio.open_connection('127.0.0.1', int(sys.argv[2]), ssl=context, server_hostname=sys.argv[3])
    await asyncio.gather(carry(reader, far[1]), carry(far[0], writer))
async def main():
    async with await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
";

/// Starts the suite with the packages of the folder in its first argument.
const SUITE: &str = "
import site, sys
packages = sys.argv.pop(1)
site.addsitedir(packages)
sys.path.insert(0, packages)
from autobahntestsuite.wstest import run
run()
";

#[test]
fn autobahn_finds_no_more_through_names_than_at_the_target_itself() {
    let doors = doors();
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    let (tools, echo, to_tls) = (tools(), free_port(), free_port());
    let python = |name: &str, text: &str, args: &[&str]| {
        let script = dir.join(format!("{name}.py"));
        fs::write(&script, text).unwrap();
        let mut python = Command::new(tools.join("websockets/bin/python"));
        Daemon::start(name, &dir, python.arg(script).args(args))
    };
    let _echo = python("echo", ECHO, &[&echo.to_string()]);
    let _to_tls = python("to-tls", TO_TLS, &[&to_tls.to_string(), &tls.to_string(), HOST]);
    wait_listening(echo, SOON);
    wait_listening(to_tls, SOON);
    let _running = doors.start(&[
        (&format!("http://{HOST}"), echo, ""),
        (&format!("https://{HOST}"), echo, ""),
        ("http://*", echo, ", forwarded: true"),
    ]);
    let ways = [
        ("direct", format!("127.0.0.1:{echo}")),
        ("http", format!("{HOST}:{http}")),
        ("https", format!("{HOST}:{to_tls}")),
        ("proxied", format!("127.0.0.1:{http}")),
    ];
    let servers: Vec<_> = ways
        .iter()
        .map(|(agent, at)| serde_json::json!({ "agent": agent, "url": format!("ws://{at}") }))
        .collect();
    let specification = serde_json::json!({
        "options": { "failByDrop": false }, "outdir": dir.join("report"), "servers": servers,
        // 9 is about speed, 12 and 13 are about the compression of the server.
        "cases": ["*"], "exclude-cases": ["9.*", "12.*", "13.*"], "exclude-agent-cases": {},
    });
    fs::write(dir.join("specification.json"), specification.to_string()).unwrap();
    fs::write(dir.join("suite.py"), SUITE).unwrap();
    let packages = tools.join("autobahn").display().to_string();
    let args = ["suite.py", &packages, "-m", "fuzzingclient", "-s", "specification.json"];
    let output = at_home(&dir, &tools.join("python2"), &args);
    assert!(output.status.success(), "{output:?}");
    type Outcomes = BTreeMap<String, BTreeMap<String, serde_json::Value>>;
    let text = fs::read_to_string(dir.join("report/index.json")).unwrap();
    let outcomes: Outcomes = serde_json::from_str(&text).unwrap();
    let is_good = |outcome: &serde_json::Value| {
        ["behavior", "behaviorClose"].iter().all(|key| {
            let said = outcome[key].as_str().unwrap_or_default();
            matches!(said, "OK" | "NON-STRICT" | "INFORMATIONAL" | "UNIMPLEMENTED")
        })
    };
    let direct = &outcomes["direct"];
    assert!(direct.len() > 200, "{}", direct.len());
    assert!(direct.values().filter(|outcome| !is_good(outcome)).count() < 5, "{direct:?}");
    for (way, _) in &ways[1..] {
        let worse: Vec<_> = outcomes[*way]
            .iter()
            .filter(|(case, outcome)| !is_good(outcome) && is_good(&direct[*case]))
            .collect();
        assert!(worse.is_empty(), "{way}: {worse:?}");
        assert_eq!(outcomes[*way].len(), direct.len());
    }
}
