//! A client whose programs read at the left end, over a forward, from a source at the right end:
//! over one or several paths and transports.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path as File, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testkit::stage::{Daemon, Scheme, run, tunnel};

use super::ends::{Ends, ORIGIN, PATHS};
use super::path::Path;
use super::stream::{fresh, wait};
use super::systems::start;
use super::wire::Wire;

/// The port of the client's forward at the left end, and the first port of the server.
const FORWARD: u16 = 9100;
const SERVER: u16 = 7000;

/// The bytes of each write of the source.
const WRITE: u32 = 64 << 10;

/// The longest wait of a reader for bytes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time until each link has its standby.
const STANDBY: Duration = Duration::from_secs(1);

/// A connection over the forward to the source, which sends at once.
pub(super) fn read_from_source() -> Result<TcpStream> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, FORWARD))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&WRITE.to_be_bytes())?;
    Ok(stream)
}

/// Reads this number of bytes over a new connection.
pub(super) fn load(bytes: usize) -> Result<()> {
    let mut stream = read_from_source()?;
    let (mut block, mut left) = (vec![0; 64 << 10], bytes);
    while left > 0 {
        let count = stream.read(&mut block)?;
        ensure!(count > 0, "the stream ended {left} bytes early");
        left = left.saturating_sub(count);
    }
    Ok(())
}

/// The daemons, the wire and the source.
pub(super) struct Stage<'a> {
    pub(super) ends: &'a Ends,
    pub(super) wire: Wire,
    dir: PathBuf,
    binary: &'a File,
    urls: Vec<String>,
    _daemons: Vec<Daemon>,
}

impl<'a> Stage<'a> {
    /// A client whose paths have these transports and numbers of paths of the wire, with these
    /// lines.
    pub(super) fn start(
        ends: &'a Ends,
        path: &Path,
        paths: &[(Scheme, usize)],
        lines: &str,
        dir: &File,
        (binary, load): (&'a File, &File),
    ) -> Result<Self> {
        let dir = dir.join("run");
        fresh(&dir)?;
        let weathers = vec![path.weather(); PATHS.into()];
        let wire = Wire::with_paths(ends, weathers, path.mtu, path.seed)?;
        let mut origin = ends.right.command(load);
        origin.args(["origin", "source", "--listen", &format!("127.0.0.1:{ORIGIN}")]);
        let origin = Daemon::start("origin", &dir, &mut origin);
        wait(|| ends.right.listens(ORIGIN)).context("the source does not listen")?;
        let output = run(&mut tunnel(binary, &["generate", "token"]));
        ensure!(output.status.success(), "tunnel generate token: {output:?}");
        let token = String::from_utf8(output.stdout)?;
        let (token, place) = (token.trim(), dir.display());
        let hosts: Vec<_> = (0..PATHS.into())
            .map(|path| Ok(ends.right.address_on(path)?.to_string()))
            .collect::<Result<_>>()?;
        let mut certs = tunnel(binary, &["generate", "certs", "--output", &place.to_string()]);
        certs.args(hosts.iter().flat_map(|host| ["--server", host]));
        let output = run(&mut certs);
        ensure!(output.status.success(), "tunnel generate certs: {output:?}");
        let url = |(port, (scheme, path)): (u16, &(Scheme, usize))| {
            let host = hosts.get(*path).context("no such path")?;
            Ok(format!("{}://{host}:{port}", scheme.name))
        };
        let urls: Vec<_> = (SERVER..).zip(paths).map(url).collect::<Result<_>>()?;
        let listen: Vec<_> = urls.iter().map(|url| format!("\"{url}\"")).collect();
        let listen = listen.join(", ");
        let own = |role: &str| {
            format!(
                "state_dir: {place}/state-{role}\ncontrol: {place}/{role}.sock\nworkers: 1\n\
                 log: {{ level: info }}\n"
            )
        };
        let server = format!(
            "listen: [{listen}]\n{}tls: {{ cert: {place}/server.crt, key: {place}/server.key }}\n\
             clients: [{{ name: home, token: \"{token}\", allow: {{ forward: [\"127.0.0.1:{ORIGIN}\"] }} }}]\n",
            own("server"),
        );
        let client = format!(
            "servers: [{listen}]\nname: home\ntoken: \"{token}\"\ntls: {{ ca: {place}/ca.crt }}\n{}{lines}\
             forwards: [{{ listen: \"tcp://127.0.0.1:{FORWARD}\", target: \"tcp://127.0.0.1:{ORIGIN}\" }}]\n",
            own("client"),
        );
        let server = start(&ends.right, ("server", "server"), &dir, binary, &server)?;
        let last = SERVER + paths.len() as u16 - 1;
        let is_up = |port: u16| ends.right.listeners().contains(&port);
        wait(|| (SERVER..=last).all(is_up)).context("the server does not listen")?;
        let client = start(&ends.left, ("client", "client"), &dir, binary, &client)?;
        wait(|| ends.left.listens(FORWARD)).context("the client does not listen")?;
        let _daemons = vec![client, server, origin];
        let stage = Self { ends, wire, dir, binary, urls, _daemons };
        sleep(STANDBY);
        Ok(stage)
    }

    /// Moves the links to the nth path.
    pub(super) fn move_to(&self, path: usize) -> Result<()> {
        let mut command = tunnel(self.binary, &["move", "--control"]);
        let url = self.urls.get(path).context("no such path")?;
        let output = run(command.arg(self.dir.join("client.sock")).args(["--to", url]));
        ensure!(output.status.success(), "tunnel move: {output:?}");
        Ok(())
    }
}
