//! `ganger server`: flags to settings; the server itself is in `ganger-server`.

use std::path::PathBuf;

use clap::Args;
use ganger_server::Flag;

use crate::exit::{Exit, Failure, Outcome};

/// Runs a server until SIGTERM or Ctrl-C.
///
/// Settings come from a TOML file, the environment (`GANGER_ADDR`, `GANGER_DB`, ...) and flags; later ones override
/// earlier ones. Without TLS, and tokens or client certificates, the server listens on this machine only. Secrets
/// come from files or the environment. Certificates, tokens and rights are read again when their files change, and on
/// SIGHUP.
///
/// Exits with 2 if a setting is wrong, 3 if the store cannot be used, 4 if the address is in use, 5 if the shard
/// stopped by itself.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Address to listen on; :PORT is this machine only.
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<String>,

    /// Address to listen on for Redis clients, such as 127.0.0.1:6379; no such port if absent.
    #[cfg(feature = "redis")]
    #[arg(long, value_name = "HOST:PORT")]
    resp: Option<String>,

    /// Let FLUSHDB and FLUSHALL of the Redis port remove all keys.
    #[cfg(feature = "redis")]
    #[arg(long)]
    resp_allow_flush: bool,

    /// Address to listen on for NGSI notifications as QuantumLeap does, such as 127.0.0.1:8668; no such port if
    /// absent.
    #[cfg(feature = "quantumleap")]
    #[arg(long, value_name = "HOST:PORT")]
    quantumleap: Option<String>,

    /// Directory for samples of durations and resource usage, in CSV files.
    #[cfg(feature = "quantumleap")]
    #[arg(long, value_name = "DIR")]
    collect_telemetry_in: Option<String>,

    /// Id of the shard.
    #[arg(long, value_name = "ID")]
    shard: Option<String>,

    /// Several shards in this process, each with its own store: their ids separated by commas, or their number.
    #[arg(long, value_name = "IDS", conflicts_with = "shard")]
    shards: Option<String>,

    /// Addresses of other shards: static:1=HOST:PORT,2=HOST:PORT or dns:%s.example.com:3733.
    #[arg(long, value_name = "WHERE")]
    topology: Option<String>,

    /// File with the token for other servers; without it the token that clients must send.
    #[arg(long, value_name = "FILE")]
    peer_token_file: Option<String>,

    /// File of the store; with several shards, -SHARD is inserted before its extension. :memory: stores nothing on
    /// disk.
    #[arg(long, value_name = "FILE")]
    db: Option<String>,

    /// PostgreSQL with the shards, instead of a file: postgres://USER@HOST:PORT/DATABASE. `ganger cluster init`
    /// prepares it. The password comes from `GANGER_STORE_PASSWORD` or --store-password-file.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// File with the password of the database's role.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "FILE")]
    store_password_file: Option<String>,

    /// Name of the cluster in the database, which this process joins as one of several nodes; alone if absent.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// Name of this process among those of the cluster; that of the machine if absent.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,

    /// Address at which other nodes of the cluster reach this one; that of --addr if absent.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,

    /// Time without a beat after which other nodes take the shards of this one over: 2s to 60s, default 6s.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "TIME")]
    ownership_lease: Option<String>,

    /// Longest time for which a stopping node hands its shards over to other nodes; default 30s.
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "TIME")]
    drain_for: Option<String>,

    /// Use a database that may lose acknowledged jobs in a crash, such as one with fsync = off.
    #[cfg(feature = "postgres")]
    #[arg(long, num_args = 0, default_missing_value = "true")]
    store_loss_window: Option<String>,

    /// Directory of the store's file, if --db is not given.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,

    /// File with the token that clients must send.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,

    /// File of tokens and certificates with their grants, as `ganger token` writes it.
    #[arg(long, value_name = "FILE")]
    access_file: Option<String>,

    /// The server's certificate, followed by intermediate certificates (PEM).
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,

    /// The certificate's private key (PEM).
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,

    /// Authorities of client certificates (PEM).
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<String>,

    /// Credentials that clients must present: token, client-cert, both, or either.
    #[arg(long, value_name = "WHAT")]
    require: Option<String>,

    /// File of the audit log; the ordinary log if absent.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<String>,

    /// Listen beyond this machine although encryption or authentication is missing.
    #[arg(long)]
    insecure: bool,

    /// Host name by which clients may call this server; may be repeated, * allows any.
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,

    /// Filter of log lines: error, warn, info, debug, trace, or directives.
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,

    /// Format of log lines: text or json.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,

    /// Longest time that a stop waits for requests in flight.
    #[arg(long, value_name = "DURATION")]
    stop_timeout: Option<String>,

    /// Free space kept for reports and deletion when the disk is full, such as 256MiB.
    #[arg(long, value_name = "BYTES")]
    reserve_bytes: Option<String>,

    /// File with settings, in TOML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Any other setting, such as limits.connections=20000; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,

    /// List all settings with their defaults, and exit.
    #[arg(long)]
    list_settings: bool,
}

/// Runs the server. Not asynchronous: the server starts its own threads.
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
        #[cfg(feature = "postgres")]
        ("store", "--store", args.store),
        #[cfg(feature = "postgres")]
        (
            "store_password_file",
            "--store-password-file",
            args.store_password_file,
        ),
        #[cfg(feature = "postgres")]
        ("cluster", "--cluster", args.cluster),
        #[cfg(feature = "postgres")]
        ("node", "--node", args.node),
        #[cfg(feature = "postgres")]
        ("advertise", "--advertise", args.advertise),
        #[cfg(feature = "postgres")]
        ("ownership_lease", "--ownership-lease", args.ownership_lease),
        #[cfg(feature = "postgres")]
        ("drain_for", "--drain-for", args.drain_for),
        #[cfg(feature = "postgres")]
        (
            "store_loss_window",
            "--store-loss-window",
            args.store_loss_window,
        ),
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
