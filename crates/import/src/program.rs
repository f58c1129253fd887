//! The programs whose configuration can be imported, by name.

use std::fmt;
use std::str::FromStr;

/// A program whose configuration can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the programs")]
pub enum Program {
    Frp,
    Rathole,
    Ngrok,
    Chisel,
    Wstunnel,
    Cloudflared,
    Evproxy,
    Gt,
    Qmux,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 9] = [
        Self::Frp,
        Self::Rathole,
        Self::Ngrok,
        Self::Chisel,
        Self::Wstunnel,
        Self::Cloudflared,
        Self::Evproxy,
        Self::Gt,
        Self::Qmux,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frp => "frp",
            Self::Rathole => "rathole",
            Self::Ngrok => "ngrok",
            Self::Chisel => "chisel",
            Self::Wstunnel => "wstunnel",
            Self::Cloudflared => "cloudflared",
            Self::Evproxy => "evproxy",
            Self::Gt => "gt",
            Self::Qmux => "qmux",
        }
    }

    /// Whether a command line is the configuration.
    pub(crate) const fn is_command(self) -> bool {
        matches!(self, Self::Chisel | Self::Wstunnel)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Program {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|program| program.name() == text);
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.into_iter().map(Self::name).collect();
            format!("known are {}", names.join(", "))
        })
    }
}
