use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::field::multiply;

/// The definition, byte by byte.
fn oracle(coefficients: &[u8], source: &[u8], targets: &mut [u8], stride: usize) {
    for (t, &coefficient) in coefficients.iter().enumerate() {
        for (i, &byte) in source.iter().enumerate() {
            targets[t * stride + i] ^= multiply(coefficient, byte);
        }
    }
}

#[test]
fn each_kernel_multiplies_all_pairs() {
    let source: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::all() {
        // Miri takes its time.
        for by in (0..=255).step_by(if cfg!(miri) { 15 } else { 1 }) {
            let mut targets = vec![0; 256];
            kernel.multiply_add(&[by], &source, &mut targets, 256);
            for (byte, product) in source.iter().zip(&targets) {
                assert_eq!(*product, multiply(by, *byte), "{by} * {byte}, {kernel:?}");
            }
        }
    }
}

#[test]
fn the_portable_kernel_runs_everywhere_and_the_last_one_is_used() {
    let all = Kernel::all();
    assert_eq!(all[0].name(), "portable");
    assert_eq!(all.last(), Some(&Kernel::fastest()));
}

#[test]
fn nothing_happens_without_bytes_or_targets() {
    for kernel in Kernel::all() {
        let mut targets = [1, 2, 3];
        kernel.multiply_add(&[5], &[], &mut targets, 3);
        kernel.multiply_add(&[], &[9], &mut targets, 3);
        kernel.multiply_add(&[7], &[], &mut [], 0);
        assert_eq!(targets, [1, 2, 3]);
    }
}

#[test]
#[should_panic(expected = "longer than a target")]
fn a_source_fits_into_a_target() {
    Kernel::fastest().multiply_add(&[1], &[1, 2], &mut [0; 8], 1);
}

#[test]
#[should_panic(expected = "a target is missing")]
fn there_is_a_target_for_each_coefficient() {
    Kernel::fastest().multiply_add(&[1, 2], &[1, 2], &mut [0; 3], 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn each_kernel_does_what_the_definition_says(
        coefficients in vec(any::<u8>(), 0..12),
        source in vec(any::<u8>(), 0..200),
        room in 0_usize..40,
        seed: u8,
    ) {
        let stride = source.len() + room;
        let targets: Vec<u8> = (0..stride * coefficients.len() + room)
            .map(|n| seed.wrapping_mul(31).wrapping_add((n % 251) as u8))
            .collect();
        let mut expected = targets.clone();
        oracle(&coefficients, &source, &mut expected, stride);
        for kernel in Kernel::all() {
            let mut targets = targets.clone();
            kernel.multiply_add(&coefficients, &source, &mut targets, stride);
            prop_assert_eq!(&targets, &expected, "{:?}", kernel);
        }
    }
}
