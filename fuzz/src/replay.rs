use crate::Target;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::path::{Path, PathBuf};

/// Runs a target over the files that the command line names.
///
/// # Errors
/// If a file cannot be read.
pub fn replay_files(target: Target) -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        target(&std::fs::read(path)?);
    }
    Ok(())
}

/// The committed corpus of a target, sorted by file name, so that a seed of [`Mutator`] makes the same inputs on every
/// machine. Files that `cargo fuzz` has added, named by their SHA-1, are left out.
///
/// # Errors
/// If a file cannot be read.
pub fn corpus(target: &str) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| path.file_name().is_some_and(|name| name.len() != 40));
    paths.sort();
    let read = |path: PathBuf| Ok((path.clone(), std::fs::read(path)?));
    paths.into_iter().map(read).collect()
}

/// Makes inputs from other inputs; equal seeds give equal inputs.
pub struct Mutator {
    rng: ChaCha8Rng,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// Mutates the files of a corpus.
    #[must_use]
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), corpus }
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.rng.next_u64() % (bound.max(1) as u64)).unwrap_or(0)
    }

    /// The next input: random bytes, or a file of the corpus with some changes.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = vec![0; self.below(600)];
        if self.corpus.is_empty() || self.below(8) == 0 {
            self.rng.fill_bytes(&mut input);
            return input;
        }
        let index = self.below(self.corpus.len());
        input.clone_from(&self.corpus[index]);
        for _ in 0..=self.below(6) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        let until = (at + 1 + self.below(24)).min(input.len());
        let interesting = [0, 1, 2, 7, 8, 9, 0x0a, 0x20, 0x7f, 0x80, 0x81, 0xfe, 0xff];
        match self.below(8) {
            _ if input.is_empty() => input.push(0),
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = interesting[self.below(interesting.len())],
            2 => self.rng.fill_bytes(&mut input[at..until]),
            3 => {
                input.drain(at..until);
            }
            4 => {
                let copy = input[at..until].to_vec();
                let to = self.below(input.len());
                input.splice(to..to, copy);
            }
            5 => input.truncate(at),
            6 => {
                let other = self.below(self.corpus.len());
                let from = self.below(self.corpus[other].len());
                input.truncate(at);
                input.extend_from_slice(&self.corpus[other][from..]);
            }
            _ => {
                let fresh = self.rng.next_u64().to_le_bytes();
                let len = 1 + self.below(8);
                input.splice(at..at, fresh[..len].iter().copied());
            }
        }
    }
}
