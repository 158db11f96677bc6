//! The settings that operators may see through the API: no token, no password, no key.

use std::collections::BTreeMap;
use std::path::Path;

use ganger_types::ShardId;
use ganger_types::span::show_span;

use super::{Config, LogFormat};

impl Config {
    /// The settings that are not secret, by name, with their values as text. Settings that are not given are left out.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        let mut shown = BTreeMap::new();
        let mut put = |name: &str, value: String| drop(shown.insert(name.to_owned(), value));
        put("addr", self.addr.clone());
        put("db", self.db.display().to_string());
        put("insecure", self.insecure.to_string());
        put("log", self.log.clone());
        let format = match self.log_format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        put("log_format", format.to_owned());
        put("reserve_bytes", self.reserve_bytes.to_string());
        put("stop_timeout", show_span(self.stop_timeout));
        if !self.hosts.is_empty() {
            put("hosts", self.hosts.join(", "));
        }
        let shards = if self.shards.is_empty() {
            std::slice::from_ref(&self.shard)
        } else {
            &self.shards
        };
        let shards: Vec<&str> = shards.iter().map(ShardId::as_str).collect();
        put("shards", shards.join(", "));
        let path = |path: &Path| path.display().to_string();
        for (name, file) in [
            ("audit_log", &self.audit_log),
            ("access_file", &self.access_file),
            ("tls.cert", &self.tls.cert),
            ("tls.client_ca", &self.tls.client_ca),
        ] {
            if let Some(file) = file {
                put(name, path(file));
            }
        }
        let limits = &self.limits;
        for (name, limit) in [
            ("limits.connections", limits.connections),
            (
                "limits.connections_per_address",
                limits.connections_per_address,
            ),
            ("limits.streams", limits.streams),
            ("limits.body_bytes", limits.body_bytes),
            ("limits.graph_bytes", limits.graph_bytes),
            ("limits.line_bytes", limits.line_bytes),
            ("limits.bytes_in_flight", limits.bytes_in_flight),
            ("limits.inbox_commands", limits.inbox_commands),
            ("limits.waiters", limits.waiters),
        ] {
            put(name, limit.to_string());
        }
        #[cfg(feature = "dashboard")]
        {
            put("ui.enabled", self.ui.is_enabled.to_string());
            put("ui.read_only", self.ui.is_read_only.to_string());
            put("ui.base_path", self.ui.base_path.clone());
            put("ui.viewers_max", self.ui.viewers_max.to_string());
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn no_secret_is_shown() {
        let config = Config {
            token: Secret::new("hush-hush-hush-hush").ok(),
            token_file: Some("/etc/ganger/hush".into()),
            peer_token_file: Some("/etc/ganger/hush".into()),
            ..Config::default()
        };
        let shown = config.shown();
        assert_eq!(shown["limits.streams"], "1000");
        assert!(
            shown.values().all(|value| !value.contains("hush")),
            "{shown:?}"
        );
    }
}
