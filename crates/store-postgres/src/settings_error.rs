//! Settings that cannot be used.

/// Settings that cannot be used. No message shows the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The address has the wrong form.
    #[error(
        "the address of the database has not the form postgres://user@host:port/database?sslmode=verify-full: {0}"
    )]
    Form(String),
    /// A part is missing that has no default.
    #[error("the address of the database names no {0}: write postgres://user@host:port/database")]
    Missing(&'static str),
    /// `sslmode` of another value.
    #[error(
        "sslmode={0} is not possible: write verify-full, or disable for a network that is safe"
    )]
    SslMode(String),
    /// A certificate without its key, or the other way round.
    #[error("the address of the database names {0} without {1}: name both, or neither")]
    Half(&'static str, &'static str),
    /// A file that cannot be used.
    #[error("the file {path} cannot be used for connections to the database: {reason}")]
    File {
        /// Path of the file.
        path: String,
        /// Reason for which it cannot be used.
        reason: String,
    },
    /// The environment variable with the password is missing.
    #[error("the environment variable {0} with the password of the database is not set")]
    Environment(String),
    /// TLS cannot be used.
    #[error("TLS to the database cannot be used: {0}")]
    Tls(String),
    /// A number is outside of its range.
    #[error("store.readers is {0}: at least 1 connection must read")]
    Readers(usize),
}
