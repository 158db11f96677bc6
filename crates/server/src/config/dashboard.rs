//! The settings of the dashboard.

use ganger_dashboard::Payloads;

use super::keys::{Key, count, flag, path, span};

/// Every setting of the dashboard.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "ui.enabled",
        "true",
        "whether there is a dashboard under /ui",
        |config, value| {
            config.ui.is_enabled = flag(value)?;
            Ok(())
        },
    ),
    Key::new(
        "ui.base_path",
        "",
        "what a proxy puts in front of /ui, such as /ganger",
        |config, value| {
            config.ui.base_path = base_path(value)?;
            Ok(())
        },
    ),
    Key::new(
        "ui.origin",
        "",
        "the origin that browsers see behind a proxy, such as https://jobs.example",
        |config, value| {
            config.ui.origin = Some(origin(value)?);
            Ok(())
        },
    ),
    Key::new(
        "ui.read_only",
        "false",
        "nobody can change anything on the dashboard",
        |config, value| {
            config.ui.is_read_only = flag(value)?;
            Ok(())
        },
    ),
    Key::new(
        "ui.payloads",
        "shown",
        "shown, or hidden from all but operators",
        |config, value| {
            config.ui.payloads = match value {
                "shown" => Payloads::Shown,
                "hidden" => Payloads::Hidden,
                _ => return Err(format!("must be shown or hidden, not {value:?}")),
            };
            Ok(())
        },
    ),
    Key::new(
        "ui.session_idle",
        "12h",
        "a session without use ends after this",
        |config, value| {
            config.ui.session_idle = span(value)?;
            Ok(())
        },
    ),
    Key::new(
        "ui.session_max",
        "7d",
        "every session ends after this",
        |config, value| {
            config.ui.session_max = span(value)?;
            Ok(())
        },
    ),
    Key::new(
        "ui.session_key_file",
        "",
        "a file with the key of sessions, for several servers behind one address",
        |config, value| {
            config.ui.session_key_file = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "ui.viewers_max",
        "200",
        "pages that follow changes at once",
        |config, value| count(value, &mut config.ui.viewers_max),
    ),
];

/// An empty text, or a path such as `/ganger`.
fn base_path(value: &str) -> Result<String, String> {
    let value = value.trim_end_matches('/');
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "/-._~".contains(it);
    let is_path = value.starts_with('/') && !value.contains("//") && value.chars().all(is_plain);
    if value.is_empty() || is_path {
        return Ok(value.to_owned());
    }
    Err(format!(
        "must be empty or a path such as /ganger, of letters, digits and - . _ ~, not {value:?}"
    ))
}

/// Scheme, host and port, without a path.
fn origin(value: &str) -> Result<String, String> {
    let value = value.trim_end_matches('/');
    let host = value
        .strip_prefix("https://")
        .or(value.strip_prefix("http://"));
    let is_origin =
        host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']));
    if is_origin {
        return Ok(value.to_owned());
    }
    Err(format!(
        "must be an origin such as https://jobs.example, not {value:?}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_path_is_a_plain_path_without_its_last_slash() {
        assert_eq!(base_path("/ganger/"), Ok("/ganger".to_owned()));
        assert_eq!(base_path("/a/b-c"), Ok("/a/b-c".to_owned()));
        assert_eq!(base_path("/"), Ok(String::new()));
        for wrong in ["ganger", "//evil", "/a b", "/a?b", "/<x>"] {
            assert!(base_path(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_origin_has_no_path() {
        assert_eq!(
            origin("https://jobs.example/"),
            Ok("https://jobs.example".to_owned())
        );
        assert!(origin("http://127.0.0.1:8080").is_ok());
        for wrong in [
            "jobs.example",
            "https://",
            "https://a/b",
            "ftp://a",
            "https://u@a",
        ] {
            assert!(origin(wrong).is_err(), "{wrong}");
        }
    }
}
