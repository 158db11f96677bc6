//! `ganger server-info`: the server, its shards, and its settings.

use clap::Args;
use ganger_client::{Server, ServerShard};

use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::show::table::{Rows, facts};
use crate::show::{bytes, escape, time};

/// Shows the server: its shards, how busy they are, and their space.
#[derive(Args, Debug)]
pub(crate) struct ServerInfoArgs {
    /// Also list the settings of the server that are not secret; --json always has them.
    #[arg(long)]
    settings: bool,
}

pub(crate) async fn run(context: &Context, args: &ServerInfoArgs) -> Outcome {
    let server = context.client().await?.server().await?;
    context.either(&server, text(&server, args.settings))?;
    Ok(Exit::Done)
}

fn text(server: &Server, with_settings: bool) -> String {
    let mut lines = vec![
        ("version", escape::line(&server.version)),
        ("up", time::span(server.uptime)),
    ];
    if !server.elsewhere.is_empty() {
        let names = server.elsewhere.iter();
        let names: Vec<String> = names.map(|name| escape::line(name)).collect();
        lines.push(("other shards", names.join(", ")));
    }
    let mut parts = vec![facts(&lines), shards(&server.shards)];
    if with_settings {
        let settings = server.settings.iter();
        let settings: Vec<(&str, String)> = settings
            .map(|(name, value)| (name.as_str(), escape::line(value)))
            .collect();
        parts.push(facts(&settings));
    }
    parts.join("\n\n")
}

fn shards(shards: &[ServerShard]) -> String {
    let mut rows = Rows::new(&[
        "shard",
        "health",
        ">live jobs",
        ">commits/s",
        ">commit p99",
        ">store",
        ">disk free",
        ">reserve",
        "durability",
    ]);
    for shard in shards {
        let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), bytes);
        let health = match &shard.reason {
            Some(reason) => format!("{}: {}", shard.health, escape::short(reason, 80)),
            None => shard.health.clone(),
        };
        rows.push([
            escape::line(&shard.shard),
            health,
            shard.live_jobs.to_string(),
            format!("{:.1}", shard.commits_per_second),
            shard.commit_p99.map_or_else(|| "-".to_owned(), time::span),
            size(shard.store_bytes),
            size(shard.disk_free_bytes),
            bytes(shard.reserve_bytes),
            shard
                .durability
                .as_deref()
                .map_or_else(|| "-".to_owned(), escape::line),
        ]);
    }
    rows.text()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_server_is_shown_with_its_shards_and_its_settings_if_asked() {
        let shard = ServerShard {
            shard: "1".to_owned(),
            version: "0.1.0".to_owned(),
            health: "full".to_owned(),
            reason: Some("no space".to_owned()),
            uptime: Duration::from_secs(60),
            live_jobs: 7,
            commits_per_second: 1.25,
            commit_p99: Some(Duration::from_millis(3)),
            store_bytes: Some(2_048),
            disk_free_bytes: None,
            reserve_bytes: 0,
            durability: Some("quorum".to_owned()),
        };
        let server = Server {
            version: "0.1.0".to_owned(),
            uptime: Duration::from_secs(60),
            shards: vec![shard],
            elsewhere: vec!["2".to_owned()],
            settings: [("listen".to_owned(), "127.0.0.1:3733".to_owned())].into(),
        };
        let shown = text(&server, false);
        assert!(shown.contains("other shards: 2"), "{shown}");
        assert!(shown.contains("full: no space"), "{shown}");
        assert!(shown.contains("2.0 KiB"), "{shown}");
        assert!(shown.contains("quorum"), "{shown}");
        assert!(!shown.contains("listen"), "{shown}");
        let shown = text(&server, true);
        assert!(shown.contains("listen: 127.0.0.1:3733"), "{shown}");
    }
}
