//! Entries of a client that other entries shadow. An entry of a flag shadows an entry of the file,
//! and an entry of a command shadows both. The shadowed entry is kept, because it returns as soon
//! as its name or address is free again.

use std::fmt;

use crate::BadValue;
use crate::lists::{Kept, Lists, Places, is_same_place, open_to_all, publishes_admin};
use crate::model::{ClientConfig, Forward};

/// An entry that is shadowed by another entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shadow {
    /// The name of the service, or the address of the forward, that is in force.
    pub by: String,
    /// The shadowed entry: the name and the public addresses of a service, or a forward.
    pub of: String,
}

impl fmt::Display for Shadow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has the place of {}", self.by, self.of)
    }
}

impl ClientConfig {
    /// Applies a change by commands. Shadowed entries whose place is now free return, unless the
    /// change removes them.
    ///
    /// # Errors
    /// The result is too long; nothing was changed.
    pub fn keep(&mut self, kept: &Kept) -> Result<(), BadValue> {
        let mut lists = Lists { services: self.services.clone(), forwards: self.forwards.clone() };
        let mut behind = self.shadowed.clone();
        for what in &kept.without {
            let was_kept = lists.remove_kept(what);
            if kept.saved || !was_kept {
                lists.remove(what);
                behind.remove(what);
            }
        }
        bring_back(&mut lists, &mut behind);
        let mut added = kept.lists.clone();
        added.expand(&self.full_name())?;
        if kept.saved {
            behind.clear_places_of(&added);
        }
        let lost = lists.add(added);
        if !kept.saved {
            // An entry of a command that replaces an earlier entry of a command replaces it for
            // good.
            behind.services.extend(lost.services.into_iter().filter(|service| !service.kept));
            behind.forwards.extend(lost.forwards.into_iter().filter(|forward| !forward.kept));
        }
        lists.check()?;
        let (Lists { services, forwards }, shadowed) = (lists, behind);
        let kept = Self { services, forwards, shadowed, ..self.clone() };
        kept.check_sizes()?;
        if let Some(service) = kept.open_exits().next() {
            return Err(open_to_all(service));
        }
        if let Some(service) = kept.admin_services().next() {
            return Err(publishes_admin(service));
        }
        *self = kept;
        Ok(())
    }

    /// Every shadowed entry.
    #[must_use]
    pub fn shadows(&self) -> Vec<Shadow> {
        let mut all = Vec::new();
        for service in &self.shadowed.services {
            let place = Places::of(std::slice::from_ref(service));
            let public: Vec<_> = service.public.iter().map(ToString::to_string).collect();
            let of = format!("{} ({} -> {})", service.name, public.join(", "), service.aims());
            let by = self.services.iter().filter(|other| place.are_of(other));
            all.extend(by.map(|other| Shadow { by: other.name.clone(), of: of.clone() }));
        }
        for forward in &self.shadowed.forwards {
            let by = self.forwards.iter().filter(|other| is_same_place(forward, other));
            let of = forward.to_string();
            all.extend(by.map(|other| Shadow { by: other.listen.to_string(), of: of.clone() }));
        }
        all
    }
}

impl Lists {
    /// Removes the entry of this name or address that a command has added. Returns whether such an
    /// entry existed.
    fn remove_kept(&mut self, what: &str) -> bool {
        let before = self.len();
        self.services.retain(|service| !service.kept || service.name != what);
        self.forwards.retain(|forward| !forward.kept || forward.listen.to_string() != what);
        self.len() < before
    }
}

/// Moves back the shadowed entries whose place is free. If several entries claim one place, the
/// last returns: it shadowed the others.
fn bring_back(lists: &mut Lists, behind: &mut Lists) {
    for n in (0..behind.services.len()).rev() {
        let place = Places::of(&behind.services[n..=n]);
        if !lists.services.iter().any(|service| place.are_of(service)) {
            lists.services.push(behind.services.remove(n));
        }
    }
    for n in (0..behind.forwards.len()).rev() {
        let is_taken = |other: &Forward| is_same_place(&behind.forwards[n], other);
        if !lists.forwards.iter().any(is_taken) {
            lists.forwards.push(behind.forwards.remove(n));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientFlags, Sources, Text, load_client, load_kept};

    const FILE: &str = "servers: tcp://127.0.0.1:1\nname: home\n\
        token: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\n\
        services:\n  - { name: ssh, public: 22, target: 22, allow_from: 10.0.0.0/8 }\n\
        \x20 - { name: two, public: [201, 202], target: 200 }\n  - 80=8080\n\
        forwards: [\"5203=5201\"]\n";

    fn client(publish: &[&str]) -> ClientConfig {
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let publish = publish.iter().map(ToString::to_string).collect();
        let flags = ClientFlags { publish, ..ClientFlags::default() };
        let text = Text { name: "c.yaml", text: FILE };
        load_client(Some(text), &flags, &sources).unwrap().config
    }

    fn kept(text: &str) -> Kept {
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        load_kept(Text { name: "kept", text }, None, &sources).unwrap().config
    }

    fn names(config: &ClientConfig) -> Vec<String> {
        let mut all: Vec<_> = config
            .services
            .iter()
            .map(|service| format!("{}={}", service.name, service.aims()))
            .chain(config.forwards.iter().map(ToString::to_string))
            .collect();
        all.sort();
        all
    }

    fn shadows(config: &ClientConfig) -> Vec<String> {
        config.shadows().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_entry_behind_another_is_told_and_comes_back_when_its_place_is_free() {
        let of_file = client(&[]);
        let mut now = of_file.clone();
        assert_eq!(shadows(&now), [""; 0]);
        now.keep(&kept("services: ['22=24', '202=7', '80=9']\nforwards: ['5203=1']\n")).unwrap();
        assert_eq!(
            shadows(&now),
            [
                "tcp-22 has the place of ssh (tcp://:22 -> tcp://localhost:22)",
                "tcp-202 has the place of two (tcp://:201, tcp://:202 -> tcp://localhost:200)",
                "tcp-80 has the place of tcp-80 (tcp://:80 -> tcp://localhost:8080)",
                "tcp://127.0.0.1:5203 has the place of tcp://127.0.0.1:5203 -> tcp://localhost:5201"
            ]
        );
        // A second entry of a command leaves the first one nowhere.
        now.keep(&kept("services: ['22=25']\n")).unwrap();
        assert_eq!(now.shadowed.services.len(), 3);
        for what in ["tcp-22", "tcp-202", "tcp-80", "tcp://127.0.0.1:5203"] {
            now.keep(&kept(&format!("without: ['{what}']\n"))).unwrap();
        }
        assert_eq!((names(&now), shadows(&now)), (names(&of_file), Vec::new()));
        let ssh = now.services.iter().find(|service| service.name == "ssh").unwrap();
        assert!(ssh.visitors.allow_from.is_some());
        // The entry of the file is removed by a second command alone.
        now.keep(&kept("without: [tcp-80]\n")).unwrap();
        assert!(!names(&now).iter().any(|name| name.starts_with("tcp-80")));
    }

    #[test]
    fn an_entry_of_a_flag_is_before_the_file_and_behind_a_command() {
        let mut now = client(&["80=8081"]);
        let at_80 = |config: &ClientConfig| {
            names(config).into_iter().find(|name| name.starts_with("tcp-80")).unwrap()
        };
        assert_eq!(at_80(&now), "tcp-80=tcp://localhost:8081");
        assert_eq!(shadows(&now).len(), 1);
        now.keep(&kept("services: ['80=9']\n")).unwrap();
        assert_eq!(shadows(&now).len(), 2);
        now.keep(&kept("without: [tcp-80]\n")).unwrap();
        assert_eq!(at_80(&now), "tcp-80=tcp://localhost:8081");
        // The mark of a removed entry is for the file and the flags.
        now.keep(&kept("without: [tcp-80]\n")).unwrap();
        assert!(!names(&now).iter().any(|name| name.starts_with("tcp-80")), "{now:?}");
    }

    #[test]
    fn a_change_of_the_file_leaves_nothing_behind() {
        let mut now = client(&[]);
        let change = kept("services: ['22=24', '80=9']\n");
        now.keep(&change).unwrap();
        let mut saved = Kept { saved: true, ..change };
        saved.lists.services.iter_mut().for_each(|service| service.kept = false);
        now.keep(&saved).unwrap();
        assert_eq!(shadows(&now), [""; 0]);
        now.keep(&kept("services: ['80=10']\n")).unwrap();
        let gone = Kept { saved: true, ..kept("without: [tcp-80]\n") };
        now.keep(&gone).unwrap();
        assert!(!names(&now).iter().any(|name| name.starts_with("tcp-80")));
    }
}
