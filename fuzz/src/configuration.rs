//! Configuration: any text is accepted, or refused with a reason, in bounded time.
//!
//! The first byte chooses between the server's file, one of the server's settings as a flag, and the settings of a worker's
//! programs.

use std::io::{Seek as _, SeekFrom, Write as _};

use ganger_server::{ConfigError, Flag, keys};
use ganger_worker::Handlers;

/// Parses the text after the first byte.
///
/// # Panics
/// If a refusal has no reason.
pub fn run(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else {
        return;
    };
    match choice % 3 {
        0 => server_file(text),
        1 => server_flag(text),
        _ => {
            if let Err(reason) = Handlers::parse(&String::from_utf8_lossy(text)) {
                assert!(!reason.is_empty(), "a refusal without a reason");
            }
        }
    }
}

fn server_file(text: &[u8]) {
    thread_local! {
        static FILE: tempfile::NamedTempFile = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    }
    FILE.with(|named| {
        let mut file = named.as_file();
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(text));
        written.expect("a temporary file can be written");
        expect_reason(ganger_server::load(Some(named.path()), [], &[]));
    });
}

/// Parses one setting. The first byte chooses it, the rest is its value.
fn server_flag(text: &[u8]) {
    let Some((which, value)) = text.split_first() else {
        return;
    };
    let which = usize::from(*which) % keys().count();
    let key = keys().nth(which).expect("the index is in range");
    let value = String::from_utf8_lossy(value).into_owned();
    expect_reason(ganger_server::load(
        None,
        [],
        &[Flag {
            key: key.name,
            flag: "--set",
            value,
        }],
    ));
}

fn expect_reason<T>(read: Result<T, ConfigError>) {
    if let Err(error) = read {
        assert!(
            !error.place.is_empty() && !error.reason.is_empty(),
            "a refusal without place or reason: {error}"
        );
    }
}
