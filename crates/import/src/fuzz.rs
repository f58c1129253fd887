//! The harness of the fuzz target `import`, also used by the replay of its corpus.

use proto::text::is_forbidden;

use crate::verify::check;
use crate::{Certificate, Material, Options, Program, Source, Text, import};

/// A token that no input contains.
const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

/// The name of a file with YAML line breaks, which would start a new line inside a comment. The
/// last part prevents a format from being derived from the name.
const NAME: &str = "in\ninjected: 1\rinjected: 2\u{85}injected: 3\u{2028}injected: 4\u{1b}[2Jput";

/// The characters that end a line in YAML 1.1 or 1.2.
const LINE_ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Material without randomness.
struct Fixed;

impl Material for Fixed {
    fn token(&mut self) -> Result<String, String> {
        Ok(TOKEN.to_owned())
    }

    fn certificate(&mut self, _: &[String]) -> Result<Certificate, String> {
        let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned();
        Ok(Certificate { certificate: "certificate".into(), key: "key".into(), pin })
    }
}

/// Imports the text as a file of each program, under a hostile name. Everything that is imported is
/// accepted by our own decoder, the name starts no new line, a message is one printable line, and
/// no message contains a secret.
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if text.contains(TOKEN) {
        return;
    }
    for from in Program::ALL.into_iter().map(Some).chain([None]) {
        let source =
            Source { name: NAME.to_owned(), folder: String::new(), text: Text::File(text.clone()) };
        let options = Options { from, ..Options::default() };
        match import(&[source], &options, &mut Fixed) {
            Ok(imported) => {
                for finding in &imported.findings {
                    let line = finding.to_string();
                    assert!(!line.contains(is_forbidden), "{line}");
                    assert!(!line.contains(TOKEN), "{line}");
                }
                for file in &imported.files {
                    assert!(!file.shown.contains(TOKEN), "{}", file.shown);
                    for line in file.text.split(LINE_ENDS).chain(file.shown.split(LINE_ENDS)) {
                        assert!(!line.starts_with("injected"), "{}", file.text);
                    }
                    if let Err(problems) = check(&file.name, &file.text) {
                        panic!("{from:?}: {problems:#?}\n{}\nof\n{text}", file.text);
                    }
                }
            }
            Err(failure) => {
                let line = failure.to_string();
                assert!(!line.contains(is_forbidden) && line.len() < 8192, "{line}");
            }
        }
    }
}
