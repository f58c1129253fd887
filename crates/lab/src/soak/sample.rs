//! The resources of both daemons at a moment.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testkit::stage::Running;

/// The resources of one daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// Resident bytes, without pages that are only mapped from files.
    pub(super) resident: u64,
    pub(super) descriptors: u64,
    pub(super) tasks: u64,
    pub(super) streams: u64,
}

/// The resources of both daemons, `at` after the start of the churn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Both {
    pub(super) at: Duration,
    pub(super) server: Sample,
    pub(super) client: Sample,
}

impl Both {
    /// Takes a sample now. The error names a daemon that has ended.
    pub(super) fn of(running: &mut Running, at: Duration) -> Result<Self> {
        let statuses = ["server", "client"].map(|role| running.status(role));
        let [server, client] = statuses;
        ensure!(running.server.is_running(), "the server has ended by itself");
        ensure!(running.client().is_running(), "the client has ended by itself");
        let server = server.context("the server does not answer `tunnel status`")?;
        let client = client.context("the client does not answer `tunnel status`")?;
        let sizes = |resident, descriptors, status: &Value| Sample {
            resident,
            descriptors,
            tasks: status["tasks"].as_u64().unwrap_or(0),
            streams: streams(status),
        };
        let daemon = &running.server;
        let server = sizes(daemon.resident(), daemon.descriptors(), &server);
        let daemon = running.client();
        let client = sizes(daemon.resident(), daemon.descriptors(), &client);
        ensure!(server.tasks > 0 && client.tasks > 0, "`tunnel status` counts no tasks");
        Ok(Self { at, server, client })
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.server.streams == 0 && self.client.streams == 0
    }
}

fn streams(status: &Value) -> u64 {
    let sessions = status["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    let links = sessions.iter().filter_map(|session| session["links"].as_array()).flatten();
    links.filter_map(|link| link["streams"].as_u64()).sum()
}
