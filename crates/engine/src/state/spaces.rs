//! The namespaces of a shard.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use ganger_types::{Namespace, NamespaceSettings};

use super::names::SpaceIndex;
use super::space::Space;

/// The namespaces of a shard, by index and by name. None is ever removed, because queues refer to them by index.
#[derive(Default)]
pub(crate) struct Spaces {
    spaces: Vec<Space>,
    by_name: BTreeMap<Namespace, SpaceIndex>,
}

impl Spaces {
    /// The namespace with this name; `None` if it was never used.
    pub(crate) fn find(&self, name: &Namespace) -> Option<SpaceIndex> {
        self.by_name.get(name).copied()
    }

    /// The namespace with this name, which is created if it was never used.
    pub(crate) fn make(&mut self, name: &Namespace) -> SpaceIndex {
        if let Some(space) = self.find(name) {
            return space;
        }
        let space = SpaceIndex::new(self.spaces.len());
        self.spaces
            .push(Space::new(name.clone(), NamespaceSettings::default()));
        self.by_name.insert(name.clone(), space);
        space
    }

    /// The number of namespaces that were ever used.
    pub(crate) fn len(&self) -> usize {
        self.spaces.len()
    }

    /// The indexes of all namespaces.
    pub(crate) fn indexes(&self) -> impl Iterator<Item = SpaceIndex> + use<> {
        (0..self.spaces.len()).map(SpaceIndex::new)
    }

    /// All namespaces, in order of their indexes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Space> {
        self.spaces.iter()
    }

    /// All namespaces, in order of their indexes, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Space> {
        self.spaces.iter_mut()
    }
}

impl Index<SpaceIndex> for Spaces {
    type Output = Space;

    fn index(&self, space: SpaceIndex) -> &Space {
        &self.spaces[space.at()]
    }
}

impl IndexMut<SpaceIndex> for Spaces {
    fn index_mut(&mut self, space: SpaceIndex) -> &mut Space {
        &mut self.spaces[space.at()]
    }
}
