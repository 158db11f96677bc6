//! Bodies of NGSI notifications: each is refused with a reason, or becomes a task, a document and rows.
//!
//! The first byte chooses the headers, and whether the rest is the body or describes its entities line by line: few
//! mutations of a body are still JSON, but any text describes entities. A queued task must survive a round trip, and the
//! size of the results must be proportional to the input.

use ganger_ngsi::notification::{NotificationError, parse};
use ganger_ngsi::prepare::prepare;
use ganger_ngsi::rows::{Group, groups};
use ganger_ngsi::task::{Origin, Task};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Number of bytes of an input that are used.
const INPUT_BYTES_MAX: usize = 16 << 10;
/// Maximum bytes of a document, or of the values of rows, per byte of the body. Python prints `9e15` as eighteen
/// characters, and an unprintable character of four bytes as ten; the shortest entity gets a time index twice its length.
const GROWTH_MAX: usize = 32;
/// Additional bytes: the members of a task without entities, and the text of a refusal.
const FRAME_BYTES: usize = 512;
/// Time of arrival of every notification, in seconds since 1970: 2021-05-14.
const ARRIVED: i64 = 1_621_007_831;

/// Processes the input as a notification.
///
/// # Panics
/// If one of these rules is violated.
pub fn run(data: &[u8]) {
    let Some((choice, input)) = data.split_first() else {
        return;
    };
    let input = &input[..input.len().min(INPUT_BYTES_MAX)];
    if choice % 8 < 4 {
        process(*choice, input);
    } else {
        process(
            *choice,
            notification_from_lines(input).to_string().as_bytes(),
        );
    }
}

/// Builds a notification from a text with a line for each attribute and an empty line between entities. The fields of a
/// line, separated by tabs, are the attribute's name, type, value, metadata, and date of observation; a single field after
/// the name is a bare value. Each field is JSON, or else a string.
fn notification_from_lines(text: &[u8]) -> Value {
    let text = String::from_utf8_lossy(text);
    let mut data = vec![json!({"id": "e0", "type": "T"})];
    for line in text.split('\n') {
        let mut parts = line.split('\t');
        let name = parts.next().unwrap_or_default();
        let parts: Vec<Value> = parts
            .map(|part| serde_json::from_str(part).unwrap_or_else(|_| part.into()))
            .collect();
        let member = match &parts[..] {
            [] => {
                data.push(json!({"id": line, "type": "T"}));
                continue;
            }
            [bare] => bare.clone(),
            parts => {
                let names = ["type", "value", "metadata", "observedAt"];
                let members = names.iter().zip(parts).filter(|(_, part)| **part != "");
                Value::Object(
                    members
                        .map(|(name, part)| ((*name).to_owned(), part.clone()))
                        .collect::<Map<_, _>>(),
                )
            }
        };
        if let Some(Value::Object(entity)) = data.last_mut() {
            entity.insert(name.to_owned(), member);
        }
    }
    json!({"data": data})
}

/// Parses a body and converts it into rows.
fn process(choice: u8, body: &[u8]) {
    let (service_path, time_index) = match choice % 4 {
        0 => (None, None),
        1 => (Some("/a, /b"), None),
        2 => (Some(""), Some("ts")),
        _ => (Some("/a"), Some("dateModified")),
    };
    let arrived = Timestamp::from_second(ARRIVED).expect("a time");
    let prepared = parse(Some("application/json"), body)
        .and_then(|entities| prepare(entities, time_index, arrived));
    let payload = match prepared {
        Ok(payload) => payload,
        Err(error) => return check_error(&error, body),
    };
    let origin = Origin {
        tenant: Some("x".to_owned()),
        service_path: service_path.map(str::to_owned),
        correlator: None,
    };
    let task = Task { origin, payload };
    let document = task.to_json();
    assert_bounded("the document", document.len(), body);
    let again = Task::from_json(&document).expect("what was written is read");
    assert!(again.payload == task.payload, "the entities changed");
    assert_eq!(again.to_json(), document, "the document changed");
    match groups(&again) {
        Ok(groups) => check_groups(&groups, &again, body),
        Err(error) => assert!(!error.0.is_empty(), "a failure without a reason"),
    }
}

fn check_error(error: &NotificationError, body: &[u8]) {
    assert_eq!(error.status, 400, "{error}");
    assert!(!error.detail.is_empty(), "the error has no reason");
    assert_bounded("the error", error.detail.len(), body);
}

/// Checks that every entity is in exactly one row, and that the size of the rows is bounded.
fn check_groups(groups: &[Group], task: &Task, body: &[u8]) {
    let mut entities: Vec<usize> = Vec::new();
    let mut bytes = 0;
    for group in groups {
        for row in &group.rows {
            entities.push(row.entity);
            bytes += std::mem::size_of_val(row) + row.bytes();
        }
    }
    entities.sort_unstable();
    assert!(
        entities.iter().copied().eq(0..task.payload.len()),
        "rows of {entities:?} for {} entities",
        task.payload.len()
    );
    assert_bounded("the values", bytes, body);
}

fn assert_bounded(what: &str, bytes: usize, body: &[u8]) {
    let bound = FRAME_BYTES + GROWTH_MAX * body.len();
    assert!(
        bytes <= bound,
        "{what} has {bytes} bytes, made of {}",
        body.len()
    );
}

/// Returns notifications with every form of attributes, geometries and times.
pub fn seeds() -> Vec<Vec<u8>> {
    let bodies = [
        r#"{"subscriptionId": "s", "data": [{"id": "Room:1", "type": "Room", "temperature": {"type": "Number", "value": 23.3,
            "metadata": {"TimeInstant": {"type": "DateTime", "value": "2020-01-02T03:04:05Z"}}}, "pressure": {"type": "Integer",
            "value": 720}}]}"#,
        r#"{"data": [{"id": "a", "type": "T", "x": {"type": "Number", "value": "12.5"}, "y": {"type": "Integer", "value": "12.9"},
            "z": {"type": "Boolean", "value": "TRUE"}, "t": {"type": "Text", "value": {"a": [1e16, true, null, "it's"]}}},
            {"id": "b", "type": "T", "x": {"type": "Text", "value": 1180591620717411303424}, "k": "bare", "l": [1], "m": {}}]}"#,
        r#"{"data": [{"id": "a", "type": "T", "location": {"type": "geo:box", "value": ["1,2", "3,4"]}},
            {"id": "b", "type": "T", "location": {"type": "GeoProperty", "value": {"type": "Point", "coordinates": [2.1, 41.3]}}},
            {"id": "c", "type": "T", "location": {"type": "geo:json", "value": {"type": "GeometryCollection", "geometries": [
            {"type": "MultiPolygon", "coordinates": [[[[0, 0], [1, 0, 5], [1, 1], [0, 0]]]]}]}}},
            {"id": "d", "type": "T", "location": {"type": "geo:polygon", "value": ["1,2", "3,4", "5,6", "1,2"]}},
            {"id": "e", "type": "T", "g": {"type": "geo:point", "value": "41.3, 2.1"}, "h": {"type": "geo:line",
            "value": ["1,2", "3,4"]}, "location_centroid": {"type": "Text", "value": "q"}}]}"#,
        r#"{"data": [{"id": "a", "type": "U", "@context": ["c"], "ts": {"type": "Property", "value": {"@type": "DateTime",
            "@value": "2020-01-02T03:04:05.5+05:30"}}, "r": {"type": "Relationship", "object": "urn:x"}, "observedAt": "2004",
            "p": {"type": "Property", "value": 1, "observedAt": "Thu, 02 Jan 2020 03:04:05 PM GMT"}},
            {"id": "b", "type": "V", "dateModified": {"value": "01/02/2020 3:04"}, "x": {"value": "2019-W01-1T24:00Z"}}]}"#,
        r#"{"data": [{"id": "", "type": "", "a": {"type": "", "value": 0.0}, "b": {"value": []}, "c": {"type": "Foo", "value": " "},
            "C": {"type": "Array", "value": [{"a": 1}]}, "time_index": {"type": "Number", "value": 5},
            "entity_id": {"type": "Text", "value": "x"}, "__original_ngsi_entity__": {"type": "Text", "value": "x"}}]}"#,
        r#"{"data": []}"#,
    ];
    let described = [
        "temperature\tNumber\t23.3\t{\"TimeInstant\": {\"value\": \"2020-01-02T03:04:05Z\"}}\t2004-01-01\nx\tInteger\t12.9\n\n\
         b\tBoolean\tTRUE\nt\tText\t{\"a\": [1e16, null]}\nu\tFoo\t2019-01-01T00:00:00Z\nk\tbare\nl\t[1]\nm\t\t0.0",
        "location\tgeo:box\t[\"1,2\", \"3,4\"]\n\nlocation\tgeo:point\t41.3, 2.1\n\nlocation\tgeo:line\t[\"1,2\", \"3,4\"]\n\n\
         location\tGeoProperty\t{\"type\": \"Polygon\", \"coordinates\": [[[0, 0], [1, 0, 5], [1, 1], [0, 0]]]}\n\n\
         g\tgeo:polygon\t[\"1,2\", \"3,4\", \"5,6\", \"1,2\"]\nlocation_centroid\tText\tq",
        "ts\tProperty\t{\"@type\": \"DateTime\", \"@value\": \"2020-01-02T03:04:05.5+05:30\"}\nobservedAt\t2004\n\n\
         TimeInstant\tDateTime\tThu, 02 Jan 2020 03:04:05 PM GMT\ndateModified\t\t01/02/2020 3:04\nd\tDateTime\t2019-W01-1T24:00",
        "x\tNumber\t1180591620717411303424\nX\tText\tit's \"x\"\ny\tArray\t[{\"a\": 1}]\nz\tRelationship\t[1]\nentity_id\tText\tx\n\
         n\tNumber\t inf \ni\tInteger\t-1e5\ns\tStructuredValue\t{}\np\tProperty\tfalse\n__original_ngsi_entity__\tText\tx",
    ];
    let of = |text: &str, first: u8| {
        (first..first + 4)
            .map(|choice| [&[choice], text.as_bytes()].concat())
            .collect::<Vec<_>>()
    };
    let bodies = bodies.iter().flat_map(|body| of(body, 0));
    bodies
        .chain(described.iter().flat_map(|text| of(text, 4)))
        .collect()
}
