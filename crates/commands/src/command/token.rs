//! `ganger token`: makes, lists and revokes tokens in the server's access file.
//!
//! No server is contacted: the server reads the changed file within seconds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use ganger_access::{AccessError, AccessFile, Entry, Grant, Grants, Kind, NewSecret, Role};
use jiff::Timestamp;
use serde_json::json;

use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::escape;
use crate::show::table::Rows;

/// Create, list and revoke tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print its secret, which is shown only once.
    Create(CreateArgs),
    /// List tokens and certificates with their grants.
    List(ListArgs),
    /// Revoke tokens or certificates; the server refuses them within seconds.
    Revoke(RevokeArgs),
}

/// The access file to use.
#[derive(Args, Debug)]
struct AccessFileArgs {
    /// The server's access file.
    #[arg(long, value_name = "FILE", env = "GANGER_ACCESS_FILE")]
    access_file: PathBuf,
}

/// Arguments for creating a token.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    place: AccessFileArgs,

    /// Name of the token, for lists and logs.
    #[arg(long, value_name = "NAME")]
    name: String,

    /// Role in the namespace of --namespace: admin, operator, producer, worker, reader; may be repeated. --namespace
    /// '*' covers all namespaces, --namespace 'team-*' those with that prefix.
    #[arg(long = "role", value_name = "ROLE", required_unless_present = "grants")]
    roles: Vec<Role>,

    /// Role in another namespace, such as reader@team-*; may be repeated.
    #[arg(long = "grant", value_name = "ROLE@NAMESPACE")]
    grants: Vec<Grant>,

    /// Time at which the token expires, such as 2030-01-31T00:00:00Z, or a duration from now such as 90d.
    #[arg(long, value_name = "TIME", value_parser = read_end)]
    expires: Option<Timestamp>,

    /// Write the secret to this file, readable by its owner only, instead of printing it.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// Arguments for listing tokens.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: AccessFileArgs,
}

/// Arguments for revoking tokens.
#[derive(Args, Debug)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    place: AccessFileArgs,

    /// Names of the tokens to revoke.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn run(context: &Context, command: TokenCommand) -> Outcome {
    match command {
        TokenCommand::Create(args) => create(context, args),
        TokenCommand::List(args) => list(context, &args.place.access_file),
        TokenCommand::Revoke(args) => revoke(context, &args),
    }
}

fn create(context: &Context, args: CreateArgs) -> Outcome {
    let namespace = &context.global.namespace;
    let mut grants: Vec<_> = args
        .roles
        .iter()
        .map(|role| Grant::new(*role, namespace))
        .collect();
    grants.extend(args.grants);
    let now = Timestamp::now();
    if args.expires.is_some_and(|at| at <= now) {
        return Err(Failure::usage("--expires: this time has passed"));
    }
    if args.name.is_empty() || args.name.len() > 255 {
        return Err(Failure::usage("--name: must have 1 to 255 bytes"));
    }
    let secret = NewSecret::make().map_err(failure)?;
    let entry = Entry {
        name: args.name,
        kind: Kind::Token(secret.hash()),
        grants: Grants(grants),
        expires: args.expires,
        created: Some(now),
    };
    // The secret is written before the token is valid: otherwise a full disk would leave a token whose secret is
    // lost.
    if let Some(path) = &args.secret_file {
        keep(path, secret.reveal()).map_err(|error| Failure::file(path, &error))?;
    }
    if let Err(error) = ganger_access::add(&args.place.access_file, &entry) {
        if let Some(path) = &args.secret_file {
            // The secret is not valid, so leaving it behind does no harm.
            let _ = fs::remove_file(path);
        }
        return Err(failure(error));
    }
    if args.secret_file.is_some() {
        return Ok(Exit::Done);
    }
    if context.is_json() {
        context.json(&json!({
            "name": entry.name,
            "secret": secret.reveal(),
            "grants": entry.grants.to_string(),
            "expires": entry.expires.map(|at| at.to_string()),
        }))?;
    } else {
        context.line(secret.reveal())?;
        remark(
            "this is the only time that the secret is shown: keep it in a file, and name that in GANGER_TOKEN_FILE",
        );
    }
    Ok(Exit::Done)
}

fn keep(path: &Path, secret: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(format!("{secret}\n").as_bytes())?;
    file.sync_all()
}

fn list(context: &Context, path: &Path) -> Outcome {
    let file = AccessFile::load(path).map_err(failure)?;
    let now = Timestamp::now();
    if context.is_json() {
        for entry in &file.entries {
            context.json(&json!({
                "kind": entry.kind_word(),
                "name": entry.name,
                "grants": entry.grants.to_string(),
                "created": entry.created.map(|at| at.to_string()),
                "expires": entry.expires.map(|at| at.to_string()),
                "expired": !entry.is_live(now),
            }))?;
        }
        return Ok(Exit::Done);
    }
    let shown = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let mut rows = Rows::new(&["kind", "name", "grants", "created", "expires"]);
    for entry in &file.entries {
        let end = match entry.expires {
            Some(_) if !entry.is_live(now) => "expired".to_owned(),
            end => shown(end),
        };
        rows.push([
            entry.kind_word().to_owned(),
            escape::text(&entry.name),
            entry.grants.to_string(),
            shown(entry.created),
            end,
        ]);
    }
    context.line(rows.text())?;
    Ok(Exit::Done)
}

fn revoke(context: &Context, args: &RevokeArgs) -> Outcome {
    for name in &args.names {
        ganger_access::revoke(&args.place.access_file, name).map_err(failure)?;
        context.either(&json!({ "revoked": name }), format!("revoked {name}"))?;
    }
    Ok(Exit::Done)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes it by value"
)]
fn failure(error: AccessError) -> Failure {
    let exit = match &error {
        AccessError::NotFound { .. } => Exit::NotFound,
        AccessError::NameTaken { .. } => Exit::Refused,
        _ => Exit::Usage,
    };
    Failure::new(exit, "access_file", error.to_string())
}

/// Reads a time, or a duration from now.
fn read_end(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let span: Duration = read_span(text).map_err(|_| {
        format!(
            "{text:?} is not a time: write 2030-01-31T00:00:00Z, or a duration from now such as 90d"
        )
    })?;
    Timestamp::now()
        .checked_add(span)
        .map_err(|_| format!("{text:?} is too far away"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_a_time_or_a_duration() {
        assert!(read_end("2030-01-31T00:00:00Z").is_ok());
        assert!(read_end("12h").expect("a duration") > Timestamp::now());
        for text in ["", "soon", "-1h"] {
            assert!(read_end(text).is_err(), "{text}");
        }
    }
}
