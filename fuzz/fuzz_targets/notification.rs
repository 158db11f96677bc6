//! Runs `ganger_fuzz::notification` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::notification::run(data));
