//! `tunnel generate config`: the commented files, and that of a client with the servers of the
//! command line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use config::{ClientFlags, Policy, Sources, Text, load_client, server_url};
use ops::WrongConfig;

use crate::cli::Sample;
use crate::quoted::quoted;

/// The name of the file in messages.
const FILE: &str = "client.yaml";

/// A token for the check of the file, whose own token is in another file.
const ANY_TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The commented file of a role. `servers` are URLs, or `NAME=URL` of several servers.
///
/// # Errors
/// The servers or the policy are none of a client, or do not fit together.
pub(crate) fn sample(
    side: Sample,
    servers: &[String],
    policy: Option<Policy>,
) -> Result<String, WrongConfig> {
    let text = match side {
        Sample::Client if !servers.is_empty() || policy.is_some() => {
            return client(servers, policy);
        }
        Sample::Client => config::sample::CLIENT,
        Sample::Server | Sample::Proxy if !servers.is_empty() || policy.is_some() => {
            let text = "--server and --use are for the file of a client";
            return Err(WrongConfig::one(text.to_owned()));
        }
        Sample::Server => config::sample::SERVER,
        Sample::Proxy => config::sample::PROXY,
    };
    Ok(text.trim_end().to_owned())
}

/// The file of a client with these servers and this policy.
fn client(servers: &[String], policy: Option<Policy>) -> Result<String, WrongConfig> {
    let mut text = String::new();
    let mut lines = config::sample::CLIENT.trim_end().lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("servers:") && !servers.is_empty() {
            text.push_str(&entries(servers)?);
            // The examples of paths belong to the server of the sample.
            while lines.next_if(|line| line.starts_with("  ")).is_some() {}
        } else if let Some(policy) = policy.filter(|_| line.starts_with("# use:")) {
            let _ = writeln!(text, "use: {policy}");
        } else {
            let _ = writeln!(text, "{line}");
        }
    }
    let read = |_: &std::path::Path| Ok(ANY_TOKEN.to_owned());
    let sources = Sources { env: &|_| None, read: &read };
    let whole = Some(Text { name: FILE, text: &text });
    let loaded = load_client(whole, &ClientFlags::default(), &sources)?;
    if policy.is_some_and(Policy::is_single) && loaded.config.servers.len() < 2 {
        let text = "--use goes with several servers (hint: --server fra=URL --server nyc=URL)";
        return Err(WrongConfig::one(text.to_owned()));
    }
    Ok(text.trim_end().to_owned())
}

/// `servers:` with an entry for each path, or for each server with its paths.
fn entries(servers: &[String]) -> Result<String, WrongConfig> {
    let (mut paths, mut named) = (Vec::new(), Vec::new());
    let mut of_name: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for text in servers {
        // A URL may have `=` behind its scheme.
        let pair = text.split_once('=').filter(|(name, _)| !name.contains(['/', ':']));
        let url = server_url(pair.map_or(text.as_str(), |(_, url)| url));
        let url = url.map_err(|bad| WrongConfig::one(format!("--server: {}", bad.line())))?;
        let Some((name, _)) = pair else {
            paths.push(url.to_string());
            continue;
        };
        if !named.contains(&name) {
            named.push(name);
        }
        of_name.entry(name).or_default().push(url.to_string());
    }
    if !paths.is_empty() && !named.is_empty() {
        let text = "--server: with several servers each has a name: --server fra=URL";
        return Err(WrongConfig::one(text.to_owned()));
    }
    let mut text = String::from("servers:\n");
    for path in paths {
        let _ = writeln!(text, "  - {}", quoted(&path));
    }
    for name in named {
        let urls: Vec<_> = of_name.get(name).into_iter().flatten().map(|url| quoted(url)).collect();
        let name = quoted(name);
        let _ = writeln!(text, "  - {{ name: {name}, paths: [{}] }}", urls.join(", "));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(servers: &[&str], policy: Option<Policy>) -> Result<String, WrongConfig> {
        let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
        sample(Sample::Client, &servers, policy)
    }

    #[test]
    fn the_sample_of_a_client_has_the_servers_of_the_command_line() {
        assert_eq!(of(&[], None).unwrap(), config::sample::CLIENT.trim_end());
        let text = of(&["example.org", "quic://example.org"], None).unwrap();
        assert!(text.contains("servers:\n  - \"tls://example.org:7000\"\n  - \"quic://"), "{text}");
        assert!(!text.contains("example.com:7000") && text.contains("\nservices:\n"), "{text}");
        let several = ["fra=fra.example.com", "nyc=tls://nyc.example.com", "fra=quic://b.example"];
        let text = of(&several, Some(Policy::Failover)).unwrap();
        let fra = "  - { name: \"fra\", paths: [\"tls://fra.example.com:7000\", \"quic://b.example";
        assert!(text.contains(fra) && text.contains("\nuse: failover\nname: home\n"), "{text}");
        assert_eq!(text.matches("name: \"nyc\"").count(), 1);
    }

    #[test]
    fn servers_that_do_not_fit_are_refused() {
        let why = |servers: &[&str], policy| of(servers, policy).unwrap_err().to_string();
        assert!(why(&["fra=a", "b"], None).contains("each has a name"));
        assert!(why(&["tsl://a"], None).contains("unknown transport `tsl`"));
        assert!(why(&["a"], Some(Policy::Nearest)).contains("several servers"));
        assert!(why(&["fra=a", "nyc=a"], None).contains("is a path of server"));
        for side in [Sample::Server, Sample::Proxy] {
            assert!(sample(side, &["a".to_owned()], None).is_err());
            assert!(sample(side, &[], None).is_ok());
        }
    }
}
