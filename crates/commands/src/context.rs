//! State of every command: the server's address, and how to print.

use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ganger_client::{Client, Options, Retry, ShardId, Trust, code};
use serde::Serialize;

use crate::document::span::read_span;
use crate::exit::{Exit, Failure};
use crate::show::{Palette, escape};

/// Time after which a server without an answer counts as unreachable.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest absence of the server while a command waits for a job.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// Position in the help after a command's own options.
const LAST: usize = 900;

/// Options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Global {
    /// Address of the server: host:port, :port for this machine, https://host:port for TLS; several nodes of a cluster are
    /// separated by commas.
    #[arg(
        short,
        long,
        global = true,
        env = "GANGER_URL",
        value_name = "ADDR",
        default_value = "127.0.0.1:3733"
    )]
    pub(crate) server: String,

    /// The namespace to work in.
    #[arg(
        short,
        long,
        global = true,
        env = "GANGER_NAMESPACE",
        value_name = "NAME",
        default_value = "default"
    )]
    pub(crate) namespace: String,

    /// Authorities of the server's certificate (PEM), for https addresses; those of the system if absent.
    #[arg(long, global = true, env = "GANGER_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,

    /// Client certificate (PEM), for servers that require one.
    #[arg(
        long,
        global = true,
        env = "GANGER_CLIENT_CERT",
        value_name = "FILE",
        requires = "client_key"
    )]
    pub(crate) client_cert: Option<PathBuf>,

    /// The certificate's private key (PEM).
    #[arg(
        long,
        global = true,
        env = "GANGER_CLIENT_KEY",
        value_name = "FILE",
        requires = "client_cert"
    )]
    pub(crate) client_key: Option<PathBuf>,

    /// Print JSON for programs: one document a line, lists as one item a line.
    #[arg(long, global = true, help_heading = None, display_order = LAST)]
    pub(crate) json: bool,

    /// Keep trying for this time to reach a server that does not respond.
    #[arg(long, global = true, value_name = "DURATION", value_parser = read_span)]
    pub(crate) retry_for: Option<Duration>,
}

/// The option of lists that names their shard.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OfShard {
    /// Shard to list, or all for those of all shards; that of the server if absent.
    #[arg(long, value_name = "SHARD")]
    pub(crate) shard: Option<String>,
}

/// Global options and output of this run.
pub(crate) struct Context {
    pub(crate) global: Global,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        Self { global }
    }

    /// Returns the connection options. The token comes only from the environment or a file: a command line is visible
    /// to everyone on the machine.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::new(&self.global.server).namespace(&self.global.namespace);
        options.token = token()?;
        options.trust = Trust {
            ca: self.global.ca.clone(),
            certificate: self.global.client_cert.clone(),
            key: self.global.client_key.clone(),
        };
        if let Some(total_max) = self.global.retry_for {
            options.retry.total_max = total_max;
        }
        Ok(options)
    }

    /// Connects to the server; fails if it does not respond.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let options = self.options()?;
        let total_max = self.global.retry_for.unwrap_or(FIRST_ANSWER_TIMEOUT);
        let probe = Options {
            retry: Retry {
                total_max,
                ..options.retry
            },
            ..options.clone()
        };
        Client::connect(probe)
            .await
            .map_err(|error| self.explain(error))?;
        Client::new(options).map_err(Into::into)
    }

    /// Connects to the server, for the requests of one shard: the named one, all of them for `all`, or that of the server
    /// if there is no name.
    pub(crate) async fn client_of_shard(&self, of: &OfShard) -> Result<Client, Failure> {
        let client = self.client().await?;
        match of.shard.as_deref() {
            None => Ok(client),
            Some("all") => Ok(client.at_all_shards()),
            Some(name) => {
                let shard = ShardId::new(name).ok_or_else(|| {
                    Failure::usage(format!(
                        "--shard: {name:?} is not a shard: 1 to 64 characters of A-Z a-z 0-9 . _ -"
                    ))
                })?;
                Ok(client.at_shard(&shard))
            }
        }
    }

    /// Returns a client for long waits, which survives a restart of the server.
    pub(crate) fn client_for_long_waits(&self) -> Result<Client, Failure> {
        let mut options = self.options()?;
        options.retry.total_max = options.retry.total_max.max(AWAY_MAX);
        Client::new(options).map_err(Into::into)
    }

    /// Returns a client that does not retry.
    pub(crate) fn client_without_retries(&self) -> Result<Client, Failure> {
        let mut options = self.options()?;
        options.retry.total_max = Duration::ZERO;
        Client::new(options).map_err(Into::into)
    }

    /// Converts an error, adding the address if the error concerns it.
    pub(crate) fn explain(&self, error: ganger_client::Error) -> Failure {
        let is_unreachable = error.is_unreachable() && error.code() != code::WRONG_PORT;
        let mut failure = Failure::from(error);
        if failure.message.contains("certificate") {
            failure.next_step =
                Some("docs/security.md shows how certificates are made and used".to_owned());
        }
        if is_unreachable {
            failure.message = format!(
                "cannot reach a ganger server at {}: {}",
                self.global.server, failure.message
            );
        }
        failure
    }

    /// Whether to print JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.global.json
    }

    /// Palette of colours for the output; without colours if they are off.
    pub(crate) fn palette(&self) -> Palette {
        let wanted =
            io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|it| it.is_empty());
        Palette::new(wanted && !self.is_json())
    }

    /// Prints a line on standard output.
    #[expect(clippy::unused_self, reason = "all output goes through the context")]
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_ref().as_bytes())?;
        out.write_all(b"\n")?;
        Ok(())
    }

    /// Prints one JSON document in a line.
    pub(crate) fn json(&self, document: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(document).expect("a document is plain data");
        // Values that are kept as their exact text may have line ends between their parts, never inside strings.
        self.line(text.replace(['\n', '\r'], " "))
    }

    /// Prints `document` if --json is given, else `text`.
    pub(crate) fn either(
        &self,
        document: &impl Serialize,
        text: impl AsRef<str>,
    ) -> Result<(), Failure> {
        if self.is_json() {
            self.json(document)
        } else {
            self.line(text)
        }
    }
}

/// Prints a remark to standard error; it is not part of the output.
#[expect(clippy::print_stderr, reason = "this is where remarks go")]
pub(crate) fn remark(text: impl AsRef<str>) {
    eprintln!("{}", text.as_ref());
}

/// The name of an entry of a list, with its shard if the list is of all shards.
pub(crate) fn with_shard(shard: Option<&str>, name: &str) -> String {
    let name = escape::line(name);
    match shard {
        Some(shard) => format!("{}/{name}", escape::line(shard)),
        None => name,
    }
}

/// Remarks that the entries of shards are missing from a list.
pub(crate) fn remark_unreachable(shards: &[String]) {
    if !shards.is_empty() {
        remark(format!(
            "shards that cannot be reached are missing: {}",
            shards.join(", ")
        ));
    }
}

/// Returns the token from the environment, or from the file named there; `None` if there is none.
pub(crate) fn token() -> Result<Option<String>, Failure> {
    if let Some(token) = env::var_os("GANGER_TOKEN").filter(|token| !token.is_empty()) {
        return match token.into_string() {
            Ok(token) => Ok(Some(token.trim().to_owned())),
            Err(_) => Err(Failure::usage("GANGER_TOKEN is not UTF-8 text")),
        };
    }
    let Some(path) = env::var_os("GANGER_TOKEN_FILE").filter(|path| !path.is_empty()) else {
        return Ok(None);
    };
    let path = PathBuf::from(path);
    let text = fs::read_to_string(&path).map_err(|error| {
        Failure::new(
            Exit::Usage,
            "file",
            format!("GANGER_TOKEN_FILE: {}: {error}", path.display()),
        )
    })?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Failure::usage(format!(
            "GANGER_TOKEN_FILE: {} is empty",
            path.display()
        )));
    }
    Ok(Some(token.to_owned()))
}
