//! The examples. Values that do not fit a column are shown as the text that the database would refuse.

use super::{Example, PLAIN};

pub(super) const EXAMPLES: &[Example] = &[
    Example {
        number: 1,
        entities: &[
            r#""type": "Room", "temperature": {"type": "Number", "value": 23.3},
                "pressure": {"type": "Integer", "value": 720},
                "TimeInstant": {"type": "DateTime", "value": "2020-01-02T03:04:05Z"}"#,
        ],
        expected: &[
            r#""mtx"."etroom" /"#,
            "time_index: 2020-01-02T03:04:05+00:00",
            "temperature float8 [temperature, Number]: 23.3",
            "pressure int8 [pressure, Integer]: 720",
            "timeinstant timestamptz [TimeInstant, DateTime]: 2020-01-02T03:04:05Z",
        ],
        ..PLAIN
    },
    Example {
        number: 3,
        entities: &[r#"TI, "x": {"type": "Number", "value": "12.5"}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: 12.5"],
        ..PLAIN
    },
    Example {
        number: 3,
        entities: &[r#"TI, "x": {"type": "Number", "value": "xx"}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: NULL"],
        ..PLAIN
    },
    Example {
        number: 3,
        entities: &[r#"TI, "x": {"type": "Number", "value": true}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: NULL"],
        ..PLAIN
    },
    Example {
        number: 3,
        entities: &[r#"TI, "x": {"type": "Number", "value": ""}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: NULL"],
        ..PLAIN
    },
    Example {
        number: 4,
        entities: &[r#"TI, "x": {"type": "Integer", "value": 12.9}"#],
        expected: &[r#""mtx"."ett" /"#, "x int8 [x, Integer]: 12"],
        ..PLAIN
    },
    Example {
        number: 4,
        entities: &[r#"TI, "x": {"type": "Integer", "value": "12.9"}"#],
        expected: &[r#""mtx"."ett" /"#, "x int8 [x, Integer]: 12"],
        ..PLAIN
    },
    Example {
        number: 4,
        entities: &[r#"TI, "x": {"type": "Integer", "value": true}"#],
        expected: &[r#""mtx"."ett" /"#, "x int8 [x, Integer]: NULL"],
        ..PLAIN
    },
    Example {
        number: 5,
        entities: &[r#"TI, "x": {"type": "Boolean", "value": "TRUE"}"#],
        expected: &[r#""mtx"."ett" /"#, "x bool [x, Boolean]: true"],
        ..PLAIN
    },
    Example {
        number: 5,
        entities: &[r#"TI, "x": {"type": "Boolean", "value": 1}"#],
        expected: &[r#""mtx"."ett" /"#, "x bool [x, Boolean]: true"],
        ..PLAIN
    },
    Example {
        number: 5,
        entities: &[r#"TI, "x": {"type": "Boolean", "value": 0}"#],
        expected: &[r#""mtx"."ett" /"#, "x bool [x, Boolean]: false"],
        ..PLAIN
    },
    Example {
        number: 5,
        entities: &[r#"TI, "x": {"type": "Boolean", "value": 2}"#],
        expected: &[r#""mtx"."ett" /"#, "x bool [x, Boolean]: NULL"],
        ..PLAIN
    },
    Example {
        number: 5,
        entities: &[r#"TI, "x": {"type": "Boolean", "value": "x"}"#],
        expected: &[r#""mtx"."ett" /"#, "x bool [x, Boolean]: NULL"],
        ..PLAIN
    },
    Example {
        number: 6,
        entities: &[r#"TI, "x": {"type": "Text", "value": 5}"#],
        expected: &[r#""mtx"."ett" /"#, "x text [x, Text]: 5"],
        ..PLAIN
    },
    Example {
        number: 6,
        entities: &[r#"TI, "x": {"type": "Text", "value": true}"#],
        expected: &[r#""mtx"."ett" /"#, "x text [x, Text]: True"],
        ..PLAIN
    },
    Example {
        number: 6,
        entities: &[r#"TI, "x": {"type": "Text", "value": {"a": 1}}"#],
        expected: &[r#""mtx"."ett" /"#, "x text [x, Text]: {'a': 1}"],
        ..PLAIN
    },
    Example {
        number: 6,
        entities: &[r#"TI, "x": {"type": "Text", "value": " x "}"#],
        expected: &[r#""mtx"."ett" /"#, "x text [x, Text]:  x "],
        ..PLAIN
    },
    Example {
        number: 7,
        entities: &[r#"TI, "x": {"type": "DateTime", "value": "2019-01-01T00:00:00+02:00"}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "x timestamptz [x, DateTime]: 2019-01-01T00:00:00+02:00",
        ],
        ..PLAIN
    },
    Example {
        number: 7,
        entities: &[r#"TI, "x": {"type": "DateTime", "value": "nonsense"}"#],
        expected: &[r#""mtx"."ett" /"#, "x timestamptz [x, DateTime]: NULL"],
        ..PLAIN
    },
    Example {
        number: 7,
        entities: &[r#"TI, "x": {"type": "DateTime", "value": 5}"#],
        expected: &[r#""mtx"."ett" /"#, "x timestamptz [x, DateTime]: NULL"],
        ..PLAIN
    },
    Example {
        number: 8,
        entities: &[r#"TI, "x": {"type": "DateTime", "value": "2019"}"#],
        expected: &[r#""mtx"."ett" /"#, "x timestamptz [x, DateTime]: 2019"],
        ..PLAIN
    },
    Example {
        number: 9,
        entities: &[
            r#"TI, "x": {"type": "StructuredValue", "value": [1, "x"]}, "y": {"type": "Array", "value": {"a": 1}}"#,
        ],
        expected: &[
            r#""mtx"."ett" /"#,
            r#"x jsonb [x, StructuredValue]: [1, "x"]"#,
            "y jsonb [y, Array]: NULL",
        ],
        ..PLAIN
    },
    Example {
        number: 10,
        entities: &[
            r#"TI, "x": {"type": "Foo", "value": 5}, "y": {"type": "Foo", "value": {"z": 1}},
                "z": {"type": "Foo", "value": "2019-01-01T00:00:00Z"}"#,
        ],
        expected: &[
            r#""mtx"."ett" /"#,
            "x int8 [x, Foo]: 5",
            r#"y jsonb [y, Foo]: {"z": 1}"#,
            "z timestamptz [z, Foo]: 2019-01-01T00:00:00Z",
        ],
        ..PLAIN
    },
    Example {
        number: 11,
        entities: &[r#"TI, "x": {"value": 23.3}, "y": {"value": "abc"}, "z": {"value": 0}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "x float8 [x, Number]: 23.3",
            "y text [y, Text]: abc",
        ],
        ..PLAIN
    },
    Example {
        number: 12,
        entities: &[r#"TI, "x": {"type": "Number"}, "y": {"type": "Number", "value": 1}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "x float8 [x, Number]: NULL",
            "y float8 [y, Number]: 1.0",
        ],
        ..PLAIN
    },
    Example {
        number: 13,
        entities: &[r#""x": {"type": "Number", "value": null}"#],
        expected: &[],
        ..PLAIN
    },
    Example {
        number: 14,
        entities: &[r#""x": {"type": "Number", "value": 0.0}"#],
        expected: &[],
        ..PLAIN
    },
    Example {
        number: 14,
        entities: &[r#""x": {"type": "Number", "value": 0}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "time_index: 2024-05-06T07:08:09",
            "x float8 [x, Number]: 0.0",
        ],
        ..PLAIN
    },
    Example {
        number: 15,
        entities: &[r#"TI, "k": "str", "x": {"type": "Number", "value": 1}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: 1.0"],
        ..PLAIN
    },
    Example {
        number: 16,
        entities: &[r#"TI, "k": 5, "x": {"type": "Number", "value": 1}"#],
        expected: &["refused 400"],
        ..PLAIN
    },
    Example {
        number: 17,
        entities: &[r#"TI, "g": {"type": "geo:point", "value": "41.3, 2.1"}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "g geometry [g, geo:point]: SRID=4326;POINT(2.1 41.3)",
        ],
        ..PLAIN
    },
    Example {
        number: 18,
        entities: &[
            r#"TI, "location": {"type": "geo:box", "value": ["1,2", "3,4"]}, "x": {"type": "Number", "value": 1}"#,
        ],
        expected: &[
            r#""mtx"."ett" /"#,
            "location geometry [location, geo:json]: SRID=4326;POLYGON((4 3,2 3,2 1,4 1,4 3))",
            "x float8 [x, Number]: 1.0",
            "location_centroid geometry [location_centroid, geo:point]: SRID=4326;POINT(3 2)",
        ],
        ..PLAIN
    },
    Example {
        number: 19,
        entities: &[
            r#"TI, "location": {"type": "Text", "value": "home"}, "location_centroid": {"type": "Text", "value": "q"}"#,
        ],
        expected: &[r#""mtx"."ett" /"#, "location text [location, Text]: home"],
        ..PLAIN
    },
    Example {
        number: 20,
        entities: &[r#"TI, "g": {"type": "geo:point", "value": "nowhere"}"#],
        expected: &[r#"failed AttributeError("'NoneType' object has no attribute '_points'")"#],
        ..PLAIN
    },
    Example {
        number: 21,
        time_index: Some("ts"),
        entities: &[r#"TI, "ts": {"type": "Text", "value": "2001-01-01T00:00:00Z"}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "ts text [ts, Text]: 2001-01-01T00:00:00Z",
        ],
        ..PLAIN
    },
    Example {
        number: 21,
        time_index: Some("ts"),
        entities: &[r#""ts": {"type": "Text", "value": "2001-01-01T00:00:00Z"}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "time_index: 2001-01-01T00:00:00+00:00",
            "ts text [ts, Text]: 2001-01-01T00:00:00Z",
        ],
        ..PLAIN
    },
    Example {
        number: 22,
        entities: &[r#""x": {"type": "Number", "value": 1,
                    "metadata": {"dateModified": {"type": "DateTime", "value": "2001-01-01T00:00:00Z"}}},
                "y": {"type": "Number", "value": 2,
                    "metadata": {"dateModified": {"type": "DateTime", "value": "2001-06-01T00:00:00Z"}}}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "time_index: 2001-06-01T00:00:00+00:00",
            "x float8 [x, Number]: 1.0",
            "y float8 [y, Number]: 2.0",
        ],
        ..PLAIN
    },
    Example {
        number: 23,
        entities: &[
            r#""x": {"type": "Property", "value": 1, "observedAt": "2004-01-01T00:00:00Z"}"#,
        ],
        expected: &[
            r#""mtx"."ett" /"#,
            "time_index: 2004-01-01T00:00:00+00:00",
            "x int8 [x, Integer]: 1",
        ],
        ..PLAIN
    },
    Example {
        number: 24,
        entities: &[r#""x": {"type": "Number", "value": 1}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "time_index: 2024-05-06T07:08:09",
            "x float8 [x, Number]: 1.0",
        ],
        ..PLAIN
    },
    Example {
        number: 25,
        entities: &[r#"TI, "x": {"type": "Number", "value": 1}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: 1.0"],
        ..PLAIN
    },
    Example {
        number: 25,
        entities: &[r#"TI, "x": {"type": "Text", "value": "5"}"#],
        expected: &[r#""mtx"."ett" /"#, "x text [x, Text]: 5"],
        ..PLAIN
    },
    Example {
        number: 25,
        entities: &[r#"TI, "x": {"type": "Text", "value": "abc"}"#],
        expected: &[r#""mtx"."ett" /"#, "x text [x, Text]: abc"],
        ..PLAIN
    },
    Example {
        number: 26,
        entities: &[r#"TI, "x": {"type": "Text", "value": "a"}"#],
        expected: &[r#""mtx"."ett" /"#, "x text [x, Text]: a"],
        ..PLAIN
    },
    Example {
        number: 26,
        entities: &[r#"TI, "x": {"type": "Boolean", "value": true}"#],
        expected: &[r#""mtx"."ett" /"#, "x bool [x, Boolean]: true"],
        ..PLAIN
    },
    Example {
        number: 26,
        entities: &[r#"TI, "x": {"type": "StructuredValue", "value": {"a": 1}}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            r#"x jsonb [x, StructuredValue]: {"a": 1}"#,
        ],
        ..PLAIN
    },
    Example {
        number: 27,
        entities: &[r#"TI, "x": {"type": "Integer", "value": 1}"#],
        expected: &[r#""mtx"."ett" /"#, "x int8 [x, Integer]: 1"],
        ..PLAIN
    },
    Example {
        number: 27,
        entities: &[r#"TI, "x": {"type": "Number", "value": 5.5}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: 5.5"],
        ..PLAIN
    },
    Example {
        number: 27,
        entities: &[r#"TI, "x": {"type": "Number", "value": 5}"#],
        expected: &[r#""mtx"."ett" /"#, "x float8 [x, Number]: 5.0"],
        ..PLAIN
    },
    Example {
        number: 28,
        entities: &[r#"TI, "x": {"type": "Integer", "value": 1}"#],
        expected: &[r#""mtx"."ett" /"#, "x int8 [x, Integer]: 1"],
        ..PLAIN
    },
    Example {
        number: 28,
        entities: &[r#"TI, "y": {"type": "Text", "value": "n"}"#],
        expected: &[r#""mtx"."ett" /"#, "y text [y, Text]: n"],
        ..PLAIN
    },
    Example {
        number: 28,
        entities: &[
            r#"TI, "x": {"type": "Integer", "value": 2}, "y": {"type": "Text", "value": "m"}"#,
        ],
        expected: &[
            r#""mtx"."ett" /"#,
            "x int8 [x, Integer]: 2",
            "y text [y, Text]: m",
        ],
        ..PLAIN
    },
    Example {
        number: 28,
        entities: &[
            r#"TI, "x": {"type": "Integer", "value": 1}"#,
            r#"TI, "y": {"type": "Text", "value": "n"}"#,
        ],
        expected: &[
            r#""mtx"."ett" / /"#,
            "x int8 [x, Integer]: 1 | NULL",
            "y text [y, Text]: NULL | n",
        ],
        ..PLAIN
    },
    Example {
        number: 29,
        entities: &[
            r#""id": "a", TI, "x": {"type": "Number", "value": 2}"#,
            r#""id": "b", TI, "x": {"type": "Text", "value": "t"}"#,
        ],
        expected: &[r#""mtx"."ett" / /"#, "x text [x, Text]: 2 | t"],
        ..PLAIN
    },
    Example {
        number: 29,
        entities: &[
            r#""id": "b", TI, "x": {"type": "Text", "value": "t"}"#,
            r#""id": "a", TI, "x": {"type": "Number", "value": 2}"#,
        ],
        expected: &[r#""mtx"."ett" / /"#, "x float8 [x, Number]: NULL | 2.0"],
        ..PLAIN
    },
    Example {
        number: 30,
        entities: &[
            r#""type": "Ta", TI, "x": {"type": "Integer", "value": 1}"#,
            r#""type": "Tb", TI, "x": {"type": "Integer", "value": 2}"#,
            r#""type": "Ta", TI, "x": {"type": "Integer", "value": 3}"#,
        ],
        expected: &[
            r#""mtx"."etta" / /"#,
            "x int8 [x, Integer]: 1 | 3",
            r#""mtx"."ettb" /"#,
            "x int8 [x, Integer]: 2",
        ],
        ..PLAIN
    },
    Example {
        number: 31,
        entities: &[
            r#""id": "good", TI, "x": {"type": "Number", "value": 2}"#,
            r#""id": "bad", TI, "x": {"type": "Text", "value": "bad"}"#,
        ],
        expected: &[r#""mtx"."ett" / /"#, "x text [x, Text]: 2 | bad"],
        ..PLAIN
    },
    Example {
        number: 32,
        service_path: "/a, /b",
        entities: &[
            r#"TI, "x": {"type": "Integer", "value": 1}"#,
            r#"TI, "x": {"type": "Integer", "value": 2}"#,
        ],
        expected: &[
            r#""mtx"."ett" /a"#,
            "x int8 [x, Integer]: 1",
            r#""mtx"."ett" /b"#,
            "x int8 [x, Integer]: 2",
        ],
        ..PLAIN
    },
    Example {
        number: 33,
        service_path: "/a,/b",
        entities: &[
            r#"TI, "x": {"type": "Integer", "value": 1}"#,
            r#"TI, "x": {"type": "Integer", "value": 1}"#,
            r#"TI, "x": {"type": "Integer", "value": 1}"#,
        ],
        expected: &[
            "failed InvalidHeaderValue(\"The header value '/a,/b' is not valid. \
             Multiple servicePath are allowed only if their number match the number of entities\")",
        ],
        ..PLAIN
    },
    Example {
        number: 34,
        entities: &[r#"TI, "Temp": {"type": "Number", "value": 1}"#],
        expected: &[r#""mtx"."ett" /"#, "temp float8 [Temp, Number]: 1.0"],
        ..PLAIN
    },
    Example {
        number: 34,
        entities: &[r#"TI, "TEMP": {"type": "Number", "value": 2}"#],
        expected: &[r#""mtx"."ett" /"#, "temp float8 [TEMP, Number]: 2.0"],
        ..PLAIN
    },
    Example {
        number: 35,
        entities: &[
            r#"TI, "a b": {"type": "Integer", "value": 1}, "a.b": {"type": "Integer", "value": 1},
                "a'b": {"type": "Integer", "value": 1}, "select": {"type": "Integer", "value": 1},
                "9x": {"type": "Integer", "value": 1}"#,
        ],
        expected: &[
            r#""mtx"."ett" /"#,
            "a b int8 [a b, Integer]: 1",
            "a.b int8 [a.b, Integer]: 1",
            "a'b int8 [a'b, Integer]: 1",
            "select int8 [select, Integer]: 1",
            "9x int8 [9x, Integer]: 1",
        ],
        ..PLAIN
    },
    Example {
        number: 35,
        entities: &["TI, \"\u{e9}\": {\"type\": \"Integer\", \"value\": 1}"],
        expected: &[r#""mtx"."ett" /"#, "\u{e9} int8 [\u{e9}, Integer]: 1"],
        ..PLAIN
    },
    Example {
        number: 36,
        entities: &[
            r#""type": "https://uri.fiware.org/ns/data-models#AirQualityObserved", TI,
                "x": {"type": "Integer", "value": 1}"#,
        ],
        expected: &[
            r#""mtx"."ethttps://uri.fiware.org/ns/data-models#airqualityobserved" /"#,
            "x int8 [x, Integer]: 1",
        ],
        ..PLAIN
    },
    Example {
        number: 37,
        tenant: None,
        entities: &[r#""type": "Room", TI, "x": {"type": "Integer", "value": 1}"#],
        expected: &[r#""etroom" /"#, "x int8 [x, Integer]: 1"],
        ..PLAIN
    },
    Example {
        number: 38,
        tenant: Some("AbC"),
        entities: &[r#"TI, "x": {"type": "Integer", "value": 1}"#],
        expected: &[r#""mtabc"."ett" /"#, "x int8 [x, Integer]: 1"],
        ..PLAIN
    },
    Example {
        number: 39,
        entities: &[r#"TI, "x": {"type": "Integer", "value": 1180591620717411303424}"#],
        expected: &[
            r#""mtx"."ett" /"#,
            "x int8 [x, Integer]: 1180591620717411303424",
        ],
        ..PLAIN
    },
    Example {
        number: 40,
        entities: &[
            r#""type": "Streetlight", "@context": ["https://a.b/c.jsonld"],
                "location": {"type": "GeoProperty", "value": {"type": "Point", "coordinates": [2.1, 41.3]}},
                "name": {"type": "Property", "value": "lamp"}, "count": {"type": "Property", "value": 10},
                "power": {"type": "Property", "value": 10.5}, "on": {"type": "Property", "value": false},
                "list": {"type": "Property", "value": [1, 2]}, "tree": {"type": "Property", "value": {"k": 1}},
                "since": {"type": "Property", "value": {"@type": "DateTime", "@value": "2020-05-01T00:00:00Z"},
                    "observedAt": "2004-01-01T00:00:00Z"},
                "partOf": {"type": "Relationship", "object": "urn:ngsi-ld:Street:1"}"#,
        ],
        expected: &[
            r#""mtx"."etstreetlight" /"#,
            "time_index: 2004-01-01T00:00:00+00:00",
            "location geometry [location, geo:json]: SRID=4326;POINT(2.1 41.3)",
            "name text [name, Text]: lamp",
            "count int8 [count, Integer]: 10",
            "power float8 [power, Number]: 10.5",
            "on bool [on, Boolean]: false",
            "list jsonb [list, Array]: [1, 2]",
            r#"tree jsonb [tree, StructuredValue]: {"k": 1}"#,
            "since timestamptz [since, DateTime]: 2020-05-01T00:00:00Z",
            "partof text [partOf, Relationship]: urn:ngsi-ld:Street:1",
            "location_centroid geometry [location_centroid, geo:point]: SRID=4326;POINT(2.1 41.3)",
        ],
        ..PLAIN
    },
];
