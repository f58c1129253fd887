//! Invitations to private services as data: the order of a person at the client that has the
//! service, its answer, and the code that a visitor gets.
//!
//! A code has two secrets. One is between the visitor and the server: the one-time code by which the
//! visitor enrols. The other is between the two clients, and the server never sees it: the token
//! of the visits.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::enrol::Code;

/// The prefix of each code. It has the version of the format.
const PREFIX: &str = "visit1.";

/// The longest text, in bytes, that is read as a code.
const MAX: usize = 16384;

/// The order for a code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InviteOrder {
    /// The private service.
    pub service: String,
    /// The name of the visitor. Without a name, a new visitor gets a random one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visitor: Option<String>,
    /// The visitor is a client of the server already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
}

/// The answer to an [`InviteOrder`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// `CLIENT/SERVICE`
    pub service: String,
    /// The name of the visitor.
    pub visitor: String,
    /// The code, for `tunnel visit CODE`.
    pub code: String,
    /// For how many seconds the code is valid.
    pub valid_seconds: u64,
    /// What is still to be done on the machine of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_to_do: Option<String>,
    /// The file with the authority by which this client verifies the server. The code has no pin
    /// then, and a new visitor needs the authority as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invitation({} to {})", self.visitor, self.service)
    }
}

/// A visitor that came by a code, or may still come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitedVisitor {
    /// The name of the service.
    pub service: String,
    /// The name of the visitor.
    pub visitor: String,
    /// For how many more seconds the code is valid; absent once the visitor has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_seconds: Option<u64>,
}

/// A visitor has proved a token.
#[derive(Clone, PartialEq, Eq)]
pub struct Visited {
    /// The name of the service.
    pub service: String,
    /// The name of the visitor.
    pub visitor: String,
    /// The hash of the token.
    pub token: String,
}

impl fmt::Debug for Visited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Visited({} at {})", self.visitor, self.service)
    }
}

/// What a revocation has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uninvited {
    /// The services that the visitor can no longer visit.
    pub services: Vec<String>,
    /// What is still to be done on the machine of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_to_do: Option<String>,
}

/// The data that a visitor needs.
#[derive(Clone, PartialEq, Eq)]
pub struct VisitCode {
    /// The service: `CLIENT/SERVICE`.
    pub service: String,
    /// The token that only the two clients have.
    pub token: String,
    /// The name of the visitor.
    pub visitor: String,
    /// The code with which a new client enrols. `None`: the visitor is a client already.
    pub enrolment: Option<Code>,
}

impl fmt::Debug for VisitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisitCode({} to {})", self.visitor, self.service)
    }
}

impl VisitCode {
    /// The code as text, in characters that need no quotes in a shell.
    pub fn text(&self) -> String {
        let enrolment = self.enrolment.as_ref().map(Code::text).unwrap_or_default();
        let lines = [&self.service, &self.token, &self.visitor, &enrolment];
        // The last line end shows that nothing is missing behind it.
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
    }

    /// Reads a code. The caller checks the values.
    ///
    /// # Errors
    /// A line for a person: the text is no code, or the code is damaged.
    pub fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let not_one = || "this is no code of `tunnel visit --new`".to_owned();
        let coded = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX).ok_or_else(not_one)?;
        let damaged = || "the code is damaged; copy the whole of it".to_owned();
        let bytes = URL_SAFE_NO_PAD.decode(coded).map_err(|_| damaged())?;
        let text = String::from_utf8(bytes).map_err(|_| damaged())?;
        let lines: Vec<_> = text.strip_suffix('\n').ok_or_else(damaged)?.split('\n').collect();
        let [service, token, visitor, enrolment] = lines[..] else { return Err(damaged()) };
        let enrolment = match enrolment {
            "" => None,
            code => Some(Code::read(code).map_err(|_| damaged())?),
        };
        let [service, token, visitor] = [service, token, visitor].map(str::to_owned);
        Ok(Self { service, token, visitor, enrolment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_goes_there_and_back_and_a_part_of_one_is_told() {
        let code = VisitCode {
            service: "home/ssh".into(),
            token: "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ".into(),
            visitor: "laptop".into(),
            enrolment: None,
        };
        let enrolment = Code {
            name: "laptop".into(),
            secret: "q7Xb2LmZ0aKc9RtYv4WnPs".into(),
            pin: Some("sha256:AAAA".into()),
            self_signed: true,
            renew: false,
            proxied: false,
            may: None,
            reach: None,
            urls: vec!["tls://a.example:7000".into()],
            names: [("tls://a.example:7000".into(), "b.example".into())].into(),
        };
        for enrolment in [None, Some(enrolment)] {
            let code = VisitCode { enrolment, ..code.clone() };
            let text = code.text();
            assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{text}");
            assert_eq!(VisitCode::read(&format!(" {text}\n")), Ok(code.clone()));
            for length in PREFIX.len()..text.len() {
                assert!(VisitCode::read(&text[..length]).is_err(), "{length}");
            }
            assert!(!format!("{code:?}").contains(&code.token));
        }
        for wrong in ["", "visit1", "enroll1.AAAA", &code.token] {
            assert!(VisitCode::read(wrong).unwrap_err().contains("no code"), "{wrong}");
        }
    }
}
