//! Geometries: reads NGSI's simple formats and GeoJSON, writes GeoJSON and the EWKT of PostGIS.
//!
//! Simple formats put the latitude first, GeoJSON and the database the longitude. All formats are converted through
//! `Geometry`, whose `x` is the longitude.

mod geojson;
mod geometry;
mod simple;

#[cfg(test)]
mod properties;

use serde_json::{Value, json};

use crate::Entity;
use crate::notification::NotificationError;
use crate::python;
use geometry::{Geometry, Position};

/// Name of the attribute that is normalised.
const LOCATION: &str = "location";
/// Name of the attribute that is derived from it.
const CENTROID: &str = "location_centroid";

/// The format of a geometry, given by the attribute's NGSI type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `geo:point`: a string `"latitude, longitude"`.
    Point,
    /// `geo:line`: a list of at least two points.
    Line,
    /// `geo:polygon`: a list of at least four points, one ring.
    Polygon,
    /// `geo:box`: a list of two opposite corners.
    Box,
    /// `geo:json` and `GeoProperty`: a GeoJSON geometry.
    Json,
}

impl Format {
    /// Returns the format of an NGSI type, `None` if the type is not a geometry. Case matters.
    pub fn of(ngsi_type: &str) -> Option<Self> {
        match ngsi_type {
            "geo:point" => Some(Self::Point),
            "geo:line" => Some(Self::Line),
            "geo:polygon" => Some(Self::Polygon),
            "geo:box" => Some(Self::Box),
            "geo:json" | "GeoProperty" => Some(Self::Json),
            _ => None,
        }
    }
}

/// A value is not a geometry although its type says so. The text is what QuantumLeap shows in a task's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(r#"AttributeError("'NoneType' object has no attribute '_points'")"#)]
pub struct InvalidGeometry;

/// Converts a geometry into EWKT, such as `SRID=4326;POINT(2.1 41.3)`. `None`, for NULL, if the value is a GeoJSON
/// object of an unknown type.
///
/// # Errors
/// If the value is not a geometry in that format.
pub fn ewkt(format: Format, value: &Value) -> Result<Option<String>, InvalidGeometry> {
    Ok(read(format, value)?.map(|geometry| geometry.to_ewkt()))
}

/// Converts an entity's attribute `location` into GeoJSON, and adds the mean of its points as `location_centroid`. A
/// `location` that is not a geometry stays unchanged. An existing `location_centroid` is always removed.
///
/// # Errors
/// If `location` is not an object.
pub fn normalise(entity: &mut Entity) -> Result<(), NotificationError> {
    entity.shift_remove(CENTROID);
    let Some(location) = entity.get(LOCATION) else {
        return Ok(());
    };
    let Value::Object(attribute) = location else {
        return Err(NotificationError {
            status: 400,
            detail: format!(
                "{} is not of type 'object' - '{LOCATION}'",
                python::repr(location)
            ),
        });
    };
    let format = attribute
        .get("type")
        .and_then(Value::as_str)
        .and_then(Format::of);
    let value = attribute.get("value").unwrap_or(&Value::Null);
    let Some(format) = format else {
        return Ok(());
    };
    let Ok(Some(geometry)) = read(format, value) else {
        return Ok(());
    };

    // GeoJSON is kept as it was written.
    let normal = if format == Format::Json {
        value.clone()
    } else {
        geojson::write(&geometry)
    };
    let centre = centroid(format, &geometry);
    entity.insert(
        LOCATION.to_owned(),
        json!({"type": "geo:json", "value": normal}),
    );
    if let Some(centre) = centre {
        entity.insert(
            CENTROID.to_owned(),
            json!({"type": "geo:point", "value": simple::point_text(&centre)}),
        );
    }
    Ok(())
}

fn read(format: Format, value: &Value) -> Result<Option<Geometry>, InvalidGeometry> {
    match format {
        Format::Point => simple::point(value).map(Some),
        Format::Line => simple::line(value).map(Some),
        Format::Polygon => simple::polygon(value).map(Some),
        Format::Box => simple::rectangle(value).map(Some),
        Format::Json => geojson::read(value),
    }
}

/// Returns the mean of all points; `None` if there are none, or their sum is not finite.
///
/// The closing point of a ring counts as well, so its first point counts twice. Of a box only the two given corners
/// count, which are the first and third point of its ring.
fn centroid(format: Format, geometry: &Geometry) -> Option<Position> {
    let mut points = geometry.points();
    if format == Format::Box {
        points = points.into_iter().step_by(2).take(2).collect();
    }
    let (mut x, mut y, mut count) = (0.0, 0.0, 0.0);
    for point in points {
        x += point.x;
        y += point.y;
        count += 1.0;
    }
    let centre = Position {
        x: x / count,
        y: y / count,
        z: None,
    };
    (centre.x.is_finite() && centre.y.is_finite()).then_some(centre)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ewkt_of(ngsi_type: &str, value: &Value) -> Result<Option<String>, InvalidGeometry> {
        ewkt(Format::of(ngsi_type).expect("a geometry type"), value)
    }

    fn normalised(entity: Value) -> Value {
        let Value::Object(mut entity) = entity else {
            panic!("an entity is an object");
        };
        normalise(&mut entity).expect("location is an object");
        Value::Object(entity)
    }

    #[test]
    fn simple_formats_become_ewkt_with_the_longitude_first() {
        for (ngsi_type, value, expected) in [
            ("geo:point", json!("41.3, 2.1"), "POINT(2.1 41.3)"),
            ("geo:point", json!("-0.5,1e2"), "POINT(100 -0.5)"),
            (
                "geo:line",
                json!(["1,2", " 3 , 4.0 "]),
                "LINESTRING(2 1,4 3)",
            ),
            (
                "geo:polygon",
                json!(["1,2", "3,4", "5,6", "1,2"]),
                "POLYGON((2 1,4 3,6 5,2 1))",
            ),
            (
                "geo:box",
                json!(["1,2", "3,4"]),
                "POLYGON((4 3,2 3,2 1,4 1,4 3))",
            ),
        ] {
            let expected = format!("SRID=4326;{expected}");
            assert_eq!(ewkt_of(ngsi_type, &value), Ok(Some(expected)), "{value}");
        }
    }

    #[test]
    fn geojson_becomes_ewkt_in_two_and_three_dimensions() {
        for (value, expected) in [
            (
                json!({"type": "Point", "coordinates": [2.10, 41]}),
                "POINT(2.1 41)",
            ),
            (
                json!({"type": "Point", "coordinates": [1, 2, 3.5]}),
                "POINT(1 2 3.5)",
            ),
            (
                json!({"type": "LineString", "coordinates": [[1, 2], [3, 4]]}),
                "LINESTRING(1 2,3 4)",
            ),
            (
                json!({"type": "Polygon", "coordinates":
                    [[[0, 0], [9, 0], [9, 9], [0, 0]], [[1, 1], [2, 1], [2, 2], [1, 1]]]}),
                "POLYGON((0 0,9 0,9 9,0 0),(1 1,2 1,2 2,1 1))",
            ),
            (
                json!({"type": "MultiPoint", "coordinates": [[1, 2], [3, 4]]}),
                "MULTIPOINT(1 2,3 4)",
            ),
            (
                json!({"type": "MultiLineString", "coordinates": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]}),
                "MULTILINESTRING((1 2,3 4),(5 6,7 8))",
            ),
            (
                json!({"type": "MultiPolygon", "coordinates": [[[[0, 0], [9, 0], [9, 9], [0, 0]]]]}),
                "MULTIPOLYGON(((0 0,9 0,9 9,0 0)))",
            ),
            (
                json!({"type": "GeometryCollection", "geometries": [
                    {"type": "Point", "coordinates": [1, 2]},
                    {"type": "LineString", "coordinates": [[1, 2], [3, 4]]}]}),
                "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(1 2,3 4))",
            ),
            (
                json!({"type": "MultiPoint", "coordinates": []}),
                "MULTIPOINT EMPTY",
            ),
            (
                json!({"type": "GeometryCollection", "geometries": []}),
                "GEOMETRYCOLLECTION EMPTY",
            ),
        ] {
            let expected = format!("SRID=4326;{expected}");
            for ngsi_type in ["geo:json", "GeoProperty"] {
                assert_eq!(
                    ewkt_of(ngsi_type, &value),
                    Ok(Some(expected.clone())),
                    "{value}"
                );
            }
        }
    }

    #[test]
    fn geojson_of_an_unknown_type_is_null() {
        for value in [
            json!({"type": "Circle", "coordinates": [1, 2], "radius": 3}),
            json!({"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}}),
            json!({"coordinates": [1, 2]}),
            json!({}),
        ] {
            assert_eq!(ewkt_of("geo:json", &value), Ok(None), "{value}");
        }
    }

    #[test]
    fn a_value_that_is_no_geometry_cannot_be_encoded() {
        let lone = json!(["1,2"]);
        for (ngsi_type, value) in [
            ("geo:point", json!("nowhere")),
            ("geo:point", json!("41.3")),
            ("geo:point", json!("41.3 2.1")),
            ("geo:point", json!("1,2,3")),
            ("geo:point", json!("nan,1")),
            ("geo:point", json!("1,inf")),
            ("geo:point", json!("1e999,1")),
            ("geo:point", json!([41.3, 2.1])),
            ("geo:point", json!(null)),
            ("geo:line", lone.clone()),
            ("geo:line", json!("1,2")),
            ("geo:line", json!([])),
            ("geo:line", json!(["1,2", 3])),
            ("geo:polygon", json!(["1,2", "3,4", "1,2"])),
            ("geo:box", lone),
            ("geo:box", json!(["1,2", "3,4", "5,6"])),
            ("geo:json", json!("41.3, 2.1")),
            ("geo:json", json!(null)),
            ("geo:json", json!({"type": "Point"})),
            ("geo:json", json!({"type": "Point", "coordinates": []})),
            ("geo:json", json!({"type": "Point", "coordinates": [1]})),
            (
                "geo:json",
                json!({"type": "Point", "coordinates": [1, 2, 3, 4]}),
            ),
            (
                "geo:json",
                json!({"type": "Point", "coordinates": ["1", "2"]}),
            ),
            (
                "geo:json",
                json!({"type": "Point", "coordinates": [true, 2]}),
            ),
            (
                "geo:json",
                json!({"type": "LineString", "coordinates": [[1, 2]]}),
            ),
            (
                "geo:json",
                json!({"type": "Polygon", "coordinates": [[[1, 2], [3, 4], [1, 2]]]}),
            ),
            (
                "geo:json",
                json!({"type": "GeometryCollection", "geometries": [{"type": "Circle"}]}),
            ),
            ("geo:json", json!({"type": "Polygon", "coordinates": []})),
        ] {
            assert_eq!(ewkt_of(ngsi_type, &value), Err(InvalidGeometry), "{value}");
        }
        assert_eq!(
            InvalidGeometry.to_string(),
            r#"AttributeError("'NoneType' object has no attribute '_points'")"#
        );
    }

    #[test]
    fn a_location_becomes_geojson_and_gets_its_centroid() {
        for (location, value, centre) in [
            (
                json!({"type": "geo:point", "value": "41.3, 2.1", "metadata": {"m": {"value": 1}}}),
                json!({"type": "Point", "coordinates": [2.1, 41.3]}),
                "41.3, 2.1",
            ),
            (
                json!({"type": "geo:line", "value": ["1,2", "3,4"]}),
                json!({"type": "LineString", "coordinates": [[2.0, 1.0], [4.0, 3.0]]}),
                "2.0, 3.0",
            ),
            (
                json!({"type": "geo:polygon", "value": ["0,0", "0,4", "4,4", "0,0"]}),
                json!({"type": "Polygon", "coordinates": [[[0.0, 0.0], [4.0, 0.0], [4.0, 4.0], [0.0, 0.0]]]}),
                "1.0, 2.0",
            ),
            (
                json!({"type": "geo:box", "value": ["1,2", "3,4"]}),
                json!({"type": "Polygon", "coordinates":
                    [[[4.0, 3.0], [2.0, 3.0], [2.0, 1.0], [4.0, 1.0], [4.0, 3.0]]]}),
                "2.0, 3.0",
            ),
            (
                json!({"type": "GeoProperty", "value": {"type": "Point", "coordinates": [2, 41, 7]}}),
                json!({"type": "Point", "coordinates": [2, 41, 7]}),
                "41.0, 2.0",
            ),
        ] {
            let entity = json!({"id": "e", "location_centroid": {"value": "mine"}, "location": location, "x": {}});
            assert_eq!(
                normalised(entity).to_string(),
                json!({"id": "e", "location": {"type": "geo:json", "value": value}, "x": {},
                    "location_centroid": {"type": "geo:point", "value": centre}})
                .to_string()
            );
        }
    }

    #[test]
    fn a_location_without_points_has_no_centroid() {
        let location =
            json!({"type": "geo:json", "value": {"type": "MultiPoint", "coordinates": []}});
        let entity = json!({"location": location});
        assert_eq!(normalised(entity.clone()), entity);
    }

    #[test]
    fn a_location_that_is_no_geometry_stays_and_an_existing_centroid_is_removed() {
        for location in [
            json!({"type": "Text", "value": "home"}),
            json!({"type": "geo:point", "value": "nowhere", "metadata": {}}),
            json!({"type": "geo:json", "value": {"type": "Circle"}}),
            json!({"type": "Point", "coordinates": [1, 2]}),
            json!({"value": {"type": "Point", "coordinates": [1, 2]}}),
        ] {
            let entity =
                json!({"location": location, "location_centroid": {"type": "Text", "value": "q"}});
            assert_eq!(normalised(entity), json!({"location": location}));
        }
        let without = json!({"Location": 1, "location_centroid": 5});
        assert_eq!(normalised(without), json!({"Location": 1}));
    }

    #[test]
    fn a_bare_location_is_refused() {
        for location in [json!("41.3, 2.1"), json!(5), json!([1, 2]), json!(null)] {
            let mut entity = Entity::new();
            entity.insert("location".to_owned(), location);
            let refusal = normalise(&mut entity).expect_err("a bare location");
            assert_eq!(refusal.status, 400);
            assert!(refusal.detail.ends_with("'location'"), "{refusal}");
        }
    }
}
