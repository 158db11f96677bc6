//! Runs `ganger_fuzz::resp` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::resp::run(data));
