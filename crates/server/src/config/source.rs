//! Reads settings from their sources; a later source overrides an earlier one.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::keys::VARIABLE_PREFIX;
use super::optional::refuse_missing;
use crate::config::{Config, ConfigError, Key, find_key, keys};

/// The only setting that is a list of tables.
const ALERTS: &str = "alerts";

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Name of the setting, as in [`keys`].
    pub key: &'static str,
    /// The flag as the user wrote it, such as `--addr`.
    pub flag: &'static str,
    /// The value as the user wrote it.
    pub value: String,
}

/// Loads the settings from the file, the environment, and the flags, in this order.
///
/// Without `file`, `GANGER_CONFIG` names the file. Other variables are ignored.
///
/// # Errors
/// If a source cannot be read, names an unknown setting, or gives a value that cannot be used.
///
/// # Panics
/// If a flag names an unknown setting: a bug of the program, not an error of the user.
pub fn load(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[Flag],
) -> Result<Config, ConfigError> {
    let variables: Vec<_> = environment.into_iter().collect();
    let named = variables
        .iter()
        .find(|(name, _)| name == "GANGER_CONFIG")
        .map(|(_, value)| value);
    let mut config = Config::default();
    let mut given = SetKeys::new();
    if let Some(file) = file.or(named.map(Path::new)) {
        from_file(&mut config, &mut given, file)?;
    }
    from_environment(&mut config, &mut given, &variables)?;
    let is_given = |name: &str| flags.iter().any(|flag| flag.key == name);
    both_shards("--shards", is_given)?;
    for flag in flags {
        let key = find_key(flag.key).expect("flags name settings of the table");
        if key.is_secret {
            return Err(fault(
                flag.flag,
                format!(
                    "a secret must not be on the command line: use {} or {}_file",
                    key.variable(),
                    key.name
                ),
            ));
        }
        set(&mut config, &mut given, key, &flag.value, || {
            flag.flag.to_owned()
        })?;
    }
    #[cfg(feature = "quantumleap")]
    super::quantumleap::read_variables(&mut config, &given, &variables)?;
    Ok(config)
}

/// Names of the settings that a source has set.
pub(super) type SetKeys = BTreeSet<&'static str>;

fn set(
    config: &mut Config,
    given: &mut SetKeys,
    key: &'static Key,
    value: &str,
    place: impl FnOnce() -> String,
) -> Result<(), ConfigError> {
    given.insert(key.name);
    key.apply(config, value).map_err(|reason| ConfigError {
        place: place(),
        reason: format!("{} {reason}", key.name),
    })
}

pub(super) fn fault(place: impl Into<String>, reason: impl Into<String>) -> ConfigError {
    ConfigError {
        place: place.into(),
        reason: reason.into(),
    }
}

fn from_environment(
    config: &mut Config,
    given: &mut SetKeys,
    variables: &[(OsString, OsString)],
) -> Result<(), ConfigError> {
    both_shards("GANGER_SHARDS", |name| {
        let variable = find_key(name).map(Key::variable);
        variables
            .iter()
            .any(|(known, _)| variable.as_ref().is_ok_and(|name| *known == **name))
    })?;
    refuse_missing_parts(variables)?;
    for key in keys() {
        let name = key.variable();
        let Some((_, value)) = variables.iter().find(|(known, _)| *known == *name) else {
            continue;
        };
        let value = value.to_str().ok_or_else(|| fault(&name, "is not UTF-8"))?;
        set(config, given, key, value, || name.clone())?;
    }
    Ok(())
}

/// Refuses variables that are settings of a part that this build lacks.
fn refuse_missing_parts(variables: &[(OsString, OsString)]) -> Result<(), ConfigError> {
    for (name, _) in variables {
        let Some(name) = name.to_str() else { continue };
        let setting = name.strip_prefix(VARIABLE_PREFIX).map(str::to_lowercase);
        if let Some(reason) = setting.and_then(|setting| refuse_missing(&setting)) {
            return Err(fault(name, reason));
        }
    }
    Ok(())
}

fn from_file(config: &mut Config, given: &mut SetKeys, file: &Path) -> Result<(), ConfigError> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| fault(&shown, format!("cannot be read: {error}")))?;
    let table = DeTable::parse(&text).map_err(|error| {
        let line = error.span().map_or(0, |span| line_of(&text, span.start));
        fault(format!("{shown} line {line}"), error.message())
    })?;
    for (key, value) in table.get_ref() {
        if key.get_ref() == ALERTS {
            let place = |at| format!("{shown} line {}", line_of(&text, at));
            config.alerts = super::alerts::read(value.get_ref(), key.span().start, place)?;
        }
    }
    let mut found = Vec::new();
    flatten("", table.get_ref(), &mut found);
    found.retain(|setting| setting.name != ALERTS);
    // data_dir applies only if db is not set, whichever comes first in the file.
    found.sort_by_key(|setting| setting.name == "db");
    both_shards(&shown, |name| {
        found.iter().any(|setting| setting.name == name)
    })?;
    for setting in found {
        let place = || format!("{shown} line {}", line_of(&text, setting.at));
        let key = find_key(&setting.name).map_err(|reason| fault(place(), reason))?;
        if key.is_secret {
            return Err(fault(
                place(),
                format!(
                    "a secret must not be in this file: use {} or {}_file",
                    key.variable(),
                    key.name
                ),
            ));
        }
        let value = setting.value.ok_or_else(|| {
            fault(
                place(),
                format!("{} must be a text, a number, true or false", setting.name),
            )
        })?;
        set(config, given, key, &value, place)?;
    }
    Ok(())
}

/// Refuses a source that sets both the single shard and several shards.
fn both_shards(place: &str, is_given: impl Fn(&str) -> bool) -> Result<(), ConfigError> {
    if is_given("shard") && is_given("shards") {
        let reason = "shard and shards are both set: shard names the one of a process, shards several; give one of them";
        return Err(fault(place, reason));
    }
    Ok(())
}

/// A setting from a file, with its line.
struct Setting {
    name: String,
    value: Option<String>,
    at: usize,
}

fn flatten(section: &str, table: &DeTable<'_>, found: &mut Vec<Setting>) {
    for (key, value) in table {
        let name = format!("{section}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => flatten(&format!("{name}."), inner, found),
            value => {
                let value = plain(value);
                found.push(Setting {
                    name,
                    value,
                    at: key.span().start,
                });
            }
        }
    }
}

/// Returns a value as the text that the table of settings reads; `None` for a table or list of tables.
pub(super) fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Array(items) => {
            let items: Option<Vec<_>> = items
                .iter()
                .map(|item| match item.get_ref() {
                    DeValue::String(text) => Some(text.to_string()),
                    _ => None,
                })
                .collect();
            items.map(|items| items.join(","))
        }
        _ => None,
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("writable");
        file
    }

    fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        pairs
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect()
    }

    #[test]
    fn later_sources_override_earlier_ones() {
        let file = file(
            "addr = \":1\"\nshard = \"a\"\nhosts = [\"x\", \"y\"]\n[limits]\nconnections = 7\n",
        );
        let environment = variables(&[
            ("GANGER_ADDR", ":2"),
            ("GANGER_SHARD", "b"),
            ("GANGER_URL", "x"),
        ]);
        let flags = [Flag {
            key: "addr",
            flag: "--addr",
            value: ":3".to_owned(),
        }];
        let config = load(Some(file.path()), environment, &flags).expect("good settings");
        assert_eq!(config.addr, ":3");
        assert_eq!(config.shard.as_str(), "b");
        assert_eq!(config.hosts, ["x", "y"]);
        assert_eq!(config.limits.connections, 7);
    }

    #[test]
    fn errors_name_source_and_setting() {
        for (text, line, words) in [
            (
                "addr = \":1\"\nshart = \"a\"\n",
                2,
                "\"shart\" is not a setting",
            ),
            (
                "\n\n[limits]\nconnections = \"many\"\n",
                4,
                "limits.connections must be a whole number",
            ),
            ("[limits]\nconnections = 0\n", 2, "at least 1"),
            ("connections = 3\n", 1, "did you mean limits.connections?"),
            ("token = \"0123456789abcdef\"\n", 1, "secret"),
            ("insecure = 1.5\n", 1, "insecure must be"),
            ("addr = \n", 1, ""),
            ("log = \"loud,,=\"\n", 1, "log"),
        ] {
            let file = file(text);
            let error = load(Some(file.path()), variables(&[]), &[]).expect_err(text);
            assert!(
                error.place.ends_with(&format!("line {line}")),
                "{text}: {error}"
            );
            assert!(error.reason.contains(words), "{text}: {error}");
        }
        let error =
            load(None, variables(&[("GANGER_INSECURE", "maybe")]), &[]).expect_err("refused");
        assert_eq!(error.place, "GANGER_INSECURE");
        let error = load(Some(Path::new("/nowhere/ganger.toml")), variables(&[]), &[])
            .expect_err("refused");
        assert!(error.reason.contains("cannot be read"));
    }

    #[cfg(feature = "quantumleap")]
    #[test]
    fn the_variables_of_quantumleap_are_read_if_its_port_is_configured() {
        let environment = |more: &[(&str, &str)]| {
            let own = [("WQ_MAX_RETRIES", "3"), ("LOGLEVEL", "DEBUG")];
            variables(&[&own, more].concat())
        };
        let without = load(None, environment(&[("USE_GEOCODING", "true")]), &[]);
        let without = without.expect("they are ignored");
        assert_eq!(without.quantumleap.environment, None);
        assert_eq!(without.log, "info");

        let port = ("GANGER_QUANTUMLEAP", ":8668");
        let with = load(None, environment(&[port]), &[]).expect("good settings");
        let read = with.quantumleap.environment.expect("read");
        assert_eq!(read.retries_max, 3);
        assert_eq!(with.log, "debug");

        let refused = load(None, environment(&[port, ("USE_GEOCODING", "true")]), &[]);
        let refused = refused.expect_err("there is no geocoding");
        assert_eq!(refused.place, "USE_GEOCODING");
    }

    #[cfg(feature = "quantumleap")]
    #[test]
    fn gangers_log_setting_overrides_that_of_quantumleap() {
        let environment = [("GANGER_QUANTUMLEAP", ":8668"), ("LOGLEVEL", "ERROR")];
        let flag = Flag {
            key: "log",
            flag: "--log",
            value: "info".to_owned(),
        };
        let config = load(None, variables(&environment), &[flag]).expect("good settings");
        assert_eq!(config.log, "info");
        let all = [&environment[..], &[("GANGER_LOG", "warn")]].concat();
        let config = load(None, variables(&all), &[]).expect("good settings");
        assert_eq!(config.log, "warn");
        let file = file("log = \"trace\"\n");
        let config = load(Some(file.path()), variables(&environment), &[]);
        assert_eq!(config.expect("good settings").log, "trace");
    }

    #[test]
    fn one_source_sets_shard_or_shards_and_a_later_source_overrides() {
        let flag = |key, flag, value: &str| Flag {
            key,
            flag,
            value: value.to_owned(),
        };
        let both = [
            flag("shard", "--shard", "1"),
            flag("shards", "--shards", "2"),
        ];
        let error = load(None, variables(&[]), &both).expect_err("refused");
        assert!(error.to_string().contains("both set"), "{error}");
        let error = load(
            None,
            variables(&[("GANGER_SHARD", "1"), ("GANGER_SHARDS", "2")]),
            &[],
        )
        .expect_err("refused");
        assert_eq!(error.place, "GANGER_SHARDS");
        let file = file("shard = \"1\"\nshards = 2\n");
        let error = load(Some(file.path()), variables(&[]), &[]).expect_err("refused");
        assert!(error.reason.contains("both set"), "{error}");
        let several = variables(&[("GANGER_SHARDS", "a,b")]);
        let config = load(None, several, &[flag("shard", "--shard", "c")]).expect("good");
        assert!(config.shards.is_empty());
        assert_eq!(config.shard.as_str(), "c");
        let one = variables(&[("GANGER_SHARD", "c")]);
        let config = load(None, one, &[flag("shards", "--shards", "2")]).expect("good");
        assert_eq!(config.shards.len(), 2);
    }

    #[test]
    fn a_token_comes_from_the_environment_and_is_not_shown() {
        let environment = variables(&[("GANGER_TOKEN", "0123456789abcdef")]);
        let config = load(None, environment, &[]).expect("good settings");
        assert!(config.token.is_some());
        assert!(!format!("{config:?}").contains("0123456789abcdef"));
        let error = load(None, variables(&[("GANGER_TOKEN", "short")]), &[]).expect_err("refused");
        assert!(!error.to_string().contains("\"short\""));
    }
}
