//! Checks the configured database back-ends: only TimescaleDB, or plain PostgreSQL under that name, is supported.

use yaml_rust2::{Yaml, YamlLoader};

use super::EnvironmentError;

/// Name of the supported back-end, compared without case.
const TIMESCALE: &str = "timescale";

/// Checks the default back-end and those of the tenants. A default in the environment overrides that of the file, which
/// is not checked then.
pub(super) fn check(
    default: Option<&str>,
    config: Option<&str>,
    file: impl Fn(&str) -> std::io::Result<String>,
) -> Result<(), EnvironmentError> {
    if let Some(default) = default {
        check_backend(default, "the default")
            .map_err(|reason| environment_error("QL_DEFAULT_DB", reason))?;
    }
    let Some(path) = config else {
        return Ok(());
    };
    let text = file(path)
        .map_err(|error| environment_error("QL_CONFIG", format!("cannot read {path}: {error}")))?;
    check_file(&text, default.is_some())
        .map_err(|reason| environment_error("QL_CONFIG", format!("{path}: {reason}")))
}

fn check_file(text: &str, is_default_known: bool) -> Result<(), String> {
    let documents =
        YamlLoader::load_from_str(text).map_err(|error| format!("is not YAML: {error}"))?;
    // An empty file configures nothing.
    let Some(document) = documents.first().filter(|it| !it.is_null()) else {
        return Ok(());
    };
    if document.as_hash().is_none() {
        return Err("is not a mapping with `tenants` and `default-backend`".to_owned());
    }
    if !is_default_known {
        check_entry(&document["default-backend"], "the default-backend")?;
    }
    match &document["tenants"] {
        Yaml::BadValue | Yaml::Null => Ok(()),
        Yaml::Hash(tenants) => tenants.iter().try_for_each(|(name, tenant)| {
            let name = name.as_str().unwrap_or("?");
            if tenant.as_hash().is_none() && !tenant.is_null() {
                return Err(format!("tenant {name} is not a mapping with `backend`"));
            }
            check_entry(&tenant["backend"], &format!("the backend of tenant {name}"))
        }),
        _ => Err("its `tenants` are not a mapping".to_owned()),
    }
}

/// Checks a back-end in the file. A missing entry means the default.
fn check_entry(entry: &Yaml, what: &str) -> Result<(), String> {
    match entry {
        Yaml::BadValue | Yaml::Null => Ok(()),
        Yaml::String(name) => check_backend(name, what),
        _ => Err(format!("{what} is not the name of a back-end")),
    }
}

fn check_backend(name: &str, what: &str) -> Result<(), String> {
    if name.trim().eq_ignore_ascii_case(TIMESCALE) {
        Ok(())
    } else {
        Err(format!(
            "{what} is {name:?}, but only {TIMESCALE} is supported"
        ))
    }
}

fn environment_error(variable: &'static str, reason: String) -> EnvironmentError {
    EnvironmentError { variable, reason }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::check;

    fn outcome(default: Option<&str>, text: &str) -> Result<(), String> {
        let file = |path: &str| {
            assert_eq!(path, "ql.yml");
            Ok(text.to_owned())
        };
        check(default, Some("ql.yml"), file).map_err(|error| error.to_string())
    }

    #[test]
    fn timescale_is_supported_in_any_case() {
        for default in [
            None,
            Some("timescale"),
            Some("Timescale"),
            Some("TIMESCALE"),
        ] {
            assert_eq!(
                check(default, None, |_| Err(io::ErrorKind::NotFound.into())),
                Ok(())
            );
        }
        for text in [
            "",
            "---\n",
            "# nothing\n",
            "default-backend: Timescale\n",
            "tenants:\n",
            "tenants:\n  a:\n    backend: Timescale\n  b:\n    backend: TIMESCALE\n  c: {}\n  d:\n",
            "tenants: {a: {backend: timescale, other: 5}}\nmore: [1]\n",
        ] {
            assert_eq!(outcome(None, text), Ok(()), "{text}");
        }
    }

    #[test]
    fn crate_db_is_refused_wherever_it_is_configured() {
        for default in ["crate", "Crate", "CRATE", "mysql"] {
            let error = check(Some(default), None, |_| Ok(String::new()))
                .expect_err("the input is invalid");
            assert_eq!(error.variable, "QL_DEFAULT_DB");
        }
        let error = outcome(None, "default-backend: Crate\n").expect_err("the input is invalid");
        assert_eq!(
            error,
            "QL_CONFIG: ql.yml: the default-backend is \"Crate\", but only timescale is supported"
        );
        let tenant = "tenants:\n  a:\n    backend: Timescale\n  b:\n    backend: crate\n";
        for default in [None, Some("timescale")] {
            let error = outcome(default, tenant).expect_err("the input is invalid");
            assert!(
                error.contains("the backend of tenant b is \"crate\""),
                "{error}"
            );
        }
    }

    #[test]
    fn a_default_in_the_environment_overrides_that_of_the_file() {
        assert_eq!(
            outcome(Some("timescale"), "default-backend: Crate\n"),
            Ok(())
        );
    }

    #[test]
    fn an_invalid_file_is_refused() {
        for text in [
            "a: [",
            "- a\n",
            "text",
            "tenants: [a]\n",
            "tenants: {a: crate}\n",
            "default-backend: 5\n",
            "tenants: {a: {backend: [Timescale]}}\n",
        ] {
            assert!(outcome(None, text).is_err(), "{text}");
        }
        let error = check(None, Some("x"), |_| Err(io::ErrorKind::NotFound.into()));
        let error = error.expect_err("the input is invalid").to_string();
        assert!(error.starts_with("QL_CONFIG: cannot read x: "), "{error}");
    }
}
