//! An enrolment line whose services are not in the client's existing file yet.

use std::io::{self, BufRead, IsTerminal, stdin};
use std::path::Path;

use config::{Lists, edit};
use ops::{WrongConfig, term};

use crate::cli::ClientArgs;
use crate::config_file::{ConfigFile, refusal};
use crate::load::{self, Either};

/// Adds the services and forwards of the command line to the file, if the file lacks them. On a
/// terminal the user is asked; without a terminal, `--yes` is the answer.
pub(super) fn extend(path: &Path, args: &ClientArgs) -> anyhow::Result<()> {
    let lists = load::flag_lists(args)?;
    let file = ConfigFile(path.to_owned());
    let before = file.read()?;
    let (missing, replaced) = missing(path, lists)?;
    if missing.is_empty() {
        return Ok(());
    }
    let after = edit::publish(&path.display().to_string(), &before, &missing).map_err(refusal)?;
    let (at, mut what) = (path.display(), said(&missing));
    if !replaced.is_empty() {
        what.push_str(&format!(", in the place of {}", replaced.join(", ")));
    }
    if !args.yes {
        if !stdin().is_terminal() || args.enroll.as_deref() == Some("-") {
            return Err(WrongConfig::one(format!(
                "{at} lacks {what} (hint: --yes adds what is missing to the file)"
            ))
            .into());
        }
        term::err(format_args!("{at} lacks {what}. Add it to the file? [y/N]"));
        if !is_yes(&mut stdin().lock())? {
            return Err(WrongConfig::one(format!(
                "nothing was added (hint: tunnel client --config {at} starts the client as it is)"
            ))
            .into());
        }
    }
    file.replace(&before, &after)?;
    term::err(format_args!("{at}: added {what}"));
    Ok(())
}

/// The entries that the file does not contain in the same form, and the entries of the file that
/// they replace.
fn missing(path: &Path, mut lists: Lists) -> anyhow::Result<(Lists, Vec<String>)> {
    let Either::Client(loaded) = load::file(path)? else { return Ok((lists, Vec::new())) };
    let of_file = &loaded.config;
    let prefix = of_file.id_prefix.as_ref().map(|prefix| format!("{prefix}-")).unwrap_or_default();
    lists.services.retain(|service| {
        // A name in the file is the choice of its owner.
        of_file.services.iter().all(|known| !service.is_in(known))
    });
    lists.forwards.retain(|forward| {
        let same = (&forward.listen, &forward.target);
        of_file.forwards.iter().all(|known| (&known.listen, &known.target) != same)
    });
    for service in &mut lists.services {
        service.name.insert_str(0, &prefix);
    }
    let (services, forwards) = (of_file.services.clone(), of_file.forwards.clone());
    let before = Lists { services, forwards };
    let mut after = before.clone();
    after.add(lists.clone());
    let is_gone = |entry: &String| !entries(&after).contains(entry);
    let replaced = entries(&before).into_iter().filter(is_gone).collect();
    Ok((lists, replaced))
}

fn said(lists: &Lists) -> String {
    entries(lists).join(", ")
}

fn entries(lists: &Lists) -> Vec<String> {
    let services = lists.services.iter().map(|service| {
        let public: Vec<_> = service.public.iter().map(ToString::to_string).collect();
        format!("service {} ({} -> {})", service.name, public.join(", "), service.aims())
    });
    let forwards = lists.forwards.iter().map(|f| format!("forward {f}"));
    services.chain(forwards).collect()
}

/// Whether the user's answer begins with `y`.
fn is_yes(answers: &mut impl BufRead) -> io::Result<bool> {
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn args(publish: &[&str], yes: bool) -> ClientArgs {
        let publish = publish.iter().map(ToString::to_string).collect();
        ClientArgs { publish, yes, enroll: Some("-".into()), ..ClientArgs::default() }
    }

    #[test]
    fn a_line_with_other_services_adds_them_only_with_a_yes_and_keeps_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.yaml");
        let text = format!(
            "# Mine.\nservers: tls://a\nname: home\ntoken: {}\nservices:\n  - {{ name: shell, \
             public: tcp://:10022, target: tcp://127.0.0.1:22 }} # ssh\n",
            ops::token().unwrap()
        );
        fs::write(&path, &text).unwrap();
        // The same service, by another name.
        extend(&path, &args(&["10022=22"], false)).unwrap();
        let why = extend(&path, &args(&["10022=22", "10080=80"], false)).unwrap_err().to_string();
        assert!(why.contains("lacks service tcp-10080 (tcp://:10080 -> tcp://localhost:80)"));
        assert!(why.contains("--yes") && !why.contains("10022"), "{why}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        extend(&path, &args(&["10022=22", "10080=80"], true)).unwrap();
        let now = fs::read_to_string(&path).unwrap();
        let new = "  - { name: tcp-10080, public: \"tcp://:10080\", \
                   target: \"tcp://localhost:80\" }\n";
        assert_eq!(now, format!("{text}{new}"));
        extend(&path, &args(&["10022=22", "10080=80"], false)).unwrap();
        let why = extend(&path, &args(&["10080=81"], false)).unwrap_err().to_string();
        let place = "in the place of service tcp-10080 (tcp://:10080 -> tcp://localhost:80)";
        assert!(why.contains(place), "{why}");
    }

    #[test]
    fn an_answer_begins_with_y() {
        for (answer, yes) in [("y\n", true), (" Yes\n", true), ("n\n", false), ("", false)] {
            assert_eq!(is_yes(&mut answer.as_bytes()).unwrap(), yes, "{answer}");
        }
    }
}
