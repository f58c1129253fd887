//! Third-party software: nginx, iperf3, sshd, faketime.

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{Daemon, SOON, free_port, run, wait, wait_listening};

/// The path of a program; some daemons are in folders outside the user's `PATH`.
pub fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("install {name} (cargo xtask test does it)"))
}

/// Writes a program that a test calls, which only its owner may run. Another process writes it: a
/// child process of a concurrent test briefly has all open files of this process, and a file that
/// is open for writing cannot be executed (ETXTBSY, execve(2)).
pub fn write_program(path: &Path, text: &str) {
    let mut install = Command::new(program("install"));
    install.args(["-m", "700", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{}: {status}", path.display());
}

/// An nginx in the foreground with one worker.
#[derive(Debug)]
pub struct Nginx {
    pub port: u16,
    process: Daemon,
}

impl Nginx {
    /// Starts nginx. `locations` is inserted into the only server block; the document root is
    /// `dir/www`.
    pub fn start(dir: &Path, locations: &str) -> Self {
        let port = free_port();
        let www = dir.join("www");
        fs::create_dir_all(&www).unwrap();
        fs::write(www.join("small"), "hello from nginx\n").unwrap();
        let (dir_text, www) = (dir.display(), www.display());
        let conf = format!(
            "worker_processes 1; worker_rlimit_nofile 20000; error_log stderr error;\n\
             events {{ worker_connections 19500; }}\n\
             http {{\n\
               access_log off; keepalive_requests 100000000; keepalive_timeout 600s;\n\
               client_header_timeout 600s; client_max_body_size 1g;\n\
               client_body_temp_path {dir_text}/body; proxy_temp_path {dir_text}/proxy;\n\
               fastcgi_temp_path {dir_text}/fastcgi; uwsgi_temp_path {dir_text}/uwsgi;\n\
               scgi_temp_path {dir_text}/scgi;\n\
               server {{ listen 127.0.0.1:{port} backlog=4096; root {www};\n\
                 location = /status {{ stub_status; }}\n\
                 {locations}\n\
               }}\n\
             }}\n"
        );
        Self::start_with(dir, &conf, port)
    }

    /// Starts nginx with this configuration, which listens on `port` of 127.0.0.1.
    pub fn start_with(dir: &Path, conf: &str, port: u16) -> Self {
        let file = dir.join("nginx.conf");
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let pid = dir.join("nginx.pid");
        fs::write(&file, format!("{user} daemon off; pid {};\n{conf}", pid.display())).unwrap();
        let mut command = Command::new(program("nginx"));
        command.arg("-p").arg(dir).arg("-e").arg("stderr").arg("-c").arg(&file);
        let process = Daemon::start("nginx", dir, &mut command);
        wait_listening(port, SOON);
        Self { port, process }
    }

    /// `nginx -s reload`: starts new workers with the file's current content. The old workers end
    /// their connections when nginx requests it.
    pub fn reload(&self) {
        self.process.signal(Signal::HUP);
    }
}

impl Drop for Nginx {
    /// The master ends its worker. A killed master could not do so.
    fn drop(&mut self) {
        if self.process.is_running() {
            self.process.terminate();
            self.process.wait_end(SOON);
        }
    }
}

/// The wall clock of a process and its children, changed while they run. Monotonic clocks stay as
/// they are, as on a machine whose wall clock is set.
#[derive(Debug)]
pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// The right time, until [`Self::set`] changes it.
    pub fn right(dir: &Path, name: &str) -> Self {
        let clock = Self { file: dir.join(format!("{name}.clock")) };
        clock.set("+0");
        clock
    }

    /// Sets the offset from the right time: `+1h`, `-1h`.
    pub fn set(&self, offset: &str) {
        // In one step, because processes read the file all the time.
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{offset}\n")).unwrap();
        fs::rename(new, &self.file).unwrap();
    }

    /// The variables that make a process use this clock.
    pub fn env(&self) -> Vec<(&'static str, OsString)> {
        // The library is not beside a program; its folder has the name of the machine's triple.
        program("faketime");
        let library = fs::read_dir("/usr/lib").unwrap().flatten().map(|folder| folder.path());
        let library = library
            .map(|folder| folder.join("faketime/libfaketimeMT.so.1"))
            .find(|file| file.is_file())
            .expect("libfaketime comes with faketime");
        vec![
            ("LD_PRELOAD", library.into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.clone().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// `iperf3 -s` on a loopback port.
#[derive(Debug)]
pub struct Iperf3 {
    /// The port of the server.
    pub port: u16,
    server: Daemon,
}

impl Iperf3 {
    /// Starts the server on a free port.
    pub fn start(dir: &Path) -> Self {
        Self::start_on(dir, free_port())
    }

    /// Starts the server on this port.
    pub fn start_on(dir: &Path, port: u16) -> Self {
        let mut command = Command::new(program("iperf3"));
        // The log shows what the server does, and when.
        command.args(["-s", "--forceflush", "-B", "127.0.0.1", "-p", &port.to_string()]);
        let server = Daemon::start("iperf3", dir, &mut command);
        wait_listening(port, SOON);
        Self { port, server }
    }

    /// Whether it accepts a client: iperf3 serves one client at a time, and a client ends a little
    /// before the server is done with it. A refused client ends with success, and its report has an
    /// `error`.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let log = self.server.log();
        log.rfind("Server listening") > log.rfind("Accepted connection")
    }

    /// Waits until it accepts a client.
    pub fn wait_idle(&self) {
        wait("iperf3 has ended its last test", SOON, || self.is_idle().then_some(()));
    }
}

/// Starts an sshd for the user of the test, with keys made for it. Returns the port, the daemon and
/// the options that make `ssh` use the right key without questions.
pub fn start_sshd(dir: &Path) -> (u16, Daemon, Vec<String>) {
    let port = free_port();
    for key in ["host_key", "user_key"] {
        let mut command = Command::new(program("ssh-keygen"));
        command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(key));
        assert!(run(&mut command).status.success(), "{command:?}");
    }
    let text = dir.display();
    let conf = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {text}/host_key\nPidFile none\n\
         AuthorizedKeysFile {text}/user_key.pub\nStrictModes no\nPermitRootLogin yes\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n\
         Subsystem sftp internal-sftp\n"
    );
    let file = dir.join("sshd_config");
    fs::write(&file, conf).unwrap();
    if rustix::process::geteuid().is_root() {
        // Debian's sshd requires this folder; a running system makes it at boot.
        fs::create_dir_all("/run/sshd").unwrap();
    }
    // Started by its full path, because sshd executes itself again for each connection.
    let mut command = Command::new(program("sshd"));
    command.args(["-D", "-e", "-f"]).arg(&file);
    let sshd = Daemon::start("sshd", dir, &mut command);
    wait_listening(port, SOON);
    let options = [
        format!("IdentityFile={text}/user_key"),
        format!("UserKnownHostsFile={text}/known_hosts"),
        "IdentitiesOnly=yes".to_owned(),
        "StrictHostKeyChecking=no".to_owned(),
        "BatchMode=yes".to_owned(),
        "LogLevel=ERROR".to_owned(),
        "ConnectTimeout=10".to_owned(),
    ];
    let options = options.into_iter().flat_map(|option| ["-o".to_owned(), option]);
    let nowhere = ["-F".to_owned(), "/dev/null".to_owned()];
    (port, sshd, nowhere.into_iter().chain(options).collect())
}

/// A member of etcd that is alone, with its data in `dir`, and with these ports of the loopback for
/// clients and for members.
pub fn etcd(dir: &Path, [clients, members]: [u16; 2]) -> Command {
    let [clients, members] = [clients, members].map(|port| format!("http://127.0.0.1:{port}"));
    let mut command = Command::new(program("etcd"));
    // etcd reads its settings from variables as well.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.arg("--data-dir").arg(dir.join("etcd")).args(["--name", "n", "--log-level", "error"]);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &members, "--initial-advertise-peer-urls", &members]);
    command.args(["--initial-cluster", &format!("n={members}")]);
    command
}
