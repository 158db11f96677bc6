//! The address of the Redis to import from.

use std::fmt;

/// Port of an address that names none.
const PORT: u16 = 6379;

/// Host, port, database and credentials of a Redis.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    /// Number of the database. Default 0.
    pub(super) database: u32,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl Address {
    /// Reads an address of the form `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix("redis://") else {
            return Err(if text.starts_with("rediss://") {
                "rediss:// is not supported: run a TLS tunnel such as stunnel on this machine, and use redis://"
                    .to_owned()
            } else {
                "an address begins with redis://, such as redis://127.0.0.1:6379/0".to_owned()
            });
        };
        let (place, database) = match rest.split_once('/') {
            Some((place, "")) => (place, 0),
            Some((place, number)) => {
                let read = number.parse();
                let wrong =
                    |_| format!("{number:?} is not the number of a database, such as 0 or 3");
                (place, read.map_err(wrong)?)
            }
            None => (rest, 0),
        };
        let (login, place) = match place.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, place),
        };
        let (user, password) = match login.map(|login| login.split_once(':')) {
            Some(Some((user, password))) => (decoded(user)?, Some(decoded(password)?)),
            Some(None) => {
                return Err("write a password as :PASSWORD@ or USER:PASSWORD@".to_owned());
            }
            None => (String::new(), None),
        };
        let (host, port) = host_and_port(place)?;
        Ok(Self {
            host,
            port,
            database,
            user: (!user.is_empty()).then_some(user),
            password,
        })
    }
}

fn host_and_port(place: &str) -> Result<(String, u16), String> {
    let (host, port) = match place.rsplit_once(':') {
        // An IPv6 address has colons of its own.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let port = port.map(|port| port.parse().map_err(|_| format!("{port:?} is not a port")));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err("the address has no host".to_owned());
    }
    Ok((host.to_owned(), port.transpose()?.unwrap_or(PORT)))
}

/// Decodes `%XX` in a user or password.
fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).and_then(|it| std::str::from_utf8(it).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("write % in a user or password as %25")?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| "user and password must be UTF-8".to_owned())
}

/// Shows the address without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        let database = self.database;
        if host.contains(':') {
            write!(f, "redis://[{host}]:{port}/{database}")
        } else {
            write!(f, "redis://{host}:{port}/{database}")
        }
    }
}

/// Shows the address without its password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    fn read(text: &str) -> Result<(String, Option<String>, Option<String>), String> {
        let address = Address::read(text)?;
        Ok((address.to_string(), address.user, address.password))
    }

    #[test]
    fn an_address_is_read_with_its_defaults() {
        let some = |text: &str| Some(text.to_owned());
        for (text, shown, user, password) in [
            ("redis://h", "redis://h:6379/0", None, None),
            ("redis://h:1/", "redis://h:1/0", None, None),
            ("redis://h:1/15", "redis://h:1/15", None, None),
            ("redis://:p@h", "redis://h:6379/0", None, some("p")),
            (
                "redis://u:p%40%2fx@h/2",
                "redis://h:6379/2",
                some("u"),
                some("p@/x"),
            ),
            ("redis://[::1]:7/1", "redis://[::1]:7/1", None, None),
            ("redis://[::1]", "redis://[::1]:6379/0", None, None),
        ] {
            assert_eq!(read(text), Ok((shown.to_owned(), user, password)), "{text}");
        }
    }

    #[test]
    fn a_malformed_address_is_refused_with_the_reason() {
        for (text, because) in [
            ("h:6379", "begins with redis://"),
            ("rediss://h", "not supported"),
            ("redis://h/x", "not the number of a database"),
            ("redis://h:x", "not a port"),
            ("redis://", "no host"),
            ("redis://u@h", "USER:PASSWORD@"),
            ("redis://:%@h", "%25"),
        ] {
            let error = Address::read(text).expect_err(text);
            assert!(error.contains(because), "{text}: {error}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        let address = Address::read("redis://u:secret@h").expect("an address");
        assert!(!format!("{address} {address:?}").contains("secret"));
    }
}
