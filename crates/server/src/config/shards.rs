//! The shards of a process, and their store files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ganger_types::ShardId;

use super::{Config, ConfigError, DB_IN_MEMORY};

/// Maximum number of shards of a process; each has its own thread and store.
const SHARDS_MAX: usize = 64;

/// Reads ids separated by commas, or a number of shards, which are then named 1, 2, 3 and so on.
pub(super) fn read(text: &str) -> Result<Vec<ShardId>, String> {
    let is_count = !text.contains(',') && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_count {
        let count = text.parse().ok();
        let count = count.filter(|count| (1..=SHARDS_MAX).contains(count));
        let count = count.ok_or_else(|| {
            format!("must be a number from 1 to {SHARDS_MAX}, or ids with commas, not {text:?}")
        })?;
        return Ok((1..=count)
            .filter_map(|number| ShardId::new(&number.to_string()))
            .collect());
    }
    let mut shards = Vec::new();
    let names = text.split(',').map(str::trim);
    for name in names.filter(|name| !name.is_empty()) {
        let shard = ShardId::new(name).ok_or_else(|| {
            format!("has {name:?}, which is not a shard: 1 to 64 characters of A-Z a-z 0-9 . _ -")
        })?;
        if shards.contains(&shard) {
            return Err(format!("has shard {shard} twice"));
        }
        shards.push(shard);
    }
    match shards.len() {
        0 => Err("names no shard".to_owned()),
        count if count > SHARDS_MAX => Err(format!(
            "has {count} shards, a process has {SHARDS_MAX} at most"
        )),
        _ => Ok(shards),
    }
}

impl Config {
    /// Returns the name of the cluster that this process joins as one of several nodes; `None` if it is none of them.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(
            clippy::unused_self,
            reason = "without PostgreSQL there are no clusters"
        )
    )]
    pub(crate) fn cluster(&self) -> Option<&str> {
        #[cfg(feature = "postgres")]
        let cluster = self.postgres.cluster.as_deref();
        #[cfg(not(feature = "postgres"))]
        let cluster = None;
        cluster
    }

    /// Returns the shards of this process; the first is the default for requests that name none.
    pub fn shard_ids(&self) -> Vec<ShardId> {
        if self.shards.is_empty() {
            vec![self.shard.clone()]
        } else {
            self.shards.clone()
        }
    }

    /// Returns the store file of a shard: `db` itself for a single shard; for several, with the shard's id before the
    /// extension, as in `test-2.db`.
    pub fn db_of(&self, shard: &ShardId) -> PathBuf {
        if self.shards.is_empty() || self.is_in_memory() {
            self.db.clone()
        } else {
            self.db_beside(shard)
        }
    }

    /// Whether nothing is stored on disk.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.db.as_os_str() == DB_IN_MEMORY
    }

    /// Whether the store of this configuration is a database.
    #[cfg(feature = "postgres")]
    fn is_in_database(config: &Self) -> bool {
        config.postgres.address.is_some()
    }

    /// Whether the store of this configuration is a database, which this build does not know.
    #[cfg(not(feature = "postgres"))]
    fn is_in_database(_: &Self) -> bool {
        false
    }

    /// Returns the store of a shard for log lines; an address of a database has no password.
    pub(crate) fn store_of(&self, shard: &ShardId) -> String {
        #[cfg(feature = "postgres")]
        if let Some(address) = &self.postgres.address {
            return address.clone();
        }
        self.db_of(shard).display().to_string()
    }

    fn db_beside(&self, shard: &ShardId) -> PathBuf {
        let mut name: OsString = self.db.file_stem().unwrap_or_default().to_owned();
        name.push("-");
        name.push(shard.as_str());
        if let Some(extension) = self.db.extension() {
            name.push(".");
            name.push(extension);
        }
        self.db.with_file_name(name)
    }

    /// Refuses a missing directory, which is most often mistyped, unless `data_dir` names it. Also refuses to create
    /// an empty store where the same shard has one under the other name: that of a process with a single shard, or
    /// with several.
    pub(crate) fn check_stores(&self) -> Result<(), ConfigError> {
        if self.is_in_memory() || Self::is_in_database(self) {
            return Ok(());
        }
        let directory = self.db.parent().unwrap_or(Path::new(""));
        if !self.makes_directory && !directory.as_os_str().is_empty() && !directory.is_dir() {
            return Err(ConfigError {
                place: "db".to_owned(),
                reason: format!(
                    "there is no directory {}: create it, or set data_dir instead of db, whose directory is created",
                    directory.display()
                ),
            });
        }
        for shard in self.shard_ids() {
            let beside = self.db_beside(&shard);
            let (used, other) = if self.shards.is_empty() {
                (&self.db, &beside)
            } else if shard == self.shards[0] {
                (&beside, &self.db)
            } else {
                continue;
            };
            if !used.exists() && other.exists() {
                return Err(ConfigError {
                    place: "db".to_owned(),
                    reason: format!(
                        "shard {shard} would start with an empty store {}, but {} is there: a process with one shard uses the name as it is, one with several puts the shard before the extension; rename the store of shard {shard}, or name another one",
                        used.display(),
                        other.display()
                    ),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards(text: &str) -> Vec<String> {
        let shards = read(text).expect("readable");
        shards.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn shards_are_counted_or_named() {
        assert_eq!(shards("3"), ["1", "2", "3"]);
        assert_eq!(shards("7,"), ["7"]);
        assert_eq!(shards("b, a"), ["b", "a"]);
        for wrong in ["", "0", "65", ",", "a,a", "a/b", "99999999999999999999"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_of_several_shards_has_a_store_of_its_own() {
        let shard = ShardId::new("eu.2").expect("a name");
        let one = Config {
            db: "data/test.db".into(),
            ..Config::default()
        };
        assert_eq!(one.db_of(&shard), PathBuf::from("data/test.db"));
        let several = Config {
            shards: read("1,eu.2").expect("readable"),
            ..one
        };
        assert_eq!(several.db_of(&shard), PathBuf::from("data/test-eu.2.db"));
        let bare = Config {
            db: "test".into(),
            ..several
        };
        assert_eq!(bare.db_of(&shard), PathBuf::from("test-eu.2"));
    }

    #[test]
    fn only_a_data_dir_is_created() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let missing = directory.path().join("typo");
        let mut config = Config {
            db: missing.join("x.db"),
            ..Config::default()
        };
        let refused = config.check_stores().expect_err("the directory is missing");
        assert!(refused.reason.contains("no directory"), "{refused}");
        assert!(!missing.exists());
        config.makes_directory = true;
        config.check_stores().expect("opening the store makes it");
        let here = Config::default();
        here.check_stores().expect("the working directory is there");
    }

    #[test]
    fn a_store_under_the_other_name_is_not_ignored() {
        let directory = tempfile::tempdir().expect("a directory");
        let db = directory.path().join("test.db");
        std::fs::write(&db, "").expect("writable");
        let several = Config {
            shards: read("2").expect("readable"),
            db: db.clone(),
            ..Config::default()
        };
        let refused = several.check_stores().expect_err("test.db is there");
        assert!(refused.reason.contains("test-1.db"), "{refused}");
        std::fs::rename(&db, directory.path().join("test-1.db")).expect("renamed");
        several.check_stores().expect("all is well");
        let one = Config {
            shards: Vec::new(),
            ..several
        };
        let refused = one.check_stores().expect_err("test-1.db is there");
        assert!(refused.reason.contains("rename"), "{refused}");
    }
}
