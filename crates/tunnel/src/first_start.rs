//! `tunnel server` without a file: one client, its token kept in the state directory, and the text
//! that brings the other machine in.

use std::io::{IsTerminal, stdout};
use std::net::{Ipv6Addr, UdpSocket};
use std::path::PathBuf;

use ops::enrol::Order;
use ops::state::StateDir;
use ops::{Role, WrongConfig, term};

use crate::cli::ServerArgs;
use crate::enroll::Kept;
use crate::load;

/// The client's name unless a flag says otherwise.
pub(crate) const NAME: &str = "home";

/// What the other machine needs to come in.
pub(crate) struct Invitation {
    /// The client's name.
    pub(crate) name: String,
    /// The secret and the file it is kept in; `None` when the user gave it and has it already.
    pub(crate) token: Option<(String, PathBuf)>,
    /// `sha256:…` of the certificate; `None` when the client trusts it anyway, or there is no TLS.
    pub(crate) pin: Option<String>,
}

/// The client's token, made at the first start.
pub(crate) fn token(state: &StateDir, client: &str) -> anyhow::Result<(String, PathBuf)> {
    // The configuration says the same later; but here the name is part of a path already.
    if client.is_empty() || !client.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        let hint = "1 to 64 letters, digits, `-`, `_`, `.`";
        let text = format!("--name: `{client}` is not a name (hint: {hint})");
        return Err(WrongConfig::one(text).into());
    }
    let file = token_file(client);
    if let Some(kept) = state.read(&file)? {
        return Ok((kept.trim().to_owned(), state.path().join(file)));
    }
    let token = ops::token()?;
    let path = state.write(&file, token.as_bytes())?;
    Ok((token, path))
}

/// Where to listen unless a flag says otherwise: dual stack where the machine has IPv6.
pub(crate) fn listen() -> &'static str {
    let ipv6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    if ipv6 { "tls://[::]:7000" } else { "tls://0.0.0.0:7000" }
}

impl Invitation {
    /// What to do on the other machine. `listen` are the bound addresses (`tls://[::]:7000`). The
    /// secret itself is shown on a terminal only: elsewhere the output ends in somebody's log.
    pub(crate) fn text(&self, listen: &[String], terminal: bool) -> String {
        let Self { name, token, pin } = self;
        let file = format!("{name}.token");
        let bring = match token {
            // `printf` is part of the shell, so the token is in no process's arguments.
            Some((token, _)) if terminal => {
                format!("On the other machine:\n\n  (umask 077; printf %s {token} > {file})\n")
            }
            Some((_, kept)) => format!(
                "Copy {} to the other machine as {file} (it is a secret); there:\n\n",
                std::path::absolute(kept).as_ref().unwrap_or(kept).display()
            ),
            None => format!("On the other machine, with the token in {file}:\n\n"),
        };
        let servers: String =
            ops::enrol::urls(listen).iter().map(|url| format!(" --server {url}")).collect();
        let pin = pin.as_ref().map(|pin| format!(" --pin {pin}")).unwrap_or_default();
        let mut text =
            format!("{bring}  tunnel client{servers} --name {name} --token-file {file}{pin}\n");
        text.push_str("\nAdd what to publish, like --publish tcp://:10022=tcp://127.0.0.1:22\n");
        if text.contains(ops::enrol::PLACEHOLDER) {
            text.push_str(&format!(
                "{} is how this machine is reached from there.\n",
                ops::enrol::PLACEHOLDER
            ));
        }
        text
    }
}

/// Whether a server that was given neither a file nor a token makes one client by itself. Not where
/// clients come in by codes, unless it has made that one before.
pub(crate) fn makes_a_client(args: &ServerArgs, state: &StateDir) -> anyhow::Result<bool> {
    if args.token.is_some() || args.token_file.is_some() || args.enroll.is_some() {
        return Ok(false);
    }
    let name = load::client_name(args);
    let has_one = args.name.is_some() || state.read(&token_file(name))?.is_some();
    Ok(has_one || Kept::in_state(state.path()).is_empty()?)
}

fn token_file(client: &str) -> String {
    format!("{client}.token")
}

/// Shows the code for a client of that name, unless it has come in already: a service that is
/// started with the flag again and again does not open the door each time.
pub(crate) async fn enroll(role: &dyn Role, order: Order) -> anyhow::Result<()> {
    let name = order.name.clone();
    if role.knows(&name) {
        let rights = if order.is_default() { "" } else { "; its rights stay those of its file" };
        tracing::info!("client `{name}` has been enrolled already{rights}");
        return Ok(());
    }
    // Elsewhere the output ends in somebody's log.
    if !stdout().is_terminal() {
        tracing::info!("for the code of client `{name}`: tunnel enroll {name}{}", order.flags());
        return Ok(());
    }
    term::out(role.enroll(order).await?.text(&name, &[]));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            name: "home".into(),
            token: Some(("SECRET".into(), "/state/home.token".into())),
            pin: Some("sha256:AAAA".into()),
        }
    }

    #[test]
    fn the_token_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path().join("s")).unwrap();
        let first = token(&state, NAME).unwrap();
        assert_eq!(token(&state, NAME).unwrap(), first);
        assert_ne!(token(&state, "other").unwrap(), first);
        assert!(token(&state, "../x").unwrap_err().is::<WrongConfig>());
    }

    #[test]
    fn the_line_is_complete_and_the_secret_is_no_argument_of_it() {
        let text = invitation().text(&["tls://192.0.2.5:7000".into()], true);
        let client = text.lines().find(|line| line.contains("tunnel client")).unwrap();
        assert_eq!(
            client.trim(),
            "tunnel client --server tls://192.0.2.5:7000 --name home --token-file home.token \
             --pin sha256:AAAA"
        );
        assert!(text.contains("printf %s SECRET > home.token"), "{text}");
    }

    #[test]
    fn off_a_terminal_the_secret_is_not_shown() {
        let text = invitation().text(&["tls://192.0.2.5:7000".into()], false);
        assert!(!text.contains("SECRET"), "{text}");
        assert!(text.contains("/state/home.token"), "{text}");
    }
}
