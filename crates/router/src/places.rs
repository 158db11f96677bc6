//! Where a list of all shards goes on: a place for each shard, as one text.

use ganger_types::ShardId;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Returns the places of shards as one text, which clients send back unchanged. An empty place is the start of a shard's
/// list; a shard that is not named has no more entries.
pub fn places_text(places: &[(ShardId, String)]) -> String {
    let places = places.iter().map(|(shard, place)| {
        let place = utf8_percent_encode(place, NON_ALPHANUMERIC);
        format!("{shard}~{place}")
    });
    places.collect::<Vec<_>>().join("!")
}

/// Reads the places from their text; `None` if it is not the text of places.
pub fn read_places(text: &str) -> Option<Vec<(ShardId, String)>> {
    let parts = text.split('!').map(|part| {
        let (shard, place) = part.split_once('~')?;
        let place = percent_decode_str(place).decode_utf8().ok()?;
        Some((ShardId::new(shard)?, place.into_owned()))
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_back_and_nothing_else_is() {
        let shard = |name: &str| ShardId::new(name).expect("a good name");
        let places = vec![
            (shard("1"), String::new()),
            (shard("b"), "a!~%\u{e9}".to_owned()),
        ];
        assert_eq!(read_places(&places_text(&places)), Some(places));
        for text in ["", "1", "7", "!", "a b~c", "1~%ff"] {
            assert_eq!(read_places(text), None, "{text:?}");
        }
    }
}
