//! Reads the environment variables of QuantumLeap.
//!
//! A blank variable counts as unset. An invalid number means the default, as in QuantumLeap, and is not an error.

mod backend;
mod size;

use std::str::FromStr;
use std::time::Duration;

/// Default of `WQ_FAILURE_TTL` in seconds: a week.
const KEEP_FAILED_SECONDS: i64 = 604_800;
/// Default of `WQ_SUCCESS_TTL` in seconds: a day.
const KEEP_SUCCEEDED_SECONDS: i64 = 86_400;
/// The default of `QL_RETRY_BASE`.
const RETRY_BASE: Duration = Duration::from_secs(20);

/// Settings from QuantumLeap's variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `WQ_OFFLOAD_WORK`: queue the inserts instead of inserting within the request. Default: false.
    pub offload: bool,
    /// `WQ_RECOVER_FROM_ENQUEUEING_FAILURE`: insert within the request if the queue does not accept the task. Default:
    /// false.
    pub recover: bool,
    /// `WQ_MAX_RETRIES`: number of retries after the first attempt. Default: 0.
    pub retries_max: u32,
    /// `WQ_FAILURE_TTL`: how long a failed task is kept; `None` means forever. Default: a week.
    pub keep_failed: Option<Duration>,
    /// `WQ_SUCCESS_TTL`: how long a successful task is kept; `None` means forever. Default: a day.
    pub keep_succeeded: Option<Duration>,
    /// `QL_RETRY_BASE`: the factor c of the backoff c*2^n. Default: 20 s.
    pub retry_base: Duration,
    /// `WQ_WORKERS`: number of workers in a pool; `None` if unset or not positive.
    pub workers: Option<usize>,
    /// `POSTGRES_*`: address and login of the database.
    pub database: Database,
    /// `KEEP_RAW_ENTITY`: also store every entity as received. Default: false.
    pub keep_raw: bool,
    /// `INSERT_MAX_SIZE`: maximum data of an insert in bytes; `None` for no limit.
    pub insert_bytes_max: Option<u64>,
    /// `LOGLEVEL` as a level of ganger: `debug`, `info`, `warn`, `error`; `None` if unset.
    pub log_level: Option<&'static str>,
}

/// Address and login of the database.
#[derive(Clone, PartialEq, Eq)]
pub struct Database {
    /// `POSTGRES_HOST`: host of the database. Default: 0.0.0.0.
    pub host: String,
    /// `POSTGRES_PORT`: port of the database. Default: 5432.
    pub port: u16,
    /// `POSTGRES_DB_NAME`: name of the database. Default: `quantumleap`.
    pub name: String,
    /// `POSTGRES_DB_USER`: user of the database. Default: `quantumleap`.
    pub user: String,
    /// `POSTGRES_DB_PASS`: password of the user, never shown. Default: `*`.
    pub password: String,
    /// `POSTGRES_USE_SSL`: connect with TLS. Default: false.
    pub ssl: bool,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}:{}/{}", self.user, self.host, self.port, self.name)
    }
}

/// A setting is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {reason}")]
pub struct EnvironmentError {
    /// Name of the environment variable.
    pub variable: &'static str,
    /// The reason and a remedy.
    pub reason: String,
}

/// Reads the settings. `variable` returns the value of a variable, `file` the text of the file that `QL_CONFIG` names.
///
/// # Errors
/// If geocoding or a back-end other than TimescaleDB is configured, or the file that `QL_CONFIG` names cannot be read.
pub fn read(
    variable: impl Fn(&str) -> Option<String>,
    file: impl Fn(&str) -> std::io::Result<String>,
) -> Result<Environment, EnvironmentError> {
    let variables = Variables(&variable);
    if variables.flag("USE_GEOCODING") {
        return Err(EnvironmentError {
            variable: "USE_GEOCODING",
            reason: "geocoding is not supported: unset it, or send entities with a location".into(),
        });
    }
    backend::check(
        variables.text("QL_DEFAULT_DB").as_deref(),
        variables.text("QL_CONFIG").as_deref(),
        file,
    )?;
    Ok(Environment {
        offload: variables.flag("WQ_OFFLOAD_WORK"),
        recover: variables.flag("WQ_RECOVER_FROM_ENQUEUEING_FAILURE"),
        retries_max: variables.retries_max(),
        keep_failed: variables.time_to_live("WQ_FAILURE_TTL", KEEP_FAILED_SECONDS),
        keep_succeeded: variables.time_to_live("WQ_SUCCESS_TTL", KEEP_SUCCEEDED_SECONDS),
        retry_base: variables.retry_base(),
        workers: variables.number("WQ_WORKERS").filter(|count| *count > 0),
        database: variables.database(),
        keep_raw: variables.flag("KEEP_RAW_ENTITY"),
        insert_bytes_max: variables
            .text("INSERT_MAX_SIZE")
            .and_then(|text| size::parse_bytes(&text)),
        log_level: variables.log_level(),
    })
}

/// Access to the variables by type.
struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    /// Returns the unchanged value; `None` if it is blank.
    fn exact(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|text| !text.trim().is_empty())
    }

    /// Returns the value without surrounding blanks; `None` if it is blank.
    fn text(&self, name: &str) -> Option<String> {
        self.exact(name).map(|text| text.trim().to_owned())
    }

    fn flag(&self, name: &str) -> bool {
        let text = self.text(name).unwrap_or_default().to_ascii_lowercase();
        matches!(text.as_str(), "true" | "yes" | "1" | "t" | "y")
    }

    fn number<N: FromStr>(&self, name: &str) -> Option<N> {
        self.text(name)?.parse().ok()
    }

    /// Returns 0 for a negative or invalid number.
    fn retries_max(&self) -> u32 {
        let retries: i64 = self.number("WQ_MAX_RETRIES").unwrap_or(0);
        u32::try_from(retries.max(0)).unwrap_or(u32::MAX)
    }

    /// Returns `None`, which means forever, for a negative number.
    fn time_to_live(&self, name: &str, default: i64) -> Option<Duration> {
        let seconds = self.number(name).unwrap_or(default);
        u64::try_from(seconds).ok().map(Duration::from_secs)
    }

    fn retry_base(&self) -> Duration {
        let seconds: Option<f64> = self.number("QL_RETRY_BASE");
        seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .unwrap_or(RETRY_BASE)
    }

    fn database(&self) -> Database {
        let text = |name, default: &str| self.text(name).unwrap_or_else(|| default.to_owned());
        Database {
            host: text("POSTGRES_HOST", "0.0.0.0"),
            port: self.number("POSTGRES_PORT").unwrap_or(5_432),
            name: text("POSTGRES_DB_NAME", "quantumleap"),
            user: text("POSTGRES_DB_USER", "quantumleap"),
            // A password may begin or end with blanks.
            password: self
                .exact("POSTGRES_DB_PASS")
                .unwrap_or_else(|| "*".to_owned()),
            ssl: self.flag("POSTGRES_USE_SSL"),
        }
    }

    fn log_level(&self) -> Option<&'static str> {
        let level = self.text("LOGLEVEL")?.to_ascii_uppercase();
        Some(match level.as_str() {
            "DEBUG" => "debug",
            "WARNING" => "warn",
            "ERROR" => "error",
            _ => "info",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use super::{Environment, EnvironmentError};

    fn read(variables: &[(&str, &str)]) -> Result<Environment, EnvironmentError> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        super::read(variable, |_| Err(io::ErrorKind::NotFound.into()))
    }

    fn one(name: &str, value: &str) -> Environment {
        read(&[(name, value)]).expect("the environment should be valid")
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let environment = read(&[]).expect("the environment should be valid");
        assert!(!environment.offload && !environment.recover && !environment.keep_raw);
        assert_eq!(environment.retries_max, 0);
        assert_eq!(environment.keep_failed, Some(Duration::from_secs(604_800)));
        assert_eq!(
            environment.keep_succeeded,
            Some(Duration::from_secs(86_400))
        );
        assert_eq!(environment.retry_base, Duration::from_secs(20));
        assert_eq!(environment.workers, None);
        assert_eq!(environment.insert_bytes_max, None);
        assert_eq!(environment.log_level, None);
        let database = environment.database;
        assert_eq!(
            format!("{database:?}"),
            "quantumleap@0.0.0.0:5432/quantumleap"
        );
        assert_eq!((database.password.as_str(), database.ssl), ("*", false));
    }

    #[test]
    fn blank_and_invalid_values_mean_the_default() {
        let default = read(&[]).expect("the environment should be valid");
        for name in [
            "WQ_OFFLOAD_WORK",
            "WQ_MAX_RETRIES",
            "WQ_FAILURE_TTL",
            "WQ_SUCCESS_TTL",
            "WQ_WORKERS",
            "QL_RETRY_BASE",
            "POSTGRES_PORT",
            "POSTGRES_USE_SSL",
            "KEEP_RAW_ENTITY",
            "INSERT_MAX_SIZE",
            "USE_GEOCODING",
        ] {
            for value in ["", "  ", "nonsense", "1.5.1", "-"] {
                assert_eq!(one(name, value), default, "{name} {value}");
            }
        }
        for name in [
            "POSTGRES_HOST",
            "POSTGRES_DB_PASS",
            "QL_DEFAULT_DB",
            "QL_CONFIG",
            "LOGLEVEL",
        ] {
            assert_eq!(one(name, "  "), default, "{name}");
        }
        assert_eq!(one("POSTGRES_PORT", "65536"), default);
        assert_eq!(one("QL_RETRY_BASE", "-1"), default);
        assert_eq!(one("WQ_WORKERS", "0"), default);
        assert_eq!(one("WQ_WORKERS", "-3"), default);
    }

    #[test]
    fn flags_are_true_for_a_few_words_in_any_case() {
        for yes in ["true", "Yes", " 1 ", "T", "y", "TRUE"] {
            assert!(one("WQ_OFFLOAD_WORK", yes).offload, "{yes}");
            assert!(one("WQ_RECOVER_FROM_ENQUEUEING_FAILURE", yes).recover);
            assert!(one("KEEP_RAW_ENTITY", yes).keep_raw);
            assert!(one("POSTGRES_USE_SSL", yes).database.ssl);
        }
        for no in ["false", "no", "0", "on", "2", "truee"] {
            assert!(!one("WQ_OFFLOAD_WORK", no).offload, "{no}");
        }
    }

    #[test]
    fn numbers_are_read() {
        assert_eq!(one("WQ_MAX_RETRIES", " 5 ").retries_max, 5);
        assert_eq!(one("WQ_MAX_RETRIES", "-5").retries_max, 0);
        assert_eq!(one("WQ_MAX_RETRIES", "9999999999").retries_max, u32::MAX);
        assert_eq!(one("WQ_WORKERS", "4").workers, Some(4));
        assert_eq!(one("POSTGRES_PORT", "5433").database.port, 5433);
        assert_eq!(
            one("QL_RETRY_BASE", "0.25").retry_base,
            Duration::from_millis(250)
        );
        assert_eq!(one("QL_RETRY_BASE", "3").retry_base, Duration::from_secs(3));
    }

    #[test]
    fn a_negative_time_to_live_means_forever_and_zero_means_not_at_all() {
        for (value, kept) in [
            ("-1", None),
            ("-604800", None),
            ("0", Some(Duration::ZERO)),
            ("60", Some(Duration::from_secs(60))),
        ] {
            assert_eq!(one("WQ_FAILURE_TTL", value).keep_failed, kept);
            assert_eq!(one("WQ_SUCCESS_TTL", value).keep_succeeded, kept);
        }
    }

    #[test]
    fn log_levels_are_translated_and_unknown_ones_are_info() {
        for (value, level) in [
            ("DEBUG", "debug"),
            ("info", "info"),
            (" Warning ", "warn"),
            ("ERROR", "error"),
            ("CRITICAL", "info"),
        ] {
            assert_eq!(one("LOGLEVEL", value).log_level, Some(level));
        }
    }

    #[test]
    fn the_database_comes_from_its_variables_and_debug_hides_the_password() {
        let environment = read(&[
            ("POSTGRES_HOST", " db "),
            ("POSTGRES_DB_NAME", "ql"),
            ("POSTGRES_DB_USER", "me"),
            ("POSTGRES_DB_PASS", " secret "),
        ])
        .expect("the environment should be valid");
        assert_eq!(environment.database.password, " secret ");
        let shown = format!("{environment:?}");
        assert!(
            shown.contains("me@db:5432/ql") && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn geocoding_is_refused_and_variables_without_effect_are_not() {
        let error = read(&[("USE_GEOCODING", "True")]).expect_err("the input is invalid");
        assert_eq!(error.variable, "USE_GEOCODING");
        let taken = [
            ("CACHE_GEOCODING", "true"),
            ("CACHE_QUERIES", "true"),
            ("REDIS_HOST", "redis"),
            ("WORKERS", "x"),
        ];
        assert_eq!(read(&taken), read(&[]));
    }
}
