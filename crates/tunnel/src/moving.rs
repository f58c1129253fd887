//! The output of `tunnel move`, as text and as JSON.

use anyhow::bail;
use ops::command::MoveLinks;
use ops::moving::{MovedLink, MovedLinks, UnmovedLink};
use ops::term::{self, Screen, Sheet};

use crate::cli::MoveArgs;
use crate::instances::ask_waiting;

/// Moves the links of the running client to another path. A link that stays is an error.
pub(crate) fn move_links(args: &MoveArgs) -> anyhow::Result<()> {
    let what = "waiting for the connections over the other path";
    let moved = ask_waiting(&args.which, what, MoveLinks { to: args.to.clone() })?;
    term::show(&moved, args.json, |moved| {
        let mut sheet = Sheet::new(Screen::of_stdout(false));
        moved.moved.iter().for_each(|link| sheet.line(line(link)));
        sheet.finish()
    })?;
    let stays = |UnmovedLink { link, error }: &UnmovedLink| format!("link {link} stays: {error}");
    let MovedLinks { failed, .. } = &moved;
    if !failed.is_empty() {
        bail!("{}", failed.iter().map(stays).collect::<Vec<_>>().join("; "));
    }
    Ok(())
}

fn line(MovedLink { link, from, to }: &MovedLink) -> String {
    if from == to {
        format!("link {link} uses {to} already")
    } else {
        format!("link {link} moved from {from} to {to}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_has_changed() {
        let link = MovedLink { link: 3, from: "tls://a:1".to_owned(), to: "quic://a:1".to_owned() };
        assert_eq!(line(&link), "link 3 moved from tls://a:1 to quic://a:1");
        let same = MovedLink { from: link.to.clone(), ..link };
        assert_eq!(line(&same), "link 3 uses quic://a:1 already");
    }
}
