//! The terms of a service or a forward: `priority`, `timeouts`, `tcp_keepalive`, `dscp` and
//! `remember`. The lists of visitors are in `visit.rs`, and the options of HTTP in `http.rs`.

use std::time::Duration;

use proto::Priority;
use proto::control::{FlowTimes, ServiceTerms, TCP_KEEPALIVE_MAX, Timeouts};

use super::{Section, unknown, values};
use crate::keys::{FORWARD_TIMEOUTS, TIMEOUTS};
use crate::{BadValue, Span};

/// Permitted range of `timeouts.flow` and `timeouts.flow_unanswered`, in seconds.
const FLOW_RANGE: (u64, u64) = (1, 3600);

/// Decodes the terms, without visitors and options of HTTP.
pub(super) fn terms(s: &Section<'_>) -> ServiceTerms {
    let own = s.section("timeouts", &TIMEOUTS);
    let mut timeouts = own.as_ref().map(timeouts).unwrap_or_default();
    if let Some(keepalive) = s.value("tcp_keepalive", tcp_keepalive) {
        timeouts.keepalive = keepalive;
    }
    ServiceTerms {
        priority: s.value("priority", priority).unwrap_or_default(),
        timeouts,
        dscp: values::dscp(s),
        ephemeral: s.value("remember", values::switch) == Some(false),
        flows: own.as_ref().map(flows).unwrap_or_default(),
        ..ServiceTerms::default()
    }
}

/// Decodes the terms of a forward.
pub(super) fn of_forward(s: &Section<'_>) -> ServiceTerms {
    let own = s.section("timeouts", &FORWARD_TIMEOUTS);
    let timeouts = own.as_ref().map(timeouts).unwrap_or_default();
    ServiceTerms { timeouts, ..ServiceTerms::default() }
}

/// Decodes the times of streams in a section `timeouts`. An absent key has its default.
pub(super) fn timeouts(own: &Section<'_>) -> Timeouts {
    let Timeouts { dial, idle, half_close, total, flush, idle_up, idle_down, keepalive } =
        Timeouts::default();
    let of = |key, default| own.parse(key).map_or(default, Span::duration);
    Timeouts {
        dial: own.value("dial", positive).unwrap_or(dial),
        idle: of("idle", idle),
        half_close: of("half_close", half_close),
        total: of("total", total),
        flush: of("flush", flush),
        idle_up: of("idle_up", idle_up),
        idle_down: of("idle_down", idle_down),
        keepalive,
    }
}

fn positive(text: &str) -> Result<Duration, BadValue> {
    match text.parse::<Span>()?.duration() {
        Duration::ZERO => Err(BadValue::new("must be more than 0")),
        time => Ok(time),
    }
}

fn priority(text: &str) -> Result<Priority, BadValue> {
    match text {
        "interactive" => Ok(Priority::Interactive),
        "normal" => Ok(Priority::Normal),
        "bulk" => Ok(Priority::Bulk),
        _ => Err(unknown(&format!("priority `{text}`"), text, &["interactive", "normal", "bulk"])),
    }
}

/// Parses the idle time after which a socket is probed.
fn tcp_keepalive(text: &str) -> Result<Duration, BadValue> {
    let silence = text.parse::<Span>()?.duration();
    if silence.subsec_nanos() > 0 || silence.as_secs() > TCP_KEEPALIVE_MAX.into() {
        let bad = BadValue::new(format!("`{text}` is no time of keepalive"));
        return Err(bad.hint("whole seconds from 1s to 9h; 0 switches the probes off"));
    }
    Ok(silence)
}

/// Decodes `flow` and `flow_unanswered`.
fn flows(s: &Section<'_>) -> FlowTimes {
    let default = FlowTimes::default();
    let answered = s.value("flow", flow_time).unwrap_or(default.answered);
    let unanswered = s.value("flow_unanswered", flow_time);
    if let Some(long) = unanswered.filter(|time| *time > answered) {
        let bad = BadValue::new(format!("{long}s is longer than `flow` ({answered}s)"));
        s.bad("flow_unanswered", bad.hint("a flow that was answered lives at least as long"));
    }
    let unanswered = unanswered.unwrap_or_else(|| default.unanswered.min(answered));
    FlowTimes { unanswered, answered }
}

/// Parses the time of an idle flow, in seconds.
fn flow_time(text: &str) -> Result<u32, BadValue> {
    let span: Span = text.parse()?;
    let seconds = span.duration().as_secs();
    let (least, most) = FLOW_RANGE;
    if span.duration().subsec_nanos() > 0 || !(least..=most).contains(&seconds) {
        let bad = BadValue::new(format!("`{text}` is no time of a flow"));
        return Err(bad.hint("whole seconds from 1s to 1h"));
    }
    u32::try_from(seconds).map_err(|_| BadValue::new(format!("`{text}` is too large")))
}
