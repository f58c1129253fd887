//! The names of hosts(5). The file may have hundreds of thousands of lines (lists of blocked
//! names), so it is kept as text and searched on a cache miss.

use std::net::IpAddr;

use super::wire::ADDRESSES;

/// The text of `/etc/hosts`.
#[derive(Debug, Default)]
pub(super) struct Hosts(String);

impl Hosts {
    pub(super) fn read(text: String) -> Self {
        Self(text)
    }

    /// The addresses of `host` in the order of the file, each once.
    pub(super) fn find(&self, host: &str) -> Vec<IpAddr> {
        let host = host.strip_suffix('.').unwrap_or(host);
        let mut found = Vec::new();
        for line in self.0.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(address) = words.next() else { continue };
            if found.len() < ADDRESSES
                && words.any(|name| name.eq_ignore_ascii_case(host))
                && let Ok(ip) = address.parse()
                && !found.contains(&ip)
            {
                found.push(ip);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_addresses_of_all_its_lines() {
        let hosts = Hosts::read(
            "127.0.0.1 localhost\n# 10.0.0.9 db\n10.0.0.1\tdb.example DB # db2\n::2 other db\n\
             10.0.0.1 db\nnonsense db\n10.0.0.3"
                .into(),
        );
        let both: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "::2".parse().unwrap()];
        assert_eq!(hosts.find("db"), both);
        assert_eq!(hosts.find("dB."), both);
        assert_eq!(hosts.find("db2"), [] as [IpAddr; 0]);
        assert_eq!(hosts.find("10.0.0.3"), [] as [IpAddr; 0]);
    }
}
