//! Records of the demo and the benchmark: orders of a shop.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const COUNTRIES: [&str; 10] = ["DE", "FR", "GB", "US", "NL", "PL", "ES", "IT", "SE", "AT"];
const DOMAINS: [&str; 4] = ["example.com", "example.org", "mail.example.net", "shop.example.de"];
const CURRENCIES: [&str; 6] = ["EUR", "EUR", "EUR", "USD", "GBP", "SEK"];
const WORDS: [&str; 12] =
    ["please", "leave", "at", "the", "door", "ring", "twice", "gift", "wrap", "fragile", "express", "weekend"];
/// What one note in twenty ends with: escapes and text beyond ASCII, as JSON.
const ENDINGS: [&str; 5] = [
    "Stra\u{df}e 5, K\u{f6}ln",
    r#"say \"hello\" to Zo\u00eb"#,
    r"line one\nline two",
    r"\u6771\u4eac 100\u20ac",
    r"back\\slash",
];
/// 2026-03-01T00:00:00Z in milliseconds.
const FIRST: i64 = 1_772_323_200_000;
/// One record in so many is broken, where they are asked for.
const BROKEN_EVERY: u64 = 20_011;

/// Makes orders: the same seed makes the same ones.
#[derive(Debug)]
pub struct Orders {
    broken: bool,
    random: StdRng,
    number: u64,
    milliseconds: i64,
}

/// What should become of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Row,
    /// A test order: the plugin drops it.
    Filtered,
    /// Not JSON, or not an order.
    DeadLetter,
}

impl Orders {
    /// Orders, with `broken` a few of them so that they cannot become rows.
    pub fn new(seed: u64, broken: bool) -> Self {
        Self { broken, random: StdRng::seed_from_u64(seed), number: 0, milliseconds: FIRST }
    }

    /// Puts the next order into `out`; its customer is the record's key.
    pub fn write_next(&mut self, out: &mut String) -> (String, Fate) {
        let number = self.number;
        self.number += 1;
        self.milliseconds += self.random.random_range(0..1300);
        let customer = self.random.random_range(0..200_000u32);
        let key = format!("c-{customer:06}");
        self.order(number, customer, &key, out);
        if self.broken && number % BROKEN_EVERY == BROKEN_EVERY / 2 {
            self.break_it(number, out);
            return (key, Fate::DeadLetter);
        }
        let fate = if is_test(number) { Fate::Filtered } else { Fate::Row };
        (key, fate)
    }

    fn order(&mut self, number: u64, customer: u32, key: &str, out: &mut String) {
        let random = &mut self.random;
        let mut pick = |length: usize| random.random_range(0..length);
        let mut cents = 0;
        let mut items = String::new();
        for item in 0..1 + pick(3) {
            let (quantity, price) = (1 + pick(5), 99 + pick(20_000));
            cents += quantity * price;
            let comma = if item > 0 { "," } else { "" };
            let sku = pick(50_000);
            let (units, rest) = (price / 100, price % 100);
            items += &format!(r#"{comma}{{"sku":"SKU-{sku:06}","qty":{quantity},"price":"{units}.{rest:02}"}}"#);
        }
        let mut words: Vec<&str> = (0..5 + pick(6)).map(|_| WORDS[pick(WORDS.len())]).collect();
        if pick(20) == 0 {
            words.push(ENDINGS[pick(ENDINGS.len())]);
        }
        let currency = CURRENCIES[pick(CURRENCIES.len())];
        let (domain, country) = (DOMAINS[customer as usize % 4], COUNTRIES[customer as usize % 10]);
        let (time, test) = (timestamp(self.milliseconds), is_test(number));
        let (amount, rest, note) = (cents / 100, cents % 100, words.join(" "));
        *out = format!(
            r#"{{"id":{number},"event_time":"{time}","customer":{{"id":"{key}","email":"user{customer}@{domain}","country":"{country}"}},"items":[{items}],"currency":"{currency}","amount":{amount}.{rest:02},"test":{test},"note":"{note}"}}"#
        );
    }

    /// Four ways in which producers break records.
    fn break_it(&mut self, number: u64, out: &mut String) {
        match number / BROKEN_EVERY % 4 {
            0 => out.truncate(out.len() / 2),
            1 => *out = out.replacen(&format!(r#""id":{number}"#), r#""id":"four""#, 1),
            2 => *out = "not an order".to_owned(),
            _ => *out = out.replacen(r#""note":""#, "\"note\":\"\u{1}", 1),
        }
    }
}

/// One order in ten is a test order, at changing places.
fn is_test(number: u64) -> bool {
    number % 10 == number / 10 % 10
}

/// RFC 3339 of milliseconds since the epoch, within March 2026.
fn timestamp(milliseconds: i64) -> String {
    let since = milliseconds - FIRST;
    let (day, rest) = (since / 86_400_000, since % 86_400_000);
    let (month, day) = if day < 31 {
        (3, day + 1)
    } else if day < 61 {
        (4, day - 30)
    } else {
        (5, (day - 61) % 31 + 1)
    };
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60);
    format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", rest % 1000)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn orders_are_json_but_for_the_broken_ones_and_the_same_for_a_seed() {
        let mut orders = Orders::new(7, true);
        let mut again = Orders::new(7, true);
        let (mut text, mut other) = (String::new(), String::new());
        let mut broken = 0;
        for number in 0..90_000u64 {
            let (key, fate) = orders.write_next(&mut text);
            assert_eq!(again.write_next(&mut other), (key, fate));
            assert_eq!(text, other);
            let parsed = serde_json::from_str::<serde_json::Value>(&text);
            match fate {
                Fate::DeadLetter => {
                    broken += 1;
                    assert!(parsed.map_or(true, |order| order["id"] == "four"));
                }
                _ => assert_eq!(parsed.unwrap()["id"], number),
            }
        }
        assert_eq!(broken, 4);
    }
}
