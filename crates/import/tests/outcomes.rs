//! Files of every program and what becomes of them. Each folder of `fixtures` is an import; its
//! `outcome.txt` has the new files without their secrets, and the findings.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its files itself, and ends where it cannot"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use import::{Certificate, Imported, Material, Options, Source, Text, import};

/// Tokens that are different and always the same.
struct Numbered(u32);

impl Material for Numbered {
    fn token(&mut self) -> Result<String, String> {
        self.0 += 1;
        Ok(format!("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi{}", self.0))
    }

    fn certificate(&mut self, hosts: &[String]) -> Result<Certificate, String> {
        let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned();
        let certificate = format!("a certificate for {}\n", hosts.join(", "));
        Ok(Certificate { certificate, key: "a key\n".to_owned(), pin })
    }
}

fn sources(folder: &Path) -> Vec<Source> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| !path.ends_with("outcome.txt")).collect();
    files.sort();
    let source = |path: &PathBuf| Source {
        name: path.file_name().unwrap().to_str().unwrap().to_owned(),
        folder: "/etc/old".to_owned(),
        text: Text::File(fs::read_to_string(path).unwrap()),
    };
    files.iter().map(source).collect()
}

fn shown(imported: &Imported) -> String {
    let mut out = format!("{}, {} values are done\n", imported.program, imported.mapped);
    for finding in &imported.findings {
        writeln!(out, "{finding}").unwrap();
    }
    for file in &imported.files {
        write!(out, "\n=== {}\n{}", file.name, file.shown).unwrap();
    }
    out + "\n=== next\n" + &imported.next.join("\n") + "\n"
}

/// `UPDATE=1` writes the outcomes anew, for a reader to compare.
#[test]
fn every_fixture_becomes_what_its_outcome_says() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut folders: Vec<_> =
        fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    for folder in folders {
        let imported = import(&sources(&folder), &Options::default(), &mut Numbered(0));
        let imported = imported.unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        let (actual, outcome) = (shown(&imported), folder.join("outcome.txt"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&outcome, &actual).unwrap();
        }
        let expected = fs::read_to_string(&outcome).unwrap_or_default();
        assert!(actual == expected, "{}\n{actual}", folder.display());
    }
}

/// A name may have any character but a slash.
#[test]
fn a_line_end_in_the_name_of_a_source_begins_no_line_of_a_file() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let keys = |imported: &Imported| {
        let texts = imported.files.iter().flat_map(|file| [&file.text, &file.shown]);
        let is_key = |line: &&str| !line.starts_with('#');
        texts
            .map(|text| text.lines().filter(is_key).collect::<Vec<_>>().join("\n"))
            .collect::<Vec<_>>()
    };
    for folder in fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()) {
        let plain = import(&sources(&folder), &Options::default(), &mut Numbered(0)).unwrap();
        for end in ["\n", "\r", "\u{85}", "\u{2028}", "\u{2029}", "\u{1b}[2J"] {
            let mut sources = sources(&folder);
            for source in &mut sources {
                source.name =
                    format!("a{end}admin: {{ listen: \"[::]:7070\" }}{end}{}", source.name);
            }
            let options = Options { from: Some(plain.program), ..Options::default() };
            let hostile = import(&sources, &options, &mut Numbered(0)).unwrap();
            assert_eq!(keys(&hostile), keys(&plain), "{} {end:?}", folder.display());
            for text in hostile.findings.iter().map(ToString::to_string).chain(hostile.next) {
                assert!(!text.contains(end), "{text:?}");
            }
            for file in &hostile.files {
                assert!(end == "\n" || !file.text.contains(end), "{:?}", file.text);
            }
        }
    }
}

/// Secrets of the fixtures, which no finding, no step and no shown file may have.
#[test]
fn no_secret_is_shown() {
    let secrets = [
        "a-shared-password",
        "letmein",
        "open-sesame",
        "sesame-of-the-wiki",
        "geheim",
        "old-password",
        "abcdefg",
        "q9Zk3vWm7RtYx2LpBn5CsDf8GhJ4KaQe",
        "rathole-password",
        "2abcDEFghiJKLmnoPQRstu",
        "gt-password",
        "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi",
        "scram-sha-256:",
    ];
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for folder in fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path()) {
        let imported = import(&sources(&folder), &Options::default(), &mut Numbered(0)).unwrap();
        let shown = shown(&imported);
        for secret in secrets {
            assert!(!shown.contains(secret), "{}: {secret}\n{shown}", folder.display());
        }
    }
}
