//! The certificates that visitors are shown. The table of the files and the table of the issued
//! certificates are replaced as a whole, so that a handshake reads them without a lock, and a
//! connection keeps what it was shown.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use h1::host::normal;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tls::{Identity, MaterialError};

use crate::settings::Files;

/// A certificate on the shelf.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) key: Arc<CertifiedKey>,
    /// The first second in which the certificate is valid, since 1970.
    pub(crate) begins: u64,
    /// The last second in which the certificate is valid, since 1970.
    pub(crate) ends: u64,
}

impl Shown {
    pub(crate) fn of(identity: &Identity) -> Option<Self> {
        let (begins, ends) = identity.validity()?;
        Some(Self { key: identity.certified(), begins, ends })
    }

    /// The second from which the certificate is renewed: a third of its life is left.
    pub(crate) const fn renewal(&self) -> u64 {
        self.ends.saturating_sub(self.ends.saturating_sub(self.begins) / 3)
    }

    /// Whether less than a quarter of the life is left.
    pub(crate) const fn is_late(&self, wall: u64) -> bool {
        wall > self.ends.saturating_sub(self.ends.saturating_sub(self.begins) / 4)
    }
}

/// Certificates by the names that they contain; a wildcard has the name `*.example.com`.
pub(crate) type ByName = HashMap<Box<str>, Shown>;

/// The two tables.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// The certificates of the configured files.
    pub(crate) files: ArcSwap<ByName>,
    /// The certificates that the authority issued, each for one name.
    pub(crate) issued: ArcSwap<ByName>,
}

impl Shelf {
    /// The certificate for a name in normal form: that of a file before an issued one, and the
    /// exact name before a wildcard.
    pub(crate) fn find(&self, host: &str) -> Option<Shown> {
        self.configured(host).or_else(|| self.issued.load().get(host).cloned())
    }

    /// The certificate of a file for a name in normal form.
    pub(crate) fn configured(&self, host: &str) -> Option<Shown> {
        let files = self.files.load();
        files.get(host).or_else(|| files.get(wildcard_of(host)?.as_str())).cloned()
    }

    /// Adds an issued certificate. Only one caller at a time may change the table.
    pub(crate) fn show_issued(&self, host: &str, shown: Shown) {
        let mut table = ByName::clone(&self.issued.load());
        table.insert(host.into(), shown);
        self.issued.store(Arc::new(table));
    }
}

impl ResolvesServerCert for Shelf {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(&normal(hello.server_name()?))?.key)
    }
}

/// The wildcard that covers a name: it replaces the first label alone (RFC 9525 section 6.3). A
/// wildcard itself is covered by the same wildcard.
fn wildcard_of(host: &str) -> Option<String> {
    let (_, rest) = host.split_once('.')?;
    Some(format!("*.{rest}"))
}

/// Loads the files of the configuration. All problems are added to `problems`.
pub(crate) fn load(files: &[Files], problems: &mut Vec<MaterialError>) -> ByName {
    let mut table = ByName::new();
    for pair in files {
        let identity = match Identity::load(&pair.certificate, &pair.key) {
            Ok(identity) => identity,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let names = identity.names();
        let shown = Shown::of(&identity).filter(|_| !names.is_empty());
        let Some(shown) = shown else {
            problems.push(MaterialError::File {
                path: pair.certificate.clone(),
                problem: "the certificate has no DNS name (subjectAltName), so no visitor accepts \
                          it; issue a certificate with the published names"
                    .into(),
            });
            continue;
        };
        if let Some(problem) = identity.out_of_date() {
            tracing::warn!("{}: {problem}", pair.certificate.display());
        }
        for name in names {
            table.entry(name.into()).or_insert_with(|| shown.clone());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_begins_with_the_last_third_and_is_late_in_the_last_quarter() {
        let leaf = tls::fleeting(&["a.example".into()]).unwrap();
        let shown = Shown { begins: 1_000, ends: 1_000 + 90 * 86_400, ..Shown::of(&leaf).unwrap() };
        assert_eq!(shown.renewal(), 1_000 + 60 * 86_400);
        assert!(!shown.is_late(1_000 + 67 * 86_400));
        assert!(shown.is_late(1_000 + 68 * 86_400));
        // A certificate that ends before it begins is renewed at once.
        let wrong = Shown { begins: 2_000, ends: 1_000, ..shown };
        assert_eq!(wrong.renewal(), 1_000);
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        assert_eq!(wildcard_of("a.example.com").as_deref(), Some("*.example.com"));
        assert_eq!(wildcard_of("a.b.example.com").as_deref(), Some("*.b.example.com"));
        assert_eq!(wildcard_of("localhost"), None);
        assert_eq!(normal("App.Example.COM."), "app.example.com");
    }
}
