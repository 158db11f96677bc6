//! What the parser accepts and refuses, and that the writer and the parser lose nothing between them.

use bytes::Bytes;
use ganger_types::qless::QlessTag;
use proptest::prelude::*;

use super::{Kind, kind, list, object};
use crate::json::Writer;

fn text(text: &'static str) -> QlessTag {
    QlessTag::Text(Bytes::from(text))
}

fn members(json: &str) -> Vec<(String, String)> {
    let members = object(json.as_bytes()).expect("an object");
    let string = |it: Bytes| String::from_utf8(it.to_vec()).expect("the test reads UTF-8");
    members
        .into_iter()
        .map(|(key, value)| (string(key), string(value)))
        .collect()
}

#[test]
fn the_type_of_a_value_is_returned() {
    for (text, expected) in [
        ("null", Kind::Null),
        (" false ", Kind::False),
        ("true", Kind::True),
        ("-0.5e+10", Kind::Number),
        ("1e999", Kind::Number),
        ("NaN", Kind::Number),
        ("-Infinity", Kind::Number),
        (r#""a\u00e9\ud83d\ude00\/""#, Kind::Text),
        ("[]", Kind::List),
        ("[1, [], {}, [{}]]", Kind::List),
        ("{}", Kind::Object),
        ("\t{ \"a\" : [ 1 , 2 ] ,\r\n\"b\":null } ", Kind::Object),
        ("\"raw \n control \u{1}\"", Kind::Text),
    ] {
        assert_eq!(kind(text.as_bytes()), Ok(expected), "{text}");
    }
    assert_eq!(kind(b"\"\xff\xfe\""), Ok(Kind::Text));
}

#[test]
fn what_is_not_json_is_refused() {
    for text in [
        "",
        " ",
        "nul",
        "nulll",
        "tru",
        "01",
        "-",
        "+1",
        ".5",
        "5.",
        "1e",
        "0x10",
        "nan",
        "--1",
        "-NaN",
        "\"",
        "\"a",
        r#""\x""#,
        r#""\u12""#,
        r#""\u12g4""#,
        r#""\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00\ud800""#,
        r#""\"#,
        "[",
        "]",
        "[1",
        "[1,",
        "[,1]",
        "[1,]",
        "[1 2]",
        "[1}",
        "{",
        "}",
        "{1:2}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":1",
        "{\"a\":1]",
        "{,}",
        "1 2",
        "{} {}",
        "'a'",
        "[]]",
    ] {
        assert!(kind(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn an_error_says_what_was_expected_and_where() {
    let wrong = kind(b"[1, x]").expect_err("x is nothing");
    assert_eq!(
        wrong.to_string(),
        "Expected value but found invalid token at character 5"
    );
}

#[test]
fn a_thousand_levels_are_read_and_one_more_is_refused() {
    for (open, inner, close) in [("[", "1", "]"), ("[", "", "]"), (r#"{"a":"#, "[]", "}")] {
        let nested = |levels: usize| {
            let text = format!("{}{inner}{}", open.repeat(levels), close.repeat(levels));
            kind(text.as_bytes())
        };
        let levels = 1000 - inner.len() / 2;
        assert!(nested(levels).is_ok());
        assert!(nested(levels + 1).is_err());
    }
    assert!(kind("[".repeat(1_000_000).as_bytes()).is_err());
}

#[test]
fn a_list_holds_strings_and_numbers() {
    let read = list(br#" [ "a" , 1 ,"\u00e9\ud83d\ude00\n", -2.50, "1" ] "#).expect("a list");
    let expected = [
        text("a"),
        QlessTag::Number(1.0),
        text("\u{e9}\u{1f600}\n"),
        QlessTag::Number(-2.5),
        text("1"),
    ];
    assert_eq!(read, expected);
}

#[test]
fn an_empty_object_is_an_empty_list_and_the_other_way_round() {
    assert_eq!(list(b"{}"), Ok(Vec::new()));
    assert_eq!(list(b" { } "), Ok(Vec::new()));
    assert_eq!(list(b"[ ]"), Ok(Vec::new()));
    assert_eq!(object(b"[]"), Ok(Vec::new()));
    assert_eq!(object(b" { } "), Ok(Vec::new()));
}

#[test]
fn a_list_of_anything_else_is_refused() {
    for text in [
        "",
        "1",
        "\"a\"",
        "null",
        "true",
        "{\"a\":1}",
        "[[]]",
        "[{}]",
        "[null]",
        "[true]",
        "[1e999]",
        "[NaN]",
        "[1,]",
        "[1",
        "[1] 2",
        "{",
        "{]",
        "[\"a]",
    ] {
        assert!(list(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn the_values_of_an_object_are_written_by_the_habits_of_the_writer() {
    let read = members(
        r#"{ "b" : [ ] , "a/" : { "x" : [ 1.0 , "a/b" , { } , null ] , "y" : false } , "n" : 0.10000000000000001 }"#,
    );
    let expected = [
        ("a/", r#"{"x":[1,"a\/b",{},null],"y":false}"#),
        ("b", "{}"),
        ("n", "0.1"),
    ];
    assert_eq!(
        read,
        expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
}

#[test]
fn of_a_repeated_key_the_last_value_counts() {
    let read = members(r#"{"a":1,"b":2,"\u0061":3,"a":4}"#);
    let expected = [("a", "4"), ("b", "2")];
    assert_eq!(
        read,
        expected.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
}

#[test]
fn what_is_no_object_is_refused_as_one() {
    for text in [
        "",
        "1",
        "\"a\"",
        "null",
        "[1]",
        "{\"a\":NaN}",
        "{\"a\":1e999}",
        "{\"a\":1,}",
        "{\"a\":1} x",
        "{a:1}",
    ] {
        assert!(object(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn escapes_stand_for_utf_8() {
    let read =
        list(br#"["\"\\\/\b\f\n\r\t\u0000\u0041\u00E9\u20ac\uD83D\uDE00"]"#).expect("a list");
    assert_eq!(
        read,
        [text("\"\\/\u{8}\u{c}\n\r\t\u{0}A\u{e9}\u{20ac}\u{1f600}")]
    );
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        (-1e9..1e9_f64).prop_map(Into::into),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::vec((".*", inner), 0..6)
                .prop_map(|it| serde_json::Value::Object(it.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn all_json_of_another_writer_is_read(value in value()) {
        prop_assert!(kind(value.to_string().as_bytes()).is_ok());
        let spread = format!("{value:#}");
        prop_assert!(kind(spread.as_bytes()).is_ok());
    }

    #[test]
    fn a_rewritten_value_is_read_by_another_reader(value in value()) {
        let json = serde_json::json!({ "it": value }).to_string();
        let read = object(json.as_bytes()).expect("an object");
        prop_assert_eq!(&read[0].0[..], b"it");
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&read[0].1).is_ok());
        // A text that the writer has formatted stays unchanged.
        let again = [b"{\"it\":", &read[0].1[..], b"}"].concat();
        prop_assert_eq!(object(&again), Ok(read));
    }

    #[test]
    fn what_the_writer_writes_is_read_back(texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..5)) {
        let mut writer = Writer::default();
        writer.strings(&texts);
        let expected: Vec<QlessTag> = texts.into_iter().map(|it| QlessTag::Text(it.into())).collect();
        prop_assert_eq!(list(&writer.finish()), Ok(expected));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(text in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = (kind(&text), list(&text), object(&text));
    }

    #[test]
    fn no_rubbish_of_json_makes_the_reader_panic(text in r#"[\[\]{}:,"\\u0-9a-fdD8.eE+ntrINal -]{0,60}"#) {
        let text = text.as_bytes();
        let _ = (kind(text), list(text), object(text));
    }
}
