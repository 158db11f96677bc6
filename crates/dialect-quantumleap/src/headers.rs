//! The FIWARE headers of a request.

use ganger_ngsi::task::Origin;
use http::HeaderMap;

const TENANT_LD: &str = "ngsild-tenant";
const TENANT: &str = "fiware-service";
const SERVICE_PATH: &str = "fiware-servicepath";
const CORRELATOR: &str = "fiware-correlator";
const TIME_INDEX: &str = "fiware-timeindex-attribute";

/// Returns the origin of a notification, or the origin of the requested tasks.
pub(crate) fn origin(headers: &HeaderMap) -> Origin {
    let tenant_ld = text(headers, TENANT_LD).filter(|tenant| !tenant.is_empty());
    Origin {
        tenant: tenant_ld.or_else(|| text(headers, TENANT)),
        service_path: text(headers, SERVICE_PATH),
        correlator: text(headers, CORRELATOR),
    }
}

/// Returns the attribute for the time index; `None` if the header is missing.
pub(crate) fn time_index(headers: &HeaderMap) -> Option<String> {
    text(headers, TIME_INDEX)
}

/// Returns a header as text, decoded as UTF-8 or else as Latin-1. Several values are joined with commas.
fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut values = headers.get_all(name).iter().map(|value| {
        let bytes = value.as_bytes();
        std::str::from_utf8(bytes).map_or_else(
            |_| bytes.iter().copied().map(char::from).collect(),
            str::to_owned,
        )
    });
    let first: String = values.next()?;
    Some(values.fold(first, |all, value| format!("{all},{value}")))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value).expect("a header"));
        }
        headers
    }

    #[test]
    fn the_tenant_of_ngsi_ld_has_precedence_unless_it_is_empty() {
        let both = headers(&[("fiware-service", b"a"), ("ngsild-tenant", b"b")]);
        assert_eq!(origin(&both).tenant.as_deref(), Some("b"));
        let empty = headers(&[("fiware-service", b"a"), ("ngsild-tenant", b"")]);
        assert_eq!(origin(&empty).tenant.as_deref(), Some("a"));
        assert_eq!(origin(&headers(&[])), Origin::default());
    }

    #[test]
    fn values_are_unchanged() {
        let odd = headers(&[
            ("fiware-service", "\u{e9}A".as_bytes()),
            ("fiware-correlator", b"\xe9"),
            ("fiware-servicepath", b"/a"),
            ("fiware-servicepath", b"/b"),
            ("Fiware-TimeIndex-Attribute", b"ts"),
        ]);
        let found = origin(&odd);
        assert_eq!(found.tenant.as_deref(), Some("\u{e9}A"));
        assert_eq!(found.correlator.as_deref(), Some("\u{e9}"));
        assert_eq!(found.service_path.as_deref(), Some("/a,/b"));
        assert_eq!(time_index(&odd).as_deref(), Some("ts"));
    }
}
