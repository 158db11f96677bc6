//! The optional parts of a server: features of the build, each with settings that exist only with it.

use super::keys::{self, Key};

/// A part of a server that a build may lack.
struct OptionalPart {
    /// Name of the part, with its article.
    name: &'static str,
    /// The Cargo feature of `ganger-cli` and `ganger-server` that builds it.
    feature: &'static str,
    /// Settings of the part; `None` if this build lacks it.
    keys: Option<&'static [Key]>,
    /// Whether a setting belongs to it, in any build.
    owns: fn(&str) -> bool,
}

const REDIS: OptionalPart = OptionalPart {
    name: "Redis port",
    feature: "redis",
    #[cfg(feature = "redis")]
    keys: Some(super::redis::KEYS),
    #[cfg(not(feature = "redis"))]
    keys: None,
    owns: |setting| setting == "resp" || setting.starts_with("resp_"),
};

const QUANTUMLEAP: OptionalPart = OptionalPart {
    name: "QuantumLeap port",
    feature: "quantumleap",
    #[cfg(feature = "quantumleap")]
    keys: Some(super::quantumleap::KEYS),
    #[cfg(not(feature = "quantumleap"))]
    keys: None,
    owns: |setting| {
        setting == "quantumleap"
            || setting.starts_with("quantumleap_")
            || setting == "telemetry_dir"
    },
};

const DASHBOARD: OptionalPart = OptionalPart {
    name: "dashboard",
    feature: "dashboard",
    #[cfg(feature = "dashboard")]
    keys: Some(super::dashboard::KEYS),
    #[cfg(not(feature = "dashboard"))]
    keys: None,
    owns: |setting| setting.starts_with("ui."),
};

const POSTGRES: OptionalPart = OptionalPart {
    name: "store in PostgreSQL",
    feature: "postgres",
    #[cfg(feature = "postgres")]
    keys: Some(super::postgres::KEYS),
    #[cfg(not(feature = "postgres"))]
    keys: None,
    owns: |setting| {
        let own = [
            "store",
            "cluster",
            "node",
            "advertise",
            "ownership_lease",
            "drain_for",
        ];
        own.contains(&setting) || setting.starts_with("store_")
    },
};

const PARTS: [OptionalPart; 4] = [REDIS, QUANTUMLEAP, DASHBOARD, POSTGRES];

/// Returns all settings of this build.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    let of_parts = PARTS.iter().filter_map(|part| part.keys).flatten();
    keys::KEYS.iter().chain(of_parts)
}

/// Returns the setting with this name.
///
/// # Errors
/// The reason why this build has no setting with this name.
pub fn find_key(name: &str) -> Result<&'static Key, String> {
    keys()
        .find(|key| key.name == name)
        .ok_or_else(|| missing_part(&PARTS, name).unwrap_or_else(|| unknown(name)))
}

/// Returns why a setting of a missing part cannot be used; `None` if it belongs to no optional part.
pub(super) fn refuse_missing(name: &str) -> Option<String> {
    missing_part(&PARTS, name)
}

fn missing_part(parts: &[OptionalPart], name: &str) -> Option<String> {
    let is_missing = |part: &&OptionalPart| part.keys.is_none() && (part.owns)(name);
    parts.iter().find(is_missing).map(|part| {
        let OptionalPart {
            name: what,
            feature,
            ..
        } = part;
        format!(
            "{name} cannot be used: this build of ganger has no {what}; build ganger-cli with the Cargo feature `{feature}`, or remove the setting"
        )
    })
}

fn unknown(name: &str) -> String {
    let near = keys().find(|key| key.name.ends_with(name) || name.ends_with(key.name));
    let hint = near.map_or_else(String::new, |key| format!("; did you mean {}?", key.name));
    format!("{name:?} is not a setting{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_owns_its_settings_and_no_others() {
        for part in &PARTS {
            for key in part.keys.unwrap_or_default() {
                assert!((part.owns)(key.name), "{}", key.name);
            }
            for key in keys::KEYS {
                assert!(!(part.owns)(key.name), "{}", key.name);
            }
        }
    }

    #[test]
    fn a_setting_of_a_part_that_is_not_built_is_refused_with_the_name_of_its_feature() {
        let without = PARTS.map(|part| OptionalPart { keys: None, ..part });
        for (setting, what, feature) in [
            ("resp", "no Redis port", "`redis`"),
            ("resp_allow_flush", "no Redis port", "`redis`"),
            ("quantumleap", "no QuantumLeap port", "`quantumleap`"),
            ("telemetry_dir", "no QuantumLeap port", "`quantumleap`"),
            ("ui.read_only", "no dashboard", "`dashboard`"),
            ("store", "no store in PostgreSQL", "`postgres`"),
        ] {
            let refusal = missing_part(&without, setting).expect(setting);
            assert!(refusal.starts_with(setting), "{refusal}");
            assert!(
                refusal.contains(what) && refusal.contains(feature),
                "{refusal}"
            );
            let is_built = find_key(setting).is_ok();
            assert_eq!(refuse_missing(setting).is_none(), is_built, "{setting}");
        }
        for setting in ["addr", "respx", "quantum", "ui"] {
            assert_eq!(missing_part(&without, setting), None, "{setting}");
        }
    }
}
