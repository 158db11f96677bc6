//! Places of members.

/// The place of a member in its [`crate::Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u32);

impl MemberIndex {
    /// The place as an index.
    ///
    /// # Panics
    /// Never where addresses have 32 bits or more.
    pub fn at(self) -> usize {
        usize::try_from(self.0).expect("32 bits fit")
    }

    pub(crate) fn new(at: usize) -> Self {
        Self(u32::try_from(at).expect("a shape has fewer than 2^32 members"))
    }
}
