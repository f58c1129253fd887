//! Recognises the program of a text by its content.

use proto::text::escaped;

use crate::programs::{self, flags};
use crate::read::{SIZE_MAX, command, formats, read as read_as, unit_command};
use crate::section::Read;
use crate::tree::{Kind, Node};
use crate::{Failure, Options, Problem, Program, Source, Text};

/// Reads all sources, which must belong to one program.
pub(crate) fn read(sources: &[Source], options: &Options) -> Result<(Program, Vec<Read>), Failure> {
    let mut all: Vec<Read> = Vec::new();
    let mut known: Option<(String, Program)> = None;
    for source in sources {
        // A name may have any character but a slash. It becomes part of comments and messages.
        let name = escaped(&source.name).into_owned();
        let (program, root) = one(&name, source, options.from)?;
        if let Some((file, other)) = &known
            && *other != program
        {
            return Err(Failure::Mixed(file.clone(), *other, name, program));
        }
        known.get_or_insert_with(|| (name.clone(), program));
        let folder = source.folder.clone();
        all.push(Read { name, folder, root });
    }
    match known {
        Some((_, program)) => Ok((program, all)),
        None => Err(Failure::Option("no file to import".to_owned())),
    }
}

fn one(name: &str, source: &Source, from: Option<Program>) -> Result<(Program, Node), Failure> {
    let text = match &source.text {
        Text::Command(words) => {
            let words: Vec<_> = words.iter().map(|word| Node::text(0, word)).collect();
            return of_command(name, &words, from);
        }
        Text::File(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
    };
    if text.len() > SIZE_MAX {
        return Err(Problem::at(name, 1, "the file is larger than 1 MiB").into());
    }
    if let Some(words) = unit_command(name, text)? {
        return of_command(name, &words, from);
    }
    if may_be_command(text, from)
        && let Ok(words) = command(name, text)
    {
        return of_command(name, &words, from);
    }
    let (mut first, mut fitting) = (None, Vec::new());
    for format in formats(name, text) {
        match read_as(format, name, text) {
            Ok(root) => {
                let programs: Vec<_> = match from {
                    Some(program) => vec![program],
                    None => {
                        Program::ALL.into_iter().filter(|p| programs::fits(*p, &root)).collect()
                    }
                };
                if !programs.is_empty() && matches!(root.kind, Kind::Map(_)) {
                    fitting.push((programs, root));
                    break;
                }
            }
            Err(problem) => {
                first.get_or_insert(problem);
            }
        }
    }
    match (fitting.pop(), first) {
        (Some((programs, root)), _) => match programs.as_slice() {
            [program] => Ok((*program, programs::prepared(*program, root))),
            _ => Err(Failure::Ambiguous { file: name.to_owned(), programs }),
        },
        (None, Some(problem)) => Err(problem.into()),
        (None, None) => {
            Err(Failure::Unknown { file: name.to_owned(), programs: Program::ALL.to_vec() })
        }
    }
}

/// Whether a text should be read as a command line: its first word starts a known program.
fn may_be_command(text: &str, from: Option<Program>) -> bool {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(str::split_whitespace);
    // A leading word may set a variable, or be `sudo` or `exec`.
    let mut first = words.take(4);
    let starts = first.any(|word| flags::program(word).is_some());
    match from {
        Some(program) => program.is_command(),
        None => !text.trim_start().starts_with(['{', '[']) && starts,
    }
}

/// The arguments of a program, after its name.
fn of_command(
    name: &str,
    words: &[Node],
    from: Option<Program>,
) -> Result<(Program, Node), Failure> {
    let found = words.iter().enumerate().find_map(|(n, word)| {
        let program = flags::program(word.as_text()?)?;
        Some((n + 1, program))
    });
    let own = flags::program(name).map(|program| (0, program));
    let given = from.filter(|program| program.is_command()).map(|program| (0, program));
    let Some((begin, program)) = found.or(own).or(given) else {
        let programs = Program::ALL.into_iter().filter(|program| program.is_command()).collect();
        return Err(Failure::Unknown { file: name.to_owned(), programs });
    };
    if let Some(from) = from.filter(|from| *from != program) {
        return Err(Failure::Mixed(name.to_owned(), program, "--from".to_owned(), from));
    }
    let words = words.get(begin..).unwrap_or_default();
    Ok((program, flags::tree(programs::grammar(program), words)))
}
