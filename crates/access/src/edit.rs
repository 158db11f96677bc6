//! Changes the access file: writes a whole new file and renames it over the old one, under a lock of its directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::AccessError;
use crate::file::{AccessFile, Entry};

/// Mode of the file: only its owner may read or write it.
const MODE: u32 = 0o600;

/// Adds an entry; creates a missing file for its owner only.
///
/// # Errors
/// If there is an entry of that kind and name already, or the file cannot be read or written.
pub fn add(path: &Path, entry: &Entry) -> Result<(), AccessError> {
    edit(path, |text| {
        let file = read(path, text)?;
        if file
            .entries
            .iter()
            .any(|known| known.is_same_credential(entry))
        {
            return Err(AccessError::NameTaken {
                path: path.to_owned(),
                name: entry.name.clone(),
            });
        }
        let mut text = text.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&entry.write());
        text.push('\n');
        Ok(text)
    })
}

/// Removes the token or certificate of that name; all other lines stay as they are.
///
/// # Errors
/// If there is none, or the file cannot be read or written.
pub fn revoke(path: &Path, name: &str) -> Result<(), AccessError> {
    edit(path, |text| {
        read(path, text)?;
        let is_meant = |line: &str| {
            let entry = Entry::read(line).ok().flatten();
            entry.is_some_and(|entry| entry.name == name)
        };
        let kept: String = text
            .split_inclusive('\n')
            .filter(|line| !is_meant(line))
            .collect();
        if kept.len() == text.len() {
            return Err(AccessError::NotFound {
                path: path.to_owned(),
                name: name.to_owned(),
            });
        }
        Ok(kept)
    })
}

fn read(path: &Path, text: &str) -> Result<AccessFile, AccessError> {
    AccessFile::read(text).map_err(|(line, reason)| AccessError::Line {
        path: path.to_owned(),
        line,
        reason,
    })
}

fn edit(
    path: &Path,
    change: impl FnOnce(&str) -> Result<String, AccessError>,
) -> Result<(), AccessError> {
    let failed = |doing: &'static str| {
        move |source: io::Error| AccessError::File {
            doing,
            path: path.to_owned(),
            source,
        }
    };
    // A symbolic link is followed; the file behind it is replaced.
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = match real.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
        _ => PathBuf::from("."),
    };
    let directory = File::open(&directory)
        .and_then(|handle| handle.lock().map(|()| handle))
        .map_err(failed("lock the directory of"))?;
    let before = match fs::read_to_string(&real) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed("read")(error)),
    };
    let after = change(&before)?;
    replace(&real, &after)
        .and_then(|()| directory.sync_all())
        .map_err(failed("write"))
}

/// Replaces the file. The new text is on disk before it is renamed.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    // A file that an earlier attempt left behind is unused, since this process holds the lock.
    let _ = fs::remove_file(&fresh);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&fresh)?;
    if let Ok(old) = fs::metadata(path) {
        // The group keeps its permission to read, for example the server's group; others never have it.
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o640 | MODE))?;
        std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Kind;
    use crate::secret::Hash;

    fn entry(name: &str) -> Entry {
        Entry {
            name: name.to_owned(),
            kind: Kind::Token(Hash::of(name.as_bytes())),
            grants: "reader@*".parse().expect("readable"),
            expires: None,
            created: None,
        }
    }

    #[test]
    fn entries_are_added_and_removed_and_the_rest_stays_byte_for_byte() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access");
        add(&path, &entry("a")).expect("added");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let first = fs::read_to_string(&path).expect("there");
        fs::write(&path, format!("# mine\n{first}# end, without a line end")).expect("writable");
        add(&path, &entry("b")).expect("added");
        assert!(matches!(
            add(&path, &entry("b")),
            Err(AccessError::NameTaken { .. })
        ));
        revoke(&path, "b").expect("removed");
        let text = fs::read_to_string(&path).expect("there");
        assert_eq!(text, format!("# mine\n{first}# end, without a line end\n"));
        assert!(matches!(
            revoke(&path, "b"),
            Err(AccessError::NotFound { .. })
        ));
        let left: Vec<_> = fs::read_dir(directory.path()).expect("there").collect();
        assert_eq!(left.len(), 1, "no other file stays behind");
    }

    #[test]
    fn concurrent_writers_lose_no_entry() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || add(path, &entry(&format!("t{number}"))).expect("added"));
            }
        });
        assert_eq!(AccessFile::load(&path).expect("readable").entries.len(), 8);
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_not_changed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access");
        fs::write(&path, "what is this").expect("writable");
        assert!(matches!(
            add(&path, &entry("a")),
            Err(AccessError::Line { line: 1, .. })
        ));
        assert_eq!(fs::read_to_string(&path).expect("there"), "what is this");
    }
}
