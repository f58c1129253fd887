//! The functions that were running most often, as a table of text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::stacks::{Frame, Stacks};

/// Lines of the table: later lines are noise.
const LINES: usize = 40;

/// A table of the top functions, below the share of each process. Writing into a string cannot
/// fail.
pub(super) fn text(title: &str, stacks: &Stacks) -> String {
    let total = stacks.total().max(1) as f64;
    let share = |count: u64| 100.0 * count as f64 / total;
    let (mut own, mut with_callees) = (BTreeMap::new(), BTreeMap::new());
    let (mut roles, mut kernel) = (BTreeMap::new(), 0);
    for (frames, count) in stacks.iter() {
        let [role, rest @ ..] = frames else { continue };
        *roles.entry(role.name.as_str()).or_insert(0) += count;
        // A function that calls itself counts once per sample.
        for frame in rest.iter().collect::<BTreeSet<_>>() {
            *with_callees.entry(frame).or_insert(0) += count;
        }
        if let Some(frame) = rest.last() {
            *own.entry(frame).or_insert(0) += count;
            kernel += if frame.kernel { count } else { 0 };
        }
    }
    let mut text = format!("{title}: {} samples\n", stacks.total());
    for (role, count) in roles {
        let _ = writeln!(text, "{:6.2} %  {role}", share(count));
    }
    let _ = writeln!(text, "{:6.2} %  in the kernel", share(kernel));
    let _ = writeln!(text, "{:6.2} %  in the program", share(stacks.total() - kernel));
    let _ = writeln!(text, "\n   self    total  where    function");
    let mut top: Vec<(&Frame, u64)> = own.into_iter().collect();
    top.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    for (frame, count) in top.into_iter().take(LINES) {
        let all = with_callees.get(frame).copied().unwrap_or(count);
        let place = if frame.kernel { "kernel" } else { "program" };
        let _ = writeln!(
            text,
            "{:6.2} % {:6.2} %  {place:7}  {}",
            share(count),
            share(all),
            frame.name
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::stacks::tests::stacks;

    #[test]
    fn shares_are_of_all_samples_and_the_most_frequent_function_comes_first() {
        let wanted = "\
http-100: 3 samples
 33.33 %  client
 66.67 %  server
 66.67 %  in the kernel
 33.33 %  in the program

   self    total  where    function
 66.67 %  66.67 %  kernel   tcp_sendmsg
 33.33 %  33.33 %  program  <u8 as core::fmt::Debug>::fmt
";
        assert_eq!(text("http-100", &stacks()), wanted);
    }
}
