//! A private certificate authority and the certificates that it issues, for `tunnel generate
//! certs`.
//!
//! Keys are ECDSA on P-256. Every TLS stack, browser and proxy of the last ten years accepts them,
//! unlike Ed25519, and a signature costs a hundredth of an RSA signature. Each certificate has the
//! extensions that RFC 5280 requires (key identifiers, basic constraints, key usage), so that
//! strict verifiers accept it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::rand;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType, SerialNumber,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

use crate::identity::{self, day, read};
use crate::{HostName, MaterialError, load_certificates};

/// The lifetime of an authority, unless its certificates last longer. The authority is copied to
/// every machine by hand, so it should outlive the hardware.
const AUTHORITY_YEARS: u8 = 10;

/// The longest common name (`ub-common-name` in RFC 5280, appendix A.1).
const COMMON_NAME_MAX: usize = 64;

/// Certificates are valid from a day ago, because the clock of the other machine may be slow.
const DAY: Duration = Duration::from_secs(86_400);

/// A certificate authority with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ends: ASN1Time,
}

/// A certificate and its private key as PEM, and its last day.
#[derive(Clone)]
pub struct Issued {
    /// The certificate as PEM.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
    /// The day of expiry in UTC, as `2031-04-05`.
    pub until: String,
}

impl Authority {
    /// Makes an authority that outlasts certificates of `years` years.
    ///
    /// # Errors
    /// The machine has no randomness.
    pub fn create(years: u8) -> Result<(Self, Issued), MaterialError> {
        // Two authorities with the same name would be confused. A verifier finds the issuer by its
        // name, and would report a bad signature instead of an unknown authority.
        let [a, b, c, d] = random()?;
        let name = format!("tunnel CA {a:02x}{b:02x}{c:02x}{d:02x}");
        let mut params = parameters(&name)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ends = years_from(&ASN1Time::now(), years.max(AUTHORITY_YEARS));
        params.not_after = ends.to_datetime();
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        let issued = Issued { certificate, key: key.serialize_pem(), until: day(&ends) };
        Ok((Self { issuer: Issuer::new(params, key), ends }, issued))
    }

    /// Loads PEM files. The key may be of any kind that can sign.
    ///
    /// # Errors
    /// The file is unreadable, expired or not an authority, or the key is encrypted or belongs to
    /// another certificate. The error names the file.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, MaterialError> {
        let problem = |what: &str| MaterialError::file(certificate, what);
        let chain = load_certificates(certificate)?;
        let first = chain.first().ok_or_else(|| problem("no certificate in it (PEM)"))?;
        let (_, parsed) = X509Certificate::from_der(first)
            .map_err(|_| problem("the certificate cannot be read"))?;
        if !parsed.basic_constraints().ok().flatten().is_some_and(|c| c.value.ca) {
            return Err(problem("this certificate is of no authority: it may not issue others"));
        }
        let ends = parsed.validity().not_after;
        if ASN1Time::now() > ends {
            let what = format!("the authority expired on {}; make a new one elsewhere", day(&ends));
            return Err(problem(&what));
        }
        let text = String::from_utf8(read(key)?)
            .map_err(|_| MaterialError::file(key, "no private key in it (PEM)"))?;
        if identity::is_encrypted(text.as_bytes()) {
            return Err(MaterialError::file(key, identity::ENCRYPTED));
        }
        let pair = KeyPair::from_pem(&text).map_err(|error| {
            MaterialError::file(key, format!("the private key cannot be used: {error}"))
        })?;
        if pair.subject_public_key_info() != parsed.public_key().raw {
            let what =
                format!("the key does not belong to the certificate {}", certificate.display());
            return Err(MaterialError::file(key, what));
        }
        let issuer = Issuer::from_ca_cert_der(first, pair)
            .map_err(|error| MaterialError::file(certificate, error))?;
        Ok(Self { issuer, ends })
    }

    /// The day of expiry in UTC. No certificate that the authority issues expires later.
    #[must_use]
    pub fn until(&self) -> String {
        day(&self.ends)
    }

    /// Issues a server certificate for `names`, at least one.
    ///
    /// # Errors
    /// The machine has no randomness.
    pub fn server(&self, names: &[HostName], years: u8) -> Result<Issued, MaterialError> {
        self.named(names, "a tunnel server", &[ExtendedKeyUsagePurpose::ServerAuth], years)
    }

    /// Issues a certificate for the members of a cluster that dial each other by `names`, at least
    /// one: for both ends of a connection.
    ///
    /// # Errors
    /// The machine has no randomness.
    pub fn members(&self, names: &[HostName], years: u8) -> Result<Issued, MaterialError> {
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.named(names, "members of a cluster", &usages, years)
    }

    fn named(
        &self,
        names: &[HostName],
        otherwise: &str,
        usages: &[ExtendedKeyUsagePurpose],
        years: u8,
    ) -> Result<Issued, MaterialError> {
        let first = names.first().map(ToString::to_string);
        // Verifiers check the alternative names, which also hold longer names.
        let common = first.filter(|name| name.len() <= COMMON_NAME_MAX);
        let mut params = parameters(common.as_deref().unwrap_or(otherwise))?;
        params.subject_alt_names = names
            .iter()
            .map(|name| match name {
                HostName::Address(ip) => Ok(SanType::IpAddress(*ip)),
                HostName::Name(name) => Ok(SanType::DnsName(name.as_str().try_into()?)),
            })
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        self.issue(params, usages, years)
    }

    /// Issues a client certificate. The client may log in under `name`, at most 64 characters.
    ///
    /// # Errors
    /// The machine has no randomness.
    pub fn client(&self, name: &str, years: u8) -> Result<Issued, MaterialError> {
        // Only the common name: client names are not host names, and may contain capitals and `_`.
        self.issue(parameters(name)?, &[ExtendedKeyUsagePurpose::ClientAuth], years)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        usages: &[ExtendedKeyUsagePurpose],
        years: u8,
    ) -> Result<Issued, MaterialError> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        // A certificate must not outlive its authority: it would fail while its own date is still
        // valid.
        let ends = years_from(&ASN1Time::now(), years).min(self.ends);
        params.not_after = ends.to_datetime();
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem(), until: day(&ends) })
    }
}

/// The parameters that all certificates share: valid since yesterday, and a random serial number of
/// 127 bits.
fn parameters(name: &str) -> Result<CertificateParams, MaterialError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = ASN1Time::now().to_datetime() - DAY;
    let mut serial = random::<16>()?;
    // A positive integer that begins with no zero byte (RFC 5280, section 4.1.2.2).
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

/// The same day `years` years later.
fn years_from(now: &ASN1Time, years: u8) -> ASN1Time {
    let now = now.to_datetime();
    let then = now.replace_year(now.year() + i32::from(years));
    // Most years have no 29th of February.
    ASN1Time::new(then.unwrap_or_else(|_| now + DAY * 365 * u32::from(years)))
}

fn random<const N: usize>() -> Result<[u8; N], MaterialError> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes)
        .map_err(|_| MaterialError::Setting("the system gives no randomness".into()))?;
    Ok(bytes)
}

fn failed(error: rcgen::Error) -> MaterialError {
    MaterialError::Setting(format!("making a certificate: {error}"))
}

/// Without the key.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// Without the key.
impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    fn der(issued: &Issued) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap()
    }

    #[test]
    fn a_leaf_says_what_it_is_for_and_who_issued_it() {
        let (authority, root) = Authority::create(2).unwrap();
        let names = ["a.example", "::1"].map(|name| name.parse().unwrap());
        let leaf = der(&authority.server(&names, 2).unwrap());
        let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
        let root = der(&root);
        let (_, root) = X509Certificate::from_der(&root).unwrap();
        assert_eq!(leaf.issuer(), root.subject());
        assert!(!leaf.is_ca() && root.is_ca());
        let usage = leaf.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.server_auth && !usage.client_auth);
        assert!(leaf.key_usage().unwrap().unwrap().value.digital_signature());
        assert_eq!(leaf.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 2);
    }

    #[test]
    fn names_and_serials_differ() {
        let ((one, a), (_, b)) = (Authority::create(1).unwrap(), Authority::create(1).unwrap());
        let subject = |issued: &Issued| {
            X509Certificate::from_der(&der(issued)).unwrap().1.subject().to_string()
        };
        assert_ne!(subject(&a), subject(&b));
        let serial = |issued: &Issued| {
            X509Certificate::from_der(&der(issued)).unwrap().1.raw_serial().to_vec()
        };
        let two = [one.client("a", 1).unwrap(), one.client("a", 1).unwrap()];
        assert_ne!(serial(&two[0]), serial(&two[1]));
        assert_eq!(serial(&a).len(), 16);
    }

    #[test]
    fn no_leaf_outlives_its_authority() {
        let (authority, root) = Authority::create(2).unwrap();
        assert_eq!(authority.client("a", 30).unwrap().until, root.until);
        let (longer, root) = Authority::create(30).unwrap();
        assert_eq!(longer.client("a", 30).unwrap().until, root.until);
        assert!(longer.client("a", 2).unwrap().until < root.until);
    }

    #[test]
    fn a_day_that_the_other_year_lacks_is_close_to_it() {
        let leap = ASN1Time::from_timestamp(1_835_395_200).unwrap();
        assert_eq!(day(&leap), "2028-02-29");
        assert_eq!(day(&years_from(&leap, 2)), "2030-02-28");
        assert_eq!(day(&years_from(&leap, 4)), "2032-02-29");
    }

    #[test]
    fn an_authority_reads_back_and_a_wrong_pair_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (authority, root) = Authority::create(2).unwrap();
        let (_, other) = Authority::create(2).unwrap();
        let leaf = authority.client("home", 2).unwrap();
        fs::write(at("ca.crt"), &root.certificate).unwrap();
        fs::write(at("ca.key"), &root.key).unwrap();
        fs::write(at("other.key"), &other.key).unwrap();
        let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n";
        fs::write(at("locked.key"), locked).unwrap();
        fs::write(at("home.crt"), &leaf.certificate).unwrap();
        fs::write(at("home.key"), &leaf.key).unwrap();
        let again = Authority::load(&at("ca.crt"), &at("ca.key")).unwrap();
        let issuer = |issued: &Issued| {
            X509Certificate::from_der(&der(issued)).unwrap().1.issuer().to_string()
        };
        assert_eq!(issuer(&again.client("b", 1).unwrap()), issuer(&leaf));

        let said =
            |crt: &str, key: &str| Authority::load(&at(crt), &at(key)).unwrap_err().to_string();
        assert!(said("ca.crt", "other.key").contains("other.key: the key does not belong to"));
        assert!(said("home.crt", "home.key").contains("home.crt: this certificate is of no auth"));
        assert!(said("ca.crt", "ca.crt").contains("ca.crt: the private key cannot be used"));
        assert!(said("ca.crt", "locked.key").contains("locked.key: the private key is encrypted"));
        assert!(said("gone.crt", "ca.key").contains("gone.crt: No such file"));
    }
}
