//! The memory store passes the suite.

use ganger_store::MemoryStore;
use ganger_store::suite::{SharedStoreFixture, StoreFixture};

struct Memory;

impl StoreFixture for Memory {
    type Store = MemoryStore;

    fn fresh(&mut self) -> MemoryStore {
        MemoryStore::new()
    }

    fn again(&mut self, store: MemoryStore) -> MemoryStore {
        let again = store.clone();
        drop(store);
        again
    }
}

impl SharedStoreFixture for Memory {
    fn another(&mut self, store: &MemoryStore) -> MemoryStore {
        store.clone()
    }
}

ganger_store::suite_tests!(Memory);
ganger_store::shared_suite_tests!(Memory);
