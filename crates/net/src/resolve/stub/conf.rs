//! The configuration of name lookups according to resolv.conf(5). The parser is as lenient as those
//! of the C libraries: unknown lines and options are ignored.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use nix::net::if_::if_nametoindex;

use super::wire::is_name;

/// The maximum number of servers, as in glibc (`MAXNS`).
const SERVERS: usize = 3;

/// The maximum number of search domains. Each costs a query; Kubernetes configures up to six.
const DOMAINS: usize = 16;

/// The maximum timeout of a server, unless `timeout` is longer: visitors wait meanwhile, and the
/// dial of a target has 10 s by default.
const WAIT: Duration = Duration::from_secs(5);

/// The content of `/etc/resolv.conf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::resolve) struct Conf {
    /// The name servers in the order of queries. There is at least one.
    pub(in crate::resolve) servers: Vec<SocketAddr>,
    /// Whether no server is configured, so that the server of this machine is queried.
    pub(super) is_unnamed: bool,
    /// The domains that are appended to names with few dots.
    pub(super) search: Vec<String>,
    /// A name with at least this number of dots is first queried as an absolute name.
    pub(super) dots: usize,
    /// The timeout of a query.
    pub(super) wait: Duration,
    /// Whether successive names begin with successive servers.
    pub(super) rotates: bool,
    /// Whether all queries use TCP.
    pub(super) by_tcp: bool,
    /// Whether IPv6 addresses are not queried.
    pub(super) only_v4: bool,
}

impl Conf {
    /// Reads the text of a `resolv.conf`. `node` is the host name of this machine, whose domain is
    /// the search domain if the text has none. The servers listen on `port`.
    pub(in crate::resolve) fn read(text: &str, node: &str, port: u16) -> Self {
        let mut servers = Vec::new();
        let mut search = None;
        let (mut dots, mut timeout, mut attempts) = (1, 5, 2);
        let (mut rotates, mut by_tcp, mut only_v4) = (false, false, false);
        for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("nameserver") => {
                    servers.extend(words.next().and_then(|word| server(word, port)));
                }
                // The last of these lines wins.
                Some("search") => search = Some(words.filter_map(domain).take(DOMAINS).collect()),
                Some("domain") => search = Some(words.filter_map(domain).take(1).collect()),
                Some("options") => {
                    for word in words {
                        let (name, value) = word.split_once(':').unwrap_or((word, ""));
                        let number = value.parse::<u32>().ok();
                        // The bounds are those of glibc.
                        match (name, number) {
                            ("ndots", Some(number)) => dots = number.min(15),
                            ("timeout", Some(number)) => timeout = number.clamp(1, 30),
                            ("attempts", Some(number)) => attempts = number.clamp(1, 5),
                            ("rotate", _) => rotates = true,
                            ("use-vc", _) => by_tcp = true,
                            ("no-aaaa", _) => only_v4 = true,
                            _ => {}
                        }
                    }
                }
                Some(_) | None => {}
            }
        }
        servers.truncate(SERVERS);
        let is_unnamed = servers.is_empty();
        if is_unnamed {
            servers.push(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
        }
        let of_node = || {
            let own = node.split_once('.').and_then(|(_, domain_of_node)| domain(domain_of_node));
            own.into_iter().collect()
        };
        let timeout = Duration::from_secs(timeout.into());
        Self {
            servers,
            is_unnamed,
            search: search.unwrap_or_else(of_node),
            dots: usize::try_from(dots).unwrap_or(1),
            wait: (timeout * attempts).min(timeout.max(WAIT)),
            rotates,
            by_tcp,
            only_v4,
        }
    }

    /// The names to query for `host`, in order and without a trailing dot.
    pub(super) fn candidates(&self, host: &str) -> Vec<String> {
        if let Some(complete) = host.strip_suffix('.') {
            return vec![complete.to_owned()];
        }
        let searched = self.search.iter().map(|domain| {
            // `search .` means the absolute name.
            if domain.is_empty() { host.to_owned() } else { format!("{host}.{domain}") }
        });
        let as_it_is = std::iter::once(host.to_owned());
        let mut candidates: Vec<_> = if host.matches('.').count() >= self.dots {
            as_it_is.chain(searched).collect()
        } else {
            searched.chain(as_it_is).collect()
        };
        candidates.dedup();
        candidates
    }
}

/// The address of a server, possibly link-local with its interface.
fn server(word: &str, port: u16) -> Option<SocketAddr> {
    if let Ok(ip) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, port));
    }
    let (ip, zone) = word.split_once('%')?;
    let scope = zone.parse().ok().or_else(|| if_nametoindex(zone).ok())?;
    Some(SocketAddrV6::new(ip.parse().ok()?, port, 0, scope).into())
}

fn domain(word: &str) -> Option<String> {
    let bare = word.strip_suffix('.').unwrap_or(word);
    (bare.is_empty() || is_name(bare)).then(|| bare.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Conf {
        Conf::read(text, "host.lan.example", 53)
    }

    #[test]
    fn the_servers_stand_in_order_and_a_fourth_is_not_asked() {
        let text = "# nameserver 9.9.9.9\nnameserver 10.0.0.1\nnameserver ::1 # loopback\n\
                    nameserver nonsense\nnameserver fe80::1%7\nnameserver 10.0.0.4\n";
        let shown: Vec<_> = read(text).servers.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["10.0.0.1:53", "[::1]:53", "[fe80::1%7]:53"]);
        let none = read("");
        assert!(none.is_unnamed && none.servers == ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn the_search_list_comes_from_the_last_line_or_from_the_name_of_the_machine() {
        assert_eq!(read("search a.example b.example.\n").search, ["a.example", "b.example"]);
        assert_eq!(read("search a.example\ndomain c.example\n").search, ["c.example"]);
        assert_eq!(read("nameserver 10.0.0.1\n").search, ["lan.example"]);
        assert_eq!(Conf::read("", "host", 53).search, [""; 0]);
    }

    #[test]
    fn the_options_of_resolv_conf_are_obeyed_within_bounds() {
        let wait = |options: &str| read(&format!("options {options}\n")).wait.as_secs();
        assert_eq!(wait("ndots:1"), 5, "the default of 5 s and 2 attempts is bounded");
        assert_eq!(wait("timeout:1"), 2);
        assert_eq!(wait("timeout:1 attempts:3"), 3);
        assert_eq!(wait("timeout:20 attempts:2"), 20);
        assert_eq!(wait("timeout:0 attempts:99"), 5);
        let all = read("options ndots:5 rotate use-vc no-aaaa edns0 trust-ad unknown:x ndots:y\n");
        assert!(all.dots == 5 && all.rotates && all.by_tcp && all.only_v4, "{all:?}");
    }

    #[test]
    fn names_with_few_dots_are_searched_first_and_others_are_asked_for_as_they_are() {
        let conf = read("search a.example b.example\noptions ndots:2\n");
        assert_eq!(conf.candidates("db"), ["db.a.example", "db.b.example", "db"]);
        assert_eq!(
            conf.candidates("db.c.example"),
            ["db.c.example", "db.c.example.a.example", "db.c.example.b.example"]
        );
        assert_eq!(conf.candidates("db.c."), ["db.c"]);
        assert_eq!(read("search .\n").candidates("db"), ["db"]);
    }
}
