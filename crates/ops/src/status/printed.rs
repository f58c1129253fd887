//! The fingerprints by which the live view finds what has changed: the hash of a part of the
//! status. Each field belongs to the fingerprint, unless its declaration says what else holds.

use std::hash::{Hash, Hasher};

/// Declares a struct of the status some of whose fields are not hashed as they are. The mark of
/// such a field says why:
///
/// | mark | meaning |
/// |---|---|
/// | `age` | the seconds since an event: a reader counts on, so nothing has changed |
/// | `rough` | a round trip in microseconds: a change within a [`step`] is no news |
/// | `apart` | it is queried less often than the others, and is no news by itself |
///
/// ```text
/// printed! {
///     #[derive(Debug)]
///     pub struct Visit {
///         /// The number of requests. Each change is news.
///         pub requests: u64,
///         /// The seconds since the first.
///         pub seconds: u64 = age,
///     }
/// }
/// ```
macro_rules! printed {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$of_field:meta])* pub $field:ident: $type:ty $(= $mark:ident)?,)*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$of_field])* pub $field: $type,)*
        }

        impl ::std::hash::Hash for $name {
            fn hash<H: ::std::hash::Hasher>(&self, hash: &mut H) {
                $($crate::status::printed::print!(hash, &self.$field $(, $mark)?);)*
            }
        }
    };
}

/// Adds a field to a fingerprint.
macro_rules! print {
    ($hash:ident, $field:expr) => {
        ::std::hash::Hash::hash($field, $hash)
    };
    ($hash:ident, $field:expr, rough) => {
        $crate::status::printed::rough(*$field, $hash)
    };
    ($hash:ident, $field:expr, age) => {};
    ($hash:ident, $field:expr, apart) => {};
}

pub(super) use {print, printed};

/// Adds a round trip in microseconds.
pub(super) fn rough(micros: Option<u64>, hash: &mut impl Hasher) {
    micros.map(step).hash(hash);
}

/// The bucket into which a round trip falls. A change within a bucket is not reported: from 1 ms
/// on, a bucket is a quarter of a doubling or less, and the answers to thousands of keepalives must
/// not count as changes.
fn step(micros: u64) -> u32 {
    let micros = u32::try_from(micros).unwrap_or(u32::MAX).max(1_000);
    let octave = micros.ilog2();
    (octave << 2) | ((micros >> (octave - 2)) & 3)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

    use serde_json::Value;

    use super::super::*;
    use super::*;

    fn print(of: &impl Hash) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(of)
    }

    #[test]
    fn small_changes_of_a_round_trip_are_no_news() {
        assert_eq!(step(7), step(1_000));
        assert_eq!(step(20_000), step(20_300));
        assert!([1_000, 1_400, 2_000, 3_000, 20_000, 25_000, 200_000].map(step).is_sorted());
        assert_ne!(step(20_000), step(26_000));
        assert_eq!(step(u64::MAX), step(u32::MAX.into()));
    }

    /// A session with a value in each field. No struct is filled by `..`, so that a new field is
    /// added here.
    fn full() -> Session {
        let down = || Some(Down { reason: "it is away".to_owned(), denied: false, seconds: 7 });
        let counts = |of: &str| BTreeMap::from([(of.to_owned(), 3)]);
        let target = ServiceTarget {
            target: "tcp://10.0.0.5:22".to_owned(),
            weight: 1,
            state: TargetState::Down.into(),
            visitors: 2,
            visitors_total: 30,
            down: down(),
        };
        let service = Service {
            name: "web".to_owned(),
            address: "https://a.example".to_owned(),
            target: "tcp://localhost:80".to_owned(),
            state: ServiceState::Up.into(),
            streams: 1,
            streams_total: 2,
            flows: 3,
            flows_total: 4,
            flows_roamed: 10,
            bytes_in: 5,
            bytes_out: 6,
            datagrams_in: 7,
            datagrams_out: 8,
            dropped: counts("queue"),
            refused: counts("limit"),
            wrong_passwords: 9,
            failovers: 11,
            requests: sample_requests().requests,
            kept: true,
            shadows: vec!["other".to_owned()],
            down: down(),
            targets: vec![target],
        };
        let carrier = Carrier {
            number: 1,
            transport: "kcp".into(),
            peer: "192.0.2.7:40001".to_owned(),
            via: Some("nyc".into()),
            rtt_micros: Some(97_650),
            cipher: Some("TLS_AES_128_GCM_SHA256".into()),
            backend: Some("ring".into()),
            standby: true,
            tcp: Some(Tcp { queue_bytes: Some(1), ..Tcp::default() }),
            quic: Some(Quic::default()),
            kcp: sample_kcp().kcp,
        };
        let path = PeerPath {
            state: PathState::Direct.into(),
            since_seconds: 9,
            pair: Some("host 192.0.2.1:1".to_owned()),
            rtt_micros: Some(8_400),
        };
        let link = Link {
            serial: 7,
            worker: 1,
            state: LinkState::Up.into(),
            path: Some(path),
            streams: 1,
            flows: 2,
            dropped: counts("early"),
            retained_bytes: 3,
            carriers: vec![carrier],
        };
        Session {
            peer: "home".to_owned(),
            private: true,
            standby: true,
            why: "it is the first".to_owned(),
            server: Some(ServerFigures {
                rtt_micros: Some(900),
                takeovers: 12,
                moves: counts("commanded"),
            }),
            paths: vec![PathFigures::default()],
            state: SessionState::Up.into(),
            resumes: 1,
            bytes_received: 2,
            bytes_sent: 3,
            sent: BTreeMap::from([(
                "tls".to_owned(),
                Sent { segments: Some(1), ..Sent::default() },
            )]),
            links: vec![link],
            services: vec![service.clone()],
            forwards: vec![service],
        }
    }

    /// Calls `change` with the path to each value, and with the whole in which the value differs.
    fn each_changed(whole: &Value, path: &str, change: &mut impl FnMut(&str, Value)) {
        let value = whole.pointer(path).unwrap();
        let below: Vec<String> = match value {
            Value::Object(fields) => fields.keys().map(|key| format!("{path}/{key}")).collect(),
            Value::Array(items) => (0..items.len()).map(|nth| format!("{path}/{nth}")).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let mut changed = whole.clone();
                *changed.pointer_mut(path).unwrap() = match value {
                    Value::Bool(is) => (!is).into(),
                    Value::Number(number) => (number.as_u64().unwrap() * 2 + 1).into(),
                    Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                        "another".into()
                    }
                };
                return change(path, changed);
            }
        };
        below.iter().for_each(|path| each_changed(whole, path, change));
    }

    #[test]
    fn each_field_of_a_session_is_in_its_print_or_marked() {
        let full = full();
        let json = serde_json::to_value(&full).unwrap();
        assert_eq!(print(&serde_json::from_value::<Session>(json.clone()).unwrap()), print(&full));
        let (mut seen, mut marked) = (0, Vec::new());
        each_changed(&json, "", &mut |path, changed| {
            let changed: Session = serde_json::from_value(changed).unwrap();
            assert_ne!(changed, full, "{path}");
            seen += 1;
            if print(&changed) == print(&full) {
                let names = path.split('/').filter(|part| part.parse::<u8>().is_err());
                marked.push(names.skip(1).collect::<Vec<_>>().join("."));
            }
        });
        assert!(seen > 80, "{seen}");
        let of_kcp = ["lost_packets", "mtu", "parity_packets", "recovered_packets"];
        let of_kcp = of_kcp.into_iter().chain(["retransmitted_packets", "rtt_micros"]);
        let of_kcp = of_kcp.chain(["sent_packets", "window_bytes"]);
        let of_quic = ["lost_bytes", "lost_packets", "mtu", "rtt_micros", "sent_packets"];
        let of_quic = of_quic.into_iter().chain(["window_bytes"]);
        let mut expected: Vec<String> =
            of_kcp.map(|name| format!("links.carriers.kcp.{name}")).collect();
        expected.extend(of_quic.map(|name| format!("links.carriers.quic.{name}")));
        let others = [
            "links.carriers.tcp.queue_bytes",
            "links.path.since_seconds",
            "server.moves.commanded",
            "server.rtt_micros",
            "server.takeovers",
            "sent.tls.segments",
            "links.retained_bytes",
            "paths.age_seconds",
            "paths.attempts",
            "paths.failures",
        ];
        expected.extend(others.map(str::to_owned));
        for list in ["forwards", "services"] {
            expected.extend(["down", "targets.down"].map(|of| format!("{list}.{of}.seconds")));
        }
        expected.sort_unstable();
        marked.sort_unstable();
        assert_eq!(marked, expected);
    }
}
