//! Runs `ganger_fuzz::configuration` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::configuration::run(data));
