//! Settings that are handed on as text: librdkafka's and the object store's.

use crate::ErrorKind;
use crate::reader::{Item, Table};
use std::fmt;
use toml::de::DeValue;

/// A setting's value, or where it is found.
#[derive(Clone, PartialEq, Eq)]
pub enum Setting {
    /// As written; numbers and booleans in their plain spelling. Never of a key that looks secret.
    Plain(String),
    /// The name of an environment variable.
    Env(String),
    /// A path, as written.
    File(String),
}

impl fmt::Debug for Setting {
    /// Plain values are left out: not every secret is recognised by its key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("Plain(…)"),
            Self::Env(name) => f.debug_tuple("Env").field(name).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Words that make a key secret, wherever they stand in it.
const SECRET: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "token",
    "credential",
    "credentials",
    "sas",
    "jaas",
];
/// Words before `key` that make it a secret one.
const SECRET_KEY: &[&str] =
    &["access", "account", "api", "customer", "encryption", "private", "signing", "ssl", "storage"];
/// Last words of keys that only tell where a secret is, or how it is used.
const HARMLESS: &[&str] = &[
    "algorithm",
    "enabled",
    "endpoint",
    "env",
    "file",
    "id",
    "location",
    "method",
    "path",
    "providers",
    "type",
    "uri",
    "url",
];

/// Whether the value of a setting with this key has to be kept out of files and messages.
pub fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    let words = key.split(['.', '-', '_']).collect::<Vec<_>>();
    if words.last().is_some_and(|last| HARMLESS.contains(last)) {
        return false;
    }
    let secret_key = |pair: &[&str]| match pair {
        [before, "key"] => SECRET_KEY.contains(before),
        ["key", "pem"] => true,
        _ => false,
    };
    words.iter().any(|word| SECRET.contains(word)) || words.windows(2).any(secret_key)
}

/// What a setting can be.
pub(crate) const ALLOWED: &str = "a string, a number, a boolean, `{ env = \"NAME\" }` or `{ file = \"path\" }`";

/// Reads the setting `key`.
pub(crate) fn read(key: &str, item: &Item<'_>) -> Option<Setting> {
    let plain = match item.value() {
        DeValue::Table(_) => return reference(item, item.table(item.shown())?),
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str().trim_start_matches('+').to_owned(),
        DeValue::Integer(_) => item.number()?.to_string(),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(boolean) => boolean.to_string(),
        _ => {
            item.report().add(item.wrong_type(ALLOWED));
            return None;
        }
    };
    if is_secret(key) {
        let problem = item.problem(ErrorKind::Refused, format!("the secret {} is written out", item.shown()));
        let problem = problem.allowed("`{ env = \"NAME\" }` or `{ file = \"path\" }`");
        item.report().add(problem.hint(
            "pipeline files get copied and committed; keep the secret in the environment or in a file of its own",
        ));
        return None;
    }
    if plain.contains('\0') {
        item.refuse(format!("{} holds a null character", item.shown()), "a text without null characters");
        return None;
    }
    Some(Setting::Plain(plain))
}

fn reference(item: &Item<'_>, table: Table<'_>) -> Option<Setting> {
    let env = table.optional("env");
    let file = table.optional("file");
    let setting = match (&env, &file) {
        (Some(env), None) => variable(env).map(Setting::Env),
        (None, Some(file)) => file.word("/run/secrets/name").map(|path| Setting::File(path.to_owned())),
        // Keys that are there but unknown are told by the table.
        (None, None) if !table.is_empty() => None,
        (None, None) => {
            let message = format!("{} does not say where its value is", item.shown());
            item.report().add(item.problem(ErrorKind::Value, message).allowed(ALLOWED));
            None
        }
        (Some(_), Some(_)) => {
            let message = format!("{} has both `env` and `file`", item.shown());
            item.report().add(item.problem(ErrorKind::Conflict, message).allowed("one of them"));
            None
        }
    };
    table.finish();
    setting
}

fn variable(item: &Item<'_>) -> Option<String> {
    let name = item.word("ORDERS_PW")?;
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return Some(name.to_owned());
    }
    // More than once, what stands here is the secret itself.
    item.report().hide(item.span());
    let problem =
        item.problem(ErrorKind::Value, format!("{} is not the name of an environment variable", item.shown()));
    let problem = problem.allowed("letters, digits and `_`, not starting with a digit");
    item.report().add(if name.starts_with('$') { problem.hint("write the name without `$`") } else { problem });
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_by_their_key() {
        for key in [
            "sasl.password",
            "ssl.key.password",
            "ssl.keystore.password",
            "ssl.key.pem",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
            "sasl.jaas.config",
            "AWS_SECRET_ACCESS_KEY",
            "aws_session_token",
            "secret_access_key",
            "aws_sse_customer_key_base64",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
        ] {
            assert!(is_secret(key), "{key}");
        }
        for key in [
            "sasl.username",
            "sasl.mechanism",
            "ssl.key.location",
            "ssl.ca.pem",
            "ssl.certificate.pem",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.oauthbearer.client.id",
            "AWS_ACCESS_KEY_ID",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "aws_sse_kms_key_id",
            "aws_sse_bucket_key_enabled",
            "security.protocol",
            "metadata.key",
            "key",
        ] {
            assert!(!is_secret(key), "{key}");
        }
    }

    #[test]
    fn debug_tells_no_value() {
        assert_eq!(format!("{:?}", Setting::Plain("hunter2".into())), "Plain(…)");
        assert_eq!(format!("{:?}", Setting::Env("PW".into())), "Env(\"PW\")");
    }
}
