//! Completions for shells and manual pages, made from the definition of the command line.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap::builder::Resettable;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};
use clap_mangen::Man;

use crate::cli::{Cli, Shell};

const PROGRAM: &str = "tunnel";

/// The variable by which the script of a shell asks the program for completions.
pub(crate) const COMPLETE: &str = "TUNNEL_COMPLETE";

/// The script by which a shell asks the program for commands, flags and names.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<String> {
    let completer: &dyn EnvCompleter = match shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    completer.write_registration(COMPLETE, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    let script = String::from_utf8(script)?;
    Ok(match shell {
        Shell::Bash => script.replace("-F _clap_complete_tunnel ", "-F _tunnel_complete ") + WORDS,
        Shell::Zsh | Shell::Fish => script,
    })
}

/// The function that bash calls: it has the function of clap complete whole words.
const WORDS: &str = include_str!("words.bash");

/// The manual page of the whole program.
pub(crate) fn man_page() -> anyhow::Result<String> {
    page(Cli::command())
}

/// Each manual page with the name of its file: `tunnel.1`, `tunnel-client.1`,
/// `tunnel-generate-certs.1`.
pub(crate) fn all_pages() -> anyhow::Result<Vec<(String, String)>> {
    let mut root = Cli::command();
    // Gives each command its full name, which is also the name of its page.
    root.build();
    let (mut pages, mut left) = (Vec::new(), vec![root]);
    while let Some(command) = left.pop() {
        let below = command.get_subcommands().filter(|sub| sub.get_name() != "help");
        left.extend(below.cloned());
        let name = command.get_display_name().unwrap_or(PROGRAM).to_owned();
        pages.push((format!("{name}.1"), page(command)?));
    }
    pages.sort();
    Ok(pages)
}

/// Writes all manual pages to a folder, which is made if it is missing. A page replaces the page of
/// an older version.
pub(crate) fn man_pages(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (name, text) in all_pages()? {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn page(command: clap::Command) -> anyhow::Result<String> {
    let after = command.get_after_help().map(ToString::to_string);
    let mut text = Vec::new();
    // clap would fill the lines of the examples as those of a paragraph.
    Man::new(command.after_help(Resettable::Reset)).render(&mut text)?;
    let text = String::from_utf8(text)?;
    let after = after.map(|after| after_help(&after)).unwrap_or_default();
    // No word is split, because a path in two parts cannot be copied. `.EE` sets what HY says.
    let text = text.replacen(HEADING, &format!(".nr HY 0\n.nh\n{HEADING}"), 1);
    Ok(match text.split_once(VERSION) {
        Some((before, version)) => format!("{before}{after}{VERSION}{version}"),
        None => text + &after,
    })
}

/// The begin of the first section of a page.
const HEADING: &str = ".SH NAME\n";

/// The last section of a page, before which the examples stand.
const VERSION: &str = ".SH VERSION\n";

/// The head of the examples in the text after the options.
const EXAMPLES: &str = "Examples:";

/// The text after the options as sections of a page. An indented line is an example, whose spaces
/// and end stay as they are.
fn after_help(text: &str) -> String {
    let mut page = String::new();
    let (mut section, mut is_example) = ("NOTES", false);
    for line in text.lines() {
        if line == EXAMPLES {
            section = "EXAMPLES";
            continue;
        }
        let example = line.strip_prefix("  ");
        if is_example && example.is_none() {
            page.push_str(".EE\n");
            is_example = false;
        }
        if !section.is_empty() {
            page.push_str(&format!(".SH {section}\n"));
            section = "";
        }
        match example {
            Some(_) if !is_example => {
                page.push_str(".EX\n");
                is_example = true;
            }
            None if line.is_empty() => {
                page.push_str(".PP\n");
                continue;
            }
            Some(_) | None => {}
        }
        page.push_str(&literal(example.unwrap_or(line)));
        page.push('\n');
    }
    page.push_str(if is_example { ".EE\n" } else { "" });
    page
}

/// A line of text in which no character is a command to roff, or is replaced by a typographic one.
fn literal(line: &str) -> String {
    let mut text = String::new();
    if line.starts_with(['.', '\'']) {
        text.push_str("\\&");
    }
    for c in line.chars() {
        match c {
            '\\' => text.push_str("\\e"),
            '-' => text.push_str("\\-"),
            '\'' => text.push_str("\\(aq"),
            '`' => text.push_str("\\(ga"),
            '^' => text.push_str("\\(ha"),
            '~' => text.push_str("\\(ti"),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    fn said(output: Output) -> String {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && error.is_empty(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What is after the options in the help of each command, with the name of its page.
    fn texts_after_help(command: &clap::Command) -> Vec<(String, String)> {
        let name = command.get_display_name().unwrap_or(PROGRAM).to_owned();
        let own = command.get_after_help().map(|text| (name, text.to_string()));
        own.into_iter().chain(command.get_subcommands().flat_map(texts_after_help)).collect()
    }

    #[test]
    fn examples_keep_their_lines_and_spaces_on_a_terminal_of_80_columns() {
        let dir = tempfile::tempdir().unwrap();
        man_pages(dir.path()).unwrap();
        let mut root = Cli::command();
        root.build();
        let texts = texts_after_help(&root);
        assert!(texts.len() > 5, "{texts:?}");
        for (name, text) in texts {
            let mut groff = Command::new("groff");
            groff.args(["-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=78n", "-K", "utf8"]);
            let shown = said(groff.arg(dir.path().join(format!("{name}.1"))).output().unwrap());
            for line in text.lines().filter(|line| line.starts_with("  ")) {
                let line = format!("       {}", &line[2..]);
                assert!(shown.lines().any(|other| other == line), "{name}: {line:?} in\n{shown}");
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
            let prose = text.lines().filter(|line| !line.starts_with("  ") && *line != EXAMPLES);
            let words = prose.flat_map(str::split_whitespace);
            for word in words {
                assert!(shown.contains(word), "{name}: {word} in\n{shown}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page_that_groff_has_nothing_to_say_about() {
        let dir = tempfile::tempdir().unwrap();
        man_pages(dir.path()).unwrap();
        let pages = all_pages().unwrap();
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["tunnel.1", "tunnel-client.1", "tunnel-generate-certs.1"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert!(man_page().unwrap().contains("tunnel\\-client(1)"));
        for (name, text) in &pages {
            let path = dir.path().join(name);
            assert_eq!(&fs::read_to_string(&path).unwrap(), text);
            assert!(text.contains(".SH NAME\n") && text.contains(".SH SYNOPSIS\n"), "{name}");
            let mut groff = Command::new("groff");
            let read = groff.args(["-man", "-ww", "-z", "-K", "utf8"]).arg(&path).output();
            let read = read.expect("groff, which `cargo xtask test packages` installs");
            assert_eq!(said(read), "", "{name}");
        }
    }
}
