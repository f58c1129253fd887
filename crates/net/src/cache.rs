//! The size of the second-level cache of a core. A buffer that is written and read again within a
//! turn should fit into it.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// The default size if the system does not report it, in bytes. It is the smallest size among the
/// server cores of 2026 (AMD Zen 2 and 3, the smallest ARM Neoverse N1).
const USUAL: usize = 512 << 10;

/// The plausible sizes, in bytes. Others are errors of the system or of a virtual machine.
const PLAUSIBLE: std::ops::RangeInclusive<usize> = (64 << 10)..=(64 << 20);

/// The maximum number of caches per core that the system lists.
const CACHES: usize = 8;

/// The size of the second-level cache of the first core in bytes, as Linux reports it in sysfs; 512
/// KiB if it does not. Only the first call reads the files.
///
/// On a machine with two kinds of cores, other cores may have other sizes.
#[must_use]
pub fn second_level() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        reported(Path::new("/sys/devices/system/cpu/cpu0/cache")).unwrap_or_else(|| {
            tracing::debug!("the system tells no size of the second-level cache, {USUAL} is taken");
            USUAL
        })
    })
}

/// The size that the files below `folder` report
/// (Documentation/ABI/testing/sysfs-devices-system-cpu in the source of Linux).
fn reported(folder: &Path) -> Option<usize> {
    (0..CACHES).find_map(|n| {
        let of_cache = |file| fs::read_to_string(folder.join(format!("index{n}")).join(file)).ok();
        let holds_data = of_cache("type")?.trim() != "Instruction";
        let is_second = of_cache("level")?.trim() == "2";
        if holds_data && is_second { size(&of_cache("size")?) } else { None }
    })
}

/// The number of bytes in a text such as `512K`.
fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, unit) = match (text.strip_suffix('K'), text.strip_suffix('M')) {
        (Some(digits), _) => (digits, 1 << 10),
        (None, Some(digits)) => (digits, 1 << 20),
        (None, None) => (text, 1),
    };
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    digits.parse::<usize>().ok()?.checked_mul(unit).filter(|size| PLAUSIBLE.contains(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_system_writes_them() {
        for (text, expected) in [
            ("512K\n", Some(512 << 10)),
            ("2048K\n", Some(2 << 20)),
            ("1M", Some(1 << 20)),
            ("1048576", Some(1 << 20)),
            ("64K", Some(64 << 10)),
            ("63K", None),
            ("0K", None),
            ("65M", None),
            ("18446744073709551615M", None),
            ("99999999999999999999K", None),
            ("+512K", None),
            ("-1", None),
            ("K", None),
            ("", None),
            ("\n", None),
            ("512k", None),
            ("five", None),
            ("5é", None),
        ] {
            assert_eq!(size(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_cache_of_the_second_level_that_holds_data_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let cache = |n: usize, level: &str, kind: &str, size: &str| {
            let index = folder.path().join(format!("index{n}"));
            fs::create_dir_all(&index).unwrap();
            for (file, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(index.join(file), format!("{text}\n")).unwrap();
            }
        };
        assert_eq!(reported(folder.path()), None, "a virtual machine may show no cache");
        cache(0, "1", "Data", "48K");
        cache(1, "1", "Instruction", "32K");
        assert_eq!(reported(folder.path()), None);
        cache(2, "2", "Instruction", "128K");
        cache(3, "2", "Unified", "2048K");
        cache(4, "3", "Unified", "32768K");
        assert_eq!(reported(folder.path()), Some(2 << 20));
        fs::remove_file(folder.path().join("index3/size")).unwrap();
        assert_eq!(reported(folder.path()), None);
        fs::remove_dir_all(folder.path().join("index0")).unwrap();
        cache(3, "2", "Data", "1024K");
        assert_eq!(reported(folder.path()), Some(1 << 20), "the list may have gaps");
    }

    #[test]
    fn this_machine_has_a_plausible_cache() {
        assert!(PLAUSIBLE.contains(&second_level()));
    }
}
