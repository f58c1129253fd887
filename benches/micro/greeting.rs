//! A log-in: hello, proof, answer and signature, with the work of both sides.

use benches::rig::Greeting;
use divan::Bencher;

#[divan::bench]
fn both_sides(bencher: Bencher<'_, '_>) {
    let greeting = Greeting::default();
    bencher.bench_local(|| assert!(greeting.run()));
}
