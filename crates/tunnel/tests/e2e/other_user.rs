//! A command of a user who may not command the daemon says whose the daemon is, and which command
//! works. As root the test runs the command as another user. Another user cannot do that, and runs
//! the command as itself against folders and sockets that it has locked for itself.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use rustix::process::geteuid;

use crate::harness::{binary, run};

/// A user of no file of this machine, as systemd's `DynamicUser` has it.
const STRANGER: &str = "61234";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

struct Stage {
    dir: tempfile::TempDir,
    /// The name of the user to whom everything belongs.
    owner: String,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o755);
        // The folder of the built binary may be closed to other users.
        fs::copy(binary(), dir.path().join("tunnel")).unwrap();
        let owner = String::from_utf8(run(Command::new("id").arg("-un")).stdout).unwrap();
        Self { dir, owner: owner.trim().to_owned() }
    }

    /// What the command answers to the other user, who looks for daemons in `runtime` first.
    fn said(&self, runtime: &Path, arguments: &[&str]) -> String {
        let program = self.dir.path().join("tunnel");
        let mut command = Command::new("setpriv");
        if geteuid().is_root() {
            command.args(["--reuid", STRANGER, "--regid", STRANGER, "--clear-groups"]);
        }
        command.arg(program).args(arguments);
        for name in ["RUNTIME_DIRECTORY", "STATE_DIRECTORY", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
        command.env("HOME", self.dir.path()).env("XDG_RUNTIME_DIR", runtime);
        let output = run(&mut command);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        said
    }
}

#[test]
fn a_socket_or_folder_of_another_user_is_told_with_its_owner_and_the_command_that_works() {
    let stage = Stage::new();
    let owner = &stage.owner;
    let place = |name: &str| {
        let runtime = stage.dir.path().join(name);
        fs::create_dir_all(runtime.join("tunnel")).unwrap();
        runtime
    };

    // A socket of mode 0600 in a folder that everybody may enter. Root may connect to any socket,
    // and the owner of a socket has no access to it without its own permission bits.
    let runtime = place("socket");
    let socket = runtime.join("tunnel/server.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    set_mode(&socket, if geteuid().is_root() { 0o600 } else { 0 });
    let denied = format!("no permission for {} (it belongs to {owner}); try: ", socket.display());
    for arguments in [&["status"][..], &["streams"], &["reload"], &["ping", "-c", "1"], &["stop"]] {
        let said = stage.said(&runtime, arguments);
        let command = format!("{denied}sudo tunnel {}", arguments.join(" "));
        assert!(said.contains(&command), "{said}");
        assert!(!said.contains("no running tunnel"), "{said}");
    }
    let path = socket.to_str().unwrap();
    let said = stage.said(&runtime, &["status", "--control", path]);
    assert!(said.contains(&format!("{denied}sudo tunnel status --control {path}")), "{said}");

    // A folder of mode 0700, as `/run/tunnel` is where root starts a daemon.
    let runtime = place("folder");
    let folder = runtime.join("tunnel");
    let socket = folder.join("server.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let locked = if geteuid().is_root() { 0o700 } else { 0 };
    set_mode(&folder, locked);
    let said = stage.said(&runtime, &["status"]);
    let denied = format!(
        "no permission for {} (it belongs to {owner}), where a tunnel may run; \
         try: sudo tunnel status",
        folder.display()
    );
    assert!(said.contains(&denied), "{said}");
    let said = stage.said(&runtime, &["status", "--control", socket.to_str().unwrap()]);
    let denied = format!(
        "no permission for {} ({} belongs to {owner}); try: ",
        socket.display(),
        folder.display()
    );
    assert!(said.contains(&denied), "{said}");
    set_mode(&folder, 0o700);

    // A folder of one daemon in the folder of all, as systemd makes it for an instance.
    let runtime = place("systemd");
    let folder = runtime.join("tunnel/home");
    fs::create_dir(&folder).unwrap();
    let _listener = UnixListener::bind(folder.join("server.sock")).unwrap();
    set_mode(&folder, locked);
    let whose = if geteuid().is_root() {
        std::os::unix::fs::chown(&folder, Some(61_235), Some(61_235)).unwrap();
        "user 61235"
    } else {
        owner
    };
    let said = stage.said(&runtime, &["status"]);
    let denied = format!("no permission for {} (it belongs to {whose})", folder.display());
    assert!(said.contains(&denied), "{said}");
    set_mode(&folder, 0o700);
}
