//! Notifications per second, each answered when it is durable.

use std::time::Instant;

use anyhow::Result;
use ganger_bench::Error;
use ganger_bench::http::Http;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::{SIZES, Server, notification};

/// Numbers of connections, each with the number of notifications that all of them send together.
const LOADS: [(usize, usize); 3] = [(1, 1_000), (16, 10_000), (64, 20_000)];

/// Measures the loads and prints the table.
pub(super) fn measure(server: &Server) -> Result<()> {
    println!("\nNotifications taken, each durable before its answer:\n");
    println!(
        "| connections | entities each | notifications/s | entities/s | server CPU s per million |"
    );
    println!("|---:|---:|---:|---:|---:|");
    send(server, 1, 100, 1)?;
    for entities in SIZES {
        for (connections, notifications) in LOADS {
            let notifications = if entities == 1 {
                notifications
            } else {
                notifications / 5
            };
            let before = server.cpu()?;
            let began = Instant::now();
            send(server, connections, notifications, entities)?;
            let count = f64::from(u32::try_from(notifications)?);
            let rate = count / began.elapsed().as_secs_f64();
            let cpu = (server.cpu()? - before) / count * 1e6;
            let rows = rate * f64::from(u32::try_from(entities)?);
            println!("| {connections} | {entities} | {rate:.0} | {rows:.0} | {cpu:.1} |");
        }
    }
    Ok(())
}

/// Sends notifications over this number of connections at the same time.
pub(super) fn send(
    server: &Server,
    connections: usize,
    notifications: usize,
    entities: usize,
) -> Result<()> {
    let (each, port) = (notifications / connections, server.port.to_string());
    Runtime::new()?.block_on(async {
        let mut senders = JoinSet::new();
        for connection in 0..connections {
            let mut http = Http::connect(&port, "").await?;
            senders.spawn(async move {
                for number in 0..each {
                    let body = notification(entities, connection * each + number);
                    http.post("/v2/notify", "application/json", body.as_bytes())
                        .await?;
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(ended) = senders.join_next().await {
            ended??;
        }
        Ok(())
    })
}
