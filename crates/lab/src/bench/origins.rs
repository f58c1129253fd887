//! The origins of a run: programs that serve the load, at the far end of every system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use testkit::stage::{Daemon, Iperf3, Nginx, SOON, free_port, wait_listening};

use super::case::{Case, DOWNLOAD, Load};
use crate::systems::{Origin, UDP, WEB};

/// One nginx, one iperf3 and a `load origin` of each kind, as far as the cases need them.
#[derive(Debug)]
pub(crate) struct Origins {
    dir: PathBuf,
    web: Option<Nginx>,
    iperf: Option<Iperf3>,
    /// Name, port and process.
    ours: Vec<(&'static str, u16, Daemon)>,
}

impl Origins {
    /// Starts the origins that these cases need. Logs and files go to `dir`.
    pub(crate) fn start(dir: &Path, load: &Path, cases: &[&Case]) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let wanted = |of: fn(Load) -> bool| cases.iter().any(|case| of(case.load));
        let web =
            wanted(|load| matches!(load, Load::Http(_) | Load::Streams(_) | Load::Downloads(_)))
                .then(|| Nginx::start(dir, "location = / { return 200 \"ok\\n\"; } sendfile on;"));
        if web.is_some() && wanted(|load| matches!(load, Load::Downloads(_))) {
            let file = dir.join("www/download");
            let answer = vec![0; DOWNLOAD];
            fs::write(&file, answer).with_context(|| format!("writing {}", file.display()))?;
        }
        let iperf = wanted(|load| matches!(load, Load::Bulk { .. })).then(|| Iperf3::start(dir));
        let beside = wanted(|load| load == Load::EchoBesideBulk);
        let bulk = beside || wanted(|load| matches!(load, Load::Forward { .. }));
        let udp = wanted(|load| matches!(load, Load::Datagrams(_)));
        let echo = beside
            || wanted(|load| matches!(load, Load::Connections | Load::Idle(_) | Load::Storm(_)));
        let mut ours = Vec::new();
        for (kind, wanted) in [("echo", echo), ("sink", bulk), ("source", bulk), (UDP, udp)] {
            if wanted {
                let port = free_port();
                let mut command = Command::new(load);
                command.args(["origin", kind, "--listen", &format!("127.0.0.1:{port}")]);
                ours.push((kind, port, Daemon::start(kind, dir, &mut command)));
                wait_listening(port, SOON);
            }
        }
        Ok(Self { dir: dir.to_owned(), web, iperf, ours })
    }

    /// The origins as the systems take them. Only cases of datagrams have that of datagrams: an
    /// older `tunnel` may not know them.
    pub(crate) fn list(&self, case: &Case) -> Vec<Origin> {
        let has_udp = matches!(case.load, Load::Datagrams(_));
        let web = self.web.as_ref().map(|nginx| (WEB, nginx.port));
        let iperf = self.iperf.as_ref().map(|iperf| ("iperf", iperf.port));
        let ours = self.ours.iter().map(|(name, port, _)| (*name, *port));
        let all = web.into_iter().chain(iperf).chain(ours);
        let all = all.filter(|(name, _)| *name != UDP || has_udp);
        all.map(|(name, port)| Origin { name, address: ([127, 0, 0, 1], port).into() }).collect()
    }

    /// Restarts iperf3 after an error: it serves one client at a time, and a client that was cut
    /// off can block the next one.
    pub(crate) fn mend(&mut self) {
        if let Some(iperf) = self.iperf.take() {
            let port = iperf.port;
            // End the old server before the start of the new one: they share the port.
            drop(iperf);
            self.iperf = Some(Iperf3::start_on(&self.dir, port));
        }
    }
}
