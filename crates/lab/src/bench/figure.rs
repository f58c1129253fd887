//! The figures of a bench, with their names in files and tables.

use std::collections::BTreeMap;

/// One kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Figure {
    /// The case's units per second; the case names the unit.
    Rate,
    P50,
    P99,
    P999,
    CpuPerRequest,
    CpuPerConnection,
    CpuPerLogin,
    CpuPerGb,
    /// Processor time per datagram that arrived, at 80 % of the rate.
    CpuPerPacket,
    /// Datagrams that were lost at 80 % of the rate, percent.
    CalmLoss,
    /// Rate of the bulk stream beside an echo: a system that throttles this stream has short
    /// latencies.
    BulkBeside,
    /// The sum of the daemons' memory peaks, each at its own time.
    PeakRss,
    /// For the daemon that grows most: the slope over visitors, not its memory divided by visitors.
    RssPerVisitor,
    /// Processor time of the busiest daemon.
    IdleCpu,
}

/// The figures of one system in one round of a case.
pub(crate) type Sample = BTreeMap<Figure, f64>;

impl Figure {
    pub(crate) const ALL: [Self; 14] = [
        Self::Rate,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::CpuPerRequest,
        Self::CpuPerConnection,
        Self::CpuPerLogin,
        Self::CpuPerGb,
        Self::CpuPerPacket,
        Self::CalmLoss,
        Self::BulkBeside,
        Self::PeakRss,
        Self::RssPerVisitor,
        Self::IdleCpu,
    ];

    /// The key in `latest.json` and `floors.toml`, with the unit.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50_ms",
            Self::P99 => "p99_ms",
            Self::P999 => "p999_ms",
            Self::CpuPerRequest => "cpu_us_per_request",
            Self::CpuPerConnection => "cpu_us_per_connection",
            Self::CpuPerLogin => "cpu_us_per_login",
            Self::CpuPerGb => "cpu_s_per_gb",
            Self::CpuPerPacket => "cpu_us_per_packet",
            Self::CalmLoss => "loss_percent_at_80",
            Self::BulkBeside => "bulk_gbit_per_s",
            Self::PeakRss => "peak_rss_mib",
            Self::RssPerVisitor => "rss_bytes_per_visitor",
            Self::IdleCpu => "idle_cpu_percent",
        }
    }

    /// Whether the figure is processor time per unit of work.
    pub(crate) const fn is_processor_time(self) -> bool {
        match self {
            Self::CpuPerRequest
            | Self::CpuPerConnection
            | Self::CpuPerLogin
            | Self::CpuPerGb
            | Self::CpuPerPacket => true,
            Self::Rate
            | Self::P50
            | Self::P99
            | Self::P999
            | Self::CalmLoss
            | Self::BulkBeside
            | Self::PeakRss
            | Self::RssPerVisitor
            | Self::IdleCpu => false,
        }
    }

    /// The heading of a table's column. The heading of the rate is the case's unit.
    pub(crate) const fn heading(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50 ms",
            Self::P99 => "p99 ms",
            Self::P999 => "p99.9 ms",
            Self::CpuPerRequest => "CPU µs/request",
            Self::CpuPerConnection => "CPU µs/connection",
            Self::CpuPerLogin => "CPU µs/log-in",
            Self::CpuPerGb => "CPU s/GB",
            Self::CpuPerPacket => "CPU µs/packet",
            Self::CalmLoss => "loss % at 80 %",
            Self::BulkBeside => "bulk Gbit/s",
            Self::PeakRss => "peak RSS MiB",
            Self::RssPerVisitor => "RSS B/visitor",
            Self::IdleCpu => "idle CPU %",
        }
    }

    /// Whether the figure is about visitors; the others are about daemons.
    pub(super) const fn is_of_visitors(self) -> bool {
        matches!(
            self,
            Self::Rate | Self::P50 | Self::P99 | Self::P999 | Self::BulkBeside | Self::CalmLoss
        )
    }

    /// The figure with this key.
    pub(crate) fn named(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|figure| figure.key() == key)
    }
}

/// Formats a value with three significant digits and a separator between thousands.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = if size >= 99.95 || size == 0.0 {
        0
    } else if size >= 9.995 {
        1
    } else if size >= 0.095 {
        2
    } else {
        3
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_that_count_and_commas_between_thousands() {
        for (value, text) in [
            (0.0, "0"),
            (0.0123, "0.012"),
            (0.4812, "0.48"),
            (0.996, "1.00"),
            (13.26, "13.3"),
            (99.97, "100"),
            (999.6, "1,000"),
            (144_649.3, "144,649"),
            (-1_234_567.0, "-1,234,567"),
            (-123.4, "-123"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn every_figure_is_found_by_its_key() {
        for figure in Figure::ALL {
            assert_eq!(Figure::named(figure.key()), Some(figure));
        }
        assert_eq!(Figure::named("speed"), None);
    }
}
