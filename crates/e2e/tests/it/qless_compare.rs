//! Random calls of the qless script get the same answers from ganger and from a Redis that runs the script.

use anyhow::Result;
use ganger_e2e::clients::Qless;
use ganger_e2e::ports::free_address;
use ganger_e2e::redis::{Redis, TestBed, or_skip};

/// Number of calls for each seed.
const CALLS: &str = "3000";
/// Seeds of the random calls.
const SEEDS: [&str; 2] = ["1", "2"];

#[test]
fn random_calls_are_answered_as_the_script_answers_them_in_redis() -> Result<()> {
    const NAME: &str = "random_calls_are_answered_as_the_script_answers_them_in_redis";
    let address = free_address()?;
    let Some(_redis) = or_skip(NAME, Redis::start(address)) else {
        return Ok(());
    };
    for seed in SEEDS {
        let Some(python) = or_skip(NAME, Qless::Reqless.python()) else {
            return Ok(());
        };
        let test_bed = TestBed::new(&["--resp-allow-flush"])?;
        let port = address.port().to_string();
        test_bed.run_with_server(python, "qless_compare.py", &[&port, seed, CALLS])?;
    }
    Ok(())
}
