//! The signature methods that a certificate verifier delegates to another verifier.

/// The methods of a `ServerCertVerifier` or a `ClientCertVerifier` about signatures, delegated to
/// the verifier in the named field.
macro_rules! signatures_by {
    ($verifier:ident) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$verifier.verify_tls12_signature(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.$verifier.verify_tls13_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.$verifier.supported_verify_schemes()
        }
    };
}

pub(crate) use signatures_by;
