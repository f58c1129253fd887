//! Invitations to private services as data: the order of a user at the client that provides the
//! service, the answer, and the code for the visitor.
//!
//! A code has two secrets. The first is shared by the visitor and the server: the one-time code
//! with which the visitor enrols. The second is shared by the two clients, and the server never
//! sees it: the token of the visits.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::enrol::Code;

/// The prefix of each code. It contains the version of the format.
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
    /// Whether the visitor is already a client of the server.
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
    /// The validity of the code, in seconds.
    pub valid_seconds: u64,
    /// The remaining step on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_to_do: Option<String>,
    /// The file with the authority by which this client verifies the server. The code then contains
    /// no pin, and a new visitor needs the authority as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<String>,
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Invitation({} to {})", self.visitor, self.service)
    }
}

/// A visitor that was invited by a code, whether or not it has logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitedVisitor {
    /// The name of the service.
    pub service: String,
    /// The name of the visitor.
    pub visitor: String,
    /// The remaining validity of the code, in seconds; absent after the visitor has logged in.
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

/// The result of a revocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uninvited {
    /// The services that the visitor can no longer visit.
    pub services: Vec<String>,
    /// The remaining step on the server's machine.
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
    /// The code with which a new client enrols. `None`: the visitor is already a client.
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
        // The final line end shows that the code is complete.
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(text))
    }

    /// Reads a code. The caller checks the values.
    ///
    /// # Errors
    /// A readable line: the text is not a code, or the code is damaged.
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
            others: Vec::new(),
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
