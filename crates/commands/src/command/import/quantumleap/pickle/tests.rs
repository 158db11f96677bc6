use std::process::Command;

use serde_json::Value as Json;

use super::{Pickle, VALUES_MAX};

/// Limit on JSON that no pickle of these tests reaches.
const ENOUGH: usize = 4 << 20;

fn json(bytes: &[u8]) -> Result<Json, String> {
    let pickle = Pickle::read(bytes)?;
    pickle.json(pickle.top(), ENOUGH)
}

/// Returns random values as JSON, each with its pickles by Python in the protocols 2 to 5.
fn of_python(seed: u32, count: u32) -> Vec<(Json, Vec<Vec<u8>>)> {
    let output = Command::new("python3")
        .args(["-c", include_str!("pickles.py")])
        .args([seed.to_string(), count.to_string()])
        .output()
        .expect("this test needs python3");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problem}");
    let text = String::from_utf8(output.stdout).expect("it is ASCII");
    let lines = text.lines().map(|line| {
        let mut parts = line.split('\t');
        let json = parts.next().expect("there is one");
        let json = serde_json::from_str(json).expect("it is JSON");
        (json, parts.map(unhex).collect())
    });
    lines.collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    let bytes = digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
    bytes.collect::<Option<_>>().expect("hexadecimal digits")
}

#[test]
fn pickles_of_python_are_read_like_its_json() {
    for seed in 0..4 {
        for (expected, pickles) in of_python(seed, 30) {
            assert_eq!(pickles.len(), 4);
            for (bytes, protocol) in pickles.iter().zip(2..) {
                let found = json(bytes);
                assert_eq!(
                    found.as_ref(),
                    Ok(&expected),
                    "seed {seed}, protocol {protocol}"
                );
            }
        }
    }
}

/// A random number generator with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let limit = u64::try_from(limit).expect("it is small");
        usize::try_from(self.0 % limit).expect("it is small")
    }
}

#[test]
fn a_damaged_pickle_is_read_or_refused_and_never_panics() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for (_, pickles) in of_python(99, 40) {
        for bytes in pickles {
            for _ in 0..20 {
                let mut damaged = bytes.clone();
                for _ in 0..=random.below(3) {
                    let (at, byte) = (random.below(bytes.len()), random.below(256));
                    damaged[at] = u8::try_from(byte).expect("it is a byte");
                }
                damaged.truncate(damaged.len() - random.below(2) * random.below(bytes.len()));
                if let Ok(pickle) = Pickle::read(&damaged) {
                    // Calls every function that the importer uses.
                    let top = pickle.top();
                    let _ = pickle.json(top, 1 << 16);
                    let _ = pickle.exception(top, 1 << 10);
                    let _ = (pickle.class(top), pickle.text(top));
                    let _ = (pickle.entry(top, "a"), pickle.attribute(top, "a"));
                }
            }
        }
    }
}

#[test]
fn a_pickle_that_would_fill_the_memory_is_refused() {
    let refused = |bytes: &[u8], why: &str| {
        let error = json(bytes).expect_err(why);
        assert!(error.contains(why), "{error}");
    };
    let repeated = |first: &[u8], step: &[u8], count: usize| {
        let mut bytes = first.to_vec();
        bytes.extend(step.repeat(count));
        bytes.extend(b".");
        bytes
    };
    refused(&repeated(b"", b"N", VALUES_MAX + 1), "values");
    refused(&repeated(b"", b"(", VALUES_MAX + 1), "values");
    refused(&repeated(b"N", b"2", VALUES_MAX + 1), "values");
    // One value memorized more often than allowed.
    let mut memo = b"N".to_vec();
    for number in 0..=u32::try_from(VALUES_MAX).expect("it is small") {
        memo.push(b'r');
        memo.extend(number.to_le_bytes());
    }
    refused(&memo, "values");
    // Lists in lists, and a list in itself.
    refused(&repeated(b"]", b"\x85", 1_000), "levels");
    refused(b"]\x94h\0a.", "levels");
    // Each list has the one before twice: 2^100 values.
    refused(&repeated(b"N", b"2\x86", 100), "bytes as JSON");
    // A long text many times.
    let mut text = b"(X\0\0\x10\0".to_vec();
    text.extend(b"x".repeat(1 << 20));
    refused(
        &[&text[..], &b"2".repeat(10), b"t."].concat(),
        "bytes as JSON",
    );
    // Sizes beyond the end of the input.
    refused(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fx", "cut short");
    refused(b"B\xff\xff\xff\xffx", "cut short");
    refused(b"\x8b\x01\x08\0\0", "more than 2048 bytes");
}

#[test]
fn a_value_that_json_does_not_have_is_refused() {
    for (bytes, why) in [
        (&b"\x80\x04C\x01x."[..], "bytes or a set"),
        (b"\x80\x04\x8f\x94(K\x01\x90.", "bytes or a set"),
        (b"\x80\x04(K\x01\x91.", "bytes or a set"),
        (
            b"cos\nsystem\n.",
            r#""os"."system", which JSON does not have"#,
        ),
        (b"cos\nsystem\n(X\x04\0\0\0echotR.", r#""os"."system""#),
        (b"\x80\x04}K\x01K\x02s.", "not a text"),
        (b"G\x7f\xf0\0\0\0\0\0\0.", "inf is not a number"),
        (b"G\x7f\xf8\0\0\0\0\0\0.", "nan is not a number"),
        (b"\x80\x04\x8c\x03\xed\xa0\x80.", "not UTF-8"),
    ] {
        let error = json(bytes).expect_err(why);
        assert!(error.contains(why), "{}: {error}", bytes.escape_ascii());
    }
}

#[test]
fn attributes_of_objects_are_found() {
    let plain = b"\x80\x04\x8c\x01m\x8c\x01C\x93)\x81}\x8c\x01a\x94K\x07sb.";
    let pydantic = b"\x80\x04\x8c\x01m\x8c\x01C\x93)\x81}\x8c\x08__dict__}\x8c\x01aK\x07ssb.";
    for bytes in [&plain[..], pydantic] {
        let pickle = Pickle::read(bytes).expect("an object");
        assert_eq!(pickle.class(pickle.top()), Some(("m", "C")));
        let attribute = pickle.attribute(pickle.top(), "a").expect("it is there");
        assert_eq!(pickle.json(attribute, 10), Ok(7.into()));
        assert_eq!(pickle.attribute(pickle.top(), "b"), None);
    }
    // An object whose state is the object itself.
    let pickle = Pickle::read(b"cm\nC\n)\x81\x94h\0b.").expect("an object");
    assert_eq!(pickle.attribute(pickle.top(), "a"), None);
}

#[test]
fn exceptions_are_shown_as_python_shows_them() {
    let shown = |bytes: &[u8]| {
        let pickle = Pickle::read(bytes).expect("an exception");
        pickle.exception(pickle.top(), 1_000)
    };
    let error = b"\x80\x04\x8c\x08builtins\x8c\x0aValueError\x93\x8c\x02no\x85R.";
    assert_eq!(shown(error).as_deref(), Some("ValueError('no')"));
    let error = b"cpg8000.exceptions\nProgrammingError\n}X\x01\0\0\0CX\x05\0\0\x0000042s\x85R.";
    let expected = "ProgrammingError({'C': '00042'})";
    assert_eq!(shown(error).as_deref(), Some(expected));
    let error = b"cm\nE\nC\x01x\x85R.";
    assert_eq!(shown(error).as_deref(), Some("E(...)"));
    assert_eq!(shown(b"N."), None);
}

#[test]
fn bytes_that_are_not_a_pickle_are_refused() {
    let wrong: [&[u8]; 14] = [
        b"",
        b".",
        b"\x80\x04",
        b"\x80\x06N.",
        b"\x80\x04a.",
        b"\x80\x04h\x00.",
        b"\x80\x04K\x01K\x02s.",
        b"\x80\x04}(K\x01u.",
        b"\x80\x04K\x01)R.",
        b"\x80\x04K\x01}b.",
        b"\x80\x04N(0.",
        b"\x80\x04\xfe.",
        b"cos\nsystem",
        b"\x97.",
    ];
    for bytes in wrong {
        assert!(Pickle::read(bytes).is_err(), "{}", bytes.escape_ascii());
    }
}
