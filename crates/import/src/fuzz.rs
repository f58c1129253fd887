//! The harness of the fuzz target `import`, also used by the replay of its corpus.

use crate::verify::check;
use crate::{Certificate, Material, Options, Program, Source, Text, import};

/// A token that no input contains.
const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

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

/// Imports the text as a file of each program. Whatever is imported passes our own decoder, a
/// message is one printable line, and no message has a secret.
pub fn fuzz(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if text.contains(TOKEN) {
        return;
    }
    for from in Program::ALL.into_iter().map(Some).chain([None]) {
        let source = Source {
            name: "input".to_owned(),
            folder: String::new(),
            text: Text::File(text.clone()),
        };
        let options = Options { from, ..Options::default() };
        match import(&[source], &options, &mut Fixed) {
            Ok(imported) => {
                for finding in &imported.findings {
                    let line = finding.to_string();
                    assert!(!line.contains(char::is_control), "{line}");
                    assert!(!line.contains(TOKEN), "{line}");
                }
                for file in &imported.files {
                    assert!(!file.shown.contains(TOKEN), "{}", file.shown);
                    if let Err(problems) = check(&file.name, &file.text) {
                        panic!("{from:?}: {problems:#?}\n{}\nof\n{text}", file.text);
                    }
                }
            }
            Err(failure) => {
                let line = failure.to_string();
                assert!(!line.contains(char::is_control) && line.len() < 8192, "{line}");
            }
        }
    }
}
