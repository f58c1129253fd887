//! The times of streams and flows at services, forwards, proxies and listeners: `timeouts` and
//! `tcp_keepalive`; and the `priority` of their streams.

use std::time::Duration;

use proto::Priority;
use proto::control::{FlowTimes, TCP_KEEPALIVE_MAX, Timeouts};

use crate::key_table::KeyTable;
use crate::problem::unknown;
use crate::section::Section;
use crate::{BadValue, Span};

/// Permitted range of `timeouts.flow` and `timeouts.flow_unanswered`, in seconds.
const FLOW_RANGE: (u64, u64) = (1, 3600);

/// A section `timeouts`. An absent key has the default of [`Timeouts`] and [`FlowTimes`].
#[derive(KeyTable)]
#[keys(check = in_order)]
pub(crate) struct Times {
    /// Limits the time to resolve and dial a target {of}.
    ///
    /// A proxy waits longer: its visitor has not already waited for a tunnel.
    #[key("duration", absent = "10s", read = Span::positive, only(Service, Listener))]
    #[row(dial: "duration", absent = "15s", only(Balancer),
        text = "Limits the time to resolve and dial a target {of}.")]
    pub(crate) dial: Option<Span>,
    /// The idle timeout of a stream {of}, for both directions together.
    #[key("duration", default = "0", note = "no limit")]
    idle: Span,
    /// The idle timeout of the direction from visitor to target in a stream {of}.
    #[key("duration", default = "0", note = "no limit")]
    idle_up: Span,
    /// The idle timeout of the direction from target to visitor in a stream {of}.
    #[key("duration", default = "0", note = "no limit")]
    idle_down: Span,
    /// The idle timeout of a stream {of} after one direction has ended.
    #[key("duration", default = "60s")]
    half_close: Span,
    /// Limits the lifetime of a stream {of}, with or without traffic.
    #[key("duration", default = "0", note = "no limit")]
    total: Span,
    /// Limits the lifetime of a stream {of} after one direction has ended.
    #[key("duration", default = "0", note = "no limit")]
    flush: Span,
    /// The idle timeout of a UDP flow {of} after the first answer of the target.
    #[key("duration, 1s-1h", default = "120s", read = flow_time, only(Service, Balancer))]
    flow: u32,
    /// The idle timeout of a UDP flow {of} before the first answer of the target.
    #[key("duration, 1s-1h", absent = "30s (at most `flow`)", read = flow_time,
        only(Service, Balancer))]
    flow_unanswered: Option<u32>,
}

/// Checks the two times of flows together.
fn in_order(s: &Section<'_>, times: Times) -> Option<Times> {
    let Times { flow, flow_unanswered, .. } = times;
    if let Some(long) = flow_unanswered.filter(|time| *time > flow) {
        let bad = BadValue::new(format!("{long}s is longer than `flow` ({flow}s)"));
        s.bad("flow_unanswered", bad.hint("a flow that was answered lives at least as long"));
    }
    Some(times)
}

impl Times {
    /// The times of streams.
    pub(crate) fn streams(&self) -> Timeouts {
        let Timeouts { dial, keepalive, .. } = Timeouts::default();
        Timeouts {
            dial: self.dial.map_or(dial, Span::duration),
            idle: self.idle.duration(),
            idle_up: self.idle_up.duration(),
            idle_down: self.idle_down.duration(),
            half_close: self.half_close.duration(),
            total: self.total.duration(),
            flush: self.flush.duration(),
            keepalive,
        }
    }

    /// The times of flows.
    pub(crate) fn flows(&self) -> FlowTimes {
        let usual = || FlowTimes::default().unanswered.min(self.flow);
        let unanswered = self.flow_unanswered.unwrap_or_else(usual);
        FlowTimes { unanswered, answered: self.flow }
    }
}

pub(crate) fn priority(text: &str) -> Result<Priority, BadValue> {
    match text {
        "interactive" => Ok(Priority::Interactive),
        "normal" => Ok(Priority::Normal),
        "bulk" => Ok(Priority::Bulk),
        _ => Err(unknown(&format!("priority `{text}`"), text, &["interactive", "normal", "bulk"])),
    }
}

/// Parses the idle time after which a socket is probed.
pub(crate) fn tcp_keepalive(text: &str) -> Result<Duration, BadValue> {
    let silence = text.parse::<Span>()?.duration();
    if silence.subsec_nanos() > 0 || silence.as_secs() > TCP_KEEPALIVE_MAX.into() {
        let bad = BadValue::new(format!("`{text}` is no time of keepalive"));
        return Err(bad.hint("whole seconds from 1s to 9h; 0 switches the probes off"));
    }
    Ok(silence)
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
