//! A small seeded generator: the plan of a test is the same for the same seed, its timing is not.

/// `SplitMix64`, by Steele, Lea and Flood.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// One that draws the same for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws any 64-bit number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
