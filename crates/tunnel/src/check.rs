//! `tunnel check`: the effects of a file, its warnings and the pin, as text or as JSON.

use std::path::Path;

use config::{Common, ServerConfig};
use ops::{Role, WrongConfig, term};
use serde::Serialize;
use tls::{Pin, load_certificates};

use crate::cli::CheckArgs;
use crate::found;
use crate::load::{self, Either};

/// The result for programs. Field names are an interface: fields are added, and none is removed.
#[derive(Debug, Serialize)]
struct Checked {
    file: String,
    /// `server`, `client` or `proxy`; absent for a wrong file.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<Role>,
    valid: bool,
    /// The effects of the file, line by line.
    runs: Vec<String>,
    /// The pin of the server in the file, if there is a certificate; or the pins that the client in
    /// the file trusts.
    pins: Vec<String>,
    warnings: Vec<String>,
    problems: Vec<String>,
}

impl Checked {
    fn of(file: String, either: Either, path: &Path) -> Self {
        let (role, runs, pins, warnings) = match either {
            Either::Server(loaded) => {
                let pin = pin(&loaded.config, path).map(|pin| pin.to_string());
                let pins: Vec<_> = pin.into_iter().collect();
                let mut runs = loaded.config.summary();
                runs.extend(pins.iter().map(|pin| format!("pin of the server {pin}")));
                (Role::Server, runs, pins, loaded.warnings)
            }
            Either::Client(loaded) => {
                let (runs, pins) = (loaded.config.summary(), loaded.config.pins());
                (Role::Client, runs, pins, loaded.warnings)
            }
            Either::Proxy(loaded) => {
                (Role::Proxy, loaded.config.summary(), Vec::new(), loaded.warnings)
            }
        };
        let role = Some(role);
        Self { file, role, valid: true, runs, pins, warnings, problems: Vec::new() }
    }

    fn wrong(file: String, wrong: &WrongConfig) -> Self {
        let problems = wrong.0.clone();
        let (runs, pins, warnings) = Default::default();
        Self { file, role: None, valid: false, runs, pins, warnings, problems }
    }
}

/// The pin of a server: of its certificate file, or of the certificate that it has generated.
fn pin(config: &ServerConfig, file: &Path) -> Option<Pin> {
    if !config.listen.iter().any(|at| at.endpoint.scheme.tls) {
        return None;
    }
    let of = |path: &Path| Pin::of(load_certificates(path).ok()?.first()?).ok();
    let common: &Common = &config.common;
    match &config.tls.identity {
        Some(pair) => of(&pair.cert),
        None => load::state_folders(file, common)
            .iter()
            .find_map(|folder| of(&folder.join(tls::OWN_CERTIFICATE))),
    }
}

/// Checks a file and prints the result.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let given = args.file.as_ref().or(args.config.as_ref()).cloned();
    let path = match given {
        Some(path) => path,
        None => {
            let path = found::to_check()?;
            term::err(format_args!("note: checking {}", path.display()));
            path
        }
    };
    let file = path.display().to_string();
    let checked = match load::file_and_what_it_names(&path) {
        Ok(either) => Checked::of(file, either, &path),
        Err(wrong) => {
            if args.json {
                term::out(serde_json::to_string_pretty(&Checked::wrong(file, &wrong))?)?;
            }
            return Err(wrong.into());
        }
    };
    if args.json {
        term::out(serde_json::to_string_pretty(&checked)?)?;
        return Ok(());
    }
    for warning in &checked.warnings {
        term::err(format_args!("warning: {warning}"));
    }
    for line in &checked.runs {
        term::out(line)?;
    }
    Ok(())
}
