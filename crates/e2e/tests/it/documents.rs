//! Checks the code blocks of the documents. The `sh` blocks of each page run in order, in one shell, in a fresh directory,
//! with a fresh server, and with `ganger` on the path. `json` and `toml` blocks are parsed. Blocks of other languages need
//! a reason for not being run; `text` is for output and pictures.
//!
//! Three things differ from a reader's terminal. Ports are replaced by free ones. A line that starts a server or a worker
//! in the foreground, for which a reader would open another terminal, runs in the background. `ganger`, `curl` and
//! `redis-cli` are wrappers: `ganger` waits longer for a server, `curl` fails on HTTP errors, and `redis-cli` uses the port
//! of this test.
//!
//! Two comments control this check. `<!-- not run: REASON -->` on the line before a block skips it.
//! `<!-- server: ARGUMENTS -->` anywhere on a page sets arguments of its server. A page whose blocks start a server gets
//! no other one.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use ganger_e2e::binary::ganger;
use ganger_e2e::ports::free_addresses;
use ganger_e2e::server::Setup;
use ganger_e2e::skip::note_skip;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::IgnoredAny;

/// Longest run of a page. A page normally takes seconds.
const PAGE_ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Ports in the documents. The third is ganger's Redis port, the last that of a real Redis.
const PORTS: [&str; 5] = ["3733", "3734", "6379", "8668", "6380"];

/// Programs that the documents use.
const TOOLS: [&str; 8] = [
    "bash",
    "curl",
    "jq",
    "node",
    "openssl",
    "python3",
    "redis-cli",
    "redis-server",
];

/// Directories of the project that commands use, as if they ran in a clone.
const DIRECTORIES: [&str; 3] = ["scripts", "packaging", "examples"];

/// The `sh` blocks of a page, and the arguments of its server.
#[derive(Debug, Default, PartialEq)]
struct Page {
    /// First line number and text of each block.
    blocks: Vec<(usize, String)>,
    server: Vec<String>,
}

/// Parses a page. A block without an end and an empty reason are errors.
fn parse_page(text: &str) -> Result<Page> {
    let mut page = Page::default();
    let mut lines = text.lines().enumerate();
    let mut before = "";
    while let Some((index, line)) = lines.next() {
        if let Some(arguments) = comment(line, "server:") {
            page.server = arguments.split_whitespace().map(str::to_owned).collect();
        }
        let content = line.trim_start();
        if let Some(language) = content.strip_prefix("```") {
            let indent = line.len() - content.len();
            let mut block = String::new();
            loop {
                let (_, line) = lines
                    .next()
                    .with_context(|| format!("line {}: the block has no end", index + 1))?;
                if line.trim_start() == "```" {
                    break;
                }
                block.push_str(line.get(indent..).unwrap_or_default());
                block.push('\n');
            }
            let outcome = match (language, comment(before, "not run:")) {
                (_, Some("")) => Err(anyhow!("the reason why the block is not run is missing")),
                (_, Some(_)) => Ok(()),
                ("sh", None) => {
                    page.blocks.push((index + 2, block));
                    Ok(())
                }
                (language, None) => check(language, &block),
            };
            outcome.with_context(|| format!("line {}", index + 1))?;
        }
        before = line;
    }
    Ok(page)
}

/// Checks a block that is not run.
fn check(language: &str, block: &str) -> Result<()> {
    match language {
        "text" => Ok(()),
        "json" => {
            let mut documents = serde_json::Deserializer::from_str(block).into_iter::<IgnoredAny>();
            documents.try_for_each(|document| document.map(drop))?;
            Ok(())
        }
        "toml" => {
            let _: toml::Table = toml::from_str(block)?;
            Ok(())
        }
        other => bail!(
            "blocks of {other:?} are not checked: run them from a block of sh, or put `<!-- not run: REASON -->` before"
        ),
    }
}

/// Returns the text of a comment after `mark`; `None` if the line is not such a comment.
fn comment<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let inner = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    Some(inner.trim().strip_prefix(mark)?.trim())
}

/// Joins the blocks into one script.
fn script(page: &Page, ports: &[(&str, u16)]) -> String {
    let mut script = "set -eo pipefail\n".to_owned();
    let mut logs = 0;
    for (line, block) in &page.blocks {
        writeln!(script, "echo '--- line {line}' >&2").expect("written");
        script.push_str(&in_background(block, &mut logs));
    }
    for (known, free) in ports {
        script = script.replace(&format!(":{known}"), &format!(":{free}"));
        script = script.replace(&format!("--port {known}"), &format!("--port {free}"));
    }
    script.replace("0.0.0.0:", "127.0.0.1:")
}

/// Runs servers and workers in the background, and waits for servers to be ready.
fn in_background(block: &str, logs: &mut usize) -> String {
    let mut out = String::new();
    let mut command = String::new();
    for line in block.lines() {
        command.push_str(line);
        command.push('\n');
        if line.ends_with('\\') {
            continue;
        }
        let command_text = command.split(" #").next().unwrap_or_default().trim_end();
        let is_server = command_text.starts_with("ganger server");
        if (is_server || command_text.starts_with("ganger worker")) && !command_text.ends_with('&')
        {
            *logs += 1;
            writeln!(out, "{command_text} 2> .log-{logs} &").expect("written");
            if is_server {
                writeln!(
                    out,
                    "until grep -q ' ready addr=' .log-{logs}; do sleep 0.05; done"
                )
                .expect("written");
            }
        } else {
            out.push_str(&command);
        }
        command.clear();
    }
    out + &command
}

/// The directory in which a page runs, with the wrappers of programs.
struct PageDirectory {
    dir: tempfile::TempDir,
    bin: PathBuf,
}

impl PageDirectory {
    fn new(redis: u16) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))?;
        for directory in DIRECTORIES {
            symlink(root.join(directory), dir.path().join(directory))?;
        }
        let bin = dir.path().join(".bin");
        fs::create_dir(&bin)?;
        let page_directory = Self { dir, bin };
        let real = ganger();
        page_directory.put(
            "ganger",
            &format!("exec '{}' --retry-for 30s \"$@\"", real.display()),
        )?;
        page_directory.put("curl", "PATH=${PATH#*:}\nexec curl --fail-with-body \"$@\"")?;
        page_directory.put(
            "redis-cli",
            &format!("PATH=${{PATH#*:}}\nexec redis-cli -e -p {redis} \"$@\""),
        )?;
        Ok(page_directory)
    }

    fn put(&self, name: &str, text: &str) -> Result<()> {
        let path = self.bin.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// Runs the script in a process group, which is killed afterwards.
    fn run(&self, script: &str, variables: &[(&str, String)]) -> Result<()> {
        let (script_file, output) = (
            self.dir.path().join(".script"),
            self.dir.path().join(".output"),
        );
        fs::write(&script_file, script)?;
        let log = File::create(&output)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let shell = Command::new("bash")
            .arg(&script_file)
            .current_dir(self.dir.path())
            .env("PATH", format!("{}:{path}", self.bin.display()))
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env_remove("GANGER_CONFIG")
            .env_remove("GANGER_TOKEN")
            .env_remove("GANGER_TOKEN_FILE")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .context("cannot start bash")?;
        let mut group = ProcessGroup(shell);
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = group.0.try_wait()? {
                break Some(status);
            }
            if begun.elapsed() > PAGE_ENDS_WITHIN {
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let output = fs::read_to_string(&output)?;
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("{status}, after:\n{output}"),
            None => bail!("the script does not end; output so far:\n{output}"),
        }
    }
}

/// A shell with all processes that it started; killed when dropped.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // All processes may have ended already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Runs the blocks of a page.
fn run(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path)?;
    let page = parse_page(&text)?;
    if page.blocks.is_empty() {
        return Ok(());
    }
    let free = free_addresses(PORTS.len())?;
    let page_directory = PageDirectory::new(free[2].port())?;
    let ports: Vec<(&str, u16)> = PORTS
        .into_iter()
        .zip(free.iter().map(std::net::SocketAddr::port))
        .collect();
    let has_own_server = page
        .blocks
        .iter()
        .any(|(_, block)| block.contains("ganger server"));
    let _server = if has_own_server {
        None
    } else {
        let mut setup = Setup::in_directory(page_directory.dir.path())?;
        setup.address = free[0];
        setup.store = page_directory.dir.path().join("jobs.db");
        setup.arguments.clone_from(&page.server);
        Some(setup.start()?)
    };
    let address = free[0].to_string();
    let variables = [("GANGER_URL", address.clone()), ("GANGER_ADDR", address)];
    page_directory.run(&script(&page, &ports), &variables)
}

/// Returns the paths of the pages, README first.
fn pages() -> Result<Vec<PathBuf>> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages[1..].sort();
    Ok(pages)
}

/// Returns the missing ones of [`TOOLS`].
fn missing() -> Vec<&'static str> {
    let is_here = |tool: &str| {
        let look = Command::new("sh")
            .args(["-c", &format!("command -v {tool}")])
            .stdout(Stdio::null())
            .status();
        look.is_ok_and(|status| status.success())
    };
    let mut tools = TOOLS.to_vec();
    tools.retain(|tool| !is_here(tool));
    tools
}

#[test]
fn commands_of_the_documents_run_as_pasted() -> Result<()> {
    let missing = missing();
    if !missing.is_empty() {
        let reason = format!("not here: {}", missing.join(", "));
        note_skip("commands_of_the_documents_run_as_pasted", &reason);
        return Ok(());
    }
    let pages = pages()?;
    let failed = std::thread::scope(|scope| {
        let running: Vec<_> = pages
            .iter()
            .map(|path| (path, scope.spawn(move || run(path))))
            .collect();
        let ended = running.into_iter().map(|(path, page)| {
            let outcome = page.join().expect("a page does not panic");
            (path, outcome)
        });
        ended
            .filter_map(|(path, outcome)| Some(format!("{}: {:#}", path.display(), outcome.err()?)))
            .collect::<Vec<_>>()
    });
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

#[test]
fn blocks_run_unless_a_comment_gives_a_reason() -> Result<()> {
    let text = "<!-- server: --shards 2 -->\n```sh\na\n```\n<!-- not run: long -->\n```sh\nb\n```\n```toml\nc = 1\n```\n  ```json\n  {}\n  ```\n";
    let page = parse_page(text)?;
    assert_eq!(page.blocks, [(3, "a\n".to_owned())]);
    assert_eq!(page.server, ["--shards", "2"]);
    assert!(parse_page("<!-- not run: -->\n```sh\na\n```\n").is_err());
    assert!(parse_page("```sh\na\n").is_err());
    for wrong in [
        "json\n{]",
        "toml\nc",
        "python\npass",
        "\nwhat",
        "sh extra\nls",
    ] {
        assert!(
            parse_page(&format!("```{wrong}\n```\n")).is_err(),
            "{wrong}"
        );
    }
    Ok(())
}

#[test]
fn servers_and_workers_go_into_the_background() {
    let page = Page {
        blocks: vec![(
            7,
            "ganger server --addr :3733 \\\n  --db a.db   # serves\nganger worker 2> w &\n"
                .to_owned(),
        )],
        server: Vec::new(),
    };
    assert_eq!(
        script(&page, &[("3733", 4000)]),
        "set -eo pipefail\necho '--- line 7' >&2\nganger server --addr :4000 \\\n  --db a.db 2> .log-1 &\n\
         until grep -q ' ready addr=' .log-1; do sleep 0.05; done\nganger worker 2> w &\n"
    );
}
