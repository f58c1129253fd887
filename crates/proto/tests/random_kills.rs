//! Random conversations under random losses of carriers, against an oracle that knows no frames.

use testkit::netem::Rng;
use testkit::pair::ops;

fn random_list(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.bits().to_le_bytes()[3]).collect()
}

#[test]
fn ten_thousand_random_kills_under_random_load_lose_nothing() {
    let mut rng = Rng::new(20_261_121);
    let (mut streams, mut kills, mut bytes, mut refused, mut runs) = (0, 0, 0, 0, 0u64);
    while kills < 10_000 {
        let list = random_list(&mut rng, 1200);
        runs += 1;
        let tally = ops::run(&list, runs);
        streams += tally.streams;
        kills += tally.kills;
        bytes += tally.bytes;
        refused += tally.refused;
    }
    println!("{runs} runs, {streams} streams, {refused} refused, {kills} kills, {bytes} bytes");
    assert!(refused > 0, "refusals are part of it");
}

#[test]
fn random_frames_never_panic_and_stay_small() {
    let mut rng = Rng::new(7);
    // Plausible headers with random bodies reach deeper code than random bytes.
    for _ in 0..20_000 {
        let mut data = random_list(&mut rng, 1);
        for _ in 0..rng.below(12) {
            let length = [0, 2, 4, 5, 8, 14, 16, 33, 62][usize::try_from(rng.below(9)).unwrap()];
            let kind =
                u8::try_from(rng.below(13)).unwrap() | if rng.chance(200) { 0x40 } else { 0 };
            let stream = u8::try_from(rng.below(5)).unwrap();
            data.extend([kind, 0, 0, length, 0, 0, 0, stream]);
            let small = rng.chance(700);
            data.extend((0..length).map(|_| if small { 0 } else { rng.bits().to_le_bytes()[0] }));
        }
        ops::frames(&data);
    }
}
