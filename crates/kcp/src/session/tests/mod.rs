mod world;

use std::time::Duration;

use super::*;
use world::{MTU, World, config, path, ratio, transfer};

/// Settings of FEC in the tests.
const RATIOS: [Option<(usize, usize)>; 3] = [None, Some((10, 3)), Some((3, 2))];

#[test]
fn bytes_are_exact_with_and_without_fec_at_any_loss() {
    for shards in RATIOS {
        for adaptive in [false, true] {
            for loss in [0.0, 0.05, 0.2] {
                let config = Config { encode: ratio(shards), adaptive, budget: None, ..config() };
                let mut weather = path(100, 40, loss);
                weather.reorder = 0.02;
                weather.duplicate = 0.02;
                let mut world = World::new([config.clone(), config], &weather, 1);
                transfer(&mut world, 1_000_000);
                world.check_counters();
            }
        }
    }
}
