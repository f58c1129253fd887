//! Random conversations under random deaths of carriers, against an oracle that knows no frames.

use testkit::netem::Rng;
use testkit::pair::ops;

fn random_list(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.bits().to_le_bytes()[3]).collect()
}

#[test]
fn ten_thousand_random_kills_under_random_load_lose_nothing() {
    let mut rng = Rng::new(20_261_121);
    let (mut streams, mut kills, mut bytes, mut runs) = (0, 0, 0, 0u64);
    while kills < 10_000 {
        let list = random_list(&mut rng, 1200);
        runs += 1;
        let tally = ops::run(&list, runs);
        streams += tally.streams;
        kills += tally.kills;
        bytes += tally.bytes;
    }
    println!("{runs} runs, {streams} streams, {kills} kills, {bytes} bytes");
}
