//! The name of a service of another client: `home/ssh`.

use std::fmt;
use std::str::FromStr;

use proto::greeting::Name;

use crate::BadValue;

/// A service of another client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrivateService {
    /// The client that provides the service.
    pub client: Name,
    /// The name of the service at that client.
    pub service: Name,
}

impl PrivateService {
    /// The name by which programs address the service at a proxy, without `.service.tunnel`. Names
    /// of clients and services may contain dots and letters of both cases, which DNS does not
    /// distinguish, so two services may have the same such name.
    #[must_use]
    pub fn asked_name(&self) -> String {
        format!("{}.{}", self.service, self.client).to_ascii_lowercase()
    }
}

impl fmt::Display for PrivateService {
    /// `home/ssh`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.client, self.service)
    }
}

impl FromStr for PrivateService {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let name = |text: &str| Name::new(text).ok();
        let parts = text.split_once('/').map(|(client, service)| (name(client), name(service)));
        match parts {
            Some((Some(client), Some(service))) => Ok(Self { client, service }),
            Some(_) | None => {
                Err(BadValue::new(format!("`{text}` is no service of another client"))
                    .hint("the name of the client and that of its service: home/ssh"))
            }
        }
    }
}
