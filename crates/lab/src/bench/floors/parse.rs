//! Parses the floors from TOML.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Bound, Floor, What};
use crate::bench::case::Case;
use crate::bench::figure::Figure;

const SUBJECTS: [&str; 5] = ["ratio_to", "p99_ratio_to", "cpu_ratio_to", "case_ratio_to", "figure"];
const BOUNDS: [&str; 2] = ["at_least", "at_most"];

/// Reads the file. `systems` are the names of all known systems, installed or not.
pub(crate) fn parse(text: &str, systems: &[&'static str]) -> Result<Vec<Floor>> {
    let file: Value = basic_toml::from_str(text).context("not TOML")?;
    let table = file.as_object().context("not a table")?;
    if let Some(key) = table.keys().find(|key| *key != "floor") {
        bail!("unknown key {key}: the file is a list of [[floor]]");
    }
    let entries = table.get("floor").and_then(Value::as_array).context("no [[floor]]")?;
    let floors = entries.iter().enumerate();
    floors
        .map(|(index, entry)| floor(entry, systems).with_context(|| format!("floor {}", index + 1)))
        .collect()
}

fn floor(entry: &Value, systems: &[&'static str]) -> Result<Floor> {
    let entry = entry.as_object().context("not a table")?;
    let known = |key: &str| {
        ["case", "system"].contains(&key) || SUBJECTS.contains(&key) || BOUNDS.contains(&key)
    };
    if let Some(key) = entry.keys().find(|key| !known(key)) {
        bail!("unknown key {key}");
    }
    let text = |key: &str| {
        let value = entry.get(key).with_context(|| format!("no {key}"))?;
        value.as_str().with_context(|| format!("{key} is a text"))
    };
    let one_of = |keys: &[&'static str]| {
        let mut given = keys.iter().filter(|key| entry.contains_key(**key));
        match (given.next(), given.next()) {
            (Some(key), None) => Ok(*key),
            _ => Err(anyhow::anyhow!("wants one of {}", keys.join(", "))),
        }
    };
    let case_named =
        |name: &str| Case::named(name).with_context(|| format!("there is no case {name}"));
    let system_named = |name: &str| {
        let found = systems.iter().find(|system| **system == name).copied();
        found.with_context(|| format!("there is no system {name}"))
    };

    let (case, system) = (case_named(text("case")?)?, system_named(text("system")?)?);
    let subject = one_of(&SUBJECTS)?;
    let named = text(subject)?;
    let what = match subject {
        "ratio_to" => What::ToSystem(Figure::Rate, system_named(named)?),
        "p99_ratio_to" => What::ToSystem(Figure::P99, system_named(named)?),
        "cpu_ratio_to" => {
            let cost = case.figures().iter().find(|figure| figure.is_processor_time());
            let cost = cost.with_context(|| format!("{} has no processor time", case.name))?;
            What::ToSystem(*cost, system_named(named)?)
        }
        "case_ratio_to" => What::ToCase(case_named(named)?),
        _ => What::Figure(
            Figure::named(named).with_context(|| format!("there is no figure {named}"))?,
        ),
    };
    let figure = match &what {
        What::ToSystem(figure, other) => {
            ensure!(*other != system, "{system} is compared with itself");
            *figure
        }
        What::ToCase(other) => {
            ensure!(
                other.group == case.group && other.name != case.name,
                "{} shares no round with {}",
                case.name,
                other.name
            );
            Figure::Rate
        }
        What::Figure(figure) => *figure,
    };
    ensure!(case.figures().contains(&figure), "{} has no {}", case.name, figure.key());

    let key = one_of(&BOUNDS)?;
    let least = key == "at_least";
    let bound = entry.get(key).and_then(Value::as_f64);
    let bound = bound.filter(|bound| *bound > 0.0 || (*bound == 0.0 && !least));
    let bound = bound.with_context(|| match least {
        true => format!("{key} is a number above 0"),
        false => format!("{key} is a number, not below 0"),
    })?;
    let bound = if least { Bound::AtLeast(bound) } else { Bound::AtMost(bound) };
    Ok(Floor { case, system, what, bound })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEMS: [&str; 3] = ["direct", "tunnel-tcp", "rathole-tcp"];

    #[test]
    fn every_kind_of_floor_is_read() {
        let text = r#"
            [[floor]]
            case = "http-100"
            system = "tunnel-tcp"
            ratio_to = "direct"
            at_least = 0.48
            [[floor]]
            case = "http-100"
            system = "tunnel-tcp"
            p99_ratio_to = "rathole-tcp"
            at_most = 1
            [[floor]]
            case = "bulk-up"
            system = "tunnel-tcp"
            cpu_ratio_to = "rathole-tcp"
            at_most = 0.5
            [[floor]]
            case = "http-1000"
            system = "tunnel-tcp"
            case_ratio_to = "http-100"
            at_least = 0.85
            [[floor]]
            case = "bulk-up"
            system = "tunnel-tcp"
            figure = "cpu_s_per_gb"
            at_most = 0.55
        "#;
        let floors = parse(text, &SYSTEMS).unwrap();
        let said: Vec<_> = floors.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "http-100 tunnel-tcp: rate to direct",
                "http-100 tunnel-tcp: p99_ms to rathole-tcp",
                "bulk-up tunnel-tcp: cpu_s_per_gb to rathole-tcp",
                "http-1000 tunnel-tcp: rate to http-100",
                "bulk-up tunnel-tcp: cpu_s_per_gb",
            ]
        );
        assert_eq!(floors[0].bound, Bound::AtLeast(0.48));
        assert_eq!(floors[1].bound, Bound::AtMost(1.0));
    }

    #[test]
    fn a_floor_without_effect_is_refused_with_its_number() {
        let good = "case = \"http-100\"\nsystem = \"tunnel-tcp\"\nratio_to = \"direct\"\n\
                    at_least = 0.5\n";
        let change = |from: &str, to: &str| good.replace(from, to);
        for (entry, complaint) in [
            (format!("{good}atleast = 1\n"), "unknown key atleast"),
            (change("http-100", "http-99"), "no case http-99"),
            (change("tunnel-tcp", "tunnel-pigeon"), "no system tunnel-pigeon"),
            (change("\"direct\"", "\"nobody\""), "no system nobody"),
            (change("\"direct\"", "\"tunnel-tcp\""), "with itself"),
            (change("ratio_to = \"direct\"\n", ""), "one of ratio_to"),
            (format!("{good}figure = \"rate\"\n"), "one of ratio_to"),
            (change("at_least = 0.5", ""), "one of at_least"),
            (change("at_least = 0.5", "at_least = \"much\""), "a number above 0"),
            (change("at_least = 0.5", "at_least = 0"), "a number above 0"),
            (change("at_least = 0.5", "at_most = -1"), "not below 0"),
            (change("ratio_to = \"direct\"", "figure = \"speed\""), "no figure speed"),
            (change("ratio_to = \"direct\"", "figure = \"cpu_s_per_gb\""), "has no cpu_s_per_gb"),
            (
                change("http-100", "idle-18000").replace("ratio_to", "cpu_ratio_to"),
                "idle-18000 has no processor time",
            ),
            (change("ratio_to = \"direct\"", "case_ratio_to = \"bulk-up\""), "shares no round"),
            (change("\"tunnel-tcp\"", "7"), "system is a text"),
        ] {
            let text = format!("[[floor]]\n{good}[[floor]]\n{entry}");
            let error = format!("{:#}", parse(&text, &SYSTEMS).unwrap_err());
            assert!(error.starts_with("floor 2: ") && error.contains(complaint), "{error}");
        }
        for (text, complaint) in
            [("", "no [[floor]]"), ("[[floors]]\n", "unknown key floors"), ("floor", "not TOML")]
        {
            let error = format!("{:#}", parse(text, &SYSTEMS).unwrap_err());
            assert!(error.contains(complaint), "{error}");
        }
    }
}
