//! Parses the text of `perf script` into counted stacks.

use std::collections::BTreeMap;

/// A function on a stack: it was running, or waiting for a function that it called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) kernel: bool,
}

/// The number of samples of each stack, outermost frame first.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    counts: BTreeMap<Vec<Frame>, u64>,
}

impl Stacks {
    /// Reads the output of `perf script -F pid,ip,sym,dso`: a line with the process, then the
    /// frames, innermost first, then an empty line. `role` names a process; samples of processes
    /// without a role do not count.
    pub(super) fn read<'a>(
        lines: impl Iterator<Item = &'a str>,
        role: impl Fn(u32) -> Option<&'static str>,
    ) -> Self {
        let mut stacks = Self::default();
        let mut current: Option<(&str, Vec<Frame>)> = None;
        for line in lines.chain([""]) {
            if line.trim().is_empty() {
                if let Some((role, frames)) = current.take() {
                    stacks.add(role, frames);
                }
            } else if let Some((_, frames)) = &mut current {
                frames.extend(frame(line));
            } else {
                let pid = line.split_whitespace().next().and_then(|pid| pid.parse().ok());
                // Samples of other processes are read as well, under an empty name.
                current = Some((pid.and_then(&role).unwrap_or_default(), Vec::new()));
            }
        }
        stacks
    }

    fn add(&mut self, role: &str, mut frames: Vec<Frame>) {
        if role.is_empty() || frames.is_empty() {
            return;
        }
        frames.push(Frame { name: role.to_owned(), kernel: false });
        frames.reverse();
        *self.counts.entry(frames).or_default() += 1;
    }

    /// The number of all samples.
    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[Frame], u64)> {
        self.counts.iter().map(|(frames, count)| (frames.as_slice(), *count))
    }
}

/// `    ffffffff81a3 tcp_sendmsg ([kernel.kallsyms])`, with any text as the name.
fn frame(line: &str) -> Option<Frame> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (name, object) = rest.rsplit_once(" (").unwrap_or((rest, ""));
    let object = object.trim_end_matches(')');
    let kernel = object.contains("[kernel") || object.contains("[guest.kernel");
    let name = match name.trim() {
        // Name at least the object of an unknown function.
        "" | "[unknown]" => format!("[{}]", object.rsplit('/').next().unwrap_or_default()),
        name => short(name),
    };
    Some(Frame { name, kernel })
}

/// The name without the hash of Rust's symbols, and with the signs that the old mangling encodes.
fn short(name: &str) -> String {
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    let name = match name.rsplit_once("::h") {
        Some((name, hash)) if is_hash(hash) => name,
        _ => name,
    };
    let signs = [
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$u20$", " "),
        ("$C$", ","),
        ("$RF$", "&"),
        ("$BP$", "*"),
        ("$u7b$", "{"),
        ("$u7d$", "}"),
        ("$u5b$", "["),
        ("$u5d$", "]"),
        ("$LP$", "("),
        ("$RP$", ")"),
        ("..", "::"),
    ];
    let name = signs.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    // In the old mangling, a name cannot begin with a sign either.
    if name.starts_with("_<") { name[1..].to_owned() } else { name }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Output of perf 6.1.
    const SCRIPT: &str = "\
 4711 
\tffffffff81a31234 tcp_sendmsg ([kernel.kallsyms])
\tffffffff81001234 do_syscall_64 ([kernel.kallsyms])
\t    55d0c0ffee00 _<tunnel::server::Loop as core::future::Future>::poll::h0123456789abcdef (/x/tunnel)
\t    7f0000000000 [unknown] (/usr/lib/libc.so.6)

 4711 
\tffffffff81a31234 tcp_sendmsg ([kernel.kallsyms])
\tffffffff81001234 do_syscall_64 ([kernel.kallsyms])
\t    55d0c0ffee00 _<tunnel::server::Loop as core::future::Future>::poll::h0123456789abcdef (/x/tunnel)
\t    7f0000000000 [unknown] (/usr/lib/libc.so.6)

 4712 
\t    55d0c0ffee00 _$LT$u8$u20$as$u20$core..fmt..Debug$GT$::fmt (/x/tunnel)

    1 
\t    55d0c0ffee00 other (/sbin/init)

";

    pub(in crate::profile) fn stacks() -> Stacks {
        Stacks::read(SCRIPT.lines(), |pid| match pid {
            4711 => Some("server"),
            4712 => Some("client"),
            _ => None,
        })
    }

    #[test]
    fn stacks_are_counted_from_the_outside_in_and_other_processes_left_out() {
        let stacks = stacks();
        assert_eq!(stacks.total(), 3);
        let found: Vec<_> = stacks
            .iter()
            .map(|(frames, count)| {
                let names: Vec<_> = frames.iter().map(|frame| frame.name.as_str()).collect();
                let kernel = frames.iter().filter(|frame| frame.kernel).count();
                (names.join(";"), kernel, count)
            })
            .collect();
        let server = "server;[libc.so.6];<tunnel::server::Loop as core::future::Future>::poll;\
                      do_syscall_64;tcp_sendmsg";
        assert_eq!(
            found,
            [("client;<u8 as core::fmt::Debug>::fmt".to_owned(), 0, 1), (server.to_owned(), 2, 2),]
        );
    }
}
