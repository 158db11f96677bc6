//! The embedded store passes the suite.

use ganger_store::suite::StoreFixture;
use ganger_store_embedded::EmbeddedStore;
use ganger_types::ShardId;
use tempfile::TempDir;

/// Makes stores in a directory each, removed at the end.
#[derive(Default)]
struct Disk {
    directories: Vec<TempDir>,
}

impl StoreFixture for Disk {
    type Store = EmbeddedStore;

    fn fresh(&mut self) -> EmbeddedStore {
        let directory = TempDir::new().expect("a directory can be made");
        let path = directory.path().join("data/1.db");
        self.directories.push(directory);
        EmbeddedStore::create_or_open(path, &ShardId::default()).expect("a store can be made")
    }

    fn again(&mut self, store: EmbeddedStore) -> EmbeddedStore {
        let path = store.path().to_path_buf();
        drop(store);
        EmbeddedStore::create_or_open(path, &ShardId::default()).expect("the store is there")
    }
}

ganger_store::suite_tests!(Disk::default());
