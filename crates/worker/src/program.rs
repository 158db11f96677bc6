//! Finds the program of a kind: by name alone, inside one directory, opened once and checked on the open file (`rel
//! S10`).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

/// Maximum bytes of a kind that can name a program.
const NAME_BYTES_MAX: usize = 255;
/// Name of the settings file in the directory; never a program.
pub(crate) const SETTINGS_FILE: &str = "handlers.toml";

/// An open program; this file is what is executed.
#[derive(Debug)]
pub(crate) struct Program {
    file: OwnedFd,
    /// Absolute path, with the links of the directory's own path resolved.
    pub(crate) path: PathBuf,
    /// Whether an interpreter has to read the file.
    pub(crate) is_script: bool,
}

impl Program {
    /// Returns the open file of the program.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The reason why there is no program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoProgram {
    /// The kind has bytes that a program's name cannot have.
    BadName,
    /// The directory cannot be opened.
    Directory(String),
    /// There is no such file, or it leads out of the directory.
    NotThere(String),
    /// The file is not a regular file.
    NotAFile,
    /// The file is not executable.
    NotExecutable,
    /// The file is set-user-id or set-group-id.
    SetUser,
}

impl fmt::Display for NoProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName => write!(
                f,
                "a program's name has 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' or '-', and no dot in front"
            ),
            Self::Directory(error) => write!(f, "the directory cannot be opened: {error}"),
            Self::NotThere(error) => f.write_str(error),
            Self::NotAFile => f.write_str("it is not a regular file"),
            Self::NotExecutable => f.write_str("it has no run bit; chmod +x it"),
            Self::SetUser => f.write_str("it is set-user-id or set-group-id, which is refused"),
        }
    }
}

/// Finds the program for `kind` in `directory`, or the reason why there is none. The outer error is a fault of the
/// machine.
pub(crate) fn find(directory: &Path, kind: &str) -> io::Result<Result<Program, NoProgram>> {
    if !is_program_name(kind) {
        return Ok(Err(NoProgram::BadName));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = open(directory, flags, Mode::empty());
    let directory_fd = match opened {
        Ok(fd) => fd,
        Err(error) if is_machines_fault(error) => return Err(error.into()),
        Err(error) => return Ok(Err(NoProgram::Directory(words(error)))),
    };
    let file = match open_beneath(directory_fd.as_fd(), kind) {
        Ok(file) => file,
        Err(error) if is_machines_fault(error) => return Err(error.into()),
        Err(error) => return Ok(Err(NoProgram::NotThere(words(error)))),
    };
    let stat = fstat(&file)?;
    let mode = stat.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Ok(Err(NoProgram::NotAFile));
    }
    if mode & 0o111 == 0 {
        return Ok(Err(NoProgram::NotExecutable));
    }
    if mode & 0o6000 != 0 {
        return Ok(Err(NoProgram::SetUser));
    }
    let is_script = starts_as_script(file.as_fd());
    // The path of the opened directory, so that a program finds its neighbours even if a link changes meanwhile.
    let opened = directory_fd.as_raw_fd();
    let path = std::fs::read_link(format!("/proc/self/fd/{opened}"))?.join(kind);
    Ok(Ok(Program {
        file,
        path,
        is_script,
    }))
}

fn is_program_name(kind: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&kind.len())
        && kind.bytes().all(is_allowed)
        && !kind.starts_with('.')
        && kind != SETTINGS_FILE
}

/// Opens a file without running or reading anything. A symbolic link is followed only within the directory, which the
/// kernel checks at each step; one that leads outside, or an absolute one, is an error.
fn open_beneath(directory: BorrowedFd<'_>, kind: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(directory, kind, flags, Mode::empty(), resolve) {
        // On old kernels, and under filters that block the call, no link is followed.
        Err(Errno::NOSYS | Errno::PERM) => {
            openat(directory, kind, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        other => other,
    }
}

/// Whether the file begins with `#!`. An executable file that cannot be read cannot be a script, since its
/// interpreter could not read it either.
fn starts_as_script(file: BorrowedFd<'_>) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let Ok(opened) = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut start = [0; 2];
    File::from(opened).read_exact(&mut start).is_ok() && start == *b"#!"
}

fn is_machines_fault(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO
    )
}

fn words(error: Errno) -> String {
    match error {
        Errno::XDEV => "it leads out of the directory".into(),
        Errno::NOENT => "there is no such file".into(),
        Errno::LOOP => "it is a symbolic link, or a loop of them".into(),
        other => io::Error::from(other).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    fn put(directory: &Path, name: &str, mode: u32) {
        let path = directory.join(name);
        fs::write(&path, "#!/bin/sh\n").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode set");
    }

    fn missing(directory: &Path, kind: &str) -> NoProgram {
        find(directory, kind)
            .expect("the machine is well")
            .expect_err("there is no program")
    }

    #[test]
    fn a_regular_executable_file_is_a_program() {
        let place = directory();
        put(place.path(), "greet.v2_x-1", 0o755);
        let found = find(place.path(), "greet.v2_x-1")
            .expect("the machine is well")
            .expect("found");
        assert!(found.is_script);
        assert_eq!(found.path, place.path().join("greet.v2_x-1"));
    }

    #[test]
    fn an_invalid_program_name_is_refused() {
        let place = directory();
        let long = "a".repeat(256);
        for kind in [
            "",
            ".hidden",
            "..",
            "a/b",
            "/bin/sh",
            "a b",
            "a\0b",
            "gr\u{fc}\u{df}",
            "a\n",
            &long,
            SETTINGS_FILE,
        ] {
            assert_eq!(missing(place.path(), kind), NoProgram::BadName, "{kind:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_a_plain_executable_is_refused() {
        let place = directory();
        put(place.path(), "plain", 0o644);
        put(place.path(), "suid", 0o4755);
        put(place.path(), "sgid", 0o2755);
        fs::create_dir(place.path().join("dir")).expect("made");
        assert_eq!(missing(place.path(), "plain"), NoProgram::NotExecutable);
        assert_eq!(missing(place.path(), "suid"), NoProgram::SetUser);
        assert_eq!(missing(place.path(), "sgid"), NoProgram::SetUser);
        assert_eq!(missing(place.path(), "dir"), NoProgram::NotAFile);
        assert!(matches!(
            missing(place.path(), "none"),
            NoProgram::NotThere(_)
        ));
        assert!(matches!(
            missing(&place.path().join("none"), "x"),
            NoProgram::Directory(_)
        ));
    }

    #[test]
    fn a_link_is_followed_only_inside_the_directory() {
        let place = directory();
        put(place.path(), "real", 0o755);
        symlink("real", place.path().join("inside")).expect("linked");
        symlink("/bin/sh", place.path().join("absolute")).expect("linked");
        symlink("../../../../../bin/sh", place.path().join("outside")).expect("linked");
        symlink("loop", place.path().join("loop")).expect("linked");
        assert!(
            find(place.path(), "inside")
                .expect("the machine is well")
                .is_ok()
        );
        for kind in ["absolute", "outside", "loop"] {
            assert!(
                matches!(missing(place.path(), kind), NoProgram::NotThere(_)),
                "{kind}"
            );
        }
    }
}
