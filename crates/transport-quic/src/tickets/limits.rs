//! The transport parameters that a client remembers with a ticket and obeys in 0-RTT. A server that
//! accepts 0-RTT must not have lowered any of them (RFC 9000 section 7.4.1), or the client closes
//! the connection. So the parameters are part of the seal, and a ticket from before a change is
//! unknown.

use quinn_proto::VarInt;
use quinn_proto::coding::Codec as _;
use quinn_proto::transport_parameters::TransportParameters;

/// The numbers of the parameters in RFC 9000 section 18.2, RFC 9221 section 3 and RFC 9287 section
/// 3.
const LIMITS: [u64; 9] = [
    0x04,   // initial_max_data
    0x05,   // initial_max_stream_data_bidi_local
    0x06,   // initial_max_stream_data_bidi_remote
    0x07,   // initial_max_stream_data_uni
    0x08,   // initial_max_streams_bidi
    0x09,   // initial_max_streams_uni
    0x0e,   // active_connection_id_limit
    0x20,   // max_datagram_frame_size
    0x2ab2, // grease_quic_bit
];

/// The remembered parameters among `parameters`, as bytes that are equal for equal parameters.
/// quinn encodes them in random order, with other parameters that differ in each connection.
pub(super) fn limits(parameters: &TransportParameters) -> Vec<u8> {
    let mut encoded = Vec::new();
    parameters.write(&mut encoded);
    let mut found = split(&encoded);
    found.retain(|(number, _)| LIMITS.contains(number));
    found.sort_unstable();
    let mut bytes = Vec::new();
    for (number, value) in found {
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&(value.len() as u64).to_be_bytes());
        bytes.extend_from_slice(value);
    }
    bytes
}

/// Splits the encoding into pairs of number and value (RFC 9000 section 18).
fn split(mut encoded: &[u8]) -> Vec<(u64, &[u8])> {
    let mut found = Vec::new();
    while let (Ok(number), Ok(length)) =
        (VarInt::decode(&mut encoded), VarInt::decode(&mut encoded))
    {
        let Some((value, rest)) =
            usize::try_from(length.into_inner()).ok().and_then(|n| encoded.split_at_checked(n))
        else {
            break;
        };
        found.push((number.into_inner(), value));
        encoded = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_whatever_is_between_them() {
        let encoded = [0x04, 1, 7, 0x6a, 0xb2, 0, 0x40, 0x20, 2, 0x44, 0x4c, 0x01, 9];
        let found = split(&encoded);
        assert_eq!(found, [(4, &[7][..]), (0x2ab2, &[]), (0x20, &[0x44, 0x4c])]);
        assert!(split(&[]).is_empty());
    }
}
