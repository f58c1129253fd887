//! The input: texts, and the additions of the user.

use crate::Program;

/// A text to import.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name of the file, for messages. For a command, the name of the program.
    pub name: String,
    /// The folder to which paths in the file are relative. If empty, they are kept unchanged.
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

/// Data that the sources do not contain.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The program, if it cannot be recognised from the texts.
    pub from: Option<Program>,
    /// The name of the client.
    pub name: Option<String>,
    /// The URL or the host by which clients reach the server.
    pub server: Option<String>,
    /// The domain of names of which the source has only the first label.
    pub domain: Option<String>,
}
