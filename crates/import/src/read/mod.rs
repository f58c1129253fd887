//! Reads a text of any of the formats into a [`Node`]. Each parser bounds depth and size.

mod ini;
mod json;
mod toml;
mod words;
mod yaml;

pub(crate) use words::{command, unit_command};

use crate::Problem;
use crate::tree::Node;

/// The largest source file in bytes.
pub(crate) const SIZE_MAX: usize = 1 << 20;

/// The formats of configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Toml,
    Ini,
    Yaml,
    Json,
}

/// Reads a text of this format.
pub(crate) fn read(format: Format, file: &str, text: &str) -> Result<Node, Problem> {
    match format {
        Format::Toml => toml::read(file, text),
        Format::Ini => ini::read(file, text),
        Format::Yaml => yaml::read(file, text),
        Format::Json => json::read(file, text),
    }
}

/// The formats that a text may have, the most likely format first.
pub(crate) fn formats(file: &str, text: &str) -> Vec<Format> {
    let name = file.rsplit('.').next().unwrap_or_default();
    let by_name = match name.to_ascii_lowercase().as_str() {
        "toml" => Some(Format::Toml),
        "ini" => Some(Format::Ini),
        "yaml" | "yml" => Some(Format::Yaml),
        "json" => Some(Format::Json),
        _ => None,
    };
    let lines = || text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let first = lines().find(|line| !line.is_empty()).unwrap_or_default();
    let by_text = if first.starts_with('{') {
        vec![Format::Json]
    } else if lines().any(|line| line.eq_ignore_ascii_case("[common]")) {
        vec![Format::Ini]
    } else if lines().any(|line| line.starts_with('[')) || lines().any(is_toml_pair) {
        vec![Format::Toml, Format::Ini]
    } else {
        vec![Format::Yaml]
    };
    let mut all: Vec<_> = by_name.into_iter().collect();
    all.extend(by_text.into_iter().filter(|format| by_name != Some(*format)));
    all
}

/// `key = value`, with a key of TOML.
fn is_toml_pair(line: &str) -> bool {
    let Some((key, _)) = line.split_once('=') else { return false };
    let key = key.trim();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !key.is_empty() && key.chars().all(allowed)
}
