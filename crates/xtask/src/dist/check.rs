//! The step `dist`: the packages of the static binary are made twice, and the one of Debian is
//! installed by the real dpkg into a root of its own, with a running daemon.
//!
//! The root has a shell, and stand-ins for the programs of systemd that write down how they are
//! called. The daemon, its upgrade and the scripts of the package are real. Everything runs in
//! namespaces of its own: processes end with the step, ports concern nobody.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::source::Source;
use super::tree::sha256;
use super::{Arch, COMPLETIONS, Order, SUMS, deb, make, printed};
use xtask::child::{Tally, capture, find, run_tests};
use xtask::packages;
use xtask::site::Site;
use xtask::verdict::Verdict;

/// The command by which this program runs itself inside the namespaces.
pub(crate) const INSIDE: &str = "dist-inside";

/// The root directory of the test, in the build folder.
const ROOT: &str = "dist-test/root";

/// Longest wait for a process, on a machine with other work.
const PATIENCE: Duration = Duration::from_secs(60);

/// Checks the packages of the static binary for this machine.
pub(crate) fn step(site: &Site) -> Result<Verdict> {
    if !packages::is_root()? {
        return Ok(Verdict::Skipped("only root installs a package".to_owned()));
    }
    if let Some(reason) = packages::lacking(&["dpkg-deb", "busybox", "unshare", "ip"]) {
        return Ok(Verdict::Skipped(reason));
    }
    let test = site.target.join("dist-test");
    if test.exists() {
        fs::remove_dir_all(&test)?;
    }
    let order = Order { built: true, ..Order::default() };
    let (first, second) = (test.join("first"), test.join("second"));
    make(site, &order, &first)?;
    make(site, &order, &second)?;
    let sums = fs::read_to_string(first.join(SUMS))?;
    ensure!(sums == fs::read_to_string(second.join(SUMS))?, "other bytes the second time");
    println!("test the_same_bytes_twice ... ok");
    let arch = Arch::X86_64;
    let program = arch.program(site);
    let source = Source::of(site, arch, &program, &order.maintainer)?;
    // The next package has the same program: what matters is that it is another file.
    let next = deb::package(&source, "2", deb::QUICK, [&test, &second])?;
    let first_deb = first.join(format!("tunnel_{}-1_amd64.deb", source.version));
    archive(&first, &source)?;
    bill(&first, &source)?;
    println!("test the_archive_runs_where_it_lies ... ok");
    println!("test the_bill_names_every_linked_crate_with_its_sum ... ok");
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--net", "--fork", "--kill-child"]);
    inside.arg(std::env::current_exe()?).arg(INSIDE);
    inside.arg(site.target.join(ROOT)).args([&first_deb, &next]).arg(&first);
    let mut tests = run_tests(&mut inside)?;
    ensure!(tests.passed > 0, "no test of the package");
    tests += Tally { passed: 3, ignored: 0 };
    Ok(Verdict::Passed(tests))
}

/// Programs with a second opinion, which are not worth an installation in the short suite.
const CRITICS: [&str; 3] = ["lintian", "skopeo", "podman"];

/// The long step: the packages of all processors that can be had, read by other programs.
pub(crate) fn long(site: &Site) -> Result<Verdict> {
    let missing: Vec<_> = CRITICS.into_iter().filter(|program| find(program).is_none()).collect();
    if !missing.is_empty()
        && let Some(reason) = packages::add(&missing)?
    {
        return Ok(Verdict::Skipped(reason));
    }
    let output = site.target.join("dist");
    let lacking = make(site, &Order { archs: Arch::ALL.to_vec(), ..Order::default() }, &output)?;
    lacking.iter().for_each(|lack| println!("not made: {lack}"));
    let mut tests = Tally::default();
    // Of this step alone: images of an earlier run would be found by name.
    let storage = site.target.join("podman");
    if storage.exists() {
        fs::remove_dir_all(&storage)?;
    }
    for entry in fs::read_dir(&output)? {
        let path = entry?.path();
        let name = path.display().to_string();
        if name.ends_with(".oci.tar") {
            load(&storage, &path)?;
            tests.passed += 1;
        }
        let mut critic = if name.ends_with(".deb") {
            let mut lintian = Command::new("lintian");
            lintian.args(["--allow-root", "--fail-on", "error,warning"]).arg(&path);
            lintian
        } else if name.ends_with(".oci.tar") {
            let mut skopeo = Command::new("skopeo");
            skopeo.args(["inspect", "--raw"]).arg(format!("oci-archive:{name}"));
            skopeo
        } else {
            continue;
        };
        let (good, said) = capture(&mut critic)?;
        ensure!(good, "{name}: {}", said.trim());
        tests.passed += 1;
    }
    ensure!(tests.passed > 0, "no package was made");
    Ok(Verdict::Passed(tests))
}

/// Loads the archive of an image into a storage of podman in this folder, and reads what podman
/// made of it. To run the image takes control groups, which not every machine lends.
fn load(storage: &Path, archive: &Path) -> Result<()> {
    let podman = || {
        let mut podman = Command::new("podman");
        podman.arg("--root").arg(storage.join("root")).arg("--runroot").arg(storage.join("run"));
        podman.args(["--storage-driver", "vfs"]);
        podman
    };
    let name = archive.display();
    let (good, said) = capture(podman().args(["load", "--quiet", "--input"]).arg(archive))?;
    ensure!(good, "podman load {name}: {}", said.trim());
    let image = said.lines().find_map(|line| line.strip_prefix("Loaded image: "));
    let image = image.with_context(|| format!("podman load {name}: {said}"))?;
    let form = "{{.Config.Entrypoint}} {{.Config.User}}";
    let (good, said) = capture(podman().args(["inspect", "--format", form, image.trim()]))?;
    ensure!(good && said.trim() == "[/tunnel] 65532:65532", "podman inspect {name}: {said}");
    Ok(())
}

/// The archive for every system: unpacked by tar, its program reads its examples.
fn archive(packages: &Path, source: &Source) -> Result<()> {
    let stem = format!("tunnel-{}-{}", source.version, source.arch.name());
    let unpacked = packages.join("unpacked");
    fs::create_dir(&unpacked)?;
    let tar = packages.join(format!("{stem}.tar.gz"));
    printed(Command::new("tar").arg("-xzf").arg(&tar).arg("-C").arg(&unpacked))?;
    let top = unpacked.join(&stem);
    let files = [
        "tunnel",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "README.md",
        "completions/_tunnel",
        "man/man1/tunnel-server.1",
        "systemd/tunnel-client@.service",
        "systemd/sysctl.conf",
        "crates/tunnel/docs/README.md",
        "third-party.txt.gz",
    ];
    for file in files {
        ensure!(top.join(file).is_file(), "{stem}: no {file}");
    }
    let mut check = Command::new(top.join("tunnel"));
    check.arg("check").arg(top.join("examples/balancer-proxy.yaml")).env_clear();
    // The example names certificates that whoever copies it has.
    let (_, said) = capture(&mut check)?;
    ensure!(said.contains("server.crt"), "{said}");
    Ok(())
}

/// What the bill of materials has to say.
fn bill(packages: &Path, source: &Source) -> Result<()> {
    let file = format!("tunnel-{}-{}.cdx.json", source.version, source.arch.name());
    let bill: Value = serde_json::from_slice(&fs::read(packages.join(file))?)?;
    let main = &bill["metadata"]["component"];
    ensure!(main["hashes"][0]["content"] == sha256(&source.program)?, "another program: {main}");
    let components = bill["components"].as_array().context("components is a list")?;
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    // One of the program, one of the page for browsers and of the build, and none of its tests.
    for (name, scope) in [("rustls", "required"), ("aws-lc-sys", "required"), ("cc", "excluded")] {
        let component = named(name).with_context(|| format!("the bill lacks {name}"))?;
        ensure!(component["scope"] == scope, "{component}");
        let sum = component["hashes"][0]["content"].as_str().unwrap_or_default();
        ensure!(sum.len() == 64, "{component}");
    }
    let version = named("zig-compiler-rt").map(|component| &component["version"]);
    let wanted = source.memory.as_ref().map(|memory| json!(memory.version));
    ensure!(version == wanted.as_ref(), "the functions of memory: {version:?}, not {wanted:?}");
    for absent in ["proptest", "webrtc", "testkit"] {
        ensure!(named(absent).is_none(), "{absent} is not in the program");
    }
    for component in components {
        let licence = component["licenses"][0]["expression"].as_str().unwrap_or_default();
        ensure!(!licence.is_empty() && !licence.contains('/'), "{component}");
    }
    Ok(())
}

/// The part of the step inside the namespaces: the root, both packages, and the folder of packages.
pub(crate) fn inside(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let done = match &args[..] {
        [root, first, second, packages] => all(root, [first, second], packages),
        _ => Err(anyhow::anyhow!("{INSIDE} is a part of `cargo xtask test dist`")),
    };
    match done {
        Ok(tests) => {
            println!("test result: ok. {tests} passed; 0 failed; 0 ignored");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A case, with both packages.
type Case = fn(&mut Root, [&Path; 2]) -> Result<()>;

/// The cases, each on the state that the case before left.
const CASES: &[(&str, Case)] = &[
    ("an_installation_sets_up_and_starts_nothing", installed),
    ("files_belong_to_root_and_are_what_the_program_prints", permissions),
    ("an_upgrade_of_the_package_upgrades_the_daemon", upgraded),
    ("a_daemon_that_cannot_be_upgraded_stays_and_the_package_is_installed", hindered),
    ("a_removal_ends_the_units_and_keeps_state_and_configuration", removed),
    ("a_purge_takes_the_state_and_leaves_configurations", purged),
];

fn all(root: &Path, debs: [&Path; 2], packages: &Path) -> Result<usize> {
    printed(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    let mut root = Root::make(root)?;
    for (name, case) in CASES {
        case(&mut root, debs).with_context(|| (*name).to_owned())?;
        println!("test {name} ... ok");
    }
    images(&root.path.with_file_name("image"), packages)?;
    println!("test an_image_runs_its_role_as_its_user ... ok");
    Ok(CASES.len() + 1)
}

/// A root directory with a shell, dpkg's folders, and stand-ins for the programs of systemd.
#[derive(Debug)]
struct Root {
    path: PathBuf,
    daemon: Option<Child>,
}

/// The programs that stand-ins replace.
const STAND_INS: &[&str] = &[
    "usr/bin/systemctl",
    "usr/bin/systemd-sysusers",
    "usr/bin/systemd-tmpfiles",
    "usr/lib/systemd/systemd-sysctl",
];

/// The programs of scripts.
const APPLETS: &[&str] = &["sh", "rm", "rmdir", "readlink"];

impl Root {
    fn make(path: &Path) -> Result<Self> {
        let folders = [
            "bin",
            "dev",
            "etc",
            "proc",
            "run/systemd/system",
            "tmp",
            "usr/bin",
            "usr/lib/systemd",
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/log",
        ];
        for folder in folders {
            fs::create_dir_all(path.join(folder))?;
        }
        for file in ["var/lib/dpkg/status", "var/lib/dpkg/available", "calls", "dev/null"] {
            fs::write(path.join(file), "")?;
        }
        let busybox = find("busybox").context("busybox is gone")?;
        fs::copy(busybox, path.join("bin/busybox"))?;
        for applet in APPLETS {
            symlink("busybox", path.join("bin").join(applet))?;
        }
        for program in STAND_INS {
            let program = path.join(program);
            fs::write(&program, "#!/bin/sh\necho \"${0##*/} $*\" >>/calls\n")?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        }
        printed(Command::new("mount").args(["-t", "proc", "proc"]).arg(path.join("proc")))?;
        printed(Command::new("mount").args(["--bind", "/dev/null"]).arg(path.join("dev/null")))?;
        Ok(Self { path: path.to_owned(), daemon: None })
    }

    /// A command inside.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = chroot();
        command.arg(&self.path).args(words).env_clear().env("PATH", "/usr/bin:/bin");
        command
    }

    /// Runs dpkg, and returns what it and the scripts said. It works from outside and runs scripts
    /// inside.
    fn dpkg(&self, words: &[&str], package: Option<&Path>) -> Result<String> {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.path.display())).args(words).args(package);
        dpkg.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        let (good, said) = capture(&mut dpkg)?;
        ensure!(good, "dpkg {}: {said}", words.join(" "));
        Ok(said)
    }

    /// How the stand-ins were called since the last time.
    fn calls(&self) -> Result<Vec<String>> {
        let file = self.path.join("calls");
        let text = fs::read_to_string(&file)?;
        fs::write(file, "")?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The process that answers at the control socket.
    fn process(&self) -> Result<u64> {
        let text = printed(&mut self.command(&["tunnel", "status", "--json"]))?;
        let status: Value = serde_json::from_slice(&text)?;
        status["pid"].as_u64().context("a status without a process")
    }

    fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.path.join(path)).is_ok()
    }
}

/// The path of the program is whole: `PATH` is the one inside.
fn chroot() -> Command {
    Command::new(find("chroot").unwrap_or_else(|| "/usr/sbin/chroot".into()))
}

/// Waits until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > PATIENCE {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// How a package is set up.
const SET_UP: [&str; 4] = [
    "systemd-sysusers tunnel.conf",
    "systemd-tmpfiles --create tunnel.conf",
    "systemctl --system daemon-reload",
    "systemd-sysctl /usr/lib/sysctl.d/60-tunnel.conf",
];

fn installed(root: &mut Root, [first, _]: [&Path; 2]) -> Result<()> {
    root.dpkg(&["--install"], Some(first))?;
    let calls = root.calls()?;
    ensure!(calls == SET_UP, "{calls:?}");
    let (good, said) = capture(&mut root.command(&["tunnel", "status"]))?;
    ensure!(!good && said.contains("no"), "something runs: {said}");
    let said = root.dpkg(&["--verify", "tunnel"], None)?;
    ensure!(said.trim().is_empty(), "{said}");
    Ok(())
}

fn permissions(root: &mut Root, _: [&Path; 2]) -> Result<()> {
    let listed = root.dpkg(&["--listfiles", "tunnel"], None)?;
    let mut programs = Vec::new();
    for path in listed.lines().filter(|path| path.starts_with('/') && *path != "/.") {
        let about = fs::symlink_metadata(root.path.join(&path[1..]))?;
        let mode = about.mode() & 0o7777;
        ensure!((about.uid(), about.gid()) == (0, 0), "{path} belongs to somebody else");
        match mode {
            0o644 => {}
            0o755 if about.is_dir() => {}
            0o755 => programs.push(path),
            _ => bail!("{path}: mode {mode:04o}"),
        }
    }
    programs.retain(|path| !path.starts_with("/usr/share/doc/"));
    ensure!(programs == ["/usr/bin/tunnel"], "{programs:?}");
    for place in COMPLETIONS {
        let own = printed(&mut root.command(&["tunnel", "generate", "completions", place.shell]))?;
        ensure!(fs::read(root.path.join(place.debian))? == own, "{}", place.debian);
    }
    let page = printed(&mut root.command(&["tunnel", "generate", "man"]))?;
    let packed = root.path.join("usr/share/man/man1/tunnel.1.gz");
    ensure!(printed(Command::new("gzip").arg("-dc").arg(packed))? == page, "tunnel.1");
    Ok(())
}

/// Where the daemon of the test listens.
const PORT: u16 = 7000;

const CONFIGURATION: &str = "listen: tls://127.0.0.1:7000\n";

fn upgraded(root: &mut Root, [_, second]: [&Path; 2]) -> Result<()> {
    // As systemd would start it.
    for folder in ["etc/tunnel", "run/tunnel/main", "var/lib/private/tunnel/main"] {
        fs::create_dir_all(root.path.join(folder))?;
    }
    for folder in ["run/tunnel/main", "var/lib/private/tunnel/main"] {
        fs::set_permissions(root.path.join(folder), fs::Permissions::from_mode(0o700))?;
    }
    fs::create_dir_all(root.path.join("var/lib/tunnel"))?;
    symlink("../private/tunnel/main", root.path.join("var/lib/tunnel/main"))?;
    fs::write(root.path.join("etc/tunnel/main.yaml"), CONFIGURATION)?;
    let log = fs::File::create(root.path.with_file_name("daemon.log"))?;
    let mut server = root.command(&["tunnel", "server", "--config", "/etc/tunnel/main.yaml"]);
    server.env("STATE_DIRECTORY", "/var/lib/private/tunnel/main");
    server.env("RUNTIME_DIRECTORY", "/run/tunnel/main");
    // A daemon that systemd watches hands its place to the next process and ends. Without systemd
    // it stays as the parent of the next process.
    server.env("NOTIFY_SOCKET", "/run/notify");
    let notified = UnixDatagram::bind(root.path.join("run/notify"))?;
    thread::spawn(move || while notified.recv(&mut [0; 4096]).is_ok() {});
    server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    root.daemon = Some(server.spawn()?);
    until("the daemon serves", || root.process().is_ok())?;
    let former = root.process()?;
    ensure!(root.calls()?.is_empty(), "nothing of the package ran");
    let said = root.dpkg(&["--install"], Some(second))?;
    let next = root.process()?;
    ensure!(next != former, "the daemon is the former process: {said}");
    let wanted = format!("process {next} (version ");
    ensure!(said.contains(&wanted) && said.contains(&format!("process {former}")), "{said}");
    TcpStream::connect(("127.0.0.1", PORT)).context("the daemon serves no more")?;
    // The former process has no streams, so it ends. The new one is its child, and lives on.
    let daemon = root.daemon.as_mut().context("started above")?;
    until("the former process ends", || matches!(daemon.try_wait(), Ok(Some(_))))?;
    ensure!(root.process()? == next, "another process answers");
    let calls = root.calls()?;
    ensure!(calls == SET_UP, "no unit is restarted: {calls:?}");
    Ok(())
}

fn hindered(root: &mut Root, [first, _]: [&Path; 2]) -> Result<()> {
    let before = root.process()?;
    let file = root.path.join("etc/tunnel/main.yaml");
    fs::write(&file, "listen: nonsense\n")?;
    let said = root.dpkg(&["--install"], Some(first))?;
    ensure!(said.contains("restart the remaining daemons"), "{said}");
    ensure!(said.contains("main.yaml"), "the reason is missing: {said}");
    ensure!(root.process()? == before, "the daemon was replaced");
    let state = root.dpkg(&["--status", "tunnel"], None)?;
    ensure!(state.contains("Status: install ok installed"), "{state}");
    fs::write(file, CONFIGURATION)?;
    root.calls().map(drop)
}

fn removed(root: &mut Root, _: [&Path; 2]) -> Result<()> {
    let enabled = root.path.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&enabled)?;
    let unit = "/usr/lib/systemd/system/tunnel-server@.service";
    symlink(unit, enabled.join("tunnel-server@main.service"))?;
    symlink("/usr/lib/systemd/system/other.service", enabled.join("other.service"))?;
    root.dpkg(&["--remove", "tunnel"], None)?;
    let calls = root.calls()?;
    let wanted = [
        "systemctl stop tunnel-server@*.service tunnel-client@*.service tunnel-proxy@*.service",
        "systemctl --system daemon-reload",
    ];
    ensure!(calls == wanted, "{calls:?}");
    for gone in ["usr/bin/tunnel", "usr/lib/sysctl.d", "usr/share/doc/tunnel"] {
        ensure!(!root.exists(gone), "{gone} is left");
    }
    let kept = ["etc/tunnel/main.yaml", "var/lib/private/tunnel/main", "var/lib/tunnel/main"];
    for kept in kept {
        ensure!(root.exists(kept), "{kept} is gone");
    }
    ensure!(fs::read_dir(enabled)?.count() == 2, "an instance is not enabled any more");
    Ok(())
}

fn purged(root: &mut Root, _: [&Path; 2]) -> Result<()> {
    fs::create_dir_all(root.path.join("etc/tunnel/keys"))?;
    let said = root.dpkg(&["--purge", "tunnel"], None)?;
    ensure!(said.contains("/etc/tunnel is not empty"), "{said}");
    for gone in [
        "var/lib/private/tunnel",
        "var/lib/tunnel",
        "etc/tunnel/keys",
        "etc/systemd/system/multi-user.target.wants/tunnel-server@main.service",
    ] {
        ensure!(!root.exists(gone), "{gone} is left");
    }
    for kept in ["etc/tunnel/main.yaml", "etc/systemd/system/multi-user.target.wants/other.service"]
    {
        ensure!(root.exists(kept), "{kept} is gone");
    }
    let calls = root.calls()?;
    ensure!(calls == ["systemctl --system daemon-reload"], "{calls:?}");
    Ok(())
}

/// The client of an image. Nobody answers with this pin.
const CLIENT: &str = "\
servers: tls://127.0.0.1:7000
name: home
token: ${TOKEN}
tls: { pin: \"sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\" }
services: [{ name: ssh, target: \"tcp://127.0.0.1:22\", public: \"tcp://:10022\" }]
";

/// Unpacks the image of the server by its own documents, checks each sum, and runs what it says.
fn images(work: &Path, packages: &Path) -> Result<()> {
    for (role, configuration) in [
        // The daemon of the package still runs.
        ("server", "listen: tls://127.0.0.1:7001\n"),
        ("client", CLIENT),
    ] {
        let archive = fs::read_dir(packages)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.to_string_lossy().contains(&format!("/tunnel-{role}-")))
            .context("no image")?;
        let (layout, root) = (work.join(role), work.join(format!("{role}-root")));
        fs::create_dir_all(&layout)?;
        fs::create_dir_all(&root)?;
        printed(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&layout))?;
        let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
        let manifest: Value = serde_json::from_slice(&blob(&layout, &index["manifests"][0])?)?;
        let config: Value = serde_json::from_slice(&blob(&layout, &manifest["config"])?)?;
        let layer = work.join("layer.tar.gz");
        fs::write(&layer, blob(&layout, &manifest["layers"][0])?)?;
        let tar = printed(Command::new("gzip").arg("-dc").arg(&layer))?;
        ensure!(config["rootfs"]["diff_ids"][0] == format!("sha256:{}", sha256(&tar)?));
        printed(
            Command::new("tar").args(["--same-owner", "-xzf"]).arg(&layer).arg("-C").arg(&root),
        )?;
        fs::create_dir(root.join("etc"))?;
        fs::write(root.join("etc/tunnel.yaml"), configuration)?;
        run_image(&root, &config["config"])?;
    }
    Ok(())
}

/// The content that a descriptor names, with its sum checked.
fn blob(layout: &Path, descriptor: &Value) -> Result<Vec<u8>> {
    let digest = descriptor["digest"].as_str().context("a digest")?;
    let sum = digest.strip_prefix("sha256:").context("a sum of SHA-256")?;
    let bytes = fs::read(layout.join("blobs/sha256").join(sum))?;
    ensure!(sha256(&bytes)? == sum, "{digest} has other bytes");
    ensure!(descriptor["size"] == bytes.len(), "{digest} has another size");
    Ok(bytes)
}

/// Runs an image as its document says, and ends it by its signal.
fn run_image(root: &Path, config: &Value) -> Result<()> {
    let words = |key: &str| -> Vec<String> {
        let list = config[key].as_array().into_iter().flatten();
        list.filter_map(|word| Some(word.as_str()?.to_owned())).collect()
    };
    let user = config["User"].as_str().context("a user")?;
    let mut daemon = chroot();
    daemon.arg(format!("--userspec={user}")).arg(root).args(words("Entrypoint")).args(words("Cmd"));
    daemon.env_clear().env("TOKEN", "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi");
    for variable in words("Env") {
        let (name, value) = variable.split_once('=').context("NAME=VALUE")?;
        daemon.env(name, value);
    }
    let log = root.with_extension("log");
    let file = fs::File::create(&log)?;
    daemon.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut daemon = daemon.spawn()?;
    let said = || fs::read_to_string(&log).unwrap_or_default();
    // The client has nobody to reach, and says so.
    let serves = || said().contains("listening for clients") || said().contains("client home has");
    let up = until("the image serves", || serves() || matches!(daemon.try_wait(), Ok(Some(_))));
    ensure!(up.is_ok() && serves(), "{}", said());
    let state = fs::metadata(root.join("state/tunnel"))?;
    ensure!(state.uid() == 65532, "the state belongs to {}", state.uid());
    printed(Command::new("kill").args(["-TERM", &daemon.id().to_string()]))?;
    let mut status = None;
    until("the image ends", || {
        status = daemon.try_wait().unwrap_or_default();
        status.is_some()
    })?;
    ensure!(status.is_some_and(|status| status.success()), "{status:?}: {}", said());
    Ok(())
}
