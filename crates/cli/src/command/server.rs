//! `ganger server`: flags to settings; the server itself is in `ganger-server`.

use std::path::PathBuf;

use clap::Args;
use ganger_server::Flag;

use crate::exit::{Exit, Failure, Outcome};

/// Runs a server until SIGTERM or Ctrl-C.
///
/// Settings come from a TOML file, the environment (`GANGER_ADDR`, `GANGER_DB`, ...) and flags; later ones win.
/// Without TLS, and tokens or certificates of clients, the server listens on this machine only. Secrets come from
/// files or the environment. Certificates, tokens and rights are read again when their files change, and on SIGHUP.
///
/// Ends with 2 if a setting is wrong, 3 if the store cannot be used, 4 if the address is taken,
/// 5 if the shard stopped by itself.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Where to listen; :PORT is this machine only.
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<String>,

    /// Where to listen for clients of Redis, such as 127.0.0.1:6379; nowhere if not given.
    #[cfg(feature = "redis")]
    #[arg(long, value_name = "HOST:PORT")]
    resp: Option<String>,

    /// Let FLUSHDB and FLUSHALL of the Redis port remove all keys.
    #[cfg(feature = "redis")]
    #[arg(long)]
    resp_allow_flush: bool,

    /// Where to listen for NGSI notifications as QuantumLeap does, such as 127.0.0.1:8668; nowhere if not given.
    #[cfg(feature = "quantumleap")]
    #[arg(long, value_name = "HOST:PORT")]
    quantumleap: Option<String>,

    /// A directory for samples of durations and of what the process uses, in CSV files.
    #[cfg(feature = "quantumleap")]
    #[arg(long, value_name = "DIR")]
    collect_telemetry_in: Option<String>,

    /// The id of the shard.
    #[arg(long, value_name = "ID")]
    shard: Option<String>,

    /// Several shards in this process, each with a store of its own: their ids with commas, or how many.
    #[arg(long, value_name = "IDS", conflicts_with = "shard")]
    shards: Option<String>,

    /// Where other shards are: static:1=HOST:PORT,2=HOST:PORT or dns:%s.example.com:3733.
    #[arg(long, value_name = "WHERE")]
    topology: Option<String>,

    /// A file with the token to show to other servers; without it the one that clients must show.
    #[arg(long, value_name = "FILE")]
    peer_token_file: Option<String>,

    /// The store's file; with several shards, -SHARD goes before its extension. :memory: keeps nothing.
    #[arg(long, value_name = "FILE")]
    db: Option<String>,

    /// The directory of the store's file, if --db is not given.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,

    /// A file with the token that clients must show.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,

    /// Tokens and certificates with what each may do, as `ganger token` writes it.
    #[arg(long, value_name = "FILE")]
    access_file: Option<String>,

    /// The server's certificate, and those that lead to its authority (PEM).
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,

    /// The certificate's private key (PEM).
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,

    /// Authorities of clients' certificates (PEM).
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<String>,

    /// What clients must show: token, client-cert, both, or either.
    #[arg(long, value_name = "WHAT")]
    require: Option<String>,

    /// A file for the audit log; without it, it goes into the ordinary log.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<String>,

    /// Listen beyond this machine although encryption, or a check of who asks, is missing.
    #[arg(long)]
    insecure: bool,

    /// A name by which clients may call this server; may be repeated, * is any.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// Which log lines: error, warn, info, debug, trace, or directives.
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,

    /// How log lines look: text or json.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,

    /// How long a stop waits for requests in flight.
    #[arg(long, value_name = "DURATION")]
    stop_timeout: Option<String>,

    /// Free space kept for reports and deletion when the disk is full, such as 256MiB.
    #[arg(long, value_name = "BYTES")]
    reserve_bytes: Option<String>,

    /// A file with settings.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Any other setting, such as limits.connections=20000; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// List all settings with their defaults, and end.
    #[arg(long)]
    list_settings: bool,
}

/// Not asynchronous: the server makes its own threads.
pub(crate) fn run(args: ServerArgs) -> Outcome {
    if args.list_settings {
        return list();
    }
    let file = args.config.clone();
    let flags = flags(args)?;
    let config = ganger_server::load(file.as_deref(), std::env::vars_os(), &flags);
    let outcome = config.map_err(Into::into).and_then(ganger_server::run);
    match outcome {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(Failure::new(
            Exit::Server(error.exit_code()),
            "server",
            error.to_string(),
        )),
    }
}

fn list() -> Outcome {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    for key in ganger_server::keys() {
        let default = if key.default.is_empty() {
            "none"
        } else {
            key.default
        };
        let variable = key.variable();
        writeln!(
            out,
            "{:32} {variable:40} {default:16} {}",
            key.name, key.about
        )?;
    }
    Ok(Exit::Done)
}

fn flags(args: ServerArgs) -> Result<Vec<Flag>, Failure> {
    let insecure = args.insecure.then(|| "true".to_owned());
    #[cfg(feature = "redis")]
    let allow_flush = args.resp_allow_flush.then(|| "true".to_owned());
    let hosts = (!args.hosts.is_empty()).then(|| args.hosts.join(","));
    let named = [
        ("data_dir", "--data-dir", args.data_dir),
        ("db", "--db", args.db),
        ("addr", "--addr", args.addr),
        #[cfg(feature = "redis")]
        ("resp", "--resp", args.resp),
        #[cfg(feature = "redis")]
        ("resp_allow_flush", "--resp-allow-flush", allow_flush),
        #[cfg(feature = "quantumleap")]
        ("quantumleap", "--quantumleap", args.quantumleap),
        #[cfg(feature = "quantumleap")]
        (
            "telemetry_dir",
            "--collect-telemetry-in",
            args.collect_telemetry_in,
        ),
        ("shard", "--shard", args.shard),
        ("shards", "--shards", args.shards),
        ("topology", "--topology", args.topology),
        ("peer_token_file", "--peer-token-file", args.peer_token_file),
        ("token_file", "--token-file", args.token_file),
        ("access_file", "--access-file", args.access_file),
        ("tls.cert", "--tls-cert", args.tls_cert),
        ("tls.key", "--tls-key", args.tls_key),
        ("tls.client_ca", "--tls-client-ca", args.tls_client_ca),
        ("require", "--require", args.require),
        ("audit_log", "--audit-log", args.audit_log),
        ("insecure", "--insecure", insecure),
        ("hosts", "--host", hosts),
        ("log", "--log", args.log),
        ("log_format", "--log-format", args.log_format),
        ("stop_timeout", "--stop-timeout", args.stop_timeout),
        ("reserve_bytes", "--reserve-bytes", args.reserve_bytes),
    ];
    let mut flags: Vec<Flag> = named
        .into_iter()
        .filter_map(|(key, flag, value)| {
            Some(Flag {
                key,
                flag,
                value: value?,
            })
        })
        .collect();
    for setting in args.settings {
        let Some((name, value)) = setting.split_once('=') else {
            return Err(Failure::usage(format!(
                "--set {setting}: write it KEY=VALUE"
            )));
        };
        let key = ganger_server::find_key(name).map_err(|reason| {
            let failure = Failure::usage(format!("--set: {reason}"));
            failure.then("`ganger server --list-settings` lists the settings of this build")
        })?;
        flags.push(Flag {
            key: key.name,
            flag: "--set",
            value: value.to_owned(),
        });
    }
    Ok(flags)
}
