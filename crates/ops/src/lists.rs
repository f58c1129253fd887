//! Changes of a running client's services and forwards, as data.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The order to change the services and forwards of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListChange {
    /// Services to publish, in the form of `--publish`.
    pub publish: Vec<String>,
    /// Options of these services.
    #[serde(skip_serializing_if = "ServiceOptions::is_empty")]
    pub options: ServiceOptions,
    /// Forwards to open, in the form of `--forward`.
    pub forward: Vec<String>,
    /// Services to withdraw, by name, and forwards to close, by the address of their listener.
    pub without: Vec<String>,
    /// Whether the change is written to the configuration file instead of the state directory.
    pub save: bool,
}

/// Options of services, by the keys that they set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceOptions {
    /// The name, for one service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Pairs `user:password`, or users with the hash of their password.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub basic_auth: Vec<Pair>,
    /// The path of the requests that the service receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The networks of the visitors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_from: Vec<String>,
    /// When the services expire: `2026-12-01T18:00:00Z`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// The `Host` that is sent to the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_rewrite: Option<String>,
    /// The file with the authorities of an `https://` target, an absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ca: Option<String>,
    /// Whether the certificate of an `https://` target is accepted unverified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Whether datagrams may go to all machines of a network.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub broadcast: bool,
}

impl ServiceOptions {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The options as parts of a configuration.
    pub fn config(&self) -> config::ServiceOptions {
        let Self {
            name,
            basic_auth,
            path,
            allow_from,
            until,
            host_rewrite,
            target_ca,
            insecure,
            broadcast,
        } = self.clone();
        config::ServiceOptions {
            name,
            basic_auth: basic_auth
                .into_iter()
                .map(|Pair(pair)| config::Secret::new(pair))
                .collect(),
            path,
            allow_from,
            until,
            host_rewrite,
            target_ca,
            insecure,
            broadcast,
        }
    }
}

/// A pair `user:password`, which `Debug` does not print.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pair(pub String);

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
