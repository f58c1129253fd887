//! `tunnel server` without a file: one client, its token in the state directory, and the
//! instructions for the other machine.

use std::io::{IsTerminal, stdout};
use std::net::{Ipv6Addr, UdpSocket};
use std::path::PathBuf;

use ops::enrol::{Allowed, Order, encrypted};
use ops::state::StateDir;
use ops::{Enrolment, Entries, WrongConfig, term};

use crate::cli::ServerArgs;
use crate::enroll::Kept;

/// The default name of the client.
pub(crate) const NAME: &str = "home";

/// The data that the other machine needs to connect.
pub(crate) struct Invitation {
    /// The client's name.
    pub(crate) name: String,
    /// The token and its file; `None` if the user supplied the token.
    pub(crate) token: Option<(String, PathBuf)>,
    /// The pin of the certificate, `sha256:…`. `None` if the client trusts the certificate without
    /// it, or if there is no TLS.
    pub(crate) pin: Option<String>,
    /// The client's rights from the flags of the server.
    pub(crate) rights: Allowed,
    /// The URLs for clients in `public_url`; empty: those of the listeners.
    pub(crate) public: Vec<String>,
}

/// Reads the client's token from the state directory, and generates it at the first start. Returns
/// the token and the path of its file.
pub(crate) fn token(state: &StateDir, client: &str) -> anyhow::Result<(String, PathBuf)> {
    // The decoder applies the same rule, but the name becomes a part of a path before decoding.
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

/// The default address of the listener: dual stack if the machine has IPv6, else IPv4.
pub(crate) fn listen() -> &'static str {
    let ipv6 = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    if ipv6 { "tls://[::]:7000" } else { "tls://0.0.0.0:7000" }
}

impl Invitation {
    /// The instructions for the other machine. `listen` are the bound addresses
    /// (`tls://[::]:7000`). The token is shown only on a terminal, because other output usually
    /// ends in a log.
    pub(crate) fn text(&self, listen: &[String], terminal: bool) -> String {
        let Self { name, token, pin, rights, public } = self;
        let file = format!("{name}.token");
        let bring = match token {
            // `printf` is a shell builtin, so the token does not appear in the arguments of a
            // process.
            Some((token, _)) if terminal => {
                format!("On the other machine:\n\n  (umask 077; printf %s {token} > {file})\n")
            }
            Some((_, kept)) => format!(
                "Copy {} to the other machine as {file} (it is a secret); there:\n\n",
                std::path::absolute(kept).as_ref().unwrap_or(kept).display()
            ),
            None => format!("On the other machine, with the token in {file}:\n\n"),
        };
        let urls =
            if public.is_empty() { ops::enrol::urls(listen) } else { encrypted(public.clone()) };
        let servers: String = urls.iter().map(|url| format!(" --server {url}")).collect();
        let pin = pin.as_ref().map(|pin| format!(" --pin {pin}")).unwrap_or_default();
        let mut text =
            format!("{bring}  tunnel client{servers} --name {name} --token-file {file}{pin}\n");
        text.push_str(&format!(
            "\nClient `{name}` {rights}; --allow-tcp and --allow-udp here permit others.\n"
        ));
        text.push_str("Add what to publish, like --publish 3000 or --publish 10022=22\n");
        if text.contains(ops::enrol::PLACEHOLDER) {
            text.push_str(&format!(
                "{} is how this machine is reached from there.\n",
                ops::enrol::PLACEHOLDER
            ));
        }
        text
    }
}

/// The name of the one client of a server without a file.
pub(crate) fn client_name(args: &ServerArgs) -> &str {
    args.name.as_deref().unwrap_or(NAME)
}

/// Whether a server without a file creates one client itself: only without a token and without
/// `--enroll`. If clients have been enrolled by codes, the server creates the client only with
/// `--name`, or if it created that client at an earlier start.
pub(crate) fn makes_a_client(args: &ServerArgs, state: &StateDir) -> anyhow::Result<bool> {
    if args.token.is_some() || args.token_file.is_some() || args.enroll.is_some() {
        return Ok(false);
    }
    let name = client_name(args);
    let has_one = args.name.is_some() || state.read(&token_file(name))?.is_some();
    Ok(has_one || Kept::in_state(state.path()).is_empty()?)
}

pub(crate) fn token_file(client: &str) -> String {
    format!("{client}.token")
}

/// Prints an enrolment code for a client of that name, unless the client is already enrolled. So a
/// service that is always started with the flag does not make a new code at each start.
pub(crate) async fn enroll(
    server: &(impl Entries + Enrolment),
    order: Order,
) -> anyhow::Result<()> {
    let name = order.name.clone();
    if server.knows(&name) {
        let rights = if order.is_default() { "" } else { "; its rights stay those of its file" };
        tracing::info!("client `{name}` has been enrolled already{rights}");
        return Ok(());
    }
    // Output that is not a terminal usually ends in a log.
    if !stdout().is_terminal() {
        tracing::info!("for the code of client `{name}`: tunnel enroll {name}{}", order.flags());
        return Ok(());
    }
    Ok(term::out(server.enroll(order.clone()).await?.text(&order, &[]))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            name: "home".into(),
            token: Some(("SECRET".into(), "/state/home.token".into())),
            pin: Some("sha256:AAAA".into()),
            rights: Order::new("home", [&[], &[]], &[]).rights(),
            public: Vec::new(),
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
        assert!(
            text.contains(
                "\nClient `home` may publish ports 10000-10999 of TCP and UDP; --allow-tcp and \
                 --allow-udp here permit"
            ),
            "{text}"
        );
    }

    #[test]
    fn off_a_terminal_the_secret_is_not_shown() {
        let text = invitation().text(&["tls://192.0.2.5:7000".into()], false);
        assert!(!text.contains("SECRET"), "{text}");
        assert!(text.contains("/state/home.token"), "{text}");
    }
}
