//! `tunnel upgrade` where the new process cannot do what the former one does: a full disk, a state
//! directory that cannot be written, broken certificates. The former process goes on, the error
//! says why, and the upgrade succeeds once the reason is gone.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FlockOperation, flock};
use testkit::stage::Running;

use crate::harness::{Origin, SOON, Scheme, Setup, program, run, tunnel};
use crate::upgrade::{Ended, Load, no_former, pid, upgrade, upgraded};

/// Makes a small disk at `$1` in a mount namespace of the daemon, which the daemon begins with.
const ON_A_SMALL_DISK: &str =
    "mount -t tmpfs -o size=256k,mode=700 none \"$1\" && shift && exec \"$@\"";

/// The words that start a daemon with a small disk at this folder. `None`: this machine permits no
/// mount.
fn small_disk(at: &Path) -> Option<Vec<std::ffi::OsString>> {
    fs::create_dir_all(at).unwrap();
    let words =
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", ON_A_SMALL_DISK, "sh"];
    let mut words: Vec<std::ffi::OsString> = words.map(Into::into).into();
    words.push(at.into());
    let mut trial = Command::new(program("unshare"));
    let trial = run(trial.args(&words[1..]).arg("true"));
    if trial.status.success() {
        return Some(words);
    }
    let reason = String::from_utf8_lossy(&trial.stderr).into_owned();
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    println!("not shown here: {reason}");
    None
}

/// A server under load.
struct Served {
    /// Dropped first: the socket lies in the folder of `running`.
    _ended: Ended,
    running: Running,
    load: Load,
    socket: PathBuf,
}

impl Served {
    fn start(setup: Setup) -> Self {
        let running = setup.start();
        let socket = running.file("server.sock");
        running.wait_echo(running.public("a"));
        let load = Load::start(running.public("a"));
        load.goes_on();
        Self { _ended: Ended(socket.clone()), running, load, socket }
    }

    /// Asks for an upgrade, which fails for a reason with these words and changes nothing.
    fn fails(&mut self, words: &[&str]) {
        let output = upgrade(&self.socket, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("goes on as before"), "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
        self.running.server.wait_line(&[&["not upgraded"], words].concat(), SOON);
        self.load.goes_on();
        assert!(self.running.server.is_running());
        assert_eq!(pid(&self.running, "server"), self.running.server.id());
    }

    /// The upgrade succeeds, under the same load.
    fn succeeds(self) {
        let (former, next) = upgraded(&self.socket);
        assert_eq!(former, self.running.server.id());
        self.load.goes_on();
        assert_eq!(pid(&self.running, "server"), next);
        self.load.end();
        no_former(&self.socket);
    }
}

fn setup(echo: &Origin) -> Setup {
    Setup::new(Scheme::TLS).service("a", echo.port())
}

#[test]
fn a_full_disk_and_a_disk_that_is_read_only_refuse_the_upgrade_of_a_server() {
    let echo = Origin::echo();
    let mut setup = setup(&echo);
    let state = setup.dir().join("state");
    let Some(starter) = small_disk(&state) else { return };
    setup.server_starter = starter;
    let mut served = Served::start(setup);
    let process = served.running.server.id();
    // The daemon's view of its disk.
    let seen = PathBuf::from(format!("/proc/{process}/root{}", state.display()));
    let mut full = fs::File::create(seen.join("full")).unwrap();
    while full.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
    served.fails(&[state.to_str().unwrap(), "No space left on device"]);
    // The lock names the process that has it.
    let owner = fs::read_to_string(seen.join("lock")).unwrap();
    assert_eq!(owner.trim(), process.to_string());
    drop(full);
    fs::remove_file(seen.join("full")).unwrap();

    let mount = |script: &str| {
        let mut mount = Command::new(program("nsenter"));
        mount.args(["--mount", "--target", &process.to_string(), "sh", "-ec", script, "sh"]);
        let output = run(mount.arg(&state));
        assert!(output.status.success(), "{output:?}");
    };
    // Beside the lock that is open for writing nothing but another mount can be read-only.
    mount("mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\"");
    served.fails(&[state.to_str().unwrap(), "Read-only file system"]);
    mount("umount \"$1\"");
    served.succeeds();
}

#[test]
fn a_state_directory_that_others_can_write_refuses_the_upgrade_and_its_lock_stays() {
    use std::os::unix::fs::PermissionsExt as _;
    let echo = Origin::echo();
    let setup = setup(&echo);
    let state = setup.dir().join("state");
    let mut served = Served::start(setup);
    let mode = |mode| fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    served.fails(&[state.to_str().unwrap(), "state directory"]);
    mode(0o700);
    // The end of the new process has not released the lock of the former one.
    let lock = fs::File::open(state.join("lock")).unwrap();
    assert!(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err());
    served.succeeds();
}

#[test]
fn broken_certificates_refuse_the_upgrade_of_a_server() {
    let echo = Origin::echo();
    let mut setup = setup(&echo);
    let folder = setup.dir().join("certs");
    let made =
        run(tunnel(&["generate", "certs", "--server", "127.0.0.1", "--output"]).arg(&folder));
    assert!(made.status.success(), "{made:?}");
    let [cert, key] = ["server.crt", "server.key"].map(|name| folder.join(name));
    setup.server_lines = format!("tls: {{ cert: {}, key: {} }}\n", cert.display(), key.display());
    setup.client_tls = Some(format!("{{ ca: {} }}", folder.join("ca.crt").display()));
    let mut served = Served::start(setup);
    let good = [&cert, &key].map(|path| fs::read_to_string(path).unwrap());
    let restore = || {
        fs::write(&cert, &good[0]).unwrap();
        fs::write(&key, &good[1]).unwrap();
    };
    let named = [&cert, &key].map(|path| path.to_str().unwrap().to_owned());

    // A certificate that a full disk has cut, an empty key, and the key of another certificate.
    fs::write(&cert, &good[0][..good[0].len() / 2]).unwrap();
    served.fails(&[&named[0]]);
    restore();
    fs::write(&key, "").unwrap();
    served.fails(&[&named[1]]);
    restore();
    let other = folder.join("other");
    let made = run(tunnel(&["generate", "certs", "--server", "127.0.0.1", "--output"]).arg(&other));
    assert!(made.status.success(), "{made:?}");
    fs::copy(other.join("server.key"), &key).unwrap();
    served.fails(&["key"]);
    restore();
    served.succeeds();
}

#[test]
fn a_broken_key_of_the_server_s_own_making_is_not_replaced_by_an_upgrade() {
    let echo = Origin::echo();
    let setup = setup(&echo);
    let state = setup.dir().join("state");
    let mut served = Served::start(setup);
    let keys: Vec<PathBuf> = fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("PRIVATE KEY")))
        .collect();
    let [key] = keys.as_slice() else { panic!("{keys:?}") };
    let good = fs::read_to_string(key).unwrap();
    // Cut, as a full disk leaves a file.
    for text in ["", &good[..good.len() / 2]] {
        fs::write(key, text).unwrap();
        served.fails(&[key.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(key).unwrap(), *text, "a new key would be another pin");
    }
    fs::write(key, &good).unwrap();
    served.succeeds();
}

#[test]
fn a_broken_authority_refuses_the_upgrade_of_a_client() {
    let echo = Origin::echo();
    let mut setup = setup(&echo);
    let folder = setup.dir().join("certs");
    let made =
        run(tunnel(&["generate", "certs", "--server", "127.0.0.1", "--output"]).arg(&folder));
    assert!(made.status.success(), "{made:?}");
    let [cert, key] = ["server.crt", "server.key"].map(|name| folder.join(name));
    setup.server_lines = format!("tls: {{ cert: {}, key: {} }}\n", cert.display(), key.display());
    let ca = folder.join("ca.crt");
    setup.client_tls = Some(format!("{{ ca: {} }}", ca.display()));
    let mut running = setup.start();
    let socket = running.file("client.sock");
    let _ended = Ended(socket.clone());
    running.wait_echo(running.public("a"));
    let load = Load::start(running.public("a"));
    load.goes_on();
    let good = fs::read_to_string(&ca).unwrap();
    for text in [
        "",
        &good[..good.len() / 2],
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        fs::write(&ca, text).unwrap();
        let output = upgrade(&socket, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("goes on as before") && said.contains(ca.to_str().unwrap()),
            "{said}"
        );
        load.goes_on();
        assert!(running.client().is_running());
    }
    fs::write(&ca, good).unwrap();
    upgraded(&socket);
    load.goes_on();
    load.end();
    no_former(&socket);
}
