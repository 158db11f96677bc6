//! NGSI's simple formats: strings `"latitude, longitude"` and lists of them.

use serde_json::Value;

use super::InvalidGeometry;
use super::geometry::{Geometry, Path, Position};
use crate::python;

/// Minimum number of points of a line.
pub(super) const LINE_POINTS_MIN: usize = 2;
/// Minimum number of points of a ring: a triangle whose first point is repeated at the end.
pub(super) const RING_POINTS_MIN: usize = 4;

/// Reads a point from a string such as `"41.4, 2.2"`: latitude and longitude in degrees.
pub(super) fn point(value: &Value) -> Result<Geometry, InvalidGeometry> {
    position(value).map(Geometry::Point)
}

/// Reads a list of at least two points.
pub(super) fn line(value: &Value) -> Result<Geometry, InvalidGeometry> {
    path(value, LINE_POINTS_MIN).map(Geometry::LineString)
}

/// Reads a list of at least four points, the only ring of a polygon.
pub(super) fn polygon(value: &Value) -> Result<Geometry, InvalidGeometry> {
    let ring = path(value, RING_POINTS_MIN)?;
    Ok(Geometry::Polygon(vec![ring]))
}

/// Reads two opposite corners of a rectangle. Its ring starts and ends at the second corner and has the first one in the
/// middle.
pub(super) fn rectangle(value: &Value) -> Result<Geometry, InvalidGeometry> {
    let corners = path(value, 2)?;
    let &[first, second] = corners.as_slice() else {
        return Err(InvalidGeometry);
    };
    let ring = [
        (second.x, second.y),
        (first.x, second.y),
        (first.x, first.y),
        (second.x, first.y),
        (second.x, second.y),
    ];
    let ring = ring.map(|(x, y)| Position { x, y, z: None });
    Ok(Geometry::Polygon(vec![ring.to_vec()]))
}

/// Writes a point in the simple format, with numbers as Python prints them.
pub(super) fn point_text(point: &Position) -> String {
    format!("{}, {}", python::float(point.y), python::float(point.x))
}

fn path(value: &Value, points_min: usize) -> Result<Path, InvalidGeometry> {
    let points = value.as_array().ok_or(InvalidGeometry)?;
    if points.len() < points_min {
        return Err(InvalidGeometry);
    }
    points.iter().map(position).collect()
}

fn position(value: &Value) -> Result<Position, InvalidGeometry> {
    let text = value.as_str().ok_or(InvalidGeometry)?;
    let (latitude, longitude) = text.split_once(',').ok_or(InvalidGeometry)?;
    Ok(Position {
        x: number(longitude)?,
        y: number(latitude)?,
        z: None,
    })
}

fn number(text: &str) -> Result<f64, InvalidGeometry> {
    let number: f64 = text.trim().parse().map_err(|_| InvalidGeometry)?;
    if number.is_finite() {
        Ok(number)
    } else {
        Err(InvalidGeometry)
    }
}
