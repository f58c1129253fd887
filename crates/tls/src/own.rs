//! The self-signed certificate that a server generates at its first start.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use rcgen::{CertificateParams, DnType, KeyPair};
use x509_parser::time::ASN1Time;

use crate::{Identity, Issued, MaterialError};

/// The lifetime of the certificate. Clients trust the key by its pin and ignore dates, so an expiry
/// could only harm a forgotten machine. But some tools refuse a certificate without an expiry date.
/// Ten years exceed the lifetime of the hardware.
const YEARS: i32 = 10;

/// The file of the key in the folder of the certificate.
pub const OWN_KEY: &str = "key.pem";

/// The file of the certificate.
pub const OWN_CERTIFICATE: &str = "cert.pem";

/// The largest file that is read, in bytes. The files have less than 1 KB.
const MAX_FILE: u64 = 1 << 20;

/// Loads the self-signed identity of `folder` (`cert.pem`, `key.pem`), or generates it if the
/// certificate is missing. `names` are DNS names or IP addresses for clients that trust the file as
/// a CA.
///
/// The key is written first, with mode 0600. Each file is written under another name, synced and
/// renamed, so a crash leaves either a complete pair or no certificate. The folder must exist, and
/// two instances must not share it. A symbolic link instead of a file is an error.
pub fn self_signed(folder: &Path, names: &[String]) -> Result<Identity, MaterialError> {
    let (certificate, key) = (folder.join(OWN_CERTIFICATE), folder.join(OWN_KEY));
    // A dangling link counts as existing: it is an error below.
    if fs::symlink_metadata(&certificate).is_err() {
        let (own, secret) = make(names)?;
        write(&key, &secret)?;
        write(&certificate, &own)?;
    }
    let read =
        |path: &Path| files::read(path, MAX_FILE).map_err(|error| MaterialError::file(path, error));
    Identity::load_by(&read, &certificate, &key)
}

/// Generates a self-signed identity that is not stored: the key ends with the process.
pub fn fleeting(names: &[String]) -> Result<Identity, MaterialError> {
    let (own, secret) = make(names)?;
    let (certificate, key) = (Path::new(OWN_CERTIFICATE), Path::new(OWN_KEY));
    let read = |path: &Path| {
        let text = if path == key { &secret } else { &own };
        Ok(text.clone().into_bytes())
    };
    Identity::load_by(&read, certificate, key)
}

/// Generates a self-signed identity as texts, for files that the caller writes.
///
/// # Errors
/// A name cannot be part of a certificate, or the machine has no randomness.
pub fn self_signed_texts(names: &[String]) -> Result<Issued, MaterialError> {
    let (certificate, key) = make(names)?;
    let now = ASN1Time::now().to_datetime();
    let until = format!("{}-{:02}-28", now.year() + YEARS, u8::from(now.month()));
    Ok(Issued { certificate, key, until })
}

/// Makes a certificate and its key, both as PEM.
fn make(names: &[String]) -> Result<(String, String), MaterialError> {
    let failed = |error: rcgen::Error| MaterialError::Setting(format!("self-signing: {error}"));
    let mut parameters = CertificateParams::new(names).map_err(failed)?;
    parameters.distinguished_name.push(DnType::CommonName, "tunnel");
    let now = ASN1Time::now().to_datetime();
    // The certificate is valid from yesterday, because the clock of the other machine may be slow.
    parameters.not_before =
        rcgen::date_time_ymd(now.year(), now.month().into(), now.day().min(28)) - DAY;
    parameters.not_after = rcgen::date_time_ymd(now.year() + YEARS, now.month().into(), 28);
    let pair = KeyPair::generate().map_err(failed)?;
    let signed = parameters.self_signed(&pair).map_err(failed)?;
    Ok((signed.pem(), pair.serialize_pem()))
}

const DAY: std::time::Duration = std::time::Duration::from_secs(86_400);

fn write(path: &Path, text: &str) -> Result<(), MaterialError> {
    let failed = |error: io::Error| MaterialError::file(path, error);
    let new = path.with_extension("new");
    let mut file = files::create_fresh(&new).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&new, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn the_second_start_shows_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let first = self_signed(folder.path(), &["a.example".into()]).unwrap();
        let second = self_signed(folder.path(), &[]).unwrap();
        assert_eq!(first.pin(), second.pin());
        let mode = fs::metadata(folder.path().join("key.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left behind");
    }

    #[test]
    fn a_fleeting_identity_is_another_each_time() {
        let make = || fleeting(&["a.example".into()]).unwrap();
        assert_ne!(make().pin(), make().pin());
    }

    #[test]
    fn a_start_that_died_after_the_key_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let first = self_signed(folder.path(), &[]).unwrap();
        fs::remove_file(folder.path().join("cert.pem")).unwrap();
        assert_ne!(self_signed(folder.path(), &[]).unwrap().pin(), first.pin());
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_refused_and_its_target_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [own, elsewhere] = ["own", "elsewhere"].map(|name| folder.path().join(name));
        fs::create_dir(&own).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        self_signed(&elsewhere, &[]).unwrap();
        for name in ["cert.pem", "key.pem"] {
            self_signed(&own, &[]).unwrap();
            fs::remove_file(own.join(name)).unwrap();
            symlink(elsewhere.join(name), own.join(name)).unwrap();
            let error = self_signed(&own, &[]).unwrap_err().to_string();
            assert!(error.contains(&format!("{name}: this is a symbolic link")), "{error}");
            fs::remove_dir_all(&own).unwrap();
            fs::create_dir(&own).unwrap();
        }
        let aim = folder.path().join("aim");
        fs::write(&aim, "precious").unwrap();
        symlink(&aim, own.join("key.new")).unwrap();
        symlink(&aim, own.join("cert.new")).unwrap();
        self_signed(&own, &[]).unwrap();
        assert_eq!(fs::read_to_string(&aim).unwrap(), "precious");
        symlink(folder.path().join("nowhere"), own.join("link")).unwrap();
        fs::rename(own.join("link"), own.join("cert.pem")).unwrap();
        let error = self_signed(&own, &[]).unwrap_err().to_string();
        assert!(error.contains("cert.pem: this is a symbolic link"), "{error}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = self_signed(&missing, &[]).unwrap_err().to_string();
        assert!(error.starts_with(&missing.join("key.pem").display().to_string()), "{error}");
    }
}
