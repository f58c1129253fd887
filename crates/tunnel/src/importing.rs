//! `tunnel import`: reads the files of another program, writes ours, and lists the remaining steps.
//! The mapping itself is the crate `import`.

use std::fmt;
use std::fs::{self, File as Disk};
use std::io::Read as _;
use std::path::{self, Path};

use anyhow::Context;
use import::{
    Certificate, Failure, Finding, Imported, Material, Options, Source, Text, import as map,
};
use ops::term::Waiting;
use ops::{WrongConfig, term};
use proto::text::escaped;
use serde::Serialize;
use tls::Identity;

use crate::cli::ImportArgs;
use crate::generate::{self, File};

/// Longer than any configuration, in bytes; an endless pipe is not read forever.
const SIZE_MAX: u64 = 2 << 20;

/// The files are written, but the source has lines without an effect here.
#[derive(Debug)]
pub(crate) struct Unmapped;

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("some lines of the source have no counterpart")
    }
}

impl std::error::Error for Unmapped {}

/// The random source of this machine.
struct Fresh;

impl Material for Fresh {
    fn token(&mut self) -> Result<String, String> {
        ops::token().map_err(|why| format!("{why:#}"))
    }

    fn certificate(&mut self, hosts: &[String]) -> Result<Certificate, String> {
        let issued = tls::self_signed_texts(hosts).map_err(|why| why.to_string())?;
        let both = format!("{}{}", issued.certificate, issued.key);
        let identity = Identity::of_pem(Path::new("server.crt"), both.as_bytes());
        let pin = identity.map_err(|why| why.to_string())?.pin().to_string();
        Ok(Certificate { certificate: issued.certificate, key: issued.key, pin })
    }
}

/// The result for programs. Field names are an interface: fields are added, and none is removed.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    program: &'a str,
    files: Vec<String>,
    mapped: usize,
    findings: Vec<Found<'a>>,
    next: &'a [String],
}

#[derive(Debug, Serialize)]
struct Found<'a> {
    file: &'a str,
    line: usize,
    key: &'a str,
    why: &'a str,
    nearest: &'a str,
}

/// Imports files or a command line.
///
/// # Errors
/// A source cannot be read, or a file cannot be written. [`Unmapped`]: everything is written, but
/// some lines need a decision of the user.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let options = Options {
        from: args.from,
        name: args.name.clone(),
        server: args.server.clone(),
        domain: args.domain.clone(),
    };
    // A file may be a slow pipe.
    let sources = Waiting::during("reading what is to be imported", || sources(args))?;
    let imported = map(&sources, &options, &mut Fresh).map_err(|why| {
        let is_random = matches!(why, Failure::Material(_));
        let wrong = WrongConfig::one(why.to_string());
        if is_random { anyhow::anyhow!(why) } else { anyhow::Error::new(wrong) }
    })?;
    if !args.dry_run {
        write(&args.output, &imported)?;
    }
    tell(args, &imported)?;
    if imported.findings.is_empty() { Ok(()) } else { Err(Unmapped.into()) }
}

fn sources(args: &ImportArgs) -> anyhow::Result<Vec<Source>> {
    if !args.command.is_empty() {
        let [program] = args.files.as_slice() else {
            let why = "in front of `--` is one program, `chisel` or `wstunnel`";
            return Err(WrongConfig::one(why.to_owned()).into());
        };
        let (name, folder) = (program.display().to_string(), String::new());
        return Ok(vec![Source { name, folder, text: Text::Command(args.command.clone()) }]);
    }
    let new = path::absolute(&args.output).unwrap_or_else(|_| args.output.clone());
    args.files.iter().map(|file| source(file, &new)).collect()
}

/// A file. Its relative paths become absolute, unless the new files are in the same folder.
fn source(file: &Path, new: &Path) -> anyhow::Result<Source> {
    let name = file.display().to_string();
    let shown = escaped(&name).into_owned();
    let read = || {
        let mut bytes = Vec::new();
        Disk::open(file)?.take(SIZE_MAX).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    let bytes = read().with_context(|| shown.clone())?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(WrongConfig::one(format!("{shown}: the file is not UTF-8")).into());
    };
    let folder = path::absolute(file).ok().and_then(|file| file.parent().map(Path::to_owned));
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = folder.filter(|folder| real(folder) != real(new));
    let folder = folder.map(|folder| folder.display().to_string()).unwrap_or_default();
    Ok(Source { name, folder, text: Text::File(text) })
}

fn write(folder: &Path, imported: &Imported) -> anyhow::Result<()> {
    let files = imported.files.iter();
    let files: Vec<_> =
        files.map(|file| File::new(&file.name, &file.text, !file.name.ends_with(".crt"))).collect();
    generate::write(folder, &files)
}

/// Prints the findings, the files and the next steps. In a trial run the files are the result, and
/// the rest goes to standard error.
fn tell(args: &ImportArgs, imported: &Imported) -> anyhow::Result<()> {
    let names: Vec<_> = imported
        .files
        .iter()
        .map(|file| args.output.join(&file.name).display().to_string())
        .collect();
    if args.json {
        let findings = imported.findings.iter().map(Found::of).collect();
        let outcome = Outcome {
            program: imported.program.name(),
            files: names,
            mapped: imported.mapped,
            findings,
            next: &imported.next,
        };
        term::out(serde_json::to_string_pretty(&outcome)?)?;
        return Ok(());
    }
    let mut lines: Vec<String> = imported.findings.iter().map(ToString::to_string).collect();
    lines.push(summary(imported));
    if args.dry_run {
        for file in &imported.files {
            term::out(format_args!("# {}\n{}", file.name, file.shown))?;
        }
        lines.push("nothing is written".to_owned());
        lines.iter().for_each(term::err);
        return Ok(());
    }
    lines.push(format!("written: {}", names.join(", ")));
    lines.push("\nNext:".to_owned());
    let steps = imported.next.iter().enumerate();
    lines.extend(steps.map(|(n, step)| format!("{}. {step}", n + 1)));
    for line in lines {
        term::out(line)?;
    }
    Ok(())
}

fn summary(imported: &Imported) -> String {
    let (program, mapped) = (imported.program, imported.mapped);
    let values = if mapped == 1 { "value has" } else { "values have" };
    match imported.findings.len() {
        0 => format!("{program}: {mapped} {values} a counterpart, and nothing is left"),
        1 => format!("{program}: {mapped} {values} a counterpart; 1 line has none or needs a look"),
        more => {
            format!(
                "{program}: {mapped} {values} a counterpart; {more} lines have none or need a look"
            )
        }
    }
}

impl<'a> Found<'a> {
    fn of(finding: &'a Finding) -> Self {
        let Finding { file, line, key, why, nearest } = finding;
        Self { file, line: *line, key, why, nearest }
    }
}
