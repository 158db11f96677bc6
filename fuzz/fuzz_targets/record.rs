//! Runs `ganger_fuzz::record` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::record::run(data));
