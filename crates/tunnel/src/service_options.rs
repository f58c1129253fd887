//! Reads the options of services on the command line: passwords from files and standard input, and
//! the expiry.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use config::Moment;
use ops::WrongConfig;
use ops::lists::{Pair, ServiceOptions};

use crate::cli::{OptionArgs, TargetArgs};
use crate::input::{first_line, read};

/// Longer than any pair that a server accepts, in bytes.
const LINE_MAX: u64 = 1024;

/// The options. Reads standard input at most once.
pub(crate) fn read_options(
    args: &OptionArgs,
    name: Option<String>,
) -> anyhow::Result<ServiceOptions> {
    let mut basic_auth = Vec::new();
    for value in &args.basic_auth {
        basic_auth.extend(pairs(value)?.into_iter().map(Pair));
    }
    let until = args.lasting.map(|span| Moment::of(SystemTime::now()).after(span.duration()));
    Ok(ServiceOptions {
        name,
        basic_auth,
        path: args.path.clone(),
        allow_from: args.allow_from.clone(),
        until: until.map(|until| until.to_string()),
        broadcast: args.broadcast,
        ..ServiceOptions::default()
    })
}

/// Adds the options of targets. The daemon reads the file of authorities, and has a different
/// working directory.
pub(crate) fn add_target_options(
    options: &mut ServiceOptions,
    args: &TargetArgs,
) -> anyhow::Result<()> {
    let whole = |file: &PathBuf| {
        let bad = |why: &str| WrongConfig::one(format!("--target-ca: {}: {why}", file.display()));
        let whole = file.canonicalize().map_err(|why| bad(&why.to_string()))?;
        whole.to_str().map(str::to_owned).ok_or_else(|| bad("has a name that is no UTF-8"))
    };
    options.host_rewrite.clone_from(&args.host_rewrite);
    options.target_ca = args.target_ca.as_ref().map(whole).transpose()?;
    options.insecure = args.insecure;
    Ok(())
}

/// The pairs that a value of `--basic-auth` denotes.
pub(crate) fn pairs(value: &str) -> anyhow::Result<Vec<String>> {
    if value == "-" {
        let line = first_line(LINE_MAX)?;
        return Ok(vec![line.trim_end_matches(['\r', '\n']).to_owned()]);
    }
    let Some(file) = value.strip_prefix('@') else { return Ok(vec![value.to_owned()]) };
    let text =
        read(Path::new(file)).map_err(|why| WrongConfig::one(format!("--basic-auth: {why}")))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pairs: Vec<_> = lines.map(str::to_owned).collect();
    if pairs.is_empty() {
        let why = format!("--basic-auth: {file} has no line (hint: a line is `user:password`)");
        return Err(WrongConfig::one(why).into());
    }
    Ok(pairs)
}

/// The warning about a password among the arguments.
pub(crate) fn warning(args: &OptionArgs) -> Option<String> {
    let is_open = |value: &String| {
        let is_hash = value.split_once(':').is_some_and(|(_, secret)| secret.starts_with('$'));
        value != "-" && !value.starts_with('@') && !is_hash
    };
    args.basic_auth.iter().any(is_open).then(|| {
        "--basic-auth: every user of this machine can read the password in /proc; use @FILE, or `-` \
         for standard input"
            .to_owned()
    })
}
