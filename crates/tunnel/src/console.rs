//! `tunnel console`: a link to the web console of a running daemon, which is opened if there is a
//! display.

use std::env;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ops::command::OpenConsole;
use ops::state::{Places, check_private, create_private, write_private};
use ops::{ConsoleLink, term};
use rustix::process::geteuid;

use crate::cli::ConsoleArgs;
use crate::instances;

/// The file that leads a browser to the link.
const FILE: &str = "console.html";

/// The error of a daemon without an admin API.
pub(crate) const NO_API: &str = "\
this daemon has no web console, because its configuration has no `admin` (hint: add these lines to \
the file, make the token, and restart the daemon)

  admin:
    listen: 127.0.0.1:7070
    token_file: admin.token      # (umask 077; tunnel generate token > admin.token)";

/// Prints a link, and opens it in a browser if there is one.
pub(crate) fn console(args: &ConsoleArgs) -> anyhow::Result<()> {
    let link = instances::ask(&args.which, OpenConsole {})?;
    if args.json {
        term::out(serde_json::to_string_pretty(&link)?)?;
        return Ok(());
    }
    let is_opened = !args.no_open && has_display() && open(&link).is_some();
    term::out(&link.url)?;
    let how = if is_opened { ", and opened in a browser now" } else { "" };
    term::err(format_args!("good once, for {} s{how}", link.valid_seconds));
    Ok(())
}

/// Whether the user sits at a display. A browser of root would have the rights of root.
fn has_display() -> bool {
    let is_set = |name: &&str| env::var_os(name).is_some_and(|value| !value.is_empty());
    stdout().is_terminal()
        && !geteuid().is_root()
        && ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(is_set)
}

/// Opens the link. Every user of the machine can read the arguments of a process, so the browser
/// gets the link in a file that only this user can read. The key in it is void after its first use.
fn open(link: &ConsoleLink) -> Option<()> {
    let folder = Places::of_process().runtime_dir().ok()?;
    create_private(&folder).ok()?;
    check_private(&folder).ok()?;
    write_private(&folder, FILE, page(&link.url).as_bytes()).ok()?;
    let file: PathBuf = folder.join(FILE);
    let mut opener = Command::new("xdg-open");
    opener.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    opener.spawn().ok().map(drop)
}

/// A page that redirects to the link at once.
fn page(url: &str) -> String {
    // A link contains no character that is special in HTML.
    format!(
        "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url={url}\">\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_leads_to_the_link_and_a_link_needs_no_escapes() {
        let url = format!("http://[::1]:7070/#k={}", ops::token().unwrap());
        assert!(!url.contains(['"', '\'', '<', '>', '&']), "{url}");
        assert!(page(&url).contains(&format!("content=\"0;url={url}\"")));
    }
}
