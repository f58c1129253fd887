//! Encodes an `ExportMetricsServiceRequest` of OTLP 1.x as JSON: names in lowerCamelCase, enums as
//! numbers, 64-bit integers as decimal text.

use std::time::{SystemTime, UNIX_EPOCH};

use ops::figures::{Buckets, Kind, Metric, Sample, Value};
use ops::status::Status;
use serde_json::{Value as Json, json};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: each sum counts from the start of the process.
const CUMULATIVE: u8 = 2;

/// The OTLP resource that describes this process. It is constant for the life of the process.
#[derive(Clone, Debug)]
pub(super) struct Resource {
    instance: String,
    host: String,
}

impl Resource {
    /// Makes a resource with a random instance id. A collector would take two processes with the
    /// same id for a single process whose sums jump.
    pub(super) fn of_process() -> Result<Self, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Self { instance: uuid(id), host })
    }
}

/// Formats 16 random bytes as a UUID of version 4 (RFC 9562 section 5.4).
fn uuid(mut id: [u8; 16]) -> String {
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    let hex = id.map(|byte| format!("{byte:02x}")).concat();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

/// Encodes one request. `times` holds the time at which the sums were 0, and the current time.
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
        ("tunnel.role", status.role.name()),
        ("tunnel.name", &status.name),
    ];
    // A server has no name.
    let attributes: Json =
        all.into_iter().filter(|(_, text)| !text.is_empty()).map(attribute).collect();
    let times = (nanos(times.0), nanos(times.1));
    // A metric without series has no data points, so it is left out.
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
    // A time before 1970 comes from an unset clock; it becomes 0.
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

fn metric(metric: &Metric<'_>, times: &(String, String)) -> Json {
    let points = metric.samples.iter();
    let mut json = json!({
        "name": metric.figure.name,
        "description": metric.figure.help,
        "unit": unit(metric.figure.name),
    });
    let (kind, data) = match metric.figure.kind {
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
        Kind::Histogram => {
            let since = |mut point: Json| {
                point["startTimeUnixNano"] = times.0.as_str().into();
                point
            };
            let points: Json = points.map(|sample| since(point(sample, &times.1))).collect();
            let histogram = json!({ "aggregationTemporality": CUMULATIVE, "dataPoints": points });
            ("histogram", histogram)
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
        Value::Buckets(Buckets { bounds, counts, sum }) => {
            let decimal = |count: &u64| Json::from(count.to_string());
            point["count"] = counts.iter().sum::<u64>().to_string().into();
            point["sum"] = (*sum).into();
            point["bucketCounts"] = counts.iter().map(decimal).collect();
            point["explicitBounds"] = bounds.iter().copied().collect();
        }
    }
    point
}

/// The UCUM unit of a metric. The metric's name ends with its unit, by Prometheus' naming rules.
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
