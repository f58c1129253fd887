//! `ExportMetricsServiceRequest` of OTLP 1.x in its JSON form: names in lowerCamelCase, enums as
//! numbers, 64-bit integers as decimal text.

use std::time::{SystemTime, UNIX_EPOCH};

use ops::status::Status;
use serde_json::{Value as Json, json};

use crate::metrics::{Kind, Metric, Sample, Value};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: sums since the start.
const CUMULATIVE: u8 = 2;

/// Who tells: of this process, for as long as it lives.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    instance: String,
    host: String,
}

impl Resource {
    /// With an id of its own: two processes with one id would be taken for one whose sums jump.
    pub(super) fn of_process() -> Result<Self, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Self { instance: uuid(id), host })
    }
}

/// Version 4 (RFC 9562 section 5.4).
fn uuid(mut id: [u8; 16]) -> String {
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    let hex = id.map(|byte| format!("{byte:02x}")).concat();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

/// `since` when sums were 0, and now.
pub(super) fn message(
    resource: &Resource,
    status: &Status,
    metrics: &[Metric<'_>],
    times: (SystemTime, SystemTime),
) -> Vec<u8> {
    let version = &*status.version;
    let all = [
        ("service.name", "tunnel"),
        ("service.version", version),
        ("service.instance.id", &resource.instance),
        ("host.name", &resource.host),
        ("tunnel.role", &status.role),
        ("tunnel.name", &status.name),
    ];
    // A server has no name.
    let attributes: Json =
        all.into_iter().filter(|(_, text)| !text.is_empty()).map(attribute).collect();
    let times = (nanos(times.0), nanos(times.1));
    // Of a metric without series nothing is known.
    let metrics = metrics.iter().filter(|metric| !metric.samples.is_empty());
    let metrics: Json = metrics.map(|metric| self::metric(metric, &times)).collect();
    let scope = json!({ "name": "tunnel", "version": version });
    let message = json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes },
        "scopeMetrics": [{ "scope": scope, "metrics": metrics }],
    }]});
    message.to_string().into_bytes()
}

fn attribute((key, text): (&str, &str)) -> Json {
    json!({ "key": key, "value": { "stringValue": text } })
}

fn nanos(time: SystemTime) -> String {
    // A clock before 1970 is no clock.
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn metric(metric: &Metric<'_>, times: &(String, String)) -> Json {
    let points = metric.samples.iter();
    let mut json = json!({
        "name": metric.name,
        "description": metric.help,
        "unit": unit(metric.name),
    });
    let (kind, data) = match metric.kind {
        Kind::Gauge => {
            let points: Json = points.map(|sample| point(sample, &times.1)).collect();
            ("gauge", json!({ "dataPoints": points }))
        }
        Kind::Counter => {
            let since = |mut point: Json| {
                point["startTimeUnixNano"] = times.0.as_str().into();
                point
            };
            let points: Json = points.map(|sample| since(point(sample, &times.1))).collect();
            let sum = json!({
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
                "dataPoints": points,
            });
            ("sum", sum)
        }
    };
    json[kind] = data;
    json
}

fn point(Sample { labels, value }: &Sample<'_>, now: &str) -> Json {
    let attributes: Json = labels.iter().copied().map(attribute).collect();
    let mut point = json!({ "attributes": attributes, "timeUnixNano": now });
    match value {
        Value::Whole(value) => point["asInt"] = value.to_string().into(),
        Value::Real(value) => point["asDouble"] = (*value).into(),
    }
    point
}

/// In the words of UCUM, from a name by Prometheus' rules.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_come_from_names_and_ids_are_random_uuids() {
        let names = ["tunnel_uptime_seconds", "tunnel_service_in_bytes_total", "tunnel_links"];
        assert_eq!(names.map(unit), ["s", "By", "1"]);
        assert_eq!(uuid([0xff; 16]), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }
}
