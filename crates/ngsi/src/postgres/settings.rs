//! Settings of inserts, and parsing of database URLs.

use crate::environment::Database;
use tokio_postgres::config::Host;

/// Settings of inserts into PostgreSQL.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address and login of the database.
    pub database: Database,
    /// Whether to store the original entity in `__original_ngsi_entity__`.
    pub keep_raw: bool,
    /// Maximum data of one statement in bytes; `None` for no limit.
    pub insert_bytes_max: Option<u64>,
}

/// A database URL cannot be used. The error never contains the URL, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The text is not a database URL.
    #[error(
        "the database URL does not have the form postgres://user:password@host:port/database?sslmode=require"
    )]
    Form,
    /// A part without a default is missing.
    #[error("the database URL has no {0}")]
    Missing(&'static str),
    /// The URL names several hosts.
    #[error("the database URL names {0} hosts, but only one is supported")]
    Hosts(usize),
    /// `sslmode` has an unsupported value.
    #[error(
        "sslmode={0} is not supported: use disable, or require, which also verifies the server's certificate"
    )]
    SslMode(String),
    /// The URL has an unsupported parameter.
    #[error("the database URL has the parameter {0}, but only sslmode is supported")]
    Parameter(String),
}

impl Settings {
    /// Parses a URL, `postgres://user:password@host:port/database?sslmode=require`, into settings without raw entities and
    /// without a limit of statements. Defaults: port 5432, the database with the user's name, and `sslmode=disable`. With
    /// `require`, `verify-ca` and `verify-full` alike the session is encrypted and the server's certificate is verified,
    /// with the authorities of the system or of the file that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// If the text is not such a URL, or uses an unsupported feature.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| address.starts_with(scheme))
        {
            return Err(UrlError::Form);
        }
        let ssl = read_parameters(parameters)?;
        let config: tokio_postgres::Config = address.parse().map_err(|_| UrlError::Form)?;

        let host = match config.get_hosts() {
            [] => return Err(UrlError::Missing("host")),
            [Host::Tcp(host)] => host.clone(),
            #[cfg(unix)]
            [Host::Unix(directory)] => directory.to_string_lossy().into_owned(),
            hosts => return Err(UrlError::Hosts(hosts.len())),
        };
        let user = config.get_user().ok_or(UrlError::Missing("user"))?;
        let password = config.get_password().unwrap_or_default();
        let database = Database {
            host,
            port: config.get_ports().first().copied().unwrap_or(5432),
            name: config.get_dbname().unwrap_or(user).to_owned(),
            user: user.to_owned(),
            password: String::from_utf8(password.to_vec()).map_err(|_| UrlError::Form)?,
            ssl,
        };
        Ok(Self {
            database,
            keep_raw: false,
            insert_bytes_max: None,
        })
    }
}

/// Reads the parameters; returns whether TLS is enabled.
fn read_parameters(parameters: &str) -> Result<bool, UrlError> {
    let mut ssl = false;
    for parameter in parameters.split('&').filter(|text| !text.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        ssl = match (name, value) {
            ("sslmode", "disable") => false,
            ("sslmode", "require" | "verify-ca" | "verify-full") => true,
            ("sslmode", _) => return Err(UrlError::SslMode(value.to_owned())),
            _ => return Err(UrlError::Parameter(name.to_owned())),
        };
    }
    Ok(ssl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_the_database() {
        let url = "postgres://ann:s%40cret%2f@db.example:6000/things?sslmode=require";
        let database = Settings::from_url(url).expect("a complete URL").database;
        assert_eq!(
            database,
            Database {
                host: "db.example".to_owned(),
                port: 6000,
                name: "things".to_owned(),
                user: "ann".to_owned(),
                password: "s@cret/".to_owned(),
                ssl: true,
            }
        );
    }

    #[test]
    fn missing_parts_have_defaults() {
        let settings = Settings::from_url("postgresql://ann@[::1]").expect("a valid URL");
        let database = settings.database;
        assert_eq!(database.host, "::1");
        assert_eq!(database.port, 5432);
        assert_eq!(database.name, "ann");
        assert_eq!(database.password, "");
        assert!(!database.ssl);
    }

    #[test]
    fn an_unusable_url_is_refused_without_showing_the_password() {
        for (url, expected) in [
            ("mysql://ann:geheim@h/d", UrlError::Form),
            ("ann:geheim@h/d", UrlError::Form),
            ("postgres://ann:ge:heim@h:port/d", UrlError::Form),
            ("postgres://ann:geheim@", UrlError::Missing("host")),
            ("postgres://h/d", UrlError::Missing("user")),
            ("postgres://ann:geheim@a,b/d", UrlError::Hosts(2)),
            (
                "postgres://ann:geheim@h/d?sslmode=prefer",
                UrlError::SslMode("prefer".to_owned()),
            ),
            (
                "postgres://ann:geheim@h/d?sslmode=require&sslrootcert=x",
                UrlError::Parameter("sslrootcert".to_owned()),
            ),
        ] {
            let error = Settings::from_url(url).expect_err(url);
            assert_eq!(error, expected, "{url}");
            assert!(!format!("{error} {error:?}").contains("heim"), "{url}");
        }
    }

    #[test]
    fn debug_does_not_show_the_password() {
        let settings = Settings::from_url("postgres://ann:geheim@h/d").expect("a complete URL");
        assert!(!format!("{settings:?}").contains("geheim"));
    }
}
