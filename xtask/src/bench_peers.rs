//! Measures ganger beside its peers.
use anyhow::Result;
pub(crate) fn run(_arguments: &[String]) -> Result<()> {
    anyhow::bail!("not yet")
}
