//! The enrolled clients of a server: one file per client in `clients/` of the state directory, in
//! the form of an entry under `clients` of the server's configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, ensure};
use config::{ClientGrant, Problem, ServerConfig, Text, edit};
use ops::clients::Change;
use ops::enrol::Order;
use ops::state::{create_private, if_there, write_private};
use ops::{Loaded, WrongConfig};
use proto::greeting::{Name, StoredCredential};
use server::Enrolled;
use zeroize::Zeroizing;

use crate::config_file::{change, refusal};
use crate::input;
use crate::quoted::quoted;

/// The beginning of the warning about a server without clients.
pub(crate) const NOBODY: &str = "nobody can connect yet";

const FOLDER: &str = "clients";

const SUFFIX: &str = ".yaml";

/// The folder of the enrolled clients.
#[derive(Clone, Debug)]
pub(crate) struct Kept(PathBuf);

impl Kept {
    pub(crate) fn in_state(state: &Path) -> Self {
        Self(state.join(FOLDER))
    }

    fn file(&self, name: &Name) -> PathBuf {
        self.0.join(format!("{name}{SUFFIX}"))
    }

    /// Adds all enrolled clients to the configuration. A name may not be in both places.
    ///
    /// # Errors
    /// All problems of the files, and the names that are in both places.
    pub(crate) fn join(&self, to: &mut Loaded<ServerConfig>) -> Result<(), WrongConfig> {
        let mut problems = Vec::new();
        for path in self.files()? {
            let read = read_file(&path, to.config.public_bind);
            let (grant, warnings) = match read {
                Ok(loaded) => (loaded.config, loaded.warnings),
                Err(WrongConfig(wrong)) => {
                    problems.extend(wrong);
                    continue;
                }
            };
            to.warnings.extend(warnings);
            let at = path.display();
            if path.file_name().is_none_or(|file| file != &*format!("{}{SUFFIX}", grant.name)) {
                problems.push(format!("{at}: client `{}` belongs in another file", grant.name));
            } else if to.config.clients.iter().any(|known| known.name == grant.name) {
                problems.push(format!(
                    "{at}: client `{}` is in the configuration, too (hint: remove one of them)",
                    grant.name
                ));
            } else {
                to.config.clients.push(grant);
            }
        }
        let ServerConfig { clients, any_client, auth, .. } = &to.config;
        if clients.is_empty() && any_client.is_none() && auth.is_none() {
            let text =
                "add an entry under `clients`, or let a new client in with `tunnel enroll NAME`";
            to.warnings.push(format!("{NOBODY}: {text}"));
        }
        if problems.is_empty() { Ok(()) } else { Err(WrongConfig(problems)) }
    }

    /// Edits the file of a client, and returns the client as it is now. After an error nothing has
    /// changed.
    fn edit(
        &self,
        name: &Name,
        public_bind: IpAddr,
        edit: impl FnOnce(&Path, &str) -> anyhow::Result<String>,
    ) -> anyhow::Result<ClientGrant> {
        let path = self.file(name);
        let before = Zeroizing::new(input::read_own(&path)?);
        let after = Zeroizing::new(edit(&path, &before)?);
        let grant = parse(&path, &after, public_bind)?.config;
        ensure!(grant.name == name.as_str(), "{}: it belongs to another client", path.display());
        if after != before {
            write_private(&self.0, &format!("{name}{SUFFIX}"), after.as_bytes())
                .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(grant)
    }

    /// Whether no client is enrolled.
    pub(crate) fn is_empty(&self) -> Result<bool, WrongConfig> {
        Ok(self.files()?.is_empty())
    }

    fn files(&self) -> Result<Vec<PathBuf>, WrongConfig> {
        let list = || -> io::Result<Vec<PathBuf>> {
            if fs::symlink_metadata(&self.0)?.is_symlink() {
                return Err(io::Error::other(
                    "this is a symbolic link, and tunnel does not follow one here (hint: put the \
                     directory itself in the place of the link, or remove the link)",
                ));
            }
            fs::read_dir(&self.0)?.map(|entry| Ok(entry?.path())).collect()
        };
        let files = if_there(list());
        let files = files.map_err(|e| WrongConfig::one(format!("{}: {e}", self.0.display())))?;
        let mut files = files.unwrap_or_default();
        files.retain(|path| path.to_str().is_some_and(|path| path.ends_with(SUFFIX)));
        files.sort();
        Ok(files)
    }
}

impl Enrolled for Kept {
    fn has(&self, name: &Name) -> bool {
        self.file(name).exists()
    }

    fn check(&self, order: &Order, public_bind: IpAddr) -> Result<Name, WrongConfig> {
        checked(order, public_bind)
    }

    fn write(
        &self,
        order: &Order,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant> {
        let name = Name::new(&order.name)?;
        let text = entry(order, &credential.text());
        // The rights were checked when the code was made. This parse ensures that the file is
        // readable after a restart.
        let grant = parse(&self.file(&name), &text, public_bind)?.config;
        create_private(&self.0)?;
        write_private(&self.0, &format!("{name}{SUFFIX}"), text.as_bytes())?;
        Ok(grant)
    }

    fn renew(
        &self,
        name: &Name,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<ClientGrant> {
        self.edit(name, public_bind, |file, before| {
            // A second token has not been used by a log-in; its log-in would have removed the
            // first.
            let present = tokens(file, before, public_bind)?;
            let first = present.first().map(StoredCredential::text);
            let new = credential.text();
            let both: Vec<_> = first.iter().chain([&new]).map(|text| text.as_str()).collect();
            edit::set_tokens(&file.display().to_string(), before, name.as_str(), &both)
                .map_err(refusal)
        })
    }

    fn settle(
        &self,
        name: &Name,
        credential: &StoredCredential,
        public_bind: IpAddr,
    ) -> anyhow::Result<Option<ClientGrant>> {
        let path = self.file(name);
        let before = Zeroizing::new(input::read_own(&path)?);
        if !tokens(&path, &before, public_bind)?.contains(credential) {
            return Ok(None);
        }
        self.edit(name, public_bind, |file, before| {
            let text = credential.text();
            edit::set_tokens(&file.display().to_string(), before, name.as_str(), &[&text])
                .map_err(refusal)
        })
        .map(Some)
    }

    fn change(&self, asked: &Change, public_bind: IpAddr) -> anyhow::Result<ClientGrant> {
        self.edit(&Name::new(asked.name())?, public_bind, |file, before| {
            change(&file.display().to_string(), before, asked)
        })
    }

    fn remove(&self, name: &Name) -> io::Result<bool> {
        Ok(if_there(fs::remove_file(self.file(name)))?.is_some())
    }

    fn entry(&self, name: &Name) -> anyhow::Result<Option<Zeroizing<String>>> {
        let path = self.file(name);
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(Zeroizing::new(input::read_own(&path)?)))
    }

    fn adopt(&self, name: &Name, entry: &str, public_bind: IpAddr) -> anyhow::Result<ClientGrant> {
        let path = self.file(name);
        let grant = parse(&path, entry, public_bind)?.config;
        ensure!(grant.name == name.as_str(), "the entry belongs to client `{}`", grant.name);
        create_private(&self.0)?;
        write_private(&self.0, &format!("{name}{SUFFIX}"), entry.as_bytes())
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(grant)
    }
}

/// The name in an order whose rights are well-formed.
pub(super) fn checked(order: &Order, public_bind: IpAddr) -> Result<Name, WrongConfig> {
    let name = Name::new(&order.name).map_err(|why| WrongConfig::one(why.to_string()))?;
    // Any hash works for this check.
    let nothing = StoredCredential { stored_key: [0; 32], server_key: [0; 32] };
    let text = entry(order, &nothing.text());
    let Err(problems) = load(Path::new(""), &text, public_bind) else { return Ok(name) };
    let said = problems.iter().map(|problem| {
        let key = ["forward", "http", "tls", "udp", "via", "visit", "shared"]
            .into_iter()
            .find(|key| problem.key_path.starts_with(&format!("allow.{key}")));
        let flag = format!("--allow-{}", key.unwrap_or("tcp"));
        Problem { file: flag, line: 0, key_path: String::new(), ..problem.clone() }
    });
    Err(said.collect::<Vec<_>>().into())
}

/// The client for an order and the credential of its token.
pub(super) fn granted(
    order: &Order,
    credential: &StoredCredential,
    public_bind: IpAddr,
) -> Result<ClientGrant, WrongConfig> {
    Ok(parse(Path::new(""), &entry(order, &credential.text()), public_bind)?.config)
}

fn entry(order: &Order, token: &str) -> Zeroizing<String> {
    let Order {
        name,
        allow_tcp,
        allow_udp,
        allow_forward,
        allow_http,
        allow_tls,
        allow_via,
        allow_visit,
        allow_shared,
        renew: _,
    } = order;
    let list =
        |items: &[String]| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
    let mut others = String::new();
    for (key, items) in [
        ("udp", allow_udp),
        ("http", allow_http),
        ("tls", allow_tls),
        ("via", allow_via),
        ("visit", allow_visit),
    ] {
        if !items.is_empty() {
            others.push_str(&format!(" {key}: [{}],", list(items)));
        }
    }
    let shared = if *allow_shared { ", shared: true" } else { "" };
    Zeroizing::new(format!(
        "# Made by `tunnel enroll`. After a change: tunnel reload. To put the client out: remove the \
         file, and\n# reload; or: tunnel enroll --revoke NAME\n\
         name: {}\ntoken: \"{token}\"\nallow: {{ tcp: [{}],{others} forward: [{}]{shared} }}\n",
        quoted(name),
        list(allow_tcp),
        list(allow_forward)
    ))
}

/// The credentials of the tokens of a client, the old token first.
fn tokens(path: &Path, text: &str, public_bind: IpAddr) -> anyhow::Result<Vec<StoredCredential>> {
    let grant = parse(path, text, public_bind)?.config;
    let tokens = grant.tokens.iter().map(|token| StoredCredential::of(token.secret.reveal()));
    Ok(tokens.collect::<Result<_, _>>()?)
}

fn read_file(path: &Path, public_bind: IpAddr) -> Result<Loaded<ClientGrant>, WrongConfig> {
    let mut loaded = parse(path, &input::read_own(path)?, public_bind)?;
    loaded.warnings.extend(input::exposure(path));
    Ok(loaded)
}

fn parse(path: &Path, text: &str, public_bind: IpAddr) -> Result<Loaded<ClientGrant>, WrongConfig> {
    let loaded = load(path, text, public_bind)?;
    let warnings = loaded.warnings.iter().map(ToString::to_string).collect();
    Ok(Loaded { config: ClientGrant { enrolled: true, ..loaded.config }, warnings })
}

fn load(
    path: &Path,
    text: &str,
    public_bind: IpAddr,
) -> Result<config::Loaded<ClientGrant>, Vec<Problem>> {
    let folder = path.parent().unwrap_or(path);
    let name = path.display().to_string();
    input::with_sources(folder, |sources| {
        config::load_grant(Text { name: &name, text }, public_bind, config::CLIENT_PORTS, sources)
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::symlink;

    use ops::clients::LimitOrder;

    use super::*;

    #[test]
    fn a_client_is_stored_by_the_entry_of_another_node() {
        let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [here, there] = dirs.each_ref().map(|dir| Kept::in_state(dir.path()));
        let bind: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let credential = StoredCredential { stored_key: [1; 32], server_key: [2; 32] };
        let (home, other) = (Name::new("home").unwrap(), Name::new("other").unwrap());
        let order = Order::new("home", [&["10000".to_owned()], &[]], &[]);
        let grant = here.write(&order, &credential, bind).unwrap();
        assert!(there.entry(&home).unwrap().is_none());
        let entry = here.entry(&home).unwrap().unwrap();
        assert_eq!(there.adopt(&home, &entry, bind).unwrap(), grant);
        assert!(there.adopt(&other, &entry, bind).is_err() && !there.has(&other));
        // A later entry takes the place of the first.
        let more = Order::new("home", [&["10001".to_owned()], &[]], &[]);
        let grant = here.change(&Change::Allow(more), bind).unwrap();
        let entry = here.entry(&home).unwrap().unwrap();
        assert_eq!(there.adopt(&home, &entry, bind).unwrap(), grant);
        assert!(there.adopt(&home, "name: home", bind).is_err(), "no token");
        assert_eq!(there.entry(&home).unwrap(), Some(entry));
    }

    #[test]
    fn rights_to_hosts_are_in_the_file_of_a_client() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::in_state(dir.path());
        let bind: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let credential = StoredCredential { stored_key: [1; 32], server_key: [2; 32] };
        let order = |http: &str, tls: &[String]| {
            Order::new("home", [&[], &[]], &[]).with_hosts(&[http.to_owned()], tls)
        };
        let grant = kept.write(&order("*.home.example.com", &[]), &credential, bind).unwrap();
        assert!(grant.rights.http.permits("a.home.example.com"));
        let file = kept.0.join("home.yaml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("], http: [\"*.home.example.com\"], forward: [] }"), "{text}");
        // A wildcard covers the host, and the new key has no list yet.
        let more = Change::Allow(order("b.home.example.com", &["vpn.example".to_owned()]));
        let grant = kept.change(&more, bind).unwrap();
        assert!(grant.rights.tls.permits("vpn.example") && !grant.rights.tls.permits("b.example"));
        let now = text.replace("forward: [] }", "forward: [], tls: [vpn.example] }");
        assert_eq!(fs::read_to_string(&file).unwrap(), now);
        // The right to share comes with the code, and by the command as well.
        assert!(!grant.rights.shared);
        let sharing = Order { allow_shared: true, ..order("a.example", &[]) };
        let grant = kept.change(&Change::Allow(sharing.clone()), bind).unwrap();
        assert!(grant.rights.shared && grant.rights.http.permits("a.example"));
        assert!(kept.write(&sharing, &credential, bind).unwrap().rights.shared);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("forward: [], shared: true }\n"), "{text}");
        let sharing = Order { name: "home".into(), allow_shared: true, ..Order::default() };
        assert!(!kept.change(&Change::Deny(sharing), bind).unwrap().rights.shared);
        let why = kept.check(&order("10.0.0.1", &[]), bind).unwrap_err().to_string();
        assert!(why.starts_with("--allow-http: `10.0.0.1` is not a host name"), "{why}");
        let why = kept.check(&order("a.example", &["a b".to_owned()]), bind).unwrap_err();
        assert!(why.to_string().starts_with("--allow-tls: "), "{why}");
    }

    #[test]
    fn rights_are_added_to_the_file_of_a_client_and_wrong_ones_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::in_state(dir.path());
        let order = Order::new("home", [&[], &[]], &[]);
        let bind: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let credential = StoredCredential { stored_key: [1; 32], server_key: [2; 32] };
        kept.write(&order, &credential, bind).unwrap();
        let file = kept.0.join("home.yaml");
        let text = format!("{}# At home.\n", fs::read_to_string(&file).unwrap());
        fs::write(&file, &text).unwrap();
        let allow = |tcp: &str, forward: &[String]| {
            kept.change(&Change::Allow(Order::new("home", [&[tcp.to_owned()], &[]], forward)), bind)
        };
        let grant = allow("22", &["10.0.0.0/8:*".to_owned()]).unwrap();
        let ports = [21, 22, 10_022].map(|port| grant.rights.tcp.permits(bind, port));
        assert_eq!(ports, [false, true, true]);
        let now = text.replacen("10999\"]", "10999\", 22]", 1).replace("[]", "[\"10.0.0.0/8:*\"]");
        assert_eq!(fs::read_to_string(&file).unwrap(), now);
        for wrong in ["x", "0", "22-1"] {
            let why = allow(wrong, &[]).unwrap_err().to_string();
            assert!(why.starts_with("--tcp: "), "{why}");
        }
        allow("10022", &[]).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), now);
        // The text of a file that could not be replaced names the file.
        fs::create_dir(kept.0.join(".home.yaml.new")).unwrap();
        let why = format!("{:#}", allow("23", &[]).unwrap_err());
        assert!(why.starts_with(&format!("writing {}: ", file.display())), "{why}");
    }

    #[test]
    fn a_renewed_token_stands_beside_the_old_one_until_it_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::in_state(dir.path());
        let bind: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let name = Name::new("home").unwrap();
        let [old, first, second] =
            [1, 2, 3].map(|n| StoredCredential { stored_key: [n; 32], server_key: [n; 32] });
        kept.write(&Order::new("home", [&[], &[]], &[]), &old, bind).unwrap();
        let file = kept.0.join("home.yaml");
        let text = fs::read_to_string(&file).unwrap() + "limits: { streams: 5 } # few\n";
        fs::write(&file, &text).unwrap();
        let stored = || {
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains("limits: { streams: 5 } # few\n"), "{text}");
            tokens(&file, &text, bind).unwrap()
        };
        let grant = kept.renew(&name, &first, bind).unwrap();
        assert!(grant.enrolled && grant.rights.limits.all.streams.is_some());
        assert_eq!(stored(), [old.clone(), first.clone()]);
        // Nobody has used the first new token.
        kept.renew(&name, &second, bind).unwrap();
        assert_eq!(stored(), [old, second.clone()]);
        assert!(kept.settle(&name, &first, bind).unwrap().is_none());
        assert_eq!(stored().len(), 2);
        let grant = kept.settle(&name, &second, bind).unwrap().unwrap();
        assert_eq!((grant.tokens.len(), stored()), (1, vec![second.clone()]));
        assert_eq!(fs::read_to_string(&file).unwrap().matches("scram").count(), 1);

        // A token file that a person has named gives way to the hashes.
        fs::write(dir.path().join("clients/t"), "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi").unwrap();
        fs::write(&file, "name: home\ntoken_file: t\nlimits: { streams: 5 } # few\n").unwrap();
        let of_file = stored();
        kept.renew(&name, &second, bind).unwrap();
        assert_eq!(stored(), [of_file, vec![second]].concat());
        let other = Name::new("other").unwrap();
        assert!(kept.renew(&other, &first, bind).is_err() && !kept.has(&other));
    }

    #[test]
    fn limits_of_a_client_change_in_its_file_and_wrong_ones_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::in_state(dir.path());
        let bind: IpAddr = Ipv4Addr::UNSPECIFIED.into();
        let credential = StoredCredential { stored_key: [1; 32], server_key: [2; 32] };
        kept.write(&Order::new("home", [&[], &[]], &[]), &credential, bind).unwrap();
        let file = kept.0.join("home.yaml");
        let limit = |streams: Option<&str>, ports: Option<&str>| {
            let [streams, ports] = [streams, ports].map(|text| text.map(str::to_owned));
            let name = "home".to_owned();
            let order = LimitOrder { name, streams, ports, ..LimitOrder::default() };
            kept.change(&Change::Limit(order), bind)
        };
        let rights = limit(Some("5"), Some("unlimited")).unwrap().rights;
        assert_eq!((rights.limits.all.streams.unwrap().get(), rights.ports), (5, u32::MAX));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("limits: { streams: 5, ports: unlimited }\n"), "{text}");
        let why = limit(Some("many"), None).unwrap_err().to_string();
        assert!(why.starts_with("--streams: `many` is not a limit"), "{why}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(limit(Some("none"), None).unwrap().rights.limits.all.streams, None);
    }

    #[test]
    fn a_link_among_the_enrolled_clients_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::in_state(dir.path());
        let aim = dir.path().join("aim");
        let order = Order::new("home", [&[], &[]], &[]);
        fs::write(&aim, entry(&order, &ops::token().unwrap()).as_bytes()).unwrap();
        let bind = Ipv4Addr::UNSPECIFIED.into();
        read_file(&aim, bind).unwrap();

        fs::create_dir(&kept.0).unwrap();
        let file = kept.0.join("home.yaml");
        symlink(&aim, &file).unwrap();
        let text = read_file(&file, bind).unwrap_err().to_string();
        assert!(text.contains("home.yaml: ") && text.contains("symbolic link"), "{text}");

        fs::rename(&kept.0, dir.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &kept.0).unwrap();
        let text = kept.is_empty().unwrap_err().to_string();
        assert!(text.contains("clients: this is a symbolic link"), "{text}");
    }
}
