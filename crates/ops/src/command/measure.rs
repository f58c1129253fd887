//! Measurements of links and networks.

use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::context::{Context, News, PATIENCE, within};
use super::contract::{About, Command};
use super::form::{Form, Misread};
use super::route::{Given, get, post};
use crate::measure::{self, LONGEST, PATIENCE_MAX, Speed};
use crate::nat::NatReport;
use crate::role::Role;

/// The default timeout of a ping in the API, in milliseconds, as in `tunnel ping`.
const PING_MILLIS: &str = "2000";

/// The error of a speed test at a server.
const NO_SPEED_TEST: &str =
    "this is a server; a client tests the speed: run it where `tunnel client` runs";

/// The error of a server that is queried for its NAT.
const NO_NAT: &str = "this is a server; a client asks what stands between it and other clients: run \
                      it where `tunnel client` runs";

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Measures one round trip over every link.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PingLinks {
    pub timeout_millis: u64,
}

impl PingLinks {
    /// A ping that waits for its answers at most as long as `patience`.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        Self { timeout_millis: millis(patience) }
    }
}

impl Command for PingLinks {
    const ABOUT: About = About::new("ping", "pong")
        .help("Measure round trips over every link of a running client or server")
        .routes(&[get("/ping").query("timeout_millis=2000, where timeout_millis is a number")]);
    type Answer = measure::Ping;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<measure::Ping> {
        let meter = cx.daemon.meter().context("nothing to measure here")?;
        let patience = Duration::from_millis(self.timeout_millis).min(PATIENCE_MAX);
        Ok(within(patience + PATIENCE, meter.ping(patience)).await?)
    }

    fn read(mut given: Given<'_>) -> Result<Self, Misread> {
        let read: Self = given.read_or("timeout_millis", PING_MILLIS)?;
        let most = millis(PATIENCE_MAX);
        if read.timeout_millis > most {
            return Err(Misread::Query(format!("timeout_millis: at most {most}")));
        }
        Ok(read)
    }
}

/// Measures the throughput of the tunnel, for a time in each direction. The messages before the
/// answer are [`News::Progress`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TestSpeed {
    pub millis: u64,
}

impl TestSpeed {
    /// A test that lasts `span` in each direction.
    #[must_use]
    pub fn lasting(span: Duration) -> Self {
        Self { millis: millis(span) }
    }
}

impl Command for TestSpeed {
    const ABOUT: About = About::new("speedtest", "speed")
        .help(
            "Measure the throughput of a running client's tunnel in both directions, and name the \
             limit",
        )
        .routes(&[post("/speedtest").body(Form::object(r#"{"millis":5000}"#, &["millis"]))]);
    type Answer = Speed;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<Speed> {
        let test = cx.daemon.speed_test().context(NO_SPEED_TEST)?;
        let span = Duration::from_millis(self.millis).min(LONGEST);
        let (sender, mut inbox) = mpsc::channel(1);
        let mut test = test.run(span, sender);
        loop {
            tokio::select! {
                outcome = &mut test => return outcome.map_err(anyhow::Error::msg),
                Some(progress) = inbox.recv() => {
                    // A slow reader misses progress messages, but does not slow the test down.
                    let _ = cx.news.try_send(News::Progress(progress));
                }
                () = cx.news.closed() => anyhow::bail!("nobody waits for the result"),
            }
        }
    }
}

/// Queries STUN servers for the NATs and firewalls between a client and other clients.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ProbeNat {}

impl Command for ProbeNat {
    const ABOUT: About = About::new("nat", "nat")
        .of(&[Role::Client])
        .help(
            "Show what stands between a running client and other clients: whether UDP passes, the \
             kind of NAT, and with which peers to expect a direct path",
        )
        .routes(&[get("/nat")]);
    type Answer = NatReport;

    async fn run(&self, cx: &Context<'_>) -> anyhow::Result<NatReport> {
        let probe = cx.daemon.nat_probe().context(NO_NAT)?;
        within(PATIENCE + PATIENCE, probe.probe()).await?
    }
}
