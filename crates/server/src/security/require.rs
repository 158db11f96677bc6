//! The credentials that a protocol needs.

use std::fmt;
use std::str::FromStr;

/// The credentials that clients must present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Require {
    /// Nothing: every client that reaches the port may do everything.
    Nothing,
    /// Clients must show a token.
    Token,
    /// Clients must show a certificate.
    ClientCert,
    /// A certificate and a token.
    Both,
    /// A certificate or a token.
    Either,
}

impl Require {
    /// Returns the default for the configured tokens and authorities.
    pub(crate) fn default_for(has_tokens: bool, has_client_ca: bool) -> Self {
        match (has_tokens, has_client_ca) {
            (false, false) => Self::Nothing,
            (true, false) => Self::Token,
            (false, true) => Self::ClientCert,
            (true, true) => Self::Either,
        }
    }

    /// Checks that the requirement can be met with the configuration; the error names the missing setting.
    pub(crate) fn check(self, has_tokens: bool, has_client_ca: bool) -> Result<(), &'static str> {
        let token = "no token is configured: set GANGER_TOKEN, token_file or access_file";
        let certificate = "no authority of client certificates is configured: set tls.client_ca";
        match self {
            Self::Token | Self::Both if !has_tokens => Err(token),
            Self::ClientCert | Self::Both if !has_client_ca => Err(certificate),
            Self::Either if !has_tokens && !has_client_ca => Err(token),
            _ => Ok(()),
        }
    }

    /// Whether a certificate is always needed.
    pub(crate) fn always_wants_certificate(self) -> bool {
        matches!(self, Self::ClientCert | Self::Both)
    }
}

impl FromStr for Require {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "token" => Ok(Self::Token),
            "client-cert" => Ok(Self::ClientCert),
            "both" => Ok(Self::Both),
            "either" => Ok(Self::Either),
            _ => Err(format!(
                "must be token, client-cert, both or either, not {text:?}"
            )),
        }
    }
}

impl fmt::Display for Require {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Token => "token",
            Self::ClientCert => "client-cert",
            Self::Both => "both",
            Self::Either => "either",
        })
    }
}
