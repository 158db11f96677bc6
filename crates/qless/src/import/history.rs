//! Reads a job's history in the three forms that scripts have used: entries `[when, what, {key: value}]` as JSON or as
//! `MessagePack`, and in the oldest scripts one field with a list of rounds.

use bytes::Bytes;
use ganger_types::qless::QlessHistoryEntry;

use super::{ImportError, excerpt, message_pack};
use crate::json;
use crate::number;

/// Reads the entries of the old field `history`, then those of the list.
pub(super) fn read(
    old: Option<&Bytes>,
    entries: &[Bytes],
) -> Result<Vec<QlessHistoryEntry>, ImportError> {
    let mut history = match old {
        Some(text) => read_rounds(text)?,
        None => Vec::new(),
    };
    for bytes in entries {
        let entry = read_entry(bytes);
        history.push(
            entry
                .map_err(|wrong| format!("an entry of its history {}: {wrong}", excerpt(bytes)))?,
        );
    }
    Ok(history)
}

fn read_entry(bytes: &[u8]) -> Result<QlessHistoryEntry, ImportError> {
    let text = match bytes.first() {
        Some(b'[' | b' ') => Bytes::copy_from_slice(bytes),
        _ => message_pack::to_json(bytes)?,
    };
    let values = json::values(&text).map_err(|wrong| wrong.to_string())?;
    let (Some(when), Some(what)) = (values.first(), values.get(1)) else {
        return Err("it has no time, or does not say what happened".to_owned());
    };
    let when = number::parse(when).ok_or("its time is no number")?;
    let what = json::list(&[b"[", &what[..], b"]"].concat()).map_err(|wrong| wrong.to_string())?;
    let what = what.first().map(json::tag_text);
    let extra = match values.get(2).filter(|value| *value != "null") {
        Some(value) => json::object(value).map_err(|wrong| wrong.to_string())?,
        None => Vec::new(),
    };
    Ok(QlessHistoryEntry {
        what: what.unwrap_or_default(),
        when: when.floor(),
        extra,
    })
}

/// The events of a round of the oldest form: the key of its time, the name of the event, and the key of its further
/// value; `None` if it has none.
const ROUND_EVENTS: [(&str, &str, Option<&str>); 4] = [
    ("put", "put", Some("q")),
    ("popped", "popped", Some("worker")),
    ("failed", "failed", None),
    ("done", "done", None),
];

fn read_rounds(text: &[u8]) -> Result<Vec<QlessHistoryEntry>, ImportError> {
    let wrong = |wrong: json::JsonError| format!("its field \"history\": {wrong}");
    let mut history = Vec::new();
    for round in json::values(text).map_err(wrong)? {
        let members = json::object(&round).map_err(wrong)?;
        let member = |name: &str| members.iter().find(|(key, _)| key == name);
        for (time, what, key) in ROUND_EVENTS {
            let when = member(time).and_then(|(_, value)| number::parse(value));
            history.extend(when.map(|when| QlessHistoryEntry {
                what: Bytes::from_static(what.as_bytes()),
                when: when.floor(),
                extra: key.and_then(member).cloned().into_iter().collect(),
            }));
        }
    }
    Ok(history)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::read;

    fn texts_of(old: Option<&str>, entries: &[&[u8]]) -> Result<Vec<String>, String> {
        let old = old.map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let entries: Vec<_> = entries
            .iter()
            .map(|it| Bytes::copy_from_slice(it))
            .collect();
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let history = read(old.as_ref(), &entries)?;
        let entries = history.iter().map(|entry| {
            let extra: Vec<_> = (entry.extra.iter())
                .map(|(key, value)| format!(" {}={}", text(key), text(value)))
                .collect();
            format!("{} {}{}", entry.when, text(&entry.what), extra.concat())
        });
        Ok(entries.collect())
    }

    #[test]
    fn entries_are_read_in_every_form() {
        let json: &[u8] = br#"[12,"put",{"q":"mail"}]"#;
        let alone: &[u8] = br#"[13,"done"]"#;
        let with_null: &[u8] = br#"[13,"done",null]"#;
        let packed = b"\x93\xce\x00\x00\x00\x0c\xa6popped\x81\xa6worker\xa1w";
        assert_eq!(
            texts_of(None, &[json, packed, alone, with_null]),
            Ok(vec![
                "12 put q=\"mail\"".to_owned(),
                "12 popped worker=\"w\"".to_owned(),
                "13 done".to_owned(),
                "13 done".to_owned(),
            ])
        );
    }

    #[test]
    fn the_oldest_form_is_a_list_of_rounds() {
        let old = r#"[{"q":"a","put":1.5,"worker":"w","popped":2,"failed":3},{"q":"b","put":4}]"#;
        assert_eq!(
            texts_of(Some(old), &[]),
            Ok(vec![
                "1 put q=\"a\"".to_owned(),
                "2 popped worker=\"w\"".to_owned(),
                "3 failed".to_owned(),
                "4 put q=\"b\"".to_owned(),
            ])
        );
    }

    #[test]
    fn what_is_no_entry_is_refused() {
        let wrong: [&[u8]; 7] = [
            b"",
            b"[",
            b"[1]",
            b"[\"x\",\"put\"]",
            b"\x93\x01",
            b"{}",
            b"\xc1",
        ];
        for bytes in wrong {
            assert!(
                texts_of(None, &[bytes]).is_err(),
                "{}",
                bytes.escape_ascii()
            );
        }
        assert!(texts_of(Some("{"), &[]).is_err());
    }
}
