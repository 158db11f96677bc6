//! Error messages of the JSON parser, rewritten in terms of JSON.
//!
//! The parser describes what it expected by the Rust types of the server (`struct NewEdge`, `i64`). A client only
//! knows objects, lists, strings and numbers. HTTP and the command line both rewrite their messages here.

/// Characters of a refused value that a message shows.
const SHOWN_MAX: usize = 100;

/// Rewrites a message of the JSON parser so that it names JSON types instead of types of the server. Other messages
/// do not change, except that long values are cut.
pub fn in_json_words(message: &str) -> String {
    let (kind, rest) = message.split_once(": ").unwrap_or((message, ""));
    match (kind, rest.rsplit_once(", expected ")) {
        ("invalid type" | "invalid value", Some((found, wanted))) => {
            format!(
                "expected {}, not {}",
                wanted_words(wanted),
                found_words(found)
            )
        }
        ("invalid type" | "invalid value", None) => format!("not possible here: {}", cut(rest)),
        _ => length_words(message).unwrap_or_else(|| cut(message)),
    }
}

/// `invalid length 0, expected struct X with 2 elements`: a list where an object belongs.
fn length_words(message: &str) -> Option<String> {
    let rest = message.strip_prefix("invalid length ")?;
    let (count, wanted) = rest.split_once(", expected ")?;
    let wanted = wanted_words(wanted);
    Some(format!("expected {wanted}, not a list of {count}"))
}

/// What the parser expected, in terms of JSON.
fn wanted_words(wanted: &str) -> String {
    let bounded = |min: &str, max: &str| format!("a whole number from {min} to {max}");
    match wanted {
        "u8" => bounded("0", &u8::MAX.to_string()),
        "u16" => bounded("0", &u16::MAX.to_string()),
        "u32" => bounded("0", &u32::MAX.to_string()),
        "u64" | "usize" | "u128" => "a whole number that is not negative".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" | "i128" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "str" | "string" | "a borrowed string" | "a character" => "a string".to_owned(),
        "unit" => "null".to_owned(),
        _ if wanted.starts_with("struct ") => "an object".to_owned(),
        _ if wanted.starts_with("tuple") => "a list".to_owned(),
        _ if wanted.starts_with("enum ") || wanted.contains("variant") => "a word".to_owned(),
        _ => wanted.to_owned(),
    }
}

/// What the parser found, in terms of JSON.
fn found_words(found: &str) -> String {
    match found {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "unit value" | "Option value" => "null".to_owned(),
        _ => {
            let number = found
                .strip_prefix("integer ")
                .or_else(|| found.strip_prefix("floating point "));
            if let Some(number) = number {
                return number.trim_matches('`').to_owned();
            }
            if let Some(value) = found.strip_prefix("boolean ") {
                return value.trim_matches('`').to_owned();
            }
            if found.contains("variant") && !found.starts_with("string ") {
                return "a value of another form".to_owned();
            }
            cut(found.strip_prefix("string ").unwrap_or(found))
        }
    }
}

/// The text, cut to its beginning and three dots if it is long.
fn cut(text: &str) -> String {
    if text.chars().nth(SHOWN_MAX * 2).is_none() {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(SHOWN_MAX).collect();
    out.push_str("...");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_server_become_words_of_json() {
        for (message, wanted) in [
            (
                "invalid type: string \"x\", expected struct UniqueIn",
                "expected an object, not \"x\"",
            ),
            (
                "invalid type: string \"1, expected struct A\", expected i64",
                "expected a whole number, not \"1, expected struct A\"",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "expected a whole number from 0 to 4294967295, not -1",
            ),
            (
                "invalid type: floating point `1.5`, expected u64",
                "expected a whole number that is not negative, not 1.5",
            ),
            (
                "invalid type: null, expected a sequence",
                "expected a list, not null",
            ),
            (
                "invalid type: map, expected a boolean",
                "expected true or false, not an object",
            ),
            (
                "invalid length 0, expected struct JobIn with 22 elements",
                "expected an object, not a list of 0",
            ),
            (
                "invalid type: sequence, expected an object such as {\"key\": \"user-1\"}",
                "expected an object such as {\"key\": \"user-1\"}, not a list",
            ),
            ("missing field `kind`", "missing field `kind`"),
        ] {
            assert_eq!(in_json_words(message), wanted, "{message}");
        }
    }

    #[test]
    fn a_long_value_is_cut() {
        let long = "x".repeat(1_000_000);
        let message = in_json_words(&format!("invalid type: string {long:?}, expected u32"));
        assert!(message.len() < 400, "{}", message.len());
        assert!(in_json_words(&format!("unknown field `{long}`")).len() < 400);
    }
}
