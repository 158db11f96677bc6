//! Runs `ganger_fuzz::qless` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ganger_fuzz::qless::run(data));
