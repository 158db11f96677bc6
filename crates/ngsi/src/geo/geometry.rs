//! A geometry in memory, and its EWKT.

use std::fmt::Write;

/// A point: `x` is the longitude and `y` the latitude in degrees, `z` the optional altitude. All are finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Position {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) z: Option<f64>,
}

/// The points of a line or of a polygon's ring.
pub(super) type Path = Vec<Position>;

/// The seven geometries of GeoJSON. Lines have at least two points, rings at least four, polygons at least one ring. The
/// others may be empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Geometry {
    Point(Position),
    LineString(Path),
    Polygon(Vec<Path>),
    MultiPoint(Path),
    MultiLineString(Vec<Path>),
    MultiPolygon(Vec<Vec<Path>>),
    Collection(Vec<Geometry>),
}

impl Geometry {
    /// Returns all points in the order in which they are written.
    pub(super) fn points(&self) -> Vec<Position> {
        match self {
            Self::Point(point) => vec![*point],
            Self::LineString(path) | Self::MultiPoint(path) => path.clone(),
            Self::Polygon(paths) | Self::MultiLineString(paths) => paths.concat(),
            Self::MultiPolygon(polygons) => {
                polygons.iter().flat_map(|rings| rings.concat()).collect()
            }
            Self::Collection(members) => members.iter().flat_map(Self::points).collect(),
        }
    }

    /// Returns the EWKT of the geometry, with the reference system of GeoJSON (SRID 4326).
    pub(super) fn to_ewkt(&self) -> String {
        let mut out = String::from("SRID=4326;");
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Point(point) => {
                out.push_str("POINT");
                write_list(out, std::slice::from_ref(point), write_position);
            }
            Self::LineString(path) => {
                out.push_str("LINESTRING");
                write_path(out, path);
            }
            Self::Polygon(rings) => {
                out.push_str("POLYGON");
                write_paths(out, rings);
            }
            Self::MultiPoint(path) => {
                out.push_str("MULTIPOINT");
                write_path(out, path);
            }
            Self::MultiLineString(paths) => {
                out.push_str("MULTILINESTRING");
                write_paths(out, paths);
            }
            Self::MultiPolygon(polygons) => {
                out.push_str("MULTIPOLYGON");
                write_list(out, polygons, |out, rings| write_paths(out, rings));
            }
            Self::Collection(members) => {
                out.push_str("GEOMETRYCOLLECTION");
                write_list(out, members, |out, member| member.write(out));
            }
        }
    }
}

fn write_paths(out: &mut String, paths: &[Path]) {
    write_list(out, paths, |out, path| write_path(out, path));
}

fn write_path(out: &mut String, path: &[Position]) {
    write_list(out, path, write_position);
}

/// Writes items in parentheses, or `EMPTY`.
fn write_list<T>(out: &mut String, items: &[T], write_item: impl Fn(&mut String, &T)) {
    if items.is_empty() {
        out.push_str(" EMPTY");
        return;
    }
    let mut mark = '(';
    for item in items {
        out.push(mark);
        write_item(out, item);
        mark = ',';
    }
    out.push(')');
}

/// Writes coordinates with as few digits as identify them: `2.1`, and `3` for 3.0.
fn write_position(out: &mut String, position: &Position) {
    let Position { x, y, z } = position;
    let written = match z {
        None => write!(out, "{x} {y}"),
        Some(z) => write!(out, "{x} {y} {z}"),
    };
    written.expect("a string takes what is written to it");
}
