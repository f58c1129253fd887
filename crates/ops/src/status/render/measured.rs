//! The figures of paths as text.

use super::super::{Network, PathFigures, duration};

/// The network of this machine.
pub(super) fn network(network: &Network) -> String {
    let Network { interface, gateway } = network;
    match gateway {
        Some(gateway) => format!("interface {interface}, gateway {gateway}"),
        None => format!("interface {interface}, no gateway"),
    }
}

/// A path with its figures.
pub(super) fn path(figures: &PathFigures) -> String {
    let PathFigures {
        path,
        in_use,
        why,
        age_seconds,
        least_rtt_micros,
        rtt_micros,
        loss_millionths,
        up_bytes_per_second,
        down_bytes_per_second,
        goodput_age_seconds,
        attempts,
        failures,
        last_error,
        policed,
        cpu_nanos_per_kib,
    } = figures;
    let mut text = format!("path {path}");
    let mut add = |part: String| {
        text.push_str(", ");
        text.push_str(&part);
    };
    if *in_use {
        add("in use".to_owned());
    }
    if !why.is_empty() {
        add(format!("chosen because {why}"));
    }
    let millis = |micros: u64| format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100);
    if let Some(rtt) = rtt_micros {
        add(format!("round trip {}", millis(*rtt)));
    }
    if let Some(least) = least_rtt_micros {
        add(format!("least {}", millis(*least)));
    }
    if let Some(loss) = loss_millionths {
        add(format!("loss {}.{:02} %", loss / 10_000, loss % 10_000 / 100));
    }
    let rate = |bytes: u64| {
        let tenths = bytes.saturating_mul(8) / 100_000;
        format!("{}.{} Mbit/s", tenths / 10, tenths % 10)
    };
    if let Some(up) = up_bytes_per_second {
        add(format!("{} to the server", rate(*up)));
    }
    if let Some(down) = down_bytes_per_second {
        add(format!("{} from the server", rate(*down)));
    }
    if let Some(age) = goodput_age_seconds {
        add(format!("last transfer {} ago", duration(*age)));
    }
    if *policed {
        add("policed".to_owned());
    }
    if let Some(nanos) = cpu_nanos_per_kib {
        add(format!("{nanos} ns of processor time per KiB"));
    }
    if *failures > 0 {
        add(format!("{failures} of {attempts} attempts failed"));
    }
    if let Some(error) = last_error {
        add(format!("last: {error}"));
    }
    if *attempts == 0 && rtt_micros.is_none() {
        add("not measured on this network".to_owned());
    } else {
        add(format!("measured {} ago", duration(*age_seconds)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_with_what_is_known_of_it() {
        let unknown = PathFigures { path: "tls://a:7000".to_owned(), ..PathFigures::default() };
        assert_eq!(path(&unknown), "path tls://a:7000, not measured on this network");
        let known = PathFigures {
            path: "quic://a:7000".to_owned(),
            in_use: true,
            why: "it is the first path that answered".to_owned(),
            age_seconds: 3,
            least_rtt_micros: Some(19_870),
            rtt_micros: Some(20_110),
            loss_millionths: Some(1_230),
            up_bytes_per_second: Some(11_600_000),
            down_bytes_per_second: Some(125_000),
            goodput_age_seconds: Some(90),
            attempts: 4,
            failures: 1,
            last_error: Some("no answer within 10 s".to_owned()),
            policed: true,
            cpu_nanos_per_kib: Some(812),
        };
        assert_eq!(
            path(&known),
            "path quic://a:7000, in use, chosen because it is the first path that answered, \
             round trip 20.1 ms, least 19.8 ms, loss 0.12 %, 92.8 Mbit/s to the server, \
             1.0 Mbit/s from the server, last transfer 1m30s ago, policed, \
             812 ns of processor time per KiB, 1 of 4 attempts failed, \
             last: no answer within 10 s, measured 3s ago"
        );
        let shown = |gateway| network(&Network { interface: "wlan0".to_owned(), gateway });
        assert_eq!(shown(Some("192.0.2.1".to_owned())), "interface wlan0, gateway 192.0.2.1");
        assert_eq!(shown(None), "interface wlan0, no gateway");
    }
}
