//! Durations and sizes as text.

/// A number of seconds as text: `3m20s`, with at most two units.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{minutes}m"),
        86_400.. => format!("{days}d{hours}h"),
    }
}

/// A number of bytes as text: `1.4 GiB`, with one decimal and units of powers of 1,024.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let power = (n.ilog2() / 10) as usize;
    let unit = 1_u64 << (10 * power);
    // In 128 bits, because a tenth of the largest unit still is a large number.
    let tenths = u128::from(n) * 10 / u128::from(unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_of_any_size_are_readable() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1023.9 KiB");
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
    }
}
