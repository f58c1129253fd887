//! The content codings that a visitor accepts (RFC 9110 section 12.5.3).

use hyper::header::{self, HeaderMap};

/// A content coding (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

impl Coding {
    /// The name in `Content-Encoding`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// The highest weight, in thousandths.
const ONE: u16 = 1000;

/// The weights of the codings in `Accept-Encoding`, in thousandths. 0: not accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    gzip: u16,
    brotli: u16,
    zstd: u16,
    /// `None`: not named.
    identity: Option<u16>,
}

impl Accepted {
    /// The codings that a request accepts. Without `Accept-Encoding`, none: the visitor may be a
    /// program that cannot decode any.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        let mut named: [Option<u16>; 3] = [None; 3];
        let (mut identity, mut others) = (None, None);
        let values = fields.get_all(header::ACCEPT_ENCODING).into_iter();
        let members = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
        for member in members {
            let mut parts = member.split(';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let weight = parts.next().map_or(ONE, |part| weight(part).unwrap_or(0));
            let slot = match () {
                () if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => {
                    &mut named[0]
                }
                () if name.eq_ignore_ascii_case("br") => &mut named[1],
                () if name.eq_ignore_ascii_case("zstd") => &mut named[2],
                () if name.eq_ignore_ascii_case("identity") => &mut identity,
                () if name == "*" => &mut others,
                () => continue,
            };
            slot.get_or_insert(weight);
        }
        let [gzip, brotli, zstd] = named.map(|weight| weight.or(others).unwrap_or(0));
        Self { gzip, brotli, zstd, identity }
    }

    const fn weight(self, coding: Coding) -> u16 {
        match coding {
            Coding::Gzip => self.gzip,
            Coding::Brotli => self.brotli,
            Coding::Zstd => self.zstd,
        }
    }

    /// The coding of `offered` that the visitor prefers. Among equal weights, the first one.
    /// `None`: no coding.
    pub(crate) fn best(self, offered: &[Coding]) -> Option<Coding> {
        let plain = self.identity.unwrap_or(0);
        let mut best: Option<Coding> = None;
        for &coding in offered {
            let weight = self.weight(coding);
            let least = best.map_or_else(|| plain.max(1), |best| self.weight(best) + 1);
            if weight >= least {
                best = Some(coding);
            }
        }
        best
    }
}

/// The value of `q=…` (RFC 9110 section 12.4.2), in thousandths. `None`: malformed.
fn weight(part: &str) -> Option<u16> {
    let (name, value) = part.split_once('=')?;
    if !name.trim_ascii().eq_ignore_ascii_case("q") {
        return None;
    }
    let value = value.trim_ascii();
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction: u16 = format!("{fraction:0<3}").parse().ok()?;
    match (whole, fraction) {
        ("1", 0) => Some(ONE),
        ("0", fraction) => Some(fraction),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;
    use Coding::{Brotli, Gzip, Zstd};

    fn best(value: &str) -> Option<Coding> {
        let mut fields = HeaderMap::new();
        fields.append(header::ACCEPT_ENCODING, HeaderValue::from_str(value).unwrap());
        Accepted::of(&fields).best(&[Zstd, Brotli, Gzip])
    }

    #[test]
    fn the_weight_of_the_visitor_counts_and_then_the_order_of_the_server() {
        for (value, expected) in [
            ("", None),
            ("identity", None),
            ("deflate", None),
            ("gzip", Some(Gzip)),
            ("X-GZIP", Some(Gzip)),
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip, deflate, br", Some(Brotli)),
            ("gzip;q=1.0, br;q=0.9, zstd;q=0.8", Some(Gzip)),
            ("gzip;q=0.5 ,  br ; q=0.501", Some(Brotli)),
            ("gzip;q=0", None),
            ("gzip;q=0.000, *", Some(Zstd)),
            ("*", Some(Zstd)),
            ("*;q=0, gzip", Some(Gzip)),
            ("*;q=0", None),
            ("zstd;q=0, *;q=0.1", Some(Brotli)),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Gzip)),
            ("identity;q=0, gzip;q=0.001", Some(Gzip)),
            ("gzip;q=2", None),
            ("gzip;q=x", None),
            ("gzip;q=0.1234", None),
            ("gzip;q", None),
            ("gzip;level=9", None),
            ("gzip, gzip;q=0", Some(Gzip)),
        ] {
            assert_eq!(best(value), expected, "{value}");
        }
        assert_eq!(Accepted::of(&HeaderMap::new()), Accepted::default());
    }
}
