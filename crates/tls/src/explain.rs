//! Explains TLS errors in messages that say what to do.

use std::error::Error as StdError;
use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// Returns a message for a failed connection; `None` if TLS is not the cause.
pub fn explain(error: &io::Error) -> Option<String> {
    let mut cause: Option<&(dyn StdError + 'static)> = error
        .get_ref()
        .map(|inner| -> &(dyn StdError + 'static) { inner });
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<Error>() {
            return Some(words(error));
        }
        cause = error.source();
    }
    None
}

/// Returns a message for a client's connection that failed in TLS, from the server's side; `None` if TLS is not the
/// cause.
pub fn explain_client(error: &io::Error) -> Option<String> {
    let mut cause: Option<&(dyn StdError + 'static)> = error
        .get_ref()
        .map(|inner| -> &(dyn StdError + 'static) { inner });
    while let Some(error) = cause {
        if let Some(Error::AlertReceived(alert)) = error.downcast_ref::<Error>() {
            return Some(from_client(*alert));
        }
        cause = error.source();
    }
    explain(error)
}

/// Explains what a client's alert means for the server's certificate.
fn from_client(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::UnknownCA | A::DecryptError => {
            "the client does not trust this server's certificate: it needs the CA file (--ca)"
                .to_owned()
        }
        A::CertificateExpired => {
            "the client refuses this server's certificate: it has expired; renew it".to_owned()
        }
        A::CertificateRevoked => {
            "the client refuses this server's certificate: it has been revoked".to_owned()
        }
        A::BadCertificate | A::UnsupportedCertificate | A::CertificateUnknown => {
            format!("the client refuses this server's certificate ({alert:?})")
        }
        alert => format!("the client ended the TLS connection ({alert:?})"),
    }
}

fn words(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => received(*alert),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => "the other side does not speak TLS: use an address that begins with http://, or the port for https".to_owned(),
        Error::NoCertificatesPresented => {
            "no client certificate was shown: one is required here".to_owned()
        }
        Error::PeerIncompatible(error) => {
            format!("no common version or method of TLS: {error:?}")
        }
        error => format!("TLS: {error}"),
    }
}

fn certificate(error: &CertificateError) -> String {
    use CertificateError as C;
    match error {
        C::Expired | C::ExpiredContext { .. } => {
            "its certificate has expired: renew it, or check the clocks of both sides".to_owned()
        }
        C::NotValidYet | C::NotValidYetContext { .. } => {
            "its certificate is not valid yet: check the clocks of both sides".to_owned()
        }
        C::NotValidForName => {
            "its certificate is for another name: use the name that the certificate has"
                .to_owned()
        }
        C::NotValidForNameContext {
            expected,
            presented,
        } => {
            let name = expected.to_str();
            let known = presented.join(", ");
            format!(
                "its certificate is for another name: wanted {name}, it has {known}; use an address that it has, or make a certificate for {name}"
            )
        }
        C::UnknownIssuer | C::BadSignature => {
            "its certificate is not signed by an authority that is trusted here: name the right CA file (clients: --ca)".to_owned()
        }
        C::Revoked => "its certificate was revoked by its authority".to_owned(),
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            "its certificate is not made for this side of a connection (extended key usage serverAuth or clientAuth)".to_owned()
        }
        error => format!("its certificate cannot be accepted: {error:?}"),
    }
}

fn received(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => {
            "the server wants a client certificate: give --client-cert and --client-key".to_owned()
        }
        A::CertificateExpired => {
            "the server refuses our certificate: it has expired; renew it".to_owned()
        }
        A::CertificateRevoked => {
            "the server refuses our certificate: it was revoked".to_owned()
        }
        A::UnknownCA | A::DecryptError => {
            "the server refuses our certificate: it is not signed by an authority that the server trusts".to_owned()
        }
        A::BadCertificate | A::UnsupportedCertificate | A::CertificateUnknown => {
            format!("the server refuses our certificate ({alert:?})")
        }
        A::NoApplicationProtocol => "the server does not speak HTTP/2 there".to_owned(),
        alert => format!("the other side closed the TLS connection ({alert:?})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_of_a_client_is_about_the_servers_certificate() {
        for alert in [
            AlertDescription::UnknownCA,
            AlertDescription::BadCertificate,
            AlertDescription::CertificateExpired,
            AlertDescription::CertificateRevoked,
            AlertDescription::CertificateUnknown,
        ] {
            let error = io::Error::other(Error::AlertReceived(alert));
            let at_server = explain_client(&error).expect("words");
            assert!(at_server.starts_with("the client "), "{at_server}");
            assert!(
                at_server.contains("this server's certificate"),
                "{at_server}"
            );
            let at_client = explain(&error).expect("words");
            assert!(
                at_client.contains("the server refuses our certificate"),
                "{at_client}"
            );
        }
        // The client's certificate is verified by the same rules on both sides.
        let error = io::Error::other(Error::InvalidCertificate(CertificateError::Expired));
        assert_eq!(explain_client(&error), explain(&error));
        assert_eq!(explain_client(&io::Error::other("no word of TLS")), None);
    }
}
