//! Each page by its time, its elements and its bytes.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::seed::Seeded;
use super::{Answer, Server};

/// Requests of each page after the first.
const REQUESTS: usize = 40;
/// Pause after each request: a caller may make 50 requests a second.
const PAUSE: Duration = Duration::from_millis(22);

pub(crate) fn measure(server: &Server, seeded: &Seeded) -> Result<()> {
    println!("| page | first | p50 | p95 | elements | bytes | compressed |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let (job, drawn) = (&seeded.job, &seeded.drawn);
    let mut paths = vec![
        "/ui/".to_owned(),
        "/ui/queues".to_owned(),
        "/ui/queues?sort=oldest".to_owned(),
        "/ui/queue?name=q-0".to_owned(),
        "/ui/jobs".to_owned(),
        "/ui/jobs?queue=q-0&limit=200".to_owned(),
        "/ui/jobs?kind=none".to_owned(),
        format!("/ui/job?id={job}"),
        format!("/ui/job?id={job}&view=data"),
        format!("/ui/job?id={job}&view=graph"),
        "/ui/graphs".to_owned(),
        format!("/ui/graph?name={drawn}"),
        format!("/ui/graph?name={drawn}&open=b3"),
        format!("/ui/graph?name={drawn}&view=levels"),
        "/ui/failures".to_owned(),
        "/ui/schedules".to_owned(),
        "/ui/workers".to_owned(),
        "/ui/stats?window=24h".to_owned(),
        "/ui/events".to_owned(),
        "/ui/shards".to_owned(),
        "/ui/search?q=q-99".to_owned(),
    ];
    if let Some(largest) = &seeded.largest {
        until_read(server, largest)?;
        paths.push(format!("/ui/graph?name={largest}&view=levels"));
        paths.push(format!("/ui/graph?name={largest}"));
    }
    for path in paths {
        measure_page(server, &path)?;
    }
    Ok(())
}

/// Opens the largest graph, and says how long the server answers "Computing" until it is read.
fn until_read(server: &Server, graph: &str) -> Result<()> {
    let path = format!("/ui/graph?name={graph}&view=levels");
    let began = std::time::Instant::now();
    loop {
        let answer = server.get(&path, "identity")?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        if !String::from_utf8_lossy(&answer.body).contains("Computing") {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    println!(
        "| the largest graph is read after | {} | | | | | |",
        milliseconds(began.elapsed())
    );
    Ok(())
}

fn measure_page(server: &Server, path: &str) -> Result<()> {
    let get = |encoding: &str| -> Result<Answer> {
        let answer = server.get(path, encoding)?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        thread::sleep(PAUSE);
        Ok(answer)
    };
    let first = get("gzip")?;
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        times.push(get("gzip")?.took);
    }
    times.sort_unstable();
    let plain = get("identity")?;
    println!(
        "| `{}` | {} | {} | {} | {} | {} | {} |",
        path.split("&name").next().unwrap_or(path),
        milliseconds(first.took),
        milliseconds(times[REQUESTS / 2]),
        milliseconds(times[REQUESTS * 95 / 100]),
        elements(&plain.body),
        plain.body.len(),
        first.body.len(),
    );
    Ok(())
}

/// Number of elements of a page: a `<` before a letter begins one.
fn elements(html: &[u8]) -> usize {
    let pairs = html.windows(2);
    pairs
        .filter(|pair| pair[0] == b'<' && pair[1].is_ascii_alphabetic())
        .count()
}

fn milliseconds(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}
