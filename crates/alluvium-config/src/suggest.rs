//! "Did you mean": the closest of the names that are allowed.

/// The candidate that `found` is most likely a misspelling of; letter case and the kind of dash do
/// not count.
pub(crate) fn closest<'c>(found: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    let found = plain(found);
    let measured = candidates.into_iter().filter_map(|candidate| {
        let most = (candidate.len() / 3).clamp(1, 3);
        // The distance takes quadratic time; most names are told apart by their length.
        if found.len().abs_diff(candidate.len()) > 2 * most {
            return None;
        }
        let distance = strsim::osa_distance(&found, &plain(candidate));
        (distance <= most).then_some((distance, candidate))
    });
    measured.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// `did you mean …?` for [`closest`].
pub(crate) fn did_you_mean<'c>(found: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<String> {
    closest(found, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// Names for the sentence "allowed: …".
pub(crate) fn listed<'c>(names: impl IntoIterator<Item = &'c str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The tables of the file, as messages name them, with their keys: for keys in the wrong place.
const PLACES: &[(&str, &[&str])] = &[
    ("the top of the file, above the first table", &["version", "tenant", "name", "generation"]),
    ("[source]", &["brokers", "topic", "format", "start", "tombstones", "lost_data", "group", "kafka"]),
    ("[[transform]]", &["plugin", "with"]),
    ("[schema]", &["mapping", "evolve", "max_columns", "drop", "column"]),
    ("[[schema.column]]", &["type", "from", "on_conflict", "coercion", "derive", "default", "comment"]),
    ("[sink]", &["table", "dead_letters", "partition_by", "metadata", "storage"]),
    ("[sink.metadata]", &["rescued", "headers"]),
    ("[flush]", &["every", "rows", "size", "memory", "grace"]),
    ("[limits]", &["memory", "time", "output", "trapping_share"]),
    ("[[test]]", &["input", "input_text", "expect"]),
];

/// Where a key belongs that is not one of the table it stands in.
pub(crate) fn belongs(key: &str) -> Option<String> {
    let places = PLACES.iter().filter(|(_, keys)| keys.contains(&key)).map(|(place, _)| *place);
    let places = places.collect::<Vec<_>>();
    (!places.is_empty()).then(|| format!("`{key}` belongs to {}", places.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_names_are_found() {
        let keys = ["brokers", "topic", "format", "dead_letters", "rows"];
        for (found, expected) in [
            ("topics", Some("topic")),
            ("tpoic", Some("topic")),
            ("Topic", Some("topic")),
            ("dead-letters", Some("dead_letters")),
            ("deadletters", Some("dead_letters")),
            ("row", Some("rows")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(closest(found, keys), expected, "{found}");
        }
        assert_eq!(closest(&"topic".repeat(100), keys), None);
    }

    #[test]
    fn every_key_with_a_place_is_a_key() {
        let valid = concat!(
            include_str!("../tests/ui/valid/everything.toml"),
            include_str!("../tests/ui/valid/inferred.toml"),
            include_str!("../tests/ui/valid/derived.toml"),
            include_str!("../tests/ui/valid/mapped.toml")
        );
        for key in PLACES.iter().flat_map(|(_, keys)| *keys) {
            let set = valid.lines().any(|line| {
                line.starts_with(key) || line.ends_with(&format!(".{key}]")) || line.ends_with(&format!(".{key}]]"))
            });
            assert!(set, "{key}");
        }
    }

    #[test]
    fn misplaced_keys_are_told_their_place() {
        assert_eq!(belongs("evolve").as_deref(), Some("`evolve` belongs to [schema]"));
        assert_eq!(belongs("memory").as_deref(), Some("`memory` belongs to [flush] or [limits]"));
        assert_eq!(belongs("colour"), None);
    }
}
