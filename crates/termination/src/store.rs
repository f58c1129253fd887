//! The files of ACME: `acme/DIRECTORY/account.json`, and `acme/DIRECTORY/NAME.pem` for each
//! certificate with its key. DIRECTORY is the URL of the authority's directory as a file name, so
//! the certificates of a test authority and of the production authority never mix. A named account
//! has a folder DIRECTORY+ACCOUNT of its own. The file of a wildcard begins with `*.`, as its name
//! does.
//!
//! A certificate and its key are one file, because they are replaced together. A line before the
//! PEM blocks names the directory and the challenge that proved the name.

use std::collections::HashSet;
use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use tls::{Identity, MaterialError};

use crate::certificates::{ByName, Shown};
use crate::challenge::Kind;

/// The largest file that is read, in bytes. The files have less than 20 KB.
const FILE_MAX: u64 = 256 << 10;

/// The longest name of a folder.
const FOLDER_MAX: usize = 200;

/// The largest number of certificates that are loaded at a start; certificates that expired long
/// ago do not count.
const LOADED_MAX: usize = 20_000;

/// The longest name whose file name, including its extension, has at most 255 bytes.
pub(crate) const HOST_MAX: usize = 240;

/// The folder of one authority.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    directory: String,
}

impl Store {
    /// Opens the folder of an account at a directory, and creates it if it is missing.
    pub(crate) fn open(
        state_dir: &Path,
        directory: &str,
        account: Option<&str>,
    ) -> Result<Self, MaterialError> {
        let acme = state_dir.join("acme");
        let mut name = file_name(directory);
        if let Some(account) = account {
            // The folder name of a directory never contains a plus.
            name = format!("{name}+{}", file_name(account));
        }
        let folder = acme.join(name);
        for folder in [&acme, &folder] {
            make_folder(folder).map_err(|error| problem(folder, error))?;
        }
        Ok(Self { folder, directory: directory.to_owned() })
    }

    /// Loads the certificates of the folder, certificates of `published` names first. A file that
    /// cannot be used is logged and left unchanged; the next order replaces it. A certificate that
    /// expired long before the second `wall` is not loaded, and is removed if `removes`: any
    /// visitor can choose the names of an account that orders on demand, and nothing else would
    /// remove these files. No order may be in progress in this case, because it may replace the
    /// file.
    pub(crate) fn load(
        &self,
        published: &[Box<str>],
        wall: u64,
        removes: bool,
    ) -> Result<ByName, MaterialError> {
        self.load_at_most(LOADED_MAX, published, wall, removes)
    }

    fn load_at_most(
        &self,
        most: usize,
        published: &[Box<str>],
        wall: u64,
        removes: bool,
    ) -> Result<ByName, MaterialError> {
        let mut table = ByName::new();
        let mut count = 0;
        for host in self.hosts(published)? {
            if count == most {
                break;
            }
            let path = self.path(&host);
            match self.load_one(&path, &host) {
                Ok(Some(shown)) if shown.is_stale(wall) => {
                    if removes && let Err(error) = fs::remove_file(&path) {
                        tracing::warn!("the expired {} is not removed: {error}", path.display());
                    }
                    continue;
                }
                Ok(Some(shown)) => drop(table.insert(host, shown)),
                Ok(None) => {}
                Err(problem) => tracing::warn!(
                    "the certificate of {host} is not used and is ordered again: {problem}"
                ),
            }
            count += 1;
        }
        Ok(table)
    }

    /// The names that have a file in the folder, the `published` names first.
    fn hosts(&self, published: &[Box<str>]) -> Result<Vec<Box<str>>, MaterialError> {
        let failed = |error: io::Error| problem(&self.folder, error);
        let published: HashSet<&str> = published.iter().map(|host| &**host).collect();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let file = entry.map_err(failed)?.file_name();
            if let Some(host) = file.to_str().and_then(|name| name.strip_suffix(".pem")) {
                let hosts = if published.contains(host) { &mut first } else { &mut rest };
                hosts.push(host.into());
            }
        }
        first.append(&mut rest);
        Ok(first)
    }

    fn load_one(&self, path: &Path, host: &str) -> Result<Option<Shown>, MaterialError> {
        let text = files::read(path, FILE_MAX).map_err(|error| problem(path, error))?;
        self.read_text(path, host, &text)
    }

    /// The certificate in a text; `None`: it is of another directory, or has no dates.
    fn read_text(
        &self,
        path: &Path,
        host: &str,
        text: &[u8],
    ) -> Result<Option<Shown>, MaterialError> {
        let Some((directory, by)) = head(text) else { return Ok(None) };
        if directory != self.directory {
            return Ok(None);
        }
        let identity = Identity::of_pem(path, text)?;
        if identity.names().iter().all(|name| name != host) {
            return Err(problem(path, "the certificate is for another name"));
        }
        Ok(Shown::of(&identity).map(|shown| Shown { by, ..shown }))
    }

    /// The certificate in a text of another node, which has the form of a file.
    pub(crate) fn of_text(&self, host: &str, text: &[u8]) -> Result<Shown, MaterialError> {
        let path = PathBuf::from(format!("cert/{host}"));
        let shown = self.read_text(&path, host, text)?;
        shown.ok_or_else(|| problem(&path, "it is no certificate of this authority"))
    }

    /// The text of the file of a certificate, for other nodes.
    pub(crate) fn text(&self, host: &str) -> io::Result<Vec<u8>> {
        files::read(&self.path(host), FILE_MAX)
    }

    /// The name of this account for other nodes: the same for the same directory and account.
    pub(crate) fn account_name(&self) -> String {
        let name = self.folder.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let digest = digest(&SHA256, format!("{}\n{name}", self.directory).as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The challenge that last proved the name.
    pub(crate) fn proved_by(&self, host: &str) -> Option<Kind> {
        head(&files::read(&self.path(host), FILE_MAX).ok()?)?.1
    }

    /// Checks that a chain and a key belong together and cover the name.
    pub(crate) fn check(&self, host: &str, key: &str, chain: &str) -> Result<Shown, MaterialError> {
        let path = self.path(host);
        let identity = Identity::of_pem(&path, format!("{key}{chain}").as_bytes())?;
        if identity.names().iter().all(|name| name != host) {
            return Err(problem(&path, "the authority issued a certificate for another name"));
        }
        Shown::of(&identity)
            .ok_or_else(|| problem(&path, "the dates of the issued certificate cannot be read"))
    }

    /// Stores a certificate.
    pub(crate) fn keep(
        &self,
        host: &str,
        proved_by: Option<Kind>,
        key: &str,
        chain: &str,
    ) -> Result<(), MaterialError> {
        let proved_by = proved_by.or_else(|| self.proved_by(host));
        let proved_by = proved_by.map_or("an earlier check", Kind::name);
        let text = format!("{HEAD}{} by {proved_by}\n{key}{chain}", self.directory);
        let path = self.path(host);
        replace(&path, text.as_bytes()).map_err(|error| problem(&path, error))
    }

    /// The content of the account file, if it exists.
    pub(crate) fn account(&self) -> Result<Option<Vec<u8>>, MaterialError> {
        let path = self.account_path();
        match files::read(&path, FILE_MAX) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(problem(&path, error)),
        }
    }

    /// Stores the account.
    pub(crate) fn keep_account(&self, text: &[u8]) -> Result<(), MaterialError> {
        let path = self.account_path();
        replace(&path, text).map_err(|error| problem(&path, error))
    }

    /// The file of the account.
    pub(crate) fn account_path(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Whether both have the same folder and directory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.directory == other.directory && self.folder == other.folder
    }

    fn path(&self, host: &str) -> PathBuf {
        self.folder.join(format!("{host}.pem"))
    }
}

const HEAD: &str = "# tunnel: certificate of ";

/// The directory and the challenge in the first line of a stored certificate.
fn head(text: &[u8]) -> Option<(String, Option<Kind>)> {
    let line = text.split(|&b| b == b'\n').next()?;
    let (directory, by) = str::from_utf8(line).ok()?.strip_prefix(HEAD)?.split_once(" by ")?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == by);
    Some((directory.to_owned(), kind))
}

/// A URL as the name of a folder.
fn file_name(url: &str) -> String {
    let url = url.strip_prefix("https://").unwrap_or(url);
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let mut dotted = false;
    url.chars()
        .map(|c| {
            // Two consecutive dots, or a leading dot, could lead out of the folder.
            let keeps = c == '.' && dotted;
            dotted = c.is_ascii_alphanumeric();
            if keeps { c } else { safe(c) }
        })
        .take(FOLDER_MAX)
        .collect()
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if fs::symlink_metadata(folder)?.is_dir() {
        Ok(())
    } else {
        Err(io::Error::other(
            "this is not a folder (hint: move it away; tunnel makes a folder here)",
        ))
    }
}

/// Replaces a file: a crash leaves the old content or the new content.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = files::create_fresh(&fresh)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

fn problem(path: &Path, problem: impl ToString) -> MaterialError {
    MaterialError::File { path: path.to_path_buf(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::{Duration, UNIX_EPOCH};

    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::wall;

    const URL: &str = "https://ca.example/dir";

    fn pair(host: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let chain = CertificateParams::new([host.to_owned()]).unwrap().self_signed(&key).unwrap();
        (key.serialize_pem(), chain.pem())
    }

    #[test]
    fn a_url_is_a_folder_name_that_leads_nowhere_else() {
        for (url, name) in [
            (
                "https://acme-v02.api.letsencrypt.org/directory",
                "acme-v02.api.letsencrypt.org_directory",
            ),
            ("https://127.0.0.1:14000/dir", "127.0.0.1_14000_dir"),
            ("https://../../etc/x", "______etc_x"),
            ("https://a..b/.", "a._b__"),
        ] {
            assert_eq!(file_name(url), name, "{url}");
        }
        assert_eq!(file_name(&format!("https://a/{}", "x".repeat(999))).len(), FOLDER_MAX);
    }

    #[test]
    fn what_is_kept_is_loaded_and_the_authorities_do_not_mix() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path(), URL, None).unwrap();
        let (key, chain) = pair("a.example.com");
        store.keep("a.example.com", Some(Kind::Http), &key, &chain).unwrap();
        assert_eq!(store.proved_by("a.example.com"), Some(Kind::Http));
        // A renewal without a check does not forget which check works.
        store.keep("a.example.com", None, &key, &chain).unwrap();
        assert_eq!(store.proved_by("a.example.com"), Some(Kind::Http));
        let again = Store::open(state.path(), URL, None).unwrap();
        assert!(again.is_same(&store));
        assert_eq!(again.load(&[], wall(), true).unwrap().len(), 1);
        let other = Store::open(state.path(), "https://other.example/dir", None).unwrap();
        assert!(!other.is_same(&store) && other.load(&[], wall(), true).unwrap().is_empty());
        let second = Store::open(state.path(), URL, Some("work/../x")).unwrap();
        assert!(!second.is_same(&store) && second.load(&[], wall(), true).unwrap().is_empty());
        assert!(second.folder.ends_with("ca.example_dir+work____x"), "{second:?}");
        let (key, chain) = pair("*.example.com");
        second.keep("*.example.com", Some(Kind::Dns), &key, &chain).unwrap();
        let loaded = second.load(&[], wall(), true).unwrap();
        assert_eq!(loaded["*.example.com"].by, Some(Kind::Dns));
        for folder in [state.path().join("acme"), store.folder.clone()] {
            assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
        }
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 1, "nothing else is left behind");
    }

    #[test]
    fn files_that_cannot_be_used_are_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path(), URL, None).unwrap();
        let (key, chain) = pair("a.example.com");
        store.keep("a.example.com", Some(Kind::Tls), &key, &chain).unwrap();
        let good = store.path("a.example.com");
        fs::copy(&good, store.path("other.example.com")).unwrap();
        fs::write(store.path("cut.example.com"), &fs::read(&good).unwrap()[..200]).unwrap();
        fs::write(store.path("empty.example.com"), "").unwrap();
        fs::write(store.path("large.example.com"), vec![b'#'; 1 << 20]).unwrap();
        symlink(&good, store.path("link.example.com")).unwrap();
        let loaded = store.load(&[], wall(), true).unwrap();
        assert_eq!(loaded.keys().map(|host| &**host).collect::<Vec<_>>(), ["a.example.com"]);
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 6);
        // The next order replaces a link and does not follow it.
        let (key, chain) = pair("link.example.com");
        store.keep("link.example.com", None, &key, &chain).unwrap();
        assert_eq!(store.load(&[], wall(), true).unwrap().len(), 2);
        assert_eq!(
            fs::metadata(store.path("link.example.com")).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    /// Keeps a certificate that ended a number of days ago.
    fn keep_ended(store: &Store, host: &str, days: u64) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new([host.to_owned()]).unwrap();
        let at = |days: u64| UNIX_EPOCH + Duration::from_secs(wall() - days * 86_400);
        (parameters.not_before, parameters.not_after) = (at(days + 90).into(), at(days).into());
        let chain = parameters.self_signed(&key).unwrap();
        store.keep(host, Some(Kind::Tls), &key.serialize_pem(), &chain.pem()).unwrap();
    }

    #[test]
    fn what_ended_long_ago_is_removed_and_takes_no_place_of_others() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path(), URL, None).unwrap();
        for n in 0..10 {
            keep_ended(&store, &format!("old{n}.example.com"), 31);
        }
        keep_ended(&store, "ended.example.com", 29);
        let (key, chain) = pair("valid.example.com");
        store.keep("valid.example.com", Some(Kind::Tls), &key, &chain).unwrap();
        // The file of another account is none of this one, however old it is.
        let other = Store { directory: "https://other.example/dir".into(), ..store };
        keep_ended(&other, "other.example.com", 31);
        let store = Store { directory: URL.into(), ..other };

        let loaded = |most, published: &[Box<str>], removes| {
            let table = store.load_at_most(most, published, wall(), removes).unwrap();
            let mut hosts: Vec<_> = table.into_keys().map(String::from).collect();
            hosts.sort_unstable();
            hosts
        };
        let files = || fs::read_dir(&store.folder).unwrap().count();
        let both = ["ended.example.com", "valid.example.com"];
        assert_eq!(loaded(3, &[], false), both);
        assert_eq!(files(), 13, "orders may be in progress");
        for host in both {
            let published = [Box::from("none.example.com"), Box::from(host), "../../x".into()];
            assert_eq!(loaded(1, &published, false), [host]);
        }
        assert_eq!(loaded(100, &[], true), both);
        assert_eq!(files(), 3);
    }

    #[test]
    fn what_the_authority_issued_is_checked() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path(), URL, None).unwrap();
        let ((key, chain), (other_key, _)) = (pair("a.example.com"), pair("a.example.com"));
        assert!(store.check("a.example.com", &key, &chain).is_ok());
        let said = |host, key, chain| store.check(host, key, chain).unwrap_err().to_string();
        assert!(said("b.example.com", &key, &chain).contains("for another name"));
        assert!(said("a.example.com", &other_key, &chain).contains("does not belong"));
        assert!(said("a.example.com", &key, "").contains("no certificate in it"));
    }
}
