//! What is imported: texts, and what a person adds to them.

use crate::Program;

/// A text to import.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name of the file, for messages. For a command, the name of the program.
    pub name: String,
    /// The folder that paths of the file are relative to. Empty: they stay as they are.
    pub folder: String,
    /// The text.
    pub text: Text,
}

/// The kinds of source texts.
#[derive(Clone, Debug)]
pub enum Text {
    /// The content of a file.
    File(String),
    /// The arguments of a program.
    Command(Vec<String>),
}

/// What the sources do not say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program, where the texts do not tell.
    pub from: Option<Program>,
    /// The name of the client.
    pub name: Option<String>,
    /// The URL or the host by which clients reach the server.
    pub server: Option<String>,
    /// The domain of names whose source has the first label alone.
    pub domain: Option<String>,
}
