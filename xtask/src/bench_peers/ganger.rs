//! stub
use super::load::{Link, Peer};
use super::report::Report;
use anyhow::{Result, bail};
use std::path::Path;
pub(super) struct Server;
impl Server {
    pub(super) fn start(_f: &Path) -> Result<Self> {
        Ok(Self)
    }
    pub(super) fn measure_own(&self, _r: &mut Report) -> Result<()> {
        Ok(())
    }
    pub(super) fn programs(&self, _p: &str, _n: usize, _a: usize, _f: &Path) -> Result<f64> {
        Ok(1.0)
    }
}
impl Peer for Server {
    fn connect(&self) -> Result<Box<dyn Link>> {
        bail!("stub")
    }
}
