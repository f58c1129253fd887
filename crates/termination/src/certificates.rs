//! The certificates that are presented to visitors. The table of the files and the table of the
//! issued certificates are replaced as a whole, so that a handshake reads them without a lock, and
//! a connection keeps its certificate.
//!
//! Several certificates may cover one name: a renewed certificate beside the old one, a wildcard
//! beside the exact name, an RSA key beside an ECDSA key. [`CertificateTable::choose`] decides at
//! each handshake, because stored certificates expire, and because visitors differ.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use h1::host::normal;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tls::{Identity, MaterialError};

use crate::challenge::Kind;
use crate::settings::Files;
use crate::shared::LookedUp;
use crate::wall;

/// The largest number of names that a log line lists.
const LISTED: usize = 3;

/// How long an issued certificate is kept after its expiry, in seconds.
const STALE: u64 = 30 * 86_400;

/// A certificate in the table.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) key: Arc<CertifiedKey>,
    /// The start of the certificate's validity, in seconds since 1970.
    pub(crate) begins: u64,
    /// The end of the certificate's validity, in seconds since 1970.
    pub(crate) ends: u64,
    /// The file of the configuration; `None` for an issued certificate.
    pub(crate) file: Option<Arc<Path>>,
    /// The challenge that proved the name of an issued certificate.
    pub(crate) by: Option<Kind>,
}

impl Shown {
    pub(crate) fn of(identity: &Identity) -> Option<Self> {
        let (begins, ends) = identity.validity()?;
        Some(Self { key: identity.certified(), begins, ends, file: None, by: None })
    }

    /// Whether the certificate is valid in this second.
    pub(crate) const fn is_valid(&self, wall: u64) -> bool {
        self.begins <= wall && wall <= self.ends
    }

    /// The time of the renewal, in seconds since 1970: a third of its life is left.
    pub(crate) const fn renewal(&self) -> u64 {
        self.ends.saturating_sub(self.ends.saturating_sub(self.begins) / 3)
    }

    /// Whether the certificate expired so long ago that it is no longer needed.
    pub(crate) const fn is_stale(&self, wall: u64) -> bool {
        self.ends.saturating_add(STALE) < wall
    }

    /// Whether less than a quarter of the life is left.
    pub(crate) const fn is_late(&self, wall: u64) -> bool {
        wall > self.ends.saturating_sub(self.ends.saturating_sub(self.begins) / 4)
    }
}

/// Issued certificates by the names for which they were ordered; a wildcard is stored as
/// `*.example.com`.
pub(crate) type ByName = HashMap<Box<str>, Shown>;

/// Certificates of files by the names that they contain, in the order of the configuration.
pub(crate) type OfFiles = HashMap<Box<str>, Vec<Shown>>;

/// The certificates of the files, in the order of the configuration.
pub(crate) type InOrder = Vec<Shown>;

/// The two tables.
#[derive(Debug, Default)]
pub(crate) struct CertificateTable {
    /// The certificates of the configured files.
    pub(crate) files: ArcSwap<OfFiles>,
    /// The same certificates, for visitors that send no server name.
    pub(crate) in_order: ArcSwap<InOrder>,
    /// The certificates that the authority issued, each for one name.
    pub(crate) issued: ArcSwap<ByName>,
    /// Certificates that other nodes of a cluster have ordered, for which visitors asked.
    /// Empty at a server without a cluster, whose handshakes take no lock.
    pub(crate) looked_up: OnceLock<LookedUp<Shown>>,
}

impl CertificateTable {
    /// The certificate for a name in normal form at this time, for a visitor that accepts any key.
    pub(crate) fn find(&self, host: &str) -> Option<Shown> {
        self.choose(host, wall(), |_| true)
    }

    /// The best certificate for a name in normal form in the second `wall`. The criteria, in order
    /// of precedence:
    ///
    /// 1. the visitor can verify signatures of its key (`fits`);
    /// 2. it is valid now;
    /// 3. it comes from a file for the exact name, from a file for the wildcard, was issued for the
    ///    exact name, was issued for the wildcard, by this node or another one;
    /// 4. it expires later; of several equal certificates, it is first in the configuration.
    pub(crate) fn choose(
        &self,
        host: &str,
        wall: u64,
        fits: impl Fn(&Shown) -> bool,
    ) -> Option<Shown> {
        let (files, issued) = (self.files.load(), self.issued.load());
        let wildcard = wildcard_of(host);
        let wildcard = wildcard.as_deref().filter(|wildcard| *wildcard != host);
        let of_files = |name: Option<&str>| {
            let found = name.and_then(|name| files.get(name));
            found.map(Vec::as_slice).unwrap_or_default().iter()
        };
        let exact = of_files(Some(host)).map(|shown| (3, shown));
        let exact = exact.chain(of_files(wildcard).map(|shown| (2, shown)));
        let ordered = issued.get(host).map(|shown| (1, shown));
        let below = wildcard.and_then(|name| issued.get(name)).map(|shown| (0, shown));
        let found = [(1, Some(host)), (0, wildcard)];
        let found = found.map(|(place, name)| Some((place, self.looked_up.get()?.get(name?)?)));
        let found = found.iter().flatten().map(|(place, shown)| (*place, shown));
        let rank =
            |(place, shown): &(u8, &Shown)| (fits(shown), shown.is_valid(wall), *place, shown.ends);
        // `max_by_key` returns the last of several equal elements.
        let all: Vec<_> = exact.chain(ordered).chain(below).chain(found).collect();
        all.into_iter().rev().max_by_key(rank).map(|(_, shown)| shown.clone())
    }

    /// The certificate for a visitor that sends no server name, in the second `wall`: the first
    /// certificate of the configuration that the visitor can verify and that is valid, as with
    /// other servers. Without a file, the issued certificate that expires last.
    pub(crate) fn choose_default(&self, wall: u64, fits: impl Fn(&Shown) -> bool) -> Option<Shown> {
        let rank = |shown: &&Shown| (fits(shown), shown.is_valid(wall));
        // `max_by_key` returns the last of several equal elements.
        let of_files = self.in_order.load();
        if let Some(shown) = of_files.iter().rev().max_by_key(rank) {
            return Some(shown.clone());
        }
        let issued = self.issued.load();
        issued.values().max_by_key(|shown| (fits(shown), shown.ends)).cloned()
    }

    /// Whether there is a certificate for visitors that send no server name.
    pub(crate) fn has_default(&self) -> bool {
        self.choose_default(wall(), |_| true).is_some()
    }

    /// Whether a file covers a name in normal form.
    pub(crate) fn is_configured(&self, host: &str) -> bool {
        let files = self.files.load();
        files.contains_key(host)
            || wildcard_of(host).is_some_and(|name| files.contains_key(name.as_str()))
    }

    /// Adds an issued certificate, and removes certificates that expired long ago. Only one caller
    /// at a time may change the table.
    pub(crate) fn show_issued(&self, host: &str, shown: Shown) {
        let mut table = ByName::clone(&self.issued.load());
        let wall = wall();
        table.retain(|_, shown| !shown.is_stale(wall));
        table.insert(host.into(), shown);
        self.issued.store(Arc::new(table));
    }
}

impl ResolvesServerCert for CertificateTable {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fits = |shown: &Shown| shown.key.key.choose_scheme(hello.signature_schemes()).is_some();
        let shown = match hello.server_name() {
            Some(name) => self.choose(&normal(name), wall(), fits),
            None => self.choose_default(wall(), fits),
        };
        Some(shown?.key)
    }
}

/// The wildcard that covers a name: it replaces only the first label (RFC 9525 section 6.3). A
/// wildcard itself is covered by the same wildcard.
pub(crate) fn wildcard_of(host: &str) -> Option<String> {
    let (_, rest) = host.split_once('.')?;
    Some(format!("*.{rest}"))
}

/// Loads the files of the configuration. All problems are added to `problems`.
pub(crate) fn load(files: &[Files], problems: &mut Vec<MaterialError>) -> (OfFiles, InOrder) {
    let (mut table, mut in_order) = (OfFiles::new(), InOrder::new());
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
        let shown = Shown { file: Some(Arc::from(pair.certificate.as_path())), ..shown };
        in_order.push(shown.clone());
        for name in names {
            let all: &mut Vec<_> = table.entry(name.into()).or_default();
            // A certificate may contain a name twice.
            if all.last().is_none_or(|last| !Arc::ptr_eq(&last.key, &shown.key)) {
                all.push(shown.clone());
            }
        }
    }
    for line in rivals(&table, wall()) {
        tracing::warn!("{line}");
    }
    (table, in_order)
}

/// A sentence for each pair of files with a common name. Two valid certificates with different key
/// algorithms serve different visitors.
fn rivals(table: &OfFiles, wall: u64) -> Vec<String> {
    let mut pairs: Vec<(&Shown, &Shown, Vec<&str>)> = Vec::new();
    let mut names: Vec<_> = table.iter().filter(|(_, all)| all.len() > 1).collect();
    names.sort_unstable_by_key(|(name, _)| *name);
    for (name, all) in names {
        let rank = |shown: &&Shown| (shown.is_valid(wall), shown.ends);
        let Some(best) = all.iter().rev().max_by_key(rank) else { continue };
        for other in all.iter().filter(|other| !Arc::ptr_eq(&best.key, &other.key)) {
            let both = best.is_valid(wall) && other.is_valid(wall);
            if both && best.key.key.algorithm() != other.key.key.algorithm() {
                continue;
            }
            let is_it = |(a, b, _): &&mut (&Shown, &Shown, Vec<&str>)| {
                Arc::ptr_eq(&a.key, &best.key) && Arc::ptr_eq(&b.key, &other.key)
            };
            match pairs.iter_mut().find(is_it) {
                Some((_, _, names)) => names.push(name),
                None => pairs.push((best, other, vec![name])),
            }
        }
    }
    pairs.iter().map(|(best, other, names)| rivalry(best, other, names, wall)).collect()
}

fn rivalry(best: &Shown, other: &Shown, names: &[&str], wall: u64) -> String {
    let file = |shown: &Shown| {
        shown.file.as_ref().map_or_else(String::new, |file| file.display().to_string())
    };
    let dates = |shown: &Shown| {
        let (begins, ends) = (tls::day_of(shown.begins), tls::day_of(shown.ends));
        if wall < shown.begins {
            format!("is not valid before {begins}")
        } else if shown.is_valid(wall) {
            format!("is valid until {ends}")
        } else {
            format!("expired on {ends}")
        }
    };
    let (listed, more) = names.split_at(names.len().min(LISTED));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!(
        "{one} and {two} are both for {listed}{more}: visitors get {one}, which {of_one}; {two} \
         {of_two} (hint: remove one of them from `tls_routes.certificates`)",
        one = file(best),
        two = file(other),
        listed = listed.join(", "),
        of_one = dates(best),
        of_two = dates(other),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, UNIX_EPOCH};

    use rcgen::{CertificateParams, KeyPair};
    use rustls::SignatureAlgorithm;

    use super::*;

    const DAY: u64 = 86_400;

    /// Files of certificates, each with its names and the days from now on which it begins and
    /// ends.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn pair(&self, file: &str, names: &[&str], (begins, ends): (i64, i64)) -> Files {
            let key = KeyPair::generate().unwrap();
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let mut parameters = CertificateParams::new(names).unwrap();
            let at = |days: i64| UNIX_EPOCH + Duration::from_secs(after(days));
            (parameters.not_before, parameters.not_after) = (at(begins).into(), at(ends).into());
            let files = ["crt", "key"].map(|end| self.0.path().join(format!("{file}.{end}")));
            let chain = parameters.self_signed(&key).unwrap();
            fs::write(&files[0], chain.pem()).unwrap();
            fs::write(&files[1], key.serialize_pem()).unwrap();
            let [certificate, key] = files;
            Files { certificate, key }
        }
    }

    /// The second `days` days from now.
    fn after(days: i64) -> u64 {
        wall().checked_add_signed(days * DAY.cast_signed()).unwrap()
    }

    fn certificates(files: &[Files]) -> CertificateTable {
        let mut problems = Vec::new();
        let (table, in_order) = load(files, &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        let (files, in_order) = (ArcSwap::from_pointee(table), ArcSwap::from_pointee(in_order));
        CertificateTable { files, in_order, ..CertificateTable::default() }
    }

    /// The name of the file that a visitor of a host is shown in a second, or `issued`.
    fn shown(certificates: &CertificateTable, host: &str, wall: u64) -> Option<String> {
        let shown = certificates.choose(host, wall, |_| true)?;
        let stem = |file: &Path| file.file_stem().unwrap().to_str().unwrap().to_owned();
        Some(shown.file.as_deref().map_or_else(|| "issued".into(), stem))
    }

    #[test]
    fn of_two_files_the_valid_one_wins_and_then_the_one_that_ends_later() {
        let folder = Folder::new();
        let names = ["a.example.com"];
        let old = folder.pair("old", &names, (-90, -1));
        let good = folder.pair("good", &names, (-10, 20));
        let long = folder.pair("long", &names, (-1, 80));
        let later = folder.pair("later", &names, (30, 300));
        for files in [
            vec![&old, &good, &long, &later],
            vec![&later, &long, &good, &old],
            vec![&good, &old, &later, &long],
        ] {
            let files: Vec<_> = files.into_iter().cloned().collect();
            let certificates = certificates(&files);
            let at = |days| shown(&certificates, "a.example.com", after(days));
            assert_eq!(at(0).as_deref(), Some("long"));
            // Each handshake asks the clock: no reload is needed.
            assert_eq!(at(-5).as_deref(), Some("good"));
            assert_eq!(at(-50).as_deref(), Some("old"));
            assert_eq!(at(40).as_deref(), Some("later"));
            assert_eq!(at(400).as_deref(), Some("later"), "none is valid any more");
            assert!(
                certificates.is_configured("a.example.com")
                    && !certificates.is_configured("b.example.com")
            );
        }
    }

    #[test]
    fn an_exact_name_comes_before_a_wildcard_and_a_valid_wildcard_before_an_expired_name() {
        let folder = Folder::new();
        let wild = folder.pair("wild", &["*.example.com"], (-1, 300));
        let exact = folder.pair("exact", &["a.example.com"], (-1, 30));
        let certificates = certificates(&[wild, exact]);
        let at = |host: &str, days| shown(&certificates, host, after(days));
        assert_eq!(at("a.example.com", 0).as_deref(), Some("exact"));
        assert_eq!(at("a.example.com", 31).as_deref(), Some("wild"));
        assert_eq!(at("a.example.com", 301).as_deref(), Some("exact"), "neither is valid");
        assert_eq!(at("b.example.com", 0).as_deref(), Some("wild"));
        assert_eq!(at("*.example.com", 0).as_deref(), Some("wild"));
        assert_eq!(at("a.b.example.com", 0), None);
        assert_eq!(at("example.com", 0), None);
    }

    #[test]
    fn a_visitor_without_a_name_is_shown_the_first_valid_certificate() {
        let folder = Folder::new();
        let old = folder.pair("old", &["a.example.com"], (-90, -1));
        let first = folder.pair("first", &["b.example.com"], (-1, 30));
        let second = folder.pair("second", &["c.example.com"], (-1, 300));
        let of = |certificates: &CertificateTable, wall| {
            let shown = certificates.choose_default(wall, |_| true)?;
            let stem = |file: Arc<Path>| file.file_stem().unwrap().to_owned();
            Some(shown.file.map_or_else(|| "issued".into(), stem))
        };
        let certificates = certificates(&[old, first, second]);
        assert_eq!(of(&certificates, after(0)).unwrap(), "first");
        assert_eq!(of(&certificates, after(60)).unwrap(), "second");
        assert_eq!(of(&certificates, after(900)).unwrap(), "old", "none is valid");
        let bare = self::certificates(&[]);
        assert_eq!(of(&bare, after(0)), None);
        let leaf = Shown::of(&tls::fleeting(&["d.example.com".into()]).unwrap()).unwrap();
        bare.show_issued("d.example.com", leaf);
        assert_eq!(of(&bare, after(0)).unwrap(), "issued");
    }

    #[test]
    fn an_issued_certificate_stands_in_for_a_file_that_has_expired() {
        let folder = Folder::new();
        let file = folder.pair("file", &["a.example.com"], (-1, 30));
        let certificates = certificates(&[file]);
        let leaf = Shown::of(&tls::fleeting(&["a.example.com".into()]).unwrap()).unwrap();
        let issued = Shown { begins: after(-1), ends: after(60), ..leaf };
        certificates.show_issued("a.example.com", issued.clone());
        certificates.show_issued("*.example.com", issued);
        let at = |host: &str, days| shown(&certificates, host, after(days));
        assert_eq!(at("a.example.com", 0).as_deref(), Some("file"));
        assert_eq!(at("a.example.com", 31).as_deref(), Some("issued"));
        assert_eq!(at("b.example.com", 0).as_deref(), Some("issued"), "by the wildcard");
    }

    #[test]
    fn a_visitor_gets_a_certificate_whose_signatures_the_visitor_can_verify() {
        let folder = Folder::new();
        let one = folder.pair("one", &["a.example.com"], (-1, 300));
        let two = folder.pair("two", &["a.example.com"], (-1, 30));
        let certificates = certificates(&[one, two]);
        let is_two = |shown: &Shown| shown.file.as_ref().unwrap().ends_with("two.crt");
        let found = certificates.choose("a.example.com", wall(), is_two).unwrap();
        assert!(is_two(&found));
        assert_eq!(found.key.key.algorithm(), SignatureAlgorithm::ECDSA);
    }

    #[test]
    fn a_warning_names_both_files_and_what_visitors_get() {
        let folder = Folder::new();
        let names = ["a.example.com", "b.example.com", "c.example.com", "d.example.com"];
        let old = folder.pair("old", &names, (-90, -1));
        let good = folder.pair("good", &names, (-10, 20));
        let other = folder.pair("other", &["e.example.com"], (-10, 20));
        let (table, _) = load(&[old, good, other], &mut Vec::new());
        let lines = rivals(&table, wall());
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let at = |file: &str| folder.0.path().join(file).display().to_string();
        let (good, old, day) = (at("good.crt"), at("old.crt"), |days| tls::day_of(after(days)));
        assert_eq!(
            line,
            &format!(
                "{good} and {old} are both for a.example.com, b.example.com, c.example.com and 1 \
                 more: visitors get {good}, which is valid until {}; {old} expired on {} (hint: \
                 remove one of them from `tls_routes.certificates`)",
                day(20),
                day(-1)
            )
        );
    }

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
    fn an_issued_certificate_that_ended_long_ago_leaves_with_the_next_order() {
        let certificates = certificates(&[]);
        let leaf = Shown::of(&tls::fleeting(&["a.example.com".into()]).unwrap()).unwrap();
        for (host, ends) in [("old.example.com", -31), ("ended.example.com", -29)] {
            certificates
                .show_issued(host, Shown { begins: after(-99), ends: after(ends), ..leaf.clone() });
            assert!(certificates.find(host).is_some());
        }
        certificates.show_issued("a.example.com", leaf);
        assert!(certificates.find("old.example.com").is_none());
        assert!(certificates.find("ended.example.com").is_some());
    }

    #[test]
    fn a_wildcard_stands_for_one_label() {
        assert_eq!(wildcard_of("a.example.com").as_deref(), Some("*.example.com"));
        assert_eq!(wildcard_of("a.b.example.com").as_deref(), Some("*.b.example.com"));
        assert_eq!(wildcard_of("localhost"), None);
        assert_eq!(normal("App.Example.COM."), "app.example.com");
    }
}
