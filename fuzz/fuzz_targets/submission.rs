//! Runs `ganger_fuzz::submission` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::submission::run(data));
