//! Command lines, also inside a systemd unit, as words with their lines.

use crate::Problem;
use crate::tree::Node;

/// The words of the command in a text. The words of a unit are those of its `ExecStart`. `None`:
/// the text has no such command.
pub(crate) fn unit_command(file: &str, text: &str) -> Result<Option<Vec<Node>>, Problem> {
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        let Some(rest) = line.trim_start().strip_prefix("ExecStart=") else { continue };
        let rest = rest.trim_start_matches(['-', '@', ':', '+', '!']);
        let mut parts = vec![(n + 1, rest)];
        while parts.last().is_some_and(|(_, part)| part.ends_with('\\')) {
            match lines.next() {
                Some((n, line)) => parts.push((n + 1, line)),
                None => break,
            }
        }
        return words(file, &parts).map(Some);
    }
    Ok(None)
}

/// The words of a text that is a single command, possibly over several lines and after comments.
pub(crate) fn command(file: &str, text: &str) -> Result<Vec<Node>, Problem> {
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line));
    let parts: Vec<_> = lines.filter(|(_, line)| !line.trim_start().starts_with('#')).collect();
    words(file, &parts)
}

/// Splits lines as a shell does, without variables.
fn words(file: &str, lines: &[(usize, &str)]) -> Result<Vec<Node>, Problem> {
    let mut found = Vec::new();
    let (mut word, mut begin, mut quote) = (None::<String>, 1, None::<char>);
    for (line, text) in lines {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            if word.is_none() {
                begin = *line;
            }
            match (quote, c) {
                // A backslash at the end of a line joins it to the next line.
                (None | Some('"'), '\\') => match chars.next() {
                    Some(c) => word.get_or_insert_default().push(c),
                    None => continue,
                },
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (Some(open), c) if open == c => quote = None,
                (None, c) if c.is_whitespace() => {
                    found.extend(word.take().map(|word| Node::text(begin, word)));
                }
                (_, c) => word.get_or_insert_default().push(c),
            }
        }
        if quote.is_none() {
            found.extend(word.take().map(|word| Node::text(begin, word)));
        }
    }
    match quote {
        Some(_) => Err(Problem::at(file, begin, "a quotation mark has no end")),
        None => Ok(found),
    }
}
