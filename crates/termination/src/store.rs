//! The files of ACME: `acme/DIRECTORY/account.json`, and `acme/DIRECTORY/NAME.pem` for each
//! certificate with its key. DIRECTORY is the URL of the authority's directory as a file name, so
//! the certificates of a test authority and of the real one never mix. A named account has a folder
//! DIRECTORY+ACCOUNT of its own. The file of a wildcard begins with `*.`, as its name does.
//!
//! A certificate and its key are one file, because they are replaced together. A line before the
//! PEM blocks names the directory and the challenge that proved the name.

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use tls::{Identity, MaterialError};

use crate::challenge::Kind;
use crate::shelf::{ByName, Shown};

/// The largest size in bytes of a file that is read. The files have less than 20 KB.
const FILE_MAX: u64 = 256 << 10;

/// The longest name of a folder.
const FOLDER_MAX: usize = 200;

/// Most certificates that are loaded at a start.
const LOADED_MAX: usize = 20_000;

/// The longest name whose file name, with its ending, is at most 255 bytes long.
pub(crate) const HOST_MAX: usize = 240;

/// The folder of one authority.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    directory: String,
}

impl Store {
    /// Opens the folder of an account at a directory, and makes it if it is missing.
    pub(crate) fn open(
        state_dir: &Path,
        directory: &str,
        account: Option<&str>,
    ) -> Result<Self, MaterialError> {
        let acme = state_dir.join("acme");
        let mut name = file_name(directory);
        if let Some(account) = account {
            // No directory has a plus in its folder.
            name = format!("{name}+{}", file_name(account));
        }
        let folder = acme.join(name);
        for folder in [&acme, &folder] {
            make_folder(folder).map_err(|error| problem(folder, error))?;
        }
        Ok(Self { folder, directory: directory.to_owned() })
    }

    /// Loads the certificates of the folder. A file that cannot be used is logged and left alone;
    /// the next order replaces it.
    pub(crate) fn load(&self) -> Result<ByName, MaterialError> {
        let failed = |error: io::Error| problem(&self.folder, error);
        let mut table = ByName::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)?.take(LOADED_MAX) {
            let path = entry.map_err(failed)?.path();
            let Some(host) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".pem"))
            else {
                continue;
            };
            match self.load_one(&path, host) {
                Ok(Some(shown)) => drop(table.insert(host.into(), shown)),
                Ok(None) => {}
                Err(problem) => tracing::warn!(
                    "the certificate of {host} is not used and is ordered again: {problem}"
                ),
            }
        }
        Ok(table)
    }

    fn load_one(&self, path: &Path, host: &str) -> Result<Option<Shown>, MaterialError> {
        let text = files::read(path, FILE_MAX).map_err(|error| problem(path, error))?;
        let Some((directory, by)) = head(&text) else { return Ok(None) };
        if directory != self.directory {
            return Ok(None);
        }
        let identity = Identity::of_pem(path, &text)?;
        if identity.names().iter().all(|name| name != host) {
            return Err(problem(path, "the certificate is for another name"));
        }
        Ok(Shown::of(&identity).map(|shown| Shown { by, ..shown }))
    }

    /// The challenge that proved the name the last time.
    pub(crate) fn proved_by(&self, host: &str) -> Option<Kind> {
        head(&files::read(&self.path(host), FILE_MAX).ok()?)?.1
    }

    /// Checks that a chain and a key belong together and are for the name.
    pub(crate) fn check(&self, host: &str, key: &str, chain: &str) -> Result<Shown, MaterialError> {
        let path = self.path(host);
        let identity = Identity::of_pem(&path, format!("{key}{chain}").as_bytes())?;
        if identity.names().iter().all(|name| name != host) {
            return Err(problem(&path, "the authority issued a certificate for another name"));
        }
        Shown::of(&identity)
            .ok_or_else(|| problem(&path, "the dates of the issued certificate cannot be read"))
    }

    /// Keeps a certificate.
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

    /// The content of the file of the account, if there is one.
    pub(crate) fn account(&self) -> Result<Option<Vec<u8>>, MaterialError> {
        let path = self.account_path();
        match files::read(&path, FILE_MAX) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(problem(&path, error)),
        }
    }

    /// Keeps the account.
    pub(crate) fn keep_account(&self, text: &[u8]) -> Result<(), MaterialError> {
        let path = self.account_path();
        replace(&path, text).map_err(|error| problem(&path, error))
    }

    /// The file of the account.
    pub(crate) fn account_path(&self) -> PathBuf {
        self.folder.join("account.json")
    }

    /// Whether both are the same folder and directory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.directory == other.directory && self.folder == other.folder
    }

    fn path(&self, host: &str) -> PathBuf {
        self.folder.join(format!("{host}.pem"))
    }
}

const HEAD: &str = "# tunnel: certificate of ";

/// The directory and the challenge in the first line of a kept certificate.
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
            // Two dots in a row, or a dot at the begin, could lead out of the folder.
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

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

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
        assert_eq!(again.load().unwrap().len(), 1);
        let other = Store::open(state.path(), "https://other.example/dir", None).unwrap();
        assert!(!other.is_same(&store) && other.load().unwrap().is_empty());
        let second = Store::open(state.path(), URL, Some("work/../x")).unwrap();
        assert!(!second.is_same(&store) && second.load().unwrap().is_empty());
        assert!(second.folder.ends_with("ca.example_dir+work____x"), "{second:?}");
        let (key, chain) = pair("*.example.com");
        second.keep("*.example.com", Some(Kind::Dns), &key, &chain).unwrap();
        let loaded = second.load().unwrap();
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
        let loaded = store.load().unwrap();
        assert_eq!(loaded.keys().map(|host| &**host).collect::<Vec<_>>(), ["a.example.com"]);
        assert_eq!(fs::read_dir(&store.folder).unwrap().count(), 6);
        // The next order replaces a link and does not follow it.
        let (key, chain) = pair("link.example.com");
        store.keep("link.example.com", None, &key, &chain).unwrap();
        assert_eq!(store.load().unwrap().len(), 2);
        assert_eq!(
            fs::metadata(store.path("link.example.com")).unwrap().permissions().mode() & 0o777,
            0o600
        );
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
