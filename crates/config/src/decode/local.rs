//! Listeners of this machine, of forwards and of proxies: the mode of a socket file, and addresses
//! that overlap.

use std::collections::BTreeSet;

use proto::UnixAddr;

use crate::section::Section;
use crate::taken::{Bind, Clash, Taken};
use crate::{BadValue, Local, Over};

/// Default mode of a Unix socket: only its owner may connect, as with ssh's forwards.
const SOCKET_MODE: u32 = 0o600;

/// The addresses of the listeners decoded so far.
#[derive(Default)]
pub(super) struct Listeners {
    tcp: Taken,
    udp: Taken,
    unix: BTreeSet<UnixAddr>,
    links: BTreeSet<(Over, String)>,
}

impl Listeners {
    /// Records the address of a `what`. Returns an error if another listener already has the
    /// address.
    pub(super) fn take(&mut self, listen: &Local, what: &str) -> Option<BadValue> {
        let same = || BadValue::new(format!("a second {what} listens on {listen}"));
        if let Local::Unix { address, .. } = listen {
            return (!self.unix.insert(address.clone())).then(same);
        }
        let (over, at) = listen.socket()?;
        if at.link().is_some() {
            // The same address on two interfaces is two addresses.
            let is_new = at.port() == 0 || self.links.insert((over, at.to_string()));
            return (!is_new).then(same);
        }
        let ports = match over {
            Over::Tcp => &mut self.tcp,
            Over::Udp => &mut self.udp,
        };
        ports.take(Bind::Ip(at.ip()), at.port()).map(|clash| match clash {
            Clash::Same => same(),
            Clash::Covers(other) => {
                BadValue::new(format!("{listen} and {} overlap", other.url(over, at.port())))
            }
        })
    }
}

/// Decodes `mode`.
pub(super) fn mode(s: &Section<'_>) -> u32 {
    s.value("mode", bits).unwrap_or(SOCKET_MODE)
}

/// Reports the mode of a listener that has no file.
pub(super) fn fit_mode(s: &Section<'_>, listen: Option<&Local>) {
    let file = |listen: &Local| match listen {
        Local::Unix { address, .. } => address.abstract_name().is_none(),
        Local::Tcp(_) | Local::Udp(_) | Local::Socks5(_) | Local::HttpProxy(_) => false,
    };
    if s.has("mode") && !listen.is_none_or(file) {
        let bad = BadValue::new("only the file of a Unix socket has a mode");
        s.bad("mode", bad.hint("remove it, or listen on unix:///path"));
    }
}

/// Parses permission bits in octal, as chmod(1) does.
fn bits(text: &str) -> Result<u32, BadValue> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| digits && *bits <= 0o777);
    bits.ok_or_else(|| {
        BadValue::new(format!("`{text}` is not a file mode"))
            .hint("three octal digits as for chmod: \"660\" is for user and group")
    })
}
