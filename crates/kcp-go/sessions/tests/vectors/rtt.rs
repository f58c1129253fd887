//! The estimator of the round trip, sample by sample.

use kcp_go::classic::RoundTrip;

use crate::vectors::json::{cases, number};

#[test]
fn round_trips_are_estimated_as_kcp_go_does() {
    for case in cases("rtt") {
        let mut round_trip = RoundTrip::new(number(&case["min_rto"]), number(&case["interval"]));
        for step in case["steps_sample_srtt_rttvar_rto"].as_array().unwrap() {
            round_trip.sample(number(&step[0]));
            let expected = [number::<u32>(&step[1]), number(&step[2]), number(&step[3])];
            let found = [round_trip.smoothed(), round_trip.variation(), round_trip.timeout()];
            assert_eq!(found, expected, "{case}: {step}");
        }
    }
}
