//! Notifications a second, answered when they are durable.

use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};

use super::{SIZES, Server, notification};

/// Connections, and how many notifications all of them send together.
const LOADS: [(usize, usize); 3] = [(1, 1_000), (16, 10_000), (64, 20_000)];

/// Prints the table.
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

/// Sends notifications over so many connections at once.
pub(super) fn send(
    server: &Server,
    connections: usize,
    notifications: usize,
    entities: usize,
) -> Result<()> {
    let each = notifications / connections;
    thread::scope(|scope| {
        let senders: Vec<_> = (0..connections)
            .map(|connection| {
                scope.spawn(move || -> Result<()> {
                    let mut client = server.client()?;
                    for number in 0..each {
                        client.notify(&notification(entities, connection * each + number))?;
                    }
                    Ok(())
                })
            })
            .collect();
        senders.into_iter().try_for_each(|sender| {
            sender
                .join()
                .map_err(|_| anyhow!("a sender has panicked"))?
        })
    })
}
