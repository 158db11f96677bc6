//! `ganger version`: versions of the program and of the server.

use clap::Args;
use serde_json::json;

use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::show::escape;

/// Shows the version of this program, and of the server if it can be reached.
#[derive(Args, Debug)]
pub(crate) struct VersionArgs {
    /// Show the version of this program only.
    #[arg(long)]
    client: bool,
}

pub(crate) async fn run(context: &Context, args: &VersionArgs) -> Outcome {
    let own = env!("CARGO_PKG_VERSION");
    let server = if args.client {
        None
    } else {
        // A missing server is not a failure of this command.
        match context.client().await {
            Ok(client) => client.info().await.ok().map(|info| info.version),
            Err(_) => None,
        }
    };
    let at = &context.global.server;
    let text = match &server {
        Some(server) => format!("ganger {own}\nserver {} at {at}", escape::line(server)),
        None if args.client => format!("ganger {own}"),
        None => format!("ganger {own}\nno server answers at {at}"),
    };
    context.either(&json!({ "client": own, "server": server }), text)?;
    Ok(Exit::Done)
}
