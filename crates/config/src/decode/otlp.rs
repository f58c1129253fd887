//! `otlp`: the collector to which metrics are pushed.

use std::time::Duration;

use super::{Section, values};
use crate::keys::OTLP;
use crate::{BadValue, Collector, Otlp};

/// Default of `otlp.interval`, in milliseconds: the default of OpenTelemetry's own exporters.
const INTERVAL: u64 = 60_000;

/// Shortest interval: each push collects figures from all workers.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The port on which collectors speak gRPC by convention.
const GRPC: u16 = 4317;

pub(super) fn otlp(s: &Section<'_>) -> Option<Otlp> {
    let s = s.section("otlp", &OTLP)?;
    if s.key("endpoint").is_none() {
        s.missing("endpoint", "for example http://127.0.0.1:4318");
    }
    let interval = values::positive(&s, "interval", INTERVAL);
    if interval.is_some_and(|interval| interval.duration() < INTERVAL_MIN) {
        s.bad("interval", BadValue::new("too short").hint("1s or more"));
    }
    let headers = values::fields(&s);
    let collector: Collector = s.parse("endpoint")?;
    let item = s.key("endpoint")?;
    let doubt = |bad| s.cx.warn(item.at(), &item.path, bad);
    if collector.port == GRPC {
        let bad = BadValue::new("at 4317 collectors speak gRPC, and this is OTLP over HTTP");
        doubt(bad.hint("mostly at 4318"));
    }
    if !collector.host.is_loopback() {
        let bad = BadValue::new("no TLS on the way to the collector");
        doubt(bad.hint("a collector on this machine can speak TLS to others"));
    }
    Some(Otlp { collector, interval: interval?, headers })
}
