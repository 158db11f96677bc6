//! Reads and writes GeoJSON geometries (RFC 7946, section 3.1).

use serde_json::{Value, json};

use super::InvalidGeometry;
use super::geometry::{Geometry, Path, Position};
use super::simple::{LINE_POINTS_MIN, RING_POINTS_MIN};

/// Reads a geometry object; `None` if its type is not one of the seven.
pub(super) fn read(value: &Value) -> Result<Option<Geometry>, InvalidGeometry> {
    let object = value.as_object().ok_or(InvalidGeometry)?;
    let coordinates = object.get("coordinates").unwrap_or(&Value::Null);
    let geometry = match object.get("type").and_then(Value::as_str) {
        Some("Point") => Geometry::Point(position(coordinates)?),
        Some("LineString") => Geometry::LineString(line(coordinates)?),
        Some("Polygon") => Geometry::Polygon(rings(coordinates)?),
        Some("MultiPoint") => Geometry::MultiPoint(each(coordinates, position)?),
        Some("MultiLineString") => Geometry::MultiLineString(each(coordinates, line)?),
        Some("MultiPolygon") => Geometry::MultiPolygon(each(coordinates, rings)?),
        Some("GeometryCollection") => {
            let members = object.get("geometries").unwrap_or(&Value::Null);
            Geometry::Collection(each(members, member)?)
        }
        _ => return Ok(None),
    };
    Ok(Some(geometry))
}

/// Writes a geometry from a simple format. These are two-dimensional and have no parts.
pub(super) fn write(geometry: &Geometry) -> Value {
    let (kind, coordinates) = match geometry {
        Geometry::Point(point) => ("Point", pair(point)),
        Geometry::LineString(path) => ("LineString", pairs(path)),
        Geometry::Polygon(rings) => ("Polygon", rings.iter().map(|ring| pairs(ring)).collect()),
        _ => unreachable!("no simple format has parts: {geometry:?}"),
    };
    json!({"type": kind, "coordinates": coordinates})
}

/// Reads a member of a collection. An unknown type makes the whole collection invalid, since the rest would be another
/// geometry.
fn member(value: &Value) -> Result<Geometry, InvalidGeometry> {
    read(value)?.ok_or(InvalidGeometry)
}

fn each<T>(
    value: &Value,
    read_item: impl Fn(&Value) -> Result<T, InvalidGeometry>,
) -> Result<Vec<T>, InvalidGeometry> {
    let items = value.as_array().ok_or(InvalidGeometry)?;
    items.iter().map(read_item).collect()
}

fn rings(value: &Value) -> Result<Vec<Path>, InvalidGeometry> {
    at_least(
        1,
        each(value, |ring| {
            at_least(RING_POINTS_MIN, each(ring, position)?)
        })?,
    )
}

fn line(value: &Value) -> Result<Path, InvalidGeometry> {
    at_least(LINE_POINTS_MIN, each(value, position)?)
}

fn at_least<T>(count: usize, items: Vec<T>) -> Result<Vec<T>, InvalidGeometry> {
    if items.len() < count {
        Err(InvalidGeometry)
    } else {
        Ok(items)
    }
}

fn position(value: &Value) -> Result<Position, InvalidGeometry> {
    match *each(value, number)?.as_slice() {
        [x, y] => Ok(Position { x, y, z: None }),
        [x, y, z] => Ok(Position { x, y, z: Some(z) }),
        _ => Err(InvalidGeometry),
    }
}

fn number(value: &Value) -> Result<f64, InvalidGeometry> {
    value
        .as_f64()
        .filter(|number| number.is_finite())
        .ok_or(InvalidGeometry)
}

fn pairs(path: &[Position]) -> Value {
    path.iter().map(pair).collect()
}

fn pair(point: &Position) -> Value {
    json!([point.x, point.y])
}
