//! Mutates inputs.

/// Maximum length of an input in bytes; longer inputs only cost time.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// Maximum number of mutated inputs that are kept for further mutation.
const POOL_MAX: usize = 512;
/// Tokens that are significant in JSON, TOML, times and names.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"true",
    b"-0",
    b"1e999",
    b"1e-999",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"0.1",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xc3\x28",
    b"\xe2\x80\xae",
    b"//",
    b"/*",
    b"*/",
    b"#",
    b"=",
    b"[[",
    b"]]",
    b"'''",
    b"\"\"\"",
    b"1h",
    b"-1s",
    b"99999999999d",
    b"9999-12-31T23:59:59Z",
    b"../",
    b"%00",
    b"e30=",
    b"jobs",
    b"kind",
    b"id",
    b"task_id",
    b"args",
    b"type",
    b"VALUE",
    b"TASKREF",
    b"value_json",
    b"shard",
    b"inputs",
    b"result_of",
    b"after",
];

/// A source of inputs that depends on a seed.
pub(crate) struct Mutator {
    state: u64,
    /// The initial inputs, followed by mutated ones.
    pool: Vec<Vec<u8>>,
    /// Number of initial inputs.
    first: usize,
}

impl Mutator {
    /// Creates a mutator with these initial inputs, or with an empty input if there are none.
    pub(crate) fn new(seed: u64, mut pool: Vec<Vec<u8>>) -> Self {
        if pool.is_empty() {
            pool.push(Vec::new());
        }
        let first = pool.len();
        Self {
            state: seed,
            pool,
            first,
        }
    }

    /// Returns an input of the pool with a few changes. Some of the results are added to the pool.
    pub(crate) fn next_input(&mut self) -> Vec<u8> {
        // Half of the time, start from an initial input: without feedback, repeated mutation makes inputs meaningless.
        let is_first = self.below(2) == 0;
        let chosen = self.below(if is_first {
            self.first
        } else {
            self.pool.len()
        });
        let mut input = self.pool[chosen].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        if self.below(64) == 0 {
            if self.pool.len() < self.first + POOL_MAX {
                self.pool.push(input.clone());
            } else {
                let index = self.first + self.below(POOL_MAX);
                self.pool[index].clone_from(&input);
            }
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let end = (at + 1 + self.below(16)).min(input.len());
        match self.below(8) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.byte(),
            2 => input.insert(at, self.byte()),
            3 if at < end => drop(input.drain(at..end)),
            4 if at < end => {
                let piece = input[at..end].to_vec();
                let target = self.below(input.len() + 1);
                input.splice(target..target, piece);
            }
            5 => {
                let other = self.below(self.pool.len());
                let other = self.pool[other].clone();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 => input.truncate(at),
            _ => {
                let piece = PIECES[self.below(PIECES.len())];
                input.splice(at..at, piece.iter().copied());
            }
        }
    }

    fn byte(&mut self) -> u8 {
        self.draw().to_le_bytes()[0]
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.draw() % limit).unwrap_or(0)
    }

    /// `SplitMix64`, by Steele, Lea and Flood.
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::Mutator;

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed, vec![b"{\"kind\": \"a\"}".to_vec()]);
            (0..1_000).map(|_| mutator.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }
}
