//! The form to sign in.

use maud::{Markup, html};

use crate::links::Links;

/// What the form says beside its field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Login {
    /// Why the last attempt was refused.
    pub(crate) refusal: Option<String>,
    /// Where to go once signed in: a path of ours.
    pub(crate) to: String,
    /// Whether a token helps.
    pub(crate) takes_tokens: bool,
}

/// The content of the page.
pub(crate) fn form(links: &Links, login: &Login) -> Markup {
    html! {
        div.sign-in {
            h1 { "Sign in" }
            @if let Some(refusal) = &login.refusal { div.alert role="alert" { p { (refusal) } } }
            @if login.takes_tokens {
                form method="post" action=(links.bare("/login")) {
                    input type="hidden" name="to" value=(login.to);
                    label for="token" { "Token" }
                    div.secret {
                        input #token type="password" name="token" autocomplete="current-password" required autofocus maxlength="4096" spellcheck="false" autocapitalize="none";
                        button.with-module type="button" data-reveal="token" { "Show" }
                    }
                    button.primary { "Sign in" }
                }
                p.soft { "An operator of the server makes a token with " code { "ganger token create" } "." }
            } @else {
                p { "This server asks for a client certificate. Install one that it knows in your browser, then " a href=(login.to) { "reload" } "." }
            }
        }
    }
}
