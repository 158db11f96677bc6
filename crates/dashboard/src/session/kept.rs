//! What a restart must not forget: the key that signs sessions, and the sessions that were ended before their time.
//!
//! Both stand in one small file beside the store, readable for its owner only. A backup of the store does not have it:
//! after a restore on another machine people sign in again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use super::Nonce;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Sessions that may be remembered as ended. Beyond it those that expire first are forgotten.
const ENDED_MAX: usize = 10_000;
/// First line of the file.
const HEAD: &str = "ganger dashboard sessions 1";

/// The key, and the sessions that were ended.
pub(crate) struct Kept {
    /// The key in the file.
    own: Vec<u8>,
    /// The key of the file that several servers share, if there is one; it counts instead of the other.
    shared: Option<Vec<u8>>,
    path: Option<PathBuf>,
    /// Each ended session with the time at which it would have expired, in seconds since the epoch.
    ended: Mutex<BTreeMap<Nonce, u64>>,
    /// Number of sessions ended, which open streams watch.
    changes: watch::Sender<u64>,
}

impl Kept {
    /// Reads the file, or makes it. `key_file` has a key that several servers share.
    ///
    /// A file that cannot be made, as on a full disk, is no reason not to start: until there is one, sessions end with
    /// the server.
    pub(crate) fn open(path: Option<PathBuf>, key_file: Option<&Path>) -> io::Result<Self> {
        let mut is_there = true;
        let (own, ended) = match path.as_deref().map(fs::read_to_string) {
            Some(Ok(text)) => read(&text).ok_or_else(|| {
                let path = path.as_deref().unwrap_or(Path::new(""));
                io::Error::other(format!(
                    "{} is not a file of the dashboard's sessions: move it away; everybody signs in again then",
                    path.display()
                ))
            })?,
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {
                is_there = false;
                (random_key(), BTreeMap::new())
            }
        };
        let shared = key_file.map(read_key_file).transpose()?;
        let kept = Self {
            own,
            shared,
            path,
            ended: Mutex::new(ended),
            changes: watch::Sender::new(0),
        };
        if !is_there && let Err(error) = kept.write() {
            tracing::warn!(%error, "the file of the dashboard's sessions cannot be made: a restart will end all sessions");
        }
        Ok(kept)
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.shared.as_ref().unwrap_or(&self.own)
    }

    /// Refuses a session from now on, also after a restart.
    pub(crate) fn end(&self, nonce: Nonce, expires: u64, now: u64) -> io::Result<()> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|_, expires| *expires > now);
        if ended.len() >= ENDED_MAX {
            let first = ended.iter().min_by_key(|(_, expires)| **expires);
            if let Some(first) = first.map(|(nonce, _)| *nonce) {
                ended.remove(&first);
            }
        }
        ended.insert(nonce, expires);
        drop(ended);
        self.changes.send_modify(|count| *count += 1);
        self.write()
    }

    pub(crate) fn is_ended(&self, nonce: Nonce) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.contains_key(&nonce)
    }

    /// Waits until some session has been ended.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Replaces the file: a crash leaves the old or the new one.
    fn write(&self) -> io::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let mut text = format!("{HEAD}\nkey {}\n", hex(&self.own));
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        for (nonce, expires) in ended.iter() {
            writeln!(text, "ended {nonce} {expires}").expect("strings take everything");
        }
        drop(ended);
        let mut name = path.clone().into_os_string();
        name.push(".new");
        let fresh = PathBuf::from(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        if let Some(directory) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            File::open(directory)?.sync_all()?;
        }
        Ok(())
    }
}

fn random_key() -> Vec<u8> {
    let mut key = vec![0; KEY_BYTES];
    getrandom::fill(&mut key).expect("the system provides random bytes");
    key
}

fn read(text: &str) -> Option<(Vec<u8>, BTreeMap<Nonce, u64>)> {
    let mut lines = text.lines();
    if lines.next()? != HEAD {
        return None;
    }
    let key = unhex(lines.next()?.strip_prefix("key ")?)?;
    let mut ended = BTreeMap::new();
    for line in lines {
        let (nonce, expires) = line.strip_prefix("ended ")?.split_once(' ')?;
        ended.insert(Nonce::read(nonce)?, expires.parse().ok()?);
    }
    (key.len() == KEY_BYTES).then_some((key, ended))
}

/// The shared key: 64 hexadecimal digits.
fn read_key_file(path: &Path) -> io::Result<Vec<u8>> {
    let key = unhex(fs::read_to_string(path)?.trim());
    key.filter(|key| key.len() == KEY_BYTES).ok_or_else(|| {
        io::Error::other(format!(
            "{}: must hold 64 hexadecimal digits, as `openssl rand -hex 32` writes them",
            path.display()
        ))
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings take everything");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn key_and_ended_sessions_survive_a_restart() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions");
        let first = Kept::open(Some(path.clone()), None).expect("made");
        first.end(Nonce([1; 16]), 100, 50).expect("written");
        first.end(Nonce([2; 16]), 40, 50).expect("written");
        let again = Kept::open(Some(path.clone()), None).expect("read");
        assert_eq!(again.key(), first.key());
        assert!(again.is_ended(Nonce([1; 16])) && again.is_ended(Nonce([2; 16])));
        again.end(Nonce([3; 16]), 200, 60).expect("written");
        assert!(!again.is_ended(Nonce([2; 16])), "it has expired meanwhile");
        let mode = fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&path, "something else").expect("writable");
        assert!(Kept::open(Some(path), None).is_err());
    }

    #[test]
    fn a_start_needs_no_room_for_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sessions");
        // The name of the new file is taken, so that it cannot be written.
        let new = directory.path().join("sessions.new");
        fs::create_dir(&new).expect("a directory");
        let without = Kept::open(Some(path.clone()), None).expect("started without a file");
        assert!(without.end(Nonce([1; 16]), 100, 50).is_err());
        assert!(without.is_ended(Nonce([1; 16])), "until the server ends");
        fs::remove_dir(&new).expect("removable");
        let first = Kept::open(Some(path.clone()), None).expect("made");
        fs::create_dir(&new).expect("a directory");
        let again = Kept::open(Some(path), None).expect("read, and not written");
        assert_eq!(again.key(), first.key());
    }

    #[test]
    fn a_shared_key_comes_from_its_file_and_must_be_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("key");
        fs::write(&file, format!("{}\n", "ab".repeat(32))).expect("writable");
        let kept = Kept::open(None, Some(&file)).expect("read");
        assert_eq!(kept.key(), [0xab; 32]);
        fs::write(&file, "abc").expect("writable");
        assert!(Kept::open(None, Some(&file)).is_err());
        assert_ne!(
            Kept::open(None, None).expect("random").key(),
            Kept::open(None, None).expect("random").key()
        );
    }
}
