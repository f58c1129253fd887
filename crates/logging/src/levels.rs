//! Checks log filters: a level, or directives with a level for parts of the program.

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Checks a filter: a level, or comma-separated directives such as `info,link=debug`. Returns the
/// text unchanged.
///
/// A single word that is not a level is refused. The parser of `tracing` would take it for a
/// directive for a module of that name, which silences all other modules.
///
/// # Errors
/// The unknown level, or the text that names no part of this program.
pub fn levels(text: &str) -> Result<String, String> {
    for directive in text.split(',') {
        let (part, level) = directive.rsplit_once('=').unwrap_or(("_", directive));
        // The parser of `tracing` is more lenient: it accepts numbers, and an empty text as
        // `error`.
        if !LEVELS.contains(&level) {
            return Err(format!("`{level}` is no level: {}", LEVELS.join(", ")));
        }
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        if part.is_empty()
            || part.starts_with(|c: char| c.is_ascii_digit() || c == ':')
            || !part.chars().all(is_path)
        {
            return Err(format!("`{part}` is no part of this program, like link or relay::dial"));
        }
    }
    Ok(text.to_owned())
}

/// The parts that were modules of the part `node` in earlier versions, by their former names.
const FORMER: [(&str, &[&str]); 9] = [
    (
        "node",
        &[
            "families", "capture", "targets", "peer", "survey", "probes", "doors", "server",
            "client", "proxy",
        ],
    ),
    ("node::server", &["server", "doors"]),
    ("node::client", &["client"]),
    ("node::proxy", &["proxy"]),
    ("node::peer", &["peer"]),
    ("node::targets", &["targets"]),
    ("node::transports", &["families"]),
    ("node::capture", &["capture"]),
    ("node::probes", &["probes"]),
];

/// Adds to a filter the present names of parts that it calls by a former name, so that a filter of
/// an earlier version shows the same lines. A part that the filter names itself keeps its level.
pub(crate) fn present(text: &str) -> String {
    let named = |part: &str| {
        text.split(',').any(|directive| directive.split(['=', ':']).next() == Some(part))
    };
    let mut all: Vec<String> = Vec::new();
    for directive in text.split(',') {
        let Some((part, level)) = directive.rsplit_once('=') else { continue };
        let parts = FORMER.iter().filter(|(former, _)| *former == part).flat_map(|(_, now)| *now);
        all.extend(parts.filter(|now| !named(now)).map(|now| format!("{now}={level}")));
    }
    // Of two directives for one part the last counts.
    all.push(text.to_owned());
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_an_earlier_version_names_the_same_parts() {
        assert_eq!(present("info,link=debug"), "info,link=debug");
        let all = present("info,node=debug,server=warn");
        assert!(all.starts_with("families=debug,") && all.contains(",client=debug,"), "{all}");
        assert!(all.ends_with("info,node=debug,server=warn"), "{all}");
        assert!(!all.contains("server=debug"), "{all}");
        assert_eq!(
            present("node::server=trace,warn"),
            "server=trace,doors=trace,node::server=trace,warn"
        );
    }

    #[test]
    fn a_level_is_a_word_of_six_and_may_be_for_a_part() {
        for good in ["info", "off", "info,link=debug", "relay::dial=trace,warn"] {
            assert_eq!(levels(good).as_deref(), Ok(good));
        }
        for bad in
            ["", "INFO", "3", "loud", "link", "info,", "=info", "a b=info", "1=info", "a=b=info"]
        {
            assert!(levels(bad).is_err(), "{bad}");
        }
    }
}
