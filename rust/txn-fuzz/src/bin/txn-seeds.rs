//! Writes the seeds and the dictionary of each fuzz target: `txn-seeds DIRECTORY`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;

use txn_fuzz::TARGETS;

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).map(PathBuf::from);
    let directory = directory.ok_or_else(|| io::Error::other("give a directory"))?;
    for target in &TARGETS {
        let corpus = directory.join(target.name);
        fs::create_dir_all(&corpus)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(corpus.join(format!("seed-{number}")), seed)?;
        }
        let line = |word: &&[u8]| {
            let mut line = String::from("\"");
            for byte in *word {
                let _ = write!(line, "\\x{byte:02x}"); // a string takes everything
            }
            line + "\"\n"
        };
        let words: String = target.words.iter().map(line).collect();
        fs::write(directory.join(format!("{}.dict", target.name)), words)?;
        println!("{} {}", target.name, target.bytes_max);
    }
    Ok(())
}
