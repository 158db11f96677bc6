//! Requests decode however they are split, and replies decode to what was encoded.

use bytes::{Bytes, BytesMut};
use ganger_dialect_resp::{Decoder, Protocol, Request, Value};
use proptest::prelude::*;

/// The requests in these bytes, which arrive in pieces of these lengths.
fn decoded(bytes: &[u8], pieces: &[usize]) -> Vec<Vec<Bytes>> {
    let mut decoder = Decoder::default();
    let mut input = BytesMut::new();
    let mut requests = Vec::new();
    let (mut rest, mut lengths) = (bytes, pieces.iter().cycle());
    while !rest.is_empty() {
        let length = lengths
            .next()
            .map_or(1, |length| (*length).clamp(1, rest.len()));
        input.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
        while let Some(request) = decoder
            .next(&mut input, true)
            .expect("they are well formed")
        {
            match request {
                Request::Command(arguments) => requests.push(arguments),
                Request::TooLarge(reason) => panic!("{reason}"),
            }
        }
    }
    assert!(input.is_empty(), "all is taken");
    requests
}

fn encoded(requests: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for arguments in requests {
        bytes.extend(format!("*{}\r\n", arguments.len()).bytes());
        for argument in arguments {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
    }
    bytes
}

fn requests() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let argument = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(prop::collection::vec(argument, 1..6), 0..8)
}

/// Decodes a value in either version. If two kinds have the same form, the result is the first of them.
fn read(bytes: &mut &[u8]) -> Value {
    let end = bytes
        .windows(2)
        .position(|two| two == b"\r\n")
        .expect("a line");
    let (kind, text) = (
        bytes[0],
        String::from_utf8(bytes[1..end].to_vec()).expect("text"),
    );
    *bytes = &bytes[end + 2..];
    let number = || text.parse::<i64>().expect("a number");
    match kind {
        b'+' => Value::OK,
        b'-' => Value::error(text),
        b':' => Value::Number(number()),
        b',' => Value::Double(text.parse().expect("a number")),
        b'_' => Value::Nil,
        b'$' | b'=' => match usize::try_from(number()) {
            Err(_) => Value::Nil,
            Ok(length) => {
                let bulk = Bytes::copy_from_slice(&bytes[..length]);
                *bytes = bytes[length..].strip_prefix(b"\r\n").expect("an end");
                let text = bulk.strip_prefix(b"txt:").filter(|_| kind == b'=');
                text.map_or(Value::Bulk(bulk.clone()), |text| {
                    Value::Text(String::from_utf8(text.to_vec()).expect("text"))
                })
            }
        },
        b'*' | b'>' => match usize::try_from(number()) {
            Err(_) => Value::NilList,
            Ok(length) => {
                let all = (0..length).map(|_| read(bytes)).collect();
                if kind == b'>' {
                    Value::Push(all)
                } else {
                    Value::Array(all)
                }
            }
        },
        b'%' => Value::Map((0..number()).map(|_| (read(bytes), read(bytes))).collect()),
        other => panic!("{other}"),
    }
}

/// The value that decoding returns: kinds with the same form become one.
fn as_read(value: Value, protocol: Protocol) -> Value {
    let is_three = protocol == Protocol::Three;
    let all = |values: Vec<Value>| {
        values
            .into_iter()
            .map(|value| as_read(value, protocol))
            .collect()
    };
    match value {
        Value::NilList if is_three => Value::Nil,
        Value::Bulks(bulks) => Value::Array(bulks.into_iter().map(Value::Bulk).collect()),
        Value::Push(values) if is_three => Value::Push(all(values)),
        Value::Array(values) | Value::Push(values) => Value::Array(all(values)),
        Value::Map(pairs) if is_three => Value::Map(
            pairs
                .into_iter()
                .map(|(name, value)| (as_read(name, protocol), as_read(value, protocol)))
                .collect(),
        ),
        Value::Map(pairs) => Value::Array(all(pairs
            .into_iter()
            .flat_map(|(name, value)| [name, value])
            .collect())),
        Value::Double(number) if !is_three => Value::Bulk(number.to_string().into()),
        Value::Text(text) if !is_three => Value::Bulk(text.into()),
        other => other,
    }
}

fn values() -> impl Strategy<Value = Value> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    let leaf = prop_oneof![
        Just(Value::OK),
        "[A-Z]{3} [ -~]{0,20}[!-~]".prop_map(Value::error),
        any::<i64>().prop_map(Value::Number),
        bytes().prop_map(Value::Bulk),
        Just(Value::Nil),
        Just(Value::NilList),
        prop::collection::vec(bytes(), 0..5).prop_map(Value::Bulks),
        any::<i32>().prop_map(|number| Value::Double(f64::from(number) / 8.0)),
        "[ -~\r\n]{0,20}".prop_map(Value::Text),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Push),
            prop::collection::vec((inner.clone(), inner), 0..3).prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_commands(
        requests in requests(),
        pieces in prop::collection::vec(1..50_usize, 1..8),
    ) {
        let decoded = decoded(&encoded(&requests), &pieces);
        let expected: Vec<Vec<Bytes>> = requests
            .into_iter()
            .map(|arguments| arguments.into_iter().map(Bytes::from).collect())
            .collect();
        prop_assert_eq!(decoded, expected);
    }

    #[test]
    fn what_is_written_is_read_back(value in values()) {
        for protocol in [Protocol::Two, Protocol::Three] {
            let mut out = BytesMut::new();
            value.write(protocol, &mut out);
            let mut bytes = &out[..];
            let back = read(&mut bytes);
            prop_assert!(bytes.is_empty());
            prop_assert_eq!(back, as_read(value.clone(), protocol));
        }
    }

    #[test]
    fn no_bytes_break_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..200), is_known: bool) {
        let mut input = BytesMut::from(&bytes[..]);
        let mut decoder = Decoder::default();
        while let Ok(Some(_)) = decoder.next(&mut input, is_known) {}
    }
}
