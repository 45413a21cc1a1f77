//! Every target on stable Rust: its seeds, some mutations of them, and the inputs that once failed.
//!
//! `FUZZ_SECONDS=60 FUZZ_SEED=7 cargo test --release -p txn-fuzz` goes on for longer. A failure prints the
//! input, which belongs to `rust/fuzz/regressions/<target>` once it is mended.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::mutate::{Chance, mutate};
use crate::{TARGETS, Target, target};

/// Mutations of a run that is not told its time.
const MUTATIONS: usize = 150;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs one input; a panic is told with it.
fn run(target: &Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        eprintln!(
            "{} fails with {:?}",
            target.name,
            input.escape_ascii().to_string()
        );
        resume_unwind(panic);
    }
}

fn run_all(name: &str) {
    let target = target(name).expect("a target");
    let seeds = (target.seeds)();
    for seed in &seeds {
        run(target, seed);
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions");
    for entry in fs::read_dir(kept.join(name)).into_iter().flatten() {
        run(
            target,
            &fs::read(entry.expect("an entry").path()).expect("a file"),
        );
    }
    let mut chance = Chance::new(setting("FUZZ_SEED").unwrap_or(7));
    let until =
        setting("FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut count = 0;
    while until.map_or(count < MUTATIONS, |until| Instant::now() < until) {
        let mut input = chance.of(&seeds).clone();
        for _ in 0..=chance.below(4) {
            mutate(&mut input, &mut chance, target.words, target.bytes_max);
        }
        run(target, &input);
        count += 1;
    }
}

#[test]
fn tls_framing() {
    run_all("tls_framing");
}

#[test]
fn request_bodies() {
    run_all("request_bodies");
}

#[test]
fn record_batches() {
    run_all("record_batches");
}

#[test]
fn log_files() {
    run_all("log_files");
}

#[test]
fn client_answers() {
    run_all("client_answers");
}

#[test]
fn request_path() {
    run_all("request_path");
}

#[test]
fn each_target_has_its_program_and_its_test() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    let this = include_str!("regressions.rs");
    for target in &TARGETS {
        let program = fs::read_to_string(programs.join(format!("{}.rs", target.name)));
        let named = format!("txn_fuzz::target(\"{}\")", target.name);
        assert!(
            program.is_ok_and(|text| text.contains(&named)),
            "{}",
            target.name
        );
        assert!(
            this.contains(&format!("fn {}()", target.name)),
            "{}",
            target.name
        );
        for seed in (target.seeds)() {
            assert!(
                seed.len() <= target.bytes_max,
                "{}: a seed is too long",
                target.name
            );
        }
    }
}
