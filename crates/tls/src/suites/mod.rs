//! Cipher suites: the library that computes them on this CPU, and their order of preference.
//!
//! AES-GCM takes most of the time of `tls://`, `wss://` and `quic://` at high rates, and neither
//! library is faster on every CPU. aws-lc has code for AVX-512 and for 128 bits, ring for VAES with
//! AVX2 (256 bits) and for 128 bits. So AES-GCM comes from ring on a CPU with VAES and without
//! AVX-512 (AMD Zen 3, Intel since Alder Lake), and from aws-lc everywhere else. `cargo bench -p
//! benches -- aead` measures both; `benches/README.md` has the figures.
//!
//! Key exchange, signatures, random numbers and keys come from aws-lc on every CPU, because ring
//! has no ML-KEM.

use std::sync::{Arc, LazyLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs, ring};
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite};
use transport::Cipher;

/// The features of a CPU that determine the choice of cipher suites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Instructions for AES: AES-NI, or AES of ARMv8.
    pub aes: bool,
    /// Instructions for the other half of GCM: PCLMULQDQ, or PMULL of ARMv8.
    pub clmul: bool,
    /// AVX2, x86-64 only.
    pub avx2: bool,
    /// VAES, which is AES over registers of 256 and 512 bits, x86-64 only.
    pub vaes: bool,
    /// VPCLMULQDQ, the same for GCM, x86-64 only.
    pub vpclmul: bool,
    /// AVX-512 with the parts F, BW, DQ and VL, all of which aws-lc requires
    /// (`CRYPTO_is_AVX512_capable`), x86-64 only.
    pub avx512: bool,
}

impl Cpu {
    /// The features of this CPU, as far as the system lets programs use them. Architectures other
    /// than x86-64 and 64-bit ARM have none.
    #[must_use]
    pub fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self {
            aes: is_x86_feature_detected!("aes"),
            clmul: is_x86_feature_detected!("pclmulqdq"),
            avx2: is_x86_feature_detected!("avx2"),
            vaes: is_x86_feature_detected!("vaes"),
            vpclmul: is_x86_feature_detected!("vpclmulqdq"),
            avx512: is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl"),
        };
        #[cfg(target_arch = "aarch64")]
        return Self {
            aes: std::arch::is_aarch64_feature_detected!("aes"),
            clmul: std::arch::is_aarch64_feature_detected!("pmull"),
            ..Self::default()
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return Self::default();
    }
}

/// A library that computes cipher suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `aws-lc`
    AwsLc,
    /// `ring`
    Ring,
}

impl Backend {
    /// The name in the status and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLc => "aws-lc",
            Self::Ring => "ring",
        }
    }

    const fn suites(self) -> &'static [SupportedCipherSuite] {
        match self {
            Self::AwsLc => aws_lc_rs::DEFAULT_CIPHER_SUITES,
            Self::Ring => ring::DEFAULT_CIPHER_SUITES,
        }
    }
}

/// The choice of cipher suites for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suites {
    /// The library for AES-GCM. ChaCha20-Poly1305 is always aws-lc's: both libraries have the same
    /// code for it.
    aes: Backend,
    /// AES-GCM is preferred to ChaCha20-Poly1305, which is faster on a CPU without instructions
    /// for AES.
    prefers_aes: bool,
}

impl Suites {
    /// The choice for `cpu`.
    #[must_use]
    pub const fn of(cpu: Cpu) -> Self {
        let prefers_aes = cpu.aes && cpu.clmul;
        let is_for_ring = prefers_aes && cpu.avx2 && cpu.vaes && cpu.vpclmul && !cpu.avx512;
        Self { aes: if is_for_ring { Backend::Ring } else { Backend::AwsLc }, prefers_aes }
    }

    /// The choice for this CPU.
    pub(crate) fn here() -> Self {
        static HERE: LazyLock<Suites> = LazyLock::new(|| Suites::of(Cpu::here()));
        *HERE
    }

    /// The library that computes `suite`.
    #[must_use]
    pub fn backend(self, suite: CipherSuite) -> Backend {
        if is_chacha(suite) { Backend::AwsLc } else { self.aes }
    }

    /// A crypto provider with these suites, preferred first, for TLS 1.3, QUIC and TLS 1.2.
    #[must_use]
    pub fn provider(self) -> CryptoProvider {
        let of = |backend: Backend| {
            let is_ours =
                move |suite: &&SupportedCipherSuite| self.backend(suite.suite()) == backend;
            backend.suites().iter().filter(is_ours).copied()
        };
        let mut cipher_suites: Vec<_> = of(Backend::AwsLc).chain(of(Backend::Ring)).collect();
        // AES with 128-bit keys comes before AES with 256-bit keys: it is faster, and an attack on
        // either is infeasible.
        cipher_suites.sort_by_key(|suite| {
            let is_chacha = is_chacha(suite.suite());
            (suite.tls13().is_none(), is_chacha == self.prefers_aes, is_aes_256(suite.suite()))
        });
        CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() }
    }

    /// Makes a server choose in the right order. Clients sort suites by their own CPU. A server
    /// without AES instructions is the slower end with AES-GCM, so it uses its own preference;
    /// another server follows the preference of its clients, which may be the slower ends.
    pub fn order(self, config: &mut ServerConfig) {
        config.ignore_client_order = !self.prefers_aes;
    }
}

const fn is_chacha(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
    )
}

const fn is_aes_256(suite: CipherSuite) -> bool {
    matches!(
        suite,
        CipherSuite::TLS13_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
    )
}

/// The crypto provider of the project: the best suites for this CPU, everything else from aws-lc.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(Suites::here().provider()));
    Arc::clone(&PROVIDER)
}

/// Makes a server whose configuration has [`provider`] choose cipher suites in the order that is
/// best on this CPU.
pub fn order_suites(config: &mut ServerConfig) {
    Suites::here().order(config);
}

/// The cipher of a session with [`provider`], for the status.
#[must_use]
pub fn cipher(suite: SupportedCipherSuite) -> Cipher {
    let is_old = suite.tls13().is_none();
    let suite = suite.suite();
    // rustls uses its own names for the suites of TLS 1.3.
    let name = if is_old {
        suite.as_str().unwrap_or("of TLS 1.2")
    } else if is_chacha(suite) {
        "TLS_CHACHA20_POLY1305_SHA256"
    } else if is_aes_256(suite) {
        "TLS_AES_256_GCM_SHA384"
    } else {
        "TLS_AES_128_GCM_SHA256"
    };
    Cipher { suite: name, backend: Suites::here().backend(suite).name() }
}

#[cfg(test)]
mod tests;
