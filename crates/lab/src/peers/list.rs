//! The peers and their versions. Figures in a report are about the versions of this list.

/// The version of a package that is not installed.
pub(super) const DEBIANS: &str = "Debian's";

/// A peer: one program, or a pair of programs.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    /// The version to install. For a package of Debian it is [`DEBIANS`].
    pub(super) version: &'static str,
    pub(super) source: Source,
    pub(super) programs: &'static [&'static str],
}

/// The source of a peer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// `cargo install` of this crate, built with these packages of Debian. Without `--locked`:
    /// rathole's lock file holds `time` 0.3.29, and no compiler since Rust 1.80 accepts that
    /// version.
    Crate { name: &'static str, packages: &'static [&'static str] },
    /// A package of Go, from the first of these modules; all modules have the peer's version.
    /// `sums` is the module's `go.sum`: entries there need no checksum database, which not every
    /// registry has.
    Go { package: &'static str, modules: &'static [&'static str], sums: &'static str },
    /// A package of Debian.
    Debian(&'static str),
}

/// All peers, in the order of `cargo xtask systems`.
pub(super) const PEERS: &[Peer] = &[
    Peer {
        name: "haproxy",
        version: DEBIANS,
        source: Source::Debian("haproxy"),
        programs: &["haproxy"],
    },
    Peer {
        name: "rathole",
        version: "0.5.0",
        source: Source::Crate { name: "rathole", packages: &["pkg-config", "libssl-dev"] },
        programs: &["rathole"],
    },
    Peer {
        name: "bore",
        version: "0.6.0",
        source: Source::Crate { name: "bore-cli", packages: &[] },
        programs: &["bore"],
    },
    Peer {
        name: "chisel",
        version: "v1.10.1",
        source: Source::Go {
            package: "github.com/jpillora/chisel",
            modules: &["github.com/jpillora/chisel"],
            sums: "",
        },
        programs: &["chisel"],
    },
    Peer {
        name: "qmux",
        version: "v1.1.2",
        source: Source::Go {
            package: "github.com/Mmx233/QMux",
            modules: &["github.com/Mmx233/QMux"],
            sums: "",
        },
        programs: &["qmux"],
    },
    Peer {
        name: "evproxy",
        version: "v1.0.0",
        source: Source::Go {
            package: "github.com/vincentwuo/evproxy/cmd/evproxy",
            modules: &["github.com/vincentwuo/evproxy"],
            sums: "",
        },
        programs: &["evproxy"],
    },
    Peer {
        name: "hysteria",
        version: "v2.10.0",
        source: Source::Go {
            package: "github.com/apernet/hysteria/app/v2",
            modules: &[
                "github.com/apernet/hysteria/app/v2",
                "github.com/apernet/hysteria/core/v2",
                "github.com/apernet/hysteria/extras/v2",
            ],
            sums: include_str!("hysteria.sum"),
        },
        programs: &["hysteria"],
    },
    Peer {
        name: "kcptun",
        version: DEBIANS,
        source: Source::Debian("kcptun"),
        programs: &["kcptun-client", "kcptun-server"],
    },
];
