//! The router of this machine.

use std::net::Ipv4Addr;

/// Flags of a route: up, has a gateway, rejects.
const UP: u32 = 1;
const GATEWAY: u32 = 2;
const REJECT: u32 = 0x200;

/// The gateway of the IPv4 default route with the lowest metric, from the text of
/// `/proc/self/net/route`.
///
/// Only IPv4 needs a mapping: over IPv6 there is no NAT, and the checks of both ends open their
/// firewalls.
#[must_use]
pub fn default_gateway(routes: &str) -> Option<Ipv4Addr> {
    let gateways = routes.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[_, destination, gateway, flags, _, _, metric, mask, ..] = &words[..] else {
            return None;
        };
        let number = |hex: &str| u32::from_str_radix(hex, 16).ok();
        let flags = number(flags)?;
        let is_default = number(destination)? == 0 && number(mask)? == 0;
        let serves = flags & (UP | GATEWAY | REJECT) == UP | GATEWAY;
        // The kernel prints the bytes of the address as one number in native byte order.
        let gateway = Ipv4Addr::from(number(gateway)?.to_ne_bytes());
        let metric: u32 = metric.parse().ok()?;
        (is_default && serves).then_some((metric, gateway))
    });
    gateways.min_by_key(|(metric, _)| *metric).map(|(_, gateway)| gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateway_is_that_of_the_best_default_route() {
        let hex = |ip: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(ip));
        let line = |destination, gateway, flags, metric, mask: [u8; 4]| {
            let (destination, gateway, mask) = (hex(destination), hex(gateway), hex(mask));
            format!(
                "eth0\t{destination}\t{gateway}\t{flags:04X}\t0\t0\t{metric}\t{mask}\t0\t0\t0\n"
            )
        };
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n";
        let local = line([192, 168, 1, 0], [0; 4], 1, 0, [255, 255, 255, 0]);
        let half = line([0; 4], [10, 8, 0, 1], 3, 0, [128, 0, 0, 0]);
        let worse = line([0; 4], [10, 0, 0, 1], 3, 600, [0; 4]);
        let best = line([0; 4], [192, 168, 1, 1], 3, 100, [0; 4]);
        let rejecting = line([0; 4], [10, 0, 0, 2], 0x203, 0, [0; 4]);
        let down = line([0; 4], [10, 0, 0, 3], 2, 0, [0; 4]);
        let all = [head, &local, &half, &worse, &best, &rejecting, &down].concat();
        assert_eq!(default_gateway(&all), Some([192, 168, 1, 1].into()));
        for none in ["", head, &[head, &local, &half, &rejecting, &down].concat(), "a\nb c d\n"] {
            assert_eq!(default_gateway(none), None, "{none}");
        }
    }
}
