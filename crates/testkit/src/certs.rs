//! Certificates for tests, made at run time: an authority, valid leaf certificates, and leaf
//! certificates with exactly one flaw.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// The certificate authority of one test.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The authority's certificate as PEM.
    pub pem: String,
}

/// A leaf certificate and its private key, both as PEM.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// The certificate.
    pub certificate: String,
    /// The private key of the certificate.
    pub key: String,
}

impl Leaf {
    /// A certificate for `name` that is signed by its own key. With `is_ca` it is the certificate
    /// of an authority, as `openssl req -x509` makes it if no extension is requested.
    pub fn self_signed(name: &str, is_ca: bool) -> Result<Self, Failure> {
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca =
            if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem() })
    }
}

/// The flaw of a leaf certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The certificate is valid.
    None,
    /// The certificate was valid in 2019 only.
    Expired,
    /// The certificate becomes valid in 2099.
    NotYetValid,
}

/// The error of making a certificate.
pub type Failure = rcgen::Error;

impl Authority {
    /// A new authority called `name`.
    pub fn new(name: &str) -> Result<Self, Failure> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// A server's certificate for `names` (DNS names or IP addresses).
    pub fn server(&self, names: &[&str]) -> Result<Leaf, Failure> {
        self.leaf(names, "a server", Flaw::None, &[ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A certificate for `names` of a program that is a server and a client.
    pub fn peer(&self, names: &[&str]) -> Result<Leaf, Failure> {
        let usages = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.leaf(names, "a peer", Flaw::None, &usages)
    }

    /// A server's certificate for `names` with the flaw `flaw`.
    pub fn flawed_server(&self, names: &[&str], flaw: Flaw) -> Result<Leaf, Failure> {
        self.leaf(names, "a server", flaw, &[ExtendedKeyUsagePurpose::ServerAuth])
    }

    /// A client's certificate with a common name. `names` are the subject alternative names and may
    /// be empty.
    pub fn client(&self, names: &[&str], common_name: &str, flaw: Flaw) -> Result<Leaf, Failure> {
        self.leaf(names, common_name, flaw, &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn leaf(
        &self,
        names: &[&str],
        common_name: &str,
        flaw: Flaw,
        usages: &[ExtendedKeyUsagePurpose],
    ) -> Result<Leaf, Failure> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        params.extended_key_usages = usages.to_vec();
        (params.not_before, params.not_after) = match flaw {
            Flaw::None => (date_time_ymd(2020, 1, 1), date_time_ymd(2199, 1, 1)),
            Flaw::Expired => (date_time_ymd(2019, 1, 1), date_time_ymd(2019, 12, 31)),
            Flaw::NotYetValid => (date_time_ymd(2099, 1, 1), date_time_ymd(2199, 1, 1)),
        };
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem() })
    }

    /// Writes the authority's certificate to `ca.pem` in `folder`.
    pub fn save(&self, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join("ca.pem");
        fs::write(&path, &self.pem)?;
        Ok(path)
    }
}

impl Leaf {
    /// Writes `NAME.crt` and `NAME.key` in `folder` and returns their paths.
    pub fn save(&self, folder: &Path, name: &str) -> io::Result<(PathBuf, PathBuf)> {
        let paths = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        fs::write(&paths.0, &self.certificate)?;
        fs::write(&paths.1, &self.key)?;
        Ok(paths)
    }
}
