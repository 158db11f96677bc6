//! Every setting by name: one table for the file, the environment, the flags and the documents.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ganger_router::Topology;
use ganger_types::ShardId;
use ganger_types::{size::read_size, span::read_span};

use crate::config::{Config, Limits, LogFormat};
use crate::secret::Secret;

/// Prefix of every setting's environment variable.
pub(super) const VARIABLE_PREFIX: &str = "GANGER_";

/// A setting of the configuration.
pub struct Key {
    /// Name in the file, with dots for sections.
    pub name: &'static str,
    /// Default, as it would be written.
    pub default: &'static str,
    /// Description of what the setting does.
    pub about: &'static str,
    /// Whether the setting is a secret, which only the environment may contain.
    pub is_secret: bool,
    set: fn(&mut Config, &str) -> Result<(), String>,
}

impl Key {
    pub(super) const fn new(
        name: &'static str,
        default: &'static str,
        about: &'static str,
        set: fn(&mut Config, &str) -> Result<(), String>,
    ) -> Self {
        Self {
            name,
            default,
            about,
            is_secret: false,
            set,
        }
    }

    /// The setting as a secret.
    #[cfg(feature = "postgres")]
    pub(super) const fn secret(self) -> Self {
        Self {
            is_secret: true,
            ..self
        }
    }

    /// Returns the name of the setting's environment variable.
    pub fn variable(&self) -> String {
        format!(
            "{VARIABLE_PREFIX}{}",
            self.name.to_uppercase().replace('.', "_")
        )
    }

    pub(super) fn apply(&self, config: &mut Config, value: &str) -> Result<(), String> {
        (self.set)(config, value)
    }
}

/// All settings except those of optional parts.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "addr",
        "127.0.0.1:3733",
        "address to listen on; :PORT is loopback",
        |config, value| {
            value.clone_into(&mut config.addr);
            Ok(())
        },
    ),
    Key::new("shard", "1", "id of the shard", |config, value| {
        config.shard =
            ShardId::new(value).ok_or("must be 1 to 64 characters of A-Z a-z 0-9 . _ -")?;
        // The later source overrides the earlier one.
        config.shards.clear();
        Ok(())
    }),
    Key::new(
        "shards",
        "",
        "several shards in this process, each with its own store: their ids separated by commas, or their number",
        |config, value| {
            config.shards = super::shards::read(value)?;
            Ok(())
        },
    ),
    Key::new(
        "topology",
        "",
        "addresses of other shards: static:1=HOST:PORT,2=HOST:PORT or dns:%s.example.com:3733",
        |config, value| {
            config.topology = Topology::parse(value).map_err(|error| error.to_string())?;
            Ok(())
        },
    ),
    Key::new(
        "peer_token_file",
        "",
        "file with the token for other servers; the token that clients must send if absent",
        |config, value| {
            config.peer_token_file = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "db",
        "ganger.db",
        "file of the store; :memory: stores nothing on disk",
        |config, value| {
            config.db = path(value)?;
            config.makes_directory = false;
            Ok(())
        },
    ),
    Key::new(
        "data_dir",
        "",
        "directory of the store's file, if db is not set; created if missing",
        |config, value| {
            config.db = path(value)?.join("ganger.db");
            config.makes_directory = true;
            Ok(())
        },
    ),
    Key {
        is_secret: true,
        ..Key::new(
            "token",
            "",
            "token that clients must send",
            |config, value| {
                config.token = Some(Secret::new(value)?);
                Ok(())
            },
        )
    },
    Key::new("token_file", "", "file with that token", |config, value| {
        config.token_file = Some(path(value)?);
        Ok(())
    }),
    Key::new(
        "access_file",
        "",
        "file of tokens and certificates with their grants, as `ganger token` writes it",
        |config, value| {
            config.access_file = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "tls.cert",
        "",
        "the server's certificate, followed by intermediate certificates (PEM)",
        |config, value| {
            config.tls.cert = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "tls.key",
        "",
        "the certificate's private key (PEM)",
        |config, value| {
            config.tls.key = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "tls.client_ca",
        "",
        "authorities of client certificates (PEM)",
        |config, value| {
            config.tls.client_ca = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "tls.client_crl",
        "",
        "list of revoked client certificates (PEM)",
        |config, value| {
            config.tls.client_crl = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "tls.peer_ca",
        "",
        "authorities of other servers' certificates (PEM); tls.client_ca if absent",
        |config, value| {
            config.tls.peer_ca = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "require",
        "",
        "credentials that clients must present: token, client-cert, both, either",
        |config, value| {
            config.require = Some(value.parse()?);
            Ok(())
        },
    ),
    Key::new(
        "http.require",
        "",
        "credentials that HTTP clients must present; require if absent",
        |config, value| {
            config.require_http = Some(value.parse()?);
            Ok(())
        },
    ),
    Key::new(
        "grpc.require",
        "",
        "credentials that gRPC clients must present; require if absent",
        |config, value| {
            config.require_grpc = Some(value.parse()?);
            Ok(())
        },
    ),
    Key::new(
        "audit_log",
        "",
        "file of the audit log; the ordinary log if absent",
        |config, value| {
            config.audit_log = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "insecure",
        "false",
        "listen beyond loopback although encryption or authentication is missing",
        |config, value| {
            config.insecure = flag(value)?;
            Ok(())
        },
    ),
    Key::new(
        "hosts",
        "",
        "host names of this server that clients may use, separated by commas; * for any",
        |config, value| {
            let names = value
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty());
            config.hosts = names.map(str::to_owned).collect();
            Ok(())
        },
    ),
    Key::new(
        "log",
        "info",
        "filter of log lines: error, warn, info, debug, trace, or directives",
        |config, value| {
            crate::log::filter(value)?;
            value.clone_into(&mut config.log);
            Ok(())
        },
    ),
    Key::new(
        "log_format",
        "text",
        "format of log lines: text or json",
        |config, value| {
            config.log_format = match value {
                "text" => LogFormat::Text,
                "json" => LogFormat::Json,
                _ => return Err(format!("must be text or json, not {value:?}")),
            };
            Ok(())
        },
    ),
    Key::new(
        "stop_timeout",
        "10s",
        "longest time that a stop waits for workers to report their jobs, and then for requests in flight",
        |config, value| {
            config.stop_timeout = span(value)?;
            Ok(())
        },
    ),
    Key::new(
        "reserve_bytes",
        "256MiB",
        "space kept on the store's disk for reports and deletion, half of it (at most 64 MiB) in a file; 0 for none",
        |config, value| {
            config.reserve_bytes = read_size(value).map_err(|_| {
                format!(
                    "must be a number of bytes such as 256MiB, or 0 for no reserve, not {value:?}"
                )
            })?;
            Ok(())
        },
    ),
    Key::new(
        "limits.connections",
        "10000",
        "maximum number of connections",
        |config, value| count(value, &mut limits(config).connections),
    ),
    Key::new(
        "limits.connections_per_address",
        "5000",
        "maximum number of connections of one address",
        |config, value| count(value, &mut limits(config).connections_per_address),
    ),
    Key::new(
        "limits.handshake_timeout",
        "10s",
        "longest TLS handshake",
        |config, value| {
            limits(config).handshake_timeout = span(value)?;
            Ok(())
        },
    ),
    Key::new(
        "limits.header_bytes",
        "16KiB",
        "maximum bytes of a request's head, at least 8 KiB",
        |config, value| {
            let size = bytes(value)?;
            if size < 8 << 10 {
                return Err("must be at least 8KiB".to_owned());
            }
            limits(config).header_bytes = size;
            Ok(())
        },
    ),
    Key::new(
        "limits.headers",
        "100",
        "maximum number of header lines of a request",
        |config, value| count(value, &mut limits(config).headers),
    ),
    Key::new(
        "limits.header_timeout",
        "30s",
        "longest time to receive a request's head",
        |config, value| {
            limits(config).header_timeout = span(value)?;
            Ok(())
        },
    ),
    Key::new(
        "limits.write_timeout",
        "60s",
        "longest time without progress of a write",
        |config, value| {
            limits(config).write_timeout = span(value)?;
            Ok(())
        },
    ),
    Key::new(
        "limits.streams_per_connection",
        "1000",
        "maximum number of concurrent requests on one HTTP/2 connection",
        |config, value| count(value, &mut limits(config).streams_per_connection),
    ),
    Key::new(
        "limits.streams",
        "1000",
        "maximum number of open event streams, log followers and batches; one identity gets a quarter",
        |config, value| count(value, &mut limits(config).streams),
    ),
    Key::new(
        "limits.body_bytes",
        "32MiB",
        "maximum bytes of a body, except graphs and batches",
        |config, value| {
            limits(config).body_bytes = bytes(value)?;
            Ok(())
        },
    ),
    Key::new(
        "limits.graph_bytes",
        "48MiB",
        "maximum bytes of a graph's submission",
        |config, value| {
            limits(config).graph_bytes = bytes(value)?;
            Ok(())
        },
    ),
    Key::new(
        "limits.line_bytes",
        "8MiB",
        "maximum bytes of a line of a batch",
        |config, value| {
            limits(config).line_bytes = bytes(value)?;
            Ok(())
        },
    ),
    Key::new(
        "limits.bytes_in_flight",
        "288MiB",
        "maximum bytes that all requests in progress hold together; one identity gets a sixth for large bodies",
        |config, value| {
            limits(config).bytes_in_flight = bytes(value)?;
            Ok(())
        },
    ),
    Key::new(
        "limits.inbox_commands",
        "65536",
        "maximum number of commands that wait for the shard",
        |config, value| count(value, &mut limits(config).inbox_commands),
    ),
    Key::new(
        "limits.waiters",
        "100000",
        "maximum number of waiting lease requests and waits",
        |config, value| count(value, &mut limits(config).waiters),
    ),
];

fn limits(config: &mut Config) -> &mut Limits {
    &mut config.limits
}

pub(super) fn path(value: &str) -> Result<PathBuf, String> {
    if value.is_empty() {
        return Err("must not be empty".to_owned());
    }
    Ok(PathBuf::from(value))
}

pub(super) fn flag(value: &str) -> Result<bool, String> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("must be true or false, not {value:?}")),
    }
}

/// Parses a whole number, at least 1.
pub(super) fn count<T: FromStr + PartialOrd + From<u16>>(
    value: &str,
    into: &mut T,
) -> Result<(), String> {
    let number = value.parse().ok().filter(|number| *number >= T::from(1));
    *into = number.ok_or_else(|| format!("must be a whole number, at least 1, not {value:?}"))?;
    Ok(())
}

/// Parses a number of bytes above 0: `65536`, `64KiB`, `8MiB`.
fn bytes(value: &str) -> Result<usize, String> {
    read_size(value)
        .ok()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| {
            format!("must be a number of bytes such as 65536, 64KiB or 8MiB, not {value:?}")
        })
}

/// Parses a duration above 0: `500ms`, `30s`, `1h30m`, or a number of seconds.
pub(super) fn span(value: &str) -> Result<Duration, String> {
    read_span(value)
        .ok()
        .filter(|span| !span.is_zero())
        .ok_or_else(|| {
            format!(
                "must be a duration above 0 and of at most 100 years, such as 500ms, 30s or 1h30m, not {value:?}"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    #[test]
    fn every_default_in_the_table_is_the_default() {
        let mut config = Config::default();
        for key in keys().filter(|key| !key.default.is_empty()) {
            key.apply(&mut config, key.default).expect(key.name);
        }
        assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()));
    }

    #[test]
    fn sizes_and_durations_have_units() {
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("7"), Ok(7));
        for (text, seconds) in [("5m", 300), ("1h30m", 5_400), ("1d", 86_400), ("5", 5)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in [
            "",
            "x",
            "64kb",
            "-1",
            "99999999999999999999",
            "18446744073709551615KiB",
            "0",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "s", "5 m", "-1s", "0s", "99999999999s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_reserve_may_be_zero() {
        let mut config = Config::default();
        let key = keys().find(|key| key.name == "reserve_bytes");
        let key = key.expect("it is a key");
        for (text, bytes) in [("0", 0), ("64MiB", 64 << 20)] {
            assert_eq!(key.apply(&mut config, text), Ok(()));
            assert_eq!(config.reserve_bytes, bytes);
        }
        assert!(key.apply(&mut config, "some").is_err());
    }
}
