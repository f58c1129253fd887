//! The versions of the installed program and of this one. The installed program is read and not
//! run: below another root directory it may be built for another machine.

use std::cmp::Ordering;
use std::fs;
use std::hint::black_box;
use std::path::Path;

use ops::term::natural;

/// The form in which every program since 0.1.0 contains its version.
const MARK: &str = concat!("This is tunnel, version ", env!("CARGO_PKG_VERSION"), ";");

/// The bytes of the mark before the version.
const BEFORE: usize = "This is tunnel, version ".len();

/// The longest version.
const LONGEST: usize = 40;

/// The message about a different program at the path of the installed program.
pub(super) fn note(place: &Path, program: &[u8], force: bool) -> Option<String> {
    let installed = fs::read(place).ok().filter(|installed| installed != program)?;
    let own = env!("CARGO_PKG_VERSION");
    let what = match of(&installed) {
        None => format!("has no version of tunnel that can be read, and this program is {own}"),
        Some(version) => match natural(&version, own) {
            Ordering::Less => format!("is version {version}, and this program is {own}: newer"),
            Ordering::Equal => format!("is another build of this program, both are {own}"),
            Ordering::Greater => format!("is version {version}, and this program is {own}: older"),
        },
    };
    let then = if force { "it is replaced" } else { "--force replaces it" };
    Some(format!("{} {what}; {then}", place.display()))
}

/// The version in the mark of a program.
fn of(program: &[u8]) -> Option<String> {
    // This program must also contain the whole mark.
    let mark = black_box(MARK).as_bytes().get(..BEFORE)?;
    let read = |rest: &[u8]| {
        let rest = rest.strip_prefix(mark)?;
        let rest = &rest[..rest.len().min(LONGEST)];
        let end = rest.iter().position(|&byte| byte == b';')?;
        let version = std::str::from_utf8(&rest[..end]).ok()?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        (version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(is_plain))
            .then(|| version.to_owned())
    };
    let starts = program.iter().enumerate().filter(|(_, byte)| Some(*byte) == mark.first());
    starts.filter_map(|(at, _)| read(&program[at..])).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_is_told_with_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("tunnel");
        let difference = |content: &str, force| {
            fs::write(&place, content).unwrap();
            note(&place, MARK.as_bytes(), force)
        };
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(difference(MARK, false), None);
        let of =
            |version: &str| format!("This is tunnel, version %This is tunnel, version {version};");
        let text = difference(&of("0.0.9"), false).unwrap();
        assert!(text.contains(&format!("is version 0.0.9, and this program is {own}: newer")));
        assert!(text.ends_with("--force replaces it"), "{text}");
        let text = difference(&of("99.0.0"), true).unwrap();
        assert!(text.contains(&format!("is version 99.0.0, and this program is {own}: older")));
        assert!(text.ends_with("it is replaced"), "{text}");
        assert!(difference(&of(own), false).unwrap().contains("another build"));
        assert!(difference("#!/bin/sh", false).unwrap().contains("no version of tunnel"));
        fs::remove_file(&place).unwrap();
        assert_eq!(note(&place, b"", false), None);
    }
}
