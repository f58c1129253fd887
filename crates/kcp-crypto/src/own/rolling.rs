//! Keys that are updated while the connection lives, after RFC 9001 section 6.
//!
//! Each direction updates its keys independently: its sender decides, and its receiver follows. The
//! phase bit of a packet distinguishes two neighbouring keys, and the packet number tells which
//! neighbour is meant.
//!
//! ```text
//! key n = Expand-Label(secret n, "tnl kcp key", length of a key)
//! iv n = Expand-Label(secret n, "tnl kcp iv", 12)
//! secret n + 1 = Expand-Label(secret n, "tnl kcp ku", 32)
//! ```
//!
//! Expand-Label is HKDF-Expand-Label of RFC 8446 section 7.1 with SHA-256, without the prefix
//! "tls13 " of labels and with an empty context.

use std::fmt;

use aws_lc_rs::aead::NONCE_LEN;
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use kcp::Refused;
use kcp::own::Keys;
use kcp::own::wire::PacketNumber;

use super::{DirectionKey, TAG};
use crate::Algorithm;

/// The number of packets after which a sender updates its keys. RFC 9001 section 6.6 allows AES-GCM
/// 2^23.
pub const UPDATE_AFTER: u64 = 1 << 22;

/// Bytes of a secret.
const SECRET: usize = 32;

/// The length of a key that HKDF makes.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// A secret and the keys that are derived from it.
struct Generation {
    secret: Prk,
    key: DirectionKey,
}

impl Generation {
    fn new(algorithm: Algorithm, secret: &[u8; SECRET]) -> Result<Self, Refused> {
        let secret = Prk::new_less_safe(HKDF_SHA256, secret);
        let mut key = [0; SECRET];
        let key = match algorithm {
            Algorithm::Aes128Gcm => &mut key[..16],
            Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => &mut key[..],
            Algorithm::Aes192Gcm => return Err(Refused),
        };
        expand(&secret, b"tnl kcp key", key)?;
        let mut iv = [0; NONCE_LEN];
        expand(&secret, b"tnl kcp iv", &mut iv)?;
        let key = DirectionKey::new(algorithm, key, iv)?;
        Ok(Self { secret, key })
    }

    fn next(&self, algorithm: Algorithm) -> Result<Self, Refused> {
        let mut secret = [0; SECRET];
        expand(&self.secret, b"tnl kcp ku", &mut secret)?;
        Self::new(algorithm, &secret)
    }
}

/// HKDF-Expand-Label with an empty context.
fn expand(secret: &Prk, label: &[u8], out: &mut [u8]) -> Result<(), Refused> {
    let length = u16::try_from(out.len()).map_err(|_| Refused)?.to_be_bytes();
    let label_length = [u8::try_from(label.len()).map_err(|_| Refused)?];
    let info = [&length[..], &label_length, label, &[0]];
    let material = secret.expand(&info, Length(out.len())).map_err(|_| Refused)?;
    material.fill(out).map_err(|_| Refused)
}

/// The keys of a connection at one end.
pub struct RollingKeys {
    algorithm: Algorithm,
    /// The number of packets of a phase.
    interval: u64,
    seal: Seal,
    open: Open,
}

struct Seal {
    keys: Generation,
    phase: bool,
    /// The first packet of the phase.
    first: u64,
    /// The peer has opened a packet of the phase, so it has its keys.
    is_known: bool,
}

struct Open {
    /// The keys of the previous phase, for late packets.
    previous: Option<DirectionKey>,
    keys: Generation,
    next: Generation,
    phase: bool,
    /// The smallest and the largest packet number of the phase that were opened.
    numbers: Option<(u64, u64)>,
}

impl fmt::Debug for RollingKeys {
    /// Secrets are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phases = (self.seal.phase, self.open.phase);
        f.debug_struct("RollingKeys").field("phases", &phases).finish_non_exhaustive()
    }
}

impl RollingKeys {
    /// Derives keys from a secret for each direction: `seal` for packets that this end sends,
    /// `open` for packets that the peer sends. The own direction is updated after `interval`
    /// packets, [`UPDATE_AFTER`] outside of tests.
    ///
    /// # Errors
    ///
    /// The algorithm is [`Algorithm::Aes192Gcm`].
    pub fn new(
        algorithm: Algorithm,
        seal: &[u8; SECRET],
        open: &[u8; SECRET],
        interval: u64,
    ) -> Result<Self, Refused> {
        let seal = Generation::new(algorithm, seal)?;
        let open = Generation::new(algorithm, open)?;
        let next = open.next(algorithm)?;
        Ok(Self {
            algorithm,
            interval,
            seal: Seal { keys: seal, phase: false, first: 0, is_known: false },
            open: Open { previous: None, keys: open, next, phase: false, numbers: None },
        })
    }
}

impl Keys for RollingKeys {
    fn tag(&self) -> usize {
        TAG
    }

    fn phase(&mut self, number: PacketNumber) -> bool {
        let seal = &mut self.seal;
        let is_due = number.0.saturating_sub(seal.first) >= self.interval;
        if is_due
            && seal.is_known
            && let Ok(next) = seal.keys.next(self.algorithm)
        {
            *seal = Seal { keys: next, phase: !seal.phase, first: number.0, is_known: false };
        }
        seal.phase
    }

    fn acknowledged(&mut self, number: PacketNumber) {
        self.seal.is_known |= number.0 >= self.seal.first;
    }

    fn seal(
        &mut self,
        number: PacketNumber,
        head: &[u8],
        text: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Refused> {
        // Without an acknowledgement there is no update. A peer that is silent for that long is
        // dead.
        if number.0.saturating_sub(self.seal.first) >= self.interval.saturating_mul(2) {
            return Err(Refused);
        }
        self.seal.keys.key.seal(number, head, text, tag)
    }

    fn open(
        &mut self,
        phase: bool,
        number: PacketNumber,
        head: &[u8],
        text_and_tag: &mut [u8],
    ) -> Result<usize, Refused> {
        let open = &mut self.open;
        if phase == open.phase {
            let length = open.keys.key.open(number, head, text_and_tag)?;
            let (first, last) = open.numbers.unwrap_or((number.0, number.0));
            open.numbers = Some((first.min(number.0), last.max(number.0)));
            return Ok(length);
        }
        // Only one key is tried: that of the previous phase for numbers before the current phase,
        // that of the next phase for later numbers.
        match open.numbers {
            Some((first, _)) if number.0 < first => {
                let previous = open.previous.as_ref().ok_or(Refused)?;
                previous.open(number, head, text_and_tag)
            }
            Some((_, last)) if number.0 > last => {
                let length = open.next.key.open(number, head, text_and_tag)?;
                let after = open.next.next(self.algorithm)?;
                let next = std::mem::replace(&mut open.next, after);
                let keys = std::mem::replace(&mut open.keys, next);
                open.previous = Some(keys.key);
                open.phase = phase;
                open.numbers = Some((number.0, number.0));
                Ok(length)
            }
            // An update follows an acknowledged packet, so the previous phase has packet numbers.
            _ => Err(Refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALGORITHMS: [Algorithm; 3] =
        [Algorithm::Aes128Gcm, Algorithm::Aes256Gcm, Algorithm::ChaCha20Poly1305];

    fn ends(algorithm: Algorithm, interval: u64) -> [RollingKeys; 2] {
        let end = |seal, open| RollingKeys::new(algorithm, &[seal; 32], &[open; 32], interval);
        [end(1, 2).unwrap(), end(2, 1).unwrap()]
    }

    #[derive(Clone)]
    struct Packet {
        phase: bool,
        number: u64,
        bytes: Vec<u8>,
    }

    fn seal(keys: &mut RollingKeys, number: u64) -> Packet {
        let number = PacketNumber(number);
        let phase = keys.phase(number);
        let mut bytes = number.0.to_be_bytes().to_vec();
        bytes.resize(8 + TAG, 0);
        let (text, tag) = bytes.split_at_mut(8);
        keys.seal(number, &[u8::from(phase)], text, tag).unwrap();
        Packet { phase, number: number.0, bytes }
    }

    fn open(keys: &mut RollingKeys, packet: &Packet) -> bool {
        let mut bytes = packet.bytes.clone();
        let head = [u8::from(packet.phase)];
        let opened = keys.open(packet.phase, PacketNumber(packet.number), &head, &mut bytes);
        assert!(opened.is_err() || bytes[..8] == packet.number.to_be_bytes());
        opened == Ok(8)
    }

    /// The derivation has its own labels, and no secret is shown.
    #[test]
    fn directions_and_generations_have_keys_of_their_own() {
        for algorithm in ALGORITHMS {
            let [mut one, mut other] = ends(algorithm, 10);
            let packet = seal(&mut one, 0);
            assert!(!open(&mut one, &packet) && open(&mut other, &packet));
            let keys = Generation::new(algorithm, &[1; 32]).unwrap();
            let after = keys.next(algorithm).unwrap();
            let (mut text, mut tag) = ([0; 8], [0; TAG]);
            let sealed = [&keys, &after].map(|of| {
                of.key.seal(PacketNumber(3), b"", &mut text, &mut tag).unwrap();
                (std::mem::take(&mut text), std::mem::take(&mut tag))
            });
            assert_ne!(sealed[0], sealed[1]);
        }
        assert!(RollingKeys::new(Algorithm::Aes192Gcm, &[1; 32], &[2; 32], 9).is_err());
        let [one, _] = ends(Algorithm::Aes128Gcm, 10);
        assert_eq!(format!("{one:?}"), "RollingKeys { phases: (false, false), .. }");
    }

    /// Computed by hand with HMAC.
    #[test]
    fn expand_label_is_that_of_tls_without_its_prefix() {
        let secret = Prk::new_less_safe(HKDF_SHA256, &[7; 32]);
        let mut out = [0; 32];
        expand(&secret, b"tnl kcp ku", &mut out).unwrap();
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[7; 32]);
        // HKDF-Expand: T(1) = HMAC(secret, info || 1).
        let info = [&[0, 32, 10][..], b"tnl kcp ku", &[0, 1]].concat();
        assert_eq!(out, aws_lc_rs::hmac::sign(&key, &info).as_ref());
    }

    #[test]
    fn there_is_no_second_update_before_the_first_one_is_known() {
        let [mut one, _] = ends(Algorithm::Aes128Gcm, 10);
        for number in 0..15 {
            assert!(!seal(&mut one, number).phase, "nothing is acknowledged");
        }
        one.acknowledged(PacketNumber(3));
        for number in 15..30 {
            assert!(seal(&mut one, number).phase);
            one.acknowledged(PacketNumber(14));
        }
        one.acknowledged(PacketNumber(15));
        assert!(!seal(&mut one, 30).phase);
        let (mut text, mut tag) = ([0; 8], [0; TAG]);
        assert_eq!(one.seal(PacketNumber(49), b"", &mut text, &mut tag), Ok(()));
        let refused = one.seal(PacketNumber(50), b"", &mut text, &mut tag);
        assert_eq!(refused, Err(Refused), "keys that nobody acknowledges are used up");
    }

    /// Packets that are late, lost, changed and sent twice, with many updates in both directions.
    #[test]
    fn every_packet_of_the_present_phases_opens_under_loss_and_disorder() {
        let seeds = if cfg!(debug_assertions) { 200 } else { 10_000 };
        for seed in 0..seeds {
            let algorithm = ALGORITHMS[usize::try_from(seed % 3).unwrap()];
            let [mut one, mut other] = ends(algorithm, 20);
            let mut state: u64 = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            let mut under_way: Vec<Packet> = Vec::new();
            let (mut phases, mut last) = (0, false);
            for number in 0..400 {
                let packet = seal(&mut one, number);
                phases += u32::from(packet.phase != last);
                last = packet.phase;
                if random(5) > 0 {
                    under_way.push(packet);
                }
                // Late by less than a phase.
                while under_way.len() > usize::try_from(random(10)).unwrap()
                    || under_way.first().is_some_and(|oldest| oldest.number + 12 < number)
                {
                    let is_old = under_way[0].number + 12 < number;
                    let any = usize::try_from(random(under_way.len() as u64)).unwrap();
                    let at = if is_old { 0 } else { any };
                    let packet = under_way.remove(at);
                    if random(4) == 0 {
                        let mut forged = packet.clone();
                        forged.phase = !forged.phase;
                        forged.number += random(3);
                        assert!(!open(&mut other, &forged));
                    }
                    assert!(open(&mut other, &packet), "{seed}: {}", packet.number);
                    one.acknowledged(PacketNumber(packet.number));
                }
            }
            assert!(phases >= 12, "{phases} updates");
        }
    }
}
