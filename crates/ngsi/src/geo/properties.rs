//! Property tests of geometries: the EWKT of any GeoJSON can be read again, and all formats give the same geometry.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Format, ewkt, normalise};
use crate::{Entity, any_json};

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        -180.0..180.0,
        (-180_i16..180).prop_map(f64::from),
        any::<f64>().prop_filter("finite", |x| x.is_finite())
    ]
}

/// Generates a position of two or three numbers.
fn position(is_flat: bool) -> impl Strategy<Value = Value> {
    vec(number(), if is_flat { 2 } else { 3 }).prop_map(|numbers| json!(numbers))
}

fn list<S: Strategy<Value = Value>>(item: S, least: usize) -> impl Strategy<Value = Value> {
    vec(item, least..least + 3).prop_map(Value::Array)
}

fn with_coordinates<S: Strategy<Value = Value>>(
    kind: &'static str,
    coordinates: S,
) -> impl Strategy<Value = Value> {
    coordinates.prop_map(move |coordinates| json!({"type": kind, "coordinates": coordinates}))
}

/// Generates any well-formed geometry.
fn geojson() -> impl Strategy<Value = Value> {
    any::<bool>().prop_flat_map(|is_flat| {
        let at = move || position(is_flat);
        let rings = move || list(list(at(), 4), 1);
        let simple = prop_oneof![
            with_coordinates("Point", at()),
            with_coordinates("LineString", list(at(), 2)),
            with_coordinates("Polygon", rings()),
            with_coordinates("MultiPoint", list(at(), 0)),
            with_coordinates("MultiLineString", list(list(at(), 2), 0)),
            with_coordinates("MultiPolygon", list(rings(), 0)),
        ];
        simple.prop_recursive(2, 8, 3, |member| {
            list(member, 0)
                .prop_map(|members| json!({"type": "GeometryCollection", "geometries": members}))
        })
    })
}

/// Appends all numbers in a document, in order.
fn numbers(value: &Value, out: &mut Vec<f64>) {
    match value {
        Value::Number(number) => out.push(number.as_f64().expect("a float")),
        Value::Array(items) => items.iter().for_each(|item| numbers(item, out)),
        Value::Object(members) => members.values().for_each(|member| numbers(member, out)),
        _ => {}
    }
}

/// A small EWKT parser: `geometry = word (" EMPTY" | "(" item {"," item} ")")`, where an item is a geometry, perhaps
/// without its word, or numbers. Appends the numbers and returns the rest of the text.
fn read_geometry<'t>(text: &'t str, out: &mut Vec<f64>) -> &'t str {
    let word = text
        .find(|character: char| !character.is_ascii_uppercase())
        .unwrap_or(text.len());
    let rest = &text[word..];
    match rest.strip_prefix(" EMPTY") {
        Some(rest) => rest,
        None => read_list(rest, out),
    }
}

fn read_list<'t>(text: &'t str, out: &mut Vec<f64>) -> &'t str {
    let mut rest = text.strip_prefix('(').expect("a list begins");
    loop {
        rest = if rest
            .starts_with(|character: char| character.is_ascii_uppercase() || character == '(')
        {
            read_geometry(rest, out)
        } else {
            let end = rest.find([',', ')']).expect("a list ends");
            out.extend(
                rest[..end]
                    .split(' ')
                    .map(|number| number.parse::<f64>().expect("a number")),
            );
            &rest[end..]
        };
        match rest.strip_prefix(',') {
            Some(after) => rest = after,
            None => return rest.strip_prefix(')').expect("a list ends"),
        }
    }
}

proptest! {
    #[test]
    fn the_text_of_a_geometry_holds_its_numbers_within_balanced_parentheses(geometry in geojson()) {
        let text = ewkt(Format::Json, &geometry).expect("a geometry").expect("of a known type");
        let body = text.strip_prefix("SRID=4326;").expect("the reference system");
        let (mut read, mut written) = (Vec::new(), Vec::new());
        prop_assert_eq!(read_geometry(body, &mut read), "");
        numbers(&geometry, &mut written);
        prop_assert_eq!(read, written);
    }

    #[test]
    fn a_normalised_location_is_the_same_geometry(
        points in vec((-90.0..90.0, -180.0..180.0), 1..6),
        format in prop::sample::select(vec!["geo:point", "geo:line", "geo:polygon", "geo:box"]),
    ) {
        let texts: Vec<String> = points.iter().map(|(lat, lon): &(f64, f64)| format!("{lat}, {lon}")).collect();
        let value = if format == "geo:point" { json!(texts[0]) } else { json!(texts) };
        let before = ewkt(Format::of(format).expect("a format"), &value);

        let mut entity = Entity::new();
        entity.insert("location".to_owned(), json!({"type": format, "value": value}));
        let original = entity.clone();
        normalise(&mut entity).expect("an object");
        match before {
            Err(_) => prop_assert_eq!(entity, original),
            Ok(text) => {
                prop_assert_eq!(&entity["location"]["type"], "geo:json");
                prop_assert_eq!(ewkt(Format::Json, &entity["location"]["value"]), Ok(text));
                let centre = entity["location_centroid"]["value"].as_str().expect("a text").to_owned();
                prop_assert!(ewkt(Format::Point, &json!(centre)).is_ok());
                let (latitude, longitude) = centre.split_once(", ").expect("two numbers");
                let latitudes: Vec<f64> = points.iter().map(|point| point.0).collect();
                let longitudes: Vec<f64> = points.iter().map(|point| point.1).collect();
                for (mean, all) in [(latitude, latitudes), (longitude, longitudes)] {
                    let mean: f64 = mean.parse().expect("a number");
                    prop_assert!(all.iter().any(|number| *number <= mean + 1e-9));
                    prop_assert!(all.iter().any(|number| *number >= mean - 1e-9));
                }
            }
        }
    }

    #[test]
    fn normalising_accepts_anything_and_is_idempotent(
        mut entity in any_json::entity(),
        location in any_json::attribute(),
    ) {
        entity.insert("location".to_owned(), location);
        normalise(&mut entity).expect("an object");
        let once = entity.clone();
        normalise(&mut entity).expect("an object");
        prop_assert_eq!(entity, once);
    }
}
