//! Pebble, the ACME authority for tests (RFC 8555), and the DNS server that it queries.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Daemon, SOON, free_port, program, run, wait_listening, write_program};

/// A name that pebble refuses to certify.
pub const REFUSED: &str = "refused.example.com";

/// The prefix of names that have no address. All other names have the address 127.0.0.1.
pub const NOWHERE: &str = "nowhere.";

/// A running pebble. It forgets its accounts and makes a new root at each start.
#[derive(Debug)]
pub struct Pebble {
    /// The URL of the directory.
    pub directory: String,
    port: u16,
    management: u16,
    /// The authority of the certificate that pebble presents as an HTTPS server.
    ca: PathBuf,
    process: Daemon,
}

/// The ports at 127.0.0.1 that pebble connects to for http-01 and for tls-alpn-01.
#[derive(Clone, Copy, Debug)]
pub struct CheckedPorts {
    pub http: u16,
    pub tls: u16,
}

impl Pebble {
    /// Starts pebble with its files in `dir`. `server` is the certificate and the key, both as PEM,
    /// that it presents at 127.0.0.1; `ca` is the file of their authority. Pebble rejects a fifth
    /// of all nonces, and does not cache the proof of a name.
    pub fn start(dir: &Path, server: (&str, &str), ca: &Path, checked: CheckedPorts) -> Self {
        Self::start_on(free_port(), dir, server, ca, checked)
    }

    /// As [`Self::start`], on a port of 127.0.0.1: the URL of the directory contains it.
    pub fn start_on(
        port: u16,
        dir: &Path,
        (certificate, key): (&str, &str),
        ca: &Path,
        checked: CheckedPorts,
    ) -> Self {
        let files = ["pebble.crt", "pebble.key", "pebble.json"].map(|name| dir.join(name));
        let management = free_port();
        let settings = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": files[0],
            "privateKey": files[1],
            "httpPort": checked.http,
            "tlsPort": checked.tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "domainBlocklist": [REFUSED],
        }});
        for (file, text) in files.iter().zip([certificate, key, &settings.to_string()]) {
            fs::write(file, text).unwrap();
        }
        let mut command = Command::new(program("pebble"));
        let records = dir.join("dns");
        fs::create_dir_all(&records).unwrap();
        let dns = name_server(records);
        command.arg("-config").arg(&files[2]).args(["-dnsserver", &dns]).envs([
            ("PEBBLE_VA_NOSLEEP", "1"),
            ("PEBBLE_WFE_NONCEREJECT", "20"),
            ("PEBBLE_AUTHZREUSE", "0"),
        ]);
        let process = Daemon::start("pebble", dir, &mut command);
        wait_listening(port, SOON);
        wait_listening(management, SOON);
        let directory = format!("https://127.0.0.1:{port}/dir");
        Self { directory, port, management, ca: ca.to_owned(), process }
    }

    /// Makes the program of dns-01 in `dir`, the folder of pebble: it writes and removes the TXT
    /// records that pebble's DNS server has, and appends each call to the file `calls`.
    #[must_use]
    pub fn hook(dir: &Path) -> PathBuf {
        let (program, folder) = (dir.join("dns-hook"), dir.display());
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {folder}/calls\nrecord={folder}/dns/${{2%.}}\n\
             case $1 in\npresent) echo \"$3\" >> \"$record\" ;;\ncleanup) rm \"$record\" ;;\nesac\n"
        );
        write_program(&program, &script);
        program
    }

    /// The port of the directory.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The root of the issued certificates as PEM.
    #[must_use]
    pub fn root(&self) -> String {
        let mut curl = Command::new(program("curl"));
        curl.args(["--silent", "--show-error", "--fail", "--cacert"]).arg(&self.ca);
        let output = run(curl.arg(format!("https://127.0.0.1:{}/roots/0", self.management)));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The number of orders that pebble has accepted.
    #[must_use]
    pub fn orders(&self) -> usize {
        self.process.log().matches("Added order ").count()
    }

    /// The output of pebble.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// Starts a DNS server on a port of 127.0.0.1, which answers until the process of the test ends.
/// The TXT records of a name are the lines of the file of this name in `records`.
fn name_server(records: PathBuf) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            if let Some(answer) = answer(&query[..length], &records) {
                socket.send_to(&answer, from).unwrap();
            }
        }
    });
    address
}

/// The answer to a query (RFC 1035 section 4): 127.0.0.1 for type A, the records of a file for type
/// TXT, no record for other types.
fn answer(query: &[u8], records: &Path) -> Option<Vec<u8>> {
    let (head, rest) = query.split_at_checked(12)?;
    let name_end = rest.iter().position(|&b| b == 0)? + 1;
    let question = rest.get(..name_end + 4)?;
    let first_label = question.get(1..=usize::from(question[0]))?;
    let is_known = first_label != NOWHERE.trim_end_matches('.').as_bytes();
    let is_a = is_known && question[name_end..] == [0, 1, 0, 1];
    let texts =
        if question[name_end..] == [0, 16, 0, 1] { texts(question, records) } else { vec![] };
    let mut answer = head[..2].to_vec();
    // A response with recursion, rcode 3 (no such name) for unknown names; then the four counts.
    answer.extend([0x81, if is_known { 0x80 } else { 0x83 }]);
    let count = u8::from(is_a) + u8::try_from(texts.len()).ok()?;
    answer.extend([0, 1, 0, count, 0, 0, 0, 0]);
    answer.extend(question);
    for text in texts {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 255)?;
        answer.extend([0xC0, 12, 0, 16, 0, 1, 0, 0, 0, 1, 0, length + 1, length]);
        answer.extend(text.as_bytes());
    }
    if is_a {
        // The name of the question, type A, class IN, 60 s, 4 bytes.
        answer.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}

/// The lines of the file of a question's name.
fn texts(question: &[u8], records: &Path) -> Vec<String> {
    let (mut name, mut rest) = (Vec::new(), question);
    while let Some((&length @ 1.., tail)) = rest.split_first() {
        let (label, tail) = tail.split_at(usize::from(length));
        name.push(String::from_utf8_lossy(label).to_ascii_lowercase());
        rest = tail;
    }
    let text = fs::read_to_string(records.join(name.join("."))).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
