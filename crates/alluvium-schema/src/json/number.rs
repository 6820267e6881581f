//! Numbers, compared and converted by value in exact decimal arithmetic.

/// A JSON number as it was scanned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number<'a> {
    pub(crate) text: &'a [u8],
    negative: bool,
    /// All digits, read as one integer. Only good when `fits`.
    mantissa: u64,
    /// The power of ten that `mantissa` is multiplied with. Only good when `fits`.
    exponent: i32,
    /// Whether `mantissa` and `exponent` could hold the number.
    fits: bool,
}

/// The digits that a u64 surely holds.
const SAFE_DIGITS: usize = 19;
const FAR_EXPONENT: i32 = 100_000;

const POWERS: [u64; 20] = {
    let mut powers = [1; 20];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = powers[index - 1] * 10;
        index += 1;
    }
    powers
};

/// Powers of ten that a double holds exactly.
const DOUBLE_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Powers of ten that a float holds exactly.
const FLOAT_POWERS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

/// The digit at `at`; something above 9 when there is none.
#[inline(always)]
fn digit(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).map_or(u8::MAX, |byte| byte.wrapping_sub(b'0'))
}

/// Passes digits, appending them to `mantissa`, which wraps around when there are too many.
#[inline(always)]
fn digits(bytes: &[u8], mut at: usize, mantissa: &mut u64) -> usize {
    loop {
        let next = digit(bytes, at);
        if next > 9 {
            return at;
        }
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(next as u64);
        at += 1;
    }
}

impl<'a> Number<'a> {
    /// The number that starts at `start`, and where it ends; none when it breaks JSON's grammar.
    #[inline(always)]
    pub(crate) fn scan(bytes: &'a [u8], start: usize) -> Option<(Self, usize)> {
        let negative = bytes.get(start) == Some(&b'-');
        let first = start + negative as usize;
        let mut mantissa = 0;
        let mut at = digits(bytes, first, &mut mantissa);
        let mut count = at - first;
        if count == 0 || (count > 1 && digit(bytes, first) == 0) {
            return None;
        }
        let mut exponent = 0;
        if bytes.get(at) == Some(&b'.') {
            let end = digits(bytes, at + 1, &mut mantissa);
            let decimals = end - at - 1;
            if decimals == 0 {
                return None;
            }
            count += decimals;
            exponent = -i32::try_from(decimals).unwrap_or(i32::MAX);
            at = end;
        }
        if let Some(b'e' | b'E') = bytes.get(at) {
            let (power, end) = scan_exponent(bytes, at + 1)?;
            exponent = exponent.saturating_add(power);
            at = end;
        }
        let fits = count <= SAFE_DIGITS && exponent.unsigned_abs() < FAR_EXPONENT.unsigned_abs();
        let text = bytes.get(start..at)?;
        Some((Self { text, negative, mantissa, exponent, fits }, at))
    }

    /// The number that is the whole of `text`.
    #[inline(always)]
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let (number, end) = Self::scan(text, 0)?;
        (end == text.len()).then_some(number)
    }

    /// Its value, when that is an integer of 64 bits.
    #[inline(always)]
    pub(crate) fn to_i64(self) -> Option<i64> {
        if self.fits && self.exponent == 0 {
            return if self.negative {
                0i64.checked_sub_unsigned(self.mantissa)
            } else {
                i64::try_from(self.mantissa).ok()
            };
        }
        i64::try_from(self.to_integer(0)?).ok()
    }

    /// Its value times ten to the power of `scale`, when that is an integer not above `max` either way.
    #[inline(always)]
    pub(crate) fn to_decimal(self, scale: u8, max: i128) -> Option<i128> {
        let shift = self.exponent.saturating_add(scale as i32);
        let power = usize::try_from(shift).ok().and_then(|shift| POWERS.get(shift));
        if let (true, Some(power)) = (self.fits, power)
            && let Some(magnitude) = self.mantissa.checked_mul(*power)
        {
            let magnitude = magnitude as i128;
            let value = if self.negative { -magnitude } else { magnitude };
            return (magnitude <= max).then_some(value);
        }
        self.to_integer(scale as i64).filter(|value| value.unsigned_abs() <= max.unsigned_abs())
    }

    /// The nearest double, unless that is infinite.
    #[inline(always)]
    pub(crate) fn to_f64(self) -> Option<f64> {
        // Both operands are exact, so the one rounding of the division or product is the nearest.
        let power = DOUBLE_POWERS.get(self.exponent.unsigned_abs() as usize);
        if let (true, Some(power)) = (self.fits && self.mantissa <= 1 << 53, power) {
            let mantissa = self.mantissa as f64;
            let value = if self.exponent < 0 { mantissa / power } else { mantissa * power };
            return Some(if self.negative { -value } else { value });
        }
        self.as_str()?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// The nearest single, unless that is infinite; not by way of a double, which would round twice.
    #[inline(always)]
    pub(crate) fn to_f32(self) -> Option<f32> {
        let power = FLOAT_POWERS.get(self.exponent.unsigned_abs() as usize);
        if let (true, Some(power)) = (self.fits && self.mantissa <= 1 << 24, power) {
            let mantissa = self.mantissa as f32;
            let value = if self.exponent < 0 { mantissa / power } else { mantissa * power };
            return Some(if self.negative { -value } else { value });
        }
        self.as_str()?.parse().ok().filter(|value: &f32| value.is_finite())
    }

    /// Its value times ten to the power of `shift`, rounded down to an integer.
    pub(crate) fn floor_shifted(self, shift: i64) -> Option<i128> {
        let (magnitude, remainder) = self.shifted(shift)?;
        Some(if self.negative { -magnitude - remainder as i128 } else { magnitude })
    }

    /// Whether it is spelled as an integer: without fraction and exponent.
    pub(crate) fn is_spelled_as_integer(self) -> bool {
        !self.text.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
    }

    /// How many digits it has, the sign aside. For numbers spelled as integers.
    pub(crate) fn integer_digits(self) -> usize {
        self.text.len() - self.negative as usize
    }

    fn as_str(self) -> Option<&'a str> {
        std::str::from_utf8(self.text).ok()
    }

    #[cold]
    #[inline(never)]
    fn to_integer(self, shift: i64) -> Option<i128> {
        let (magnitude, remainder) = self.shifted(shift)?;
        let value = if self.negative { -magnitude } else { magnitude };
        (!remainder).then_some(value)
    }

    /// Its magnitude times ten to the power of `shift`: the integer part, and whether there is more.
    /// None when the integer part has more than 38 digits. Costs as much as the text is long, however
    /// large the exponent.
    fn shifted(self, shift: i64) -> Option<(i128, bool)> {
        let digits_end = self.text.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(self.text.len());
        let (digits, power) = self.text.split_at(digits_end);
        let digits = digits.strip_prefix(b"-").unwrap_or(digits);
        let power = if power.is_empty() { 0 } else { scan_exponent(power, 1)?.0 };
        let point = digits.iter().position(|byte| *byte == b'.').unwrap_or(digits.len());
        let all = digits.iter().filter(|byte| **byte != b'.').map(|byte| byte.wrapping_sub(b'0'));

        // The shifted number is 0.d₁d₂d₃… times ten to the power of `whole`.
        let zeros = all.clone().take_while(|digit| *digit == 0).count();
        let mut significant = all.skip(zeros);
        let whole = point as i64 + i64::from(power) + shift - zeros as i64;
        if significant.clone().next().is_none() {
            return Some((0, false));
        }
        if whole > 38 {
            return None;
        }
        let mut magnitude = 0i128;
        for _ in 0..whole {
            magnitude = magnitude * 10 + i128::from(significant.next().unwrap_or(0));
        }
        Some((magnitude, significant.any(|digit| digit != 0)))
    }
}

/// The exponent whose sign or first digit stands at `at`, kept in the range of i32, and where it ends.
fn scan_exponent(bytes: &[u8], mut at: usize) -> Option<(i32, usize)> {
    let sign = bytes.get(at);
    if let Some(b'+' | b'-') = sign {
        at += 1;
    }
    let first = at;
    let mut power = 0i32;
    while digit(bytes, at) <= 9 {
        power = power.saturating_mul(10).saturating_add(digit(bytes, at) as i32);
        at += 1;
    }
    let power = if sign == Some(&b'-') { -power } else { power };
    (at > first).then_some((power, at))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Number<'_> {
        Number::parse(text.as_bytes()).unwrap()
    }

    const MAX38: i128 = 10i128.pow(38) - 1;

    #[test]
    fn integers_are_exact() {
        for (text, value) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("-0.0e7", Some(0)),
            ("0e999999999999", Some(0)),
            ("0.000e-999999999999", Some(0)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775807.000", Some(i64::MAX)),
            ("922337203685477580.7e1", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775808000e-3", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("18446744073709551616", None),
            ("184467440737095516160", None),
            ("10000000000000000000000000000000e-31", Some(1)),
            ("1e18", Some(1_000_000_000_000_000_000)),
            ("1e19", None),
            ("1e2147483648", None),
            ("1e-2147483648", None),
            ("1e-99999999999999999999", None),
            ("0.1e1", Some(1)),
            ("12e-1", None),
        ] {
            assert_eq!(number(text).to_i64(), value, "{text}");
        }
    }

    #[test]
    fn floors_run_towards_the_past() {
        for (text, shift, value) in [
            ("1.9999999", 6, 1_999_999),
            ("-1.9999999", 6, -2_000_000),
            ("-0.00000000000000000001", 0, -1),
            ("-1", -3, -1),
            ("1767323045123456789", -3, 1_767_323_045_123_456),
            ("-1767323045123456789", -3, -1_767_323_045_123_457),
        ] {
            assert_eq!(number(text).floor_shifted(shift), Some(value), "{text}");
        }
        assert_eq!(number("1e40").floor_shifted(0), None);
    }

    proptest! {
        /// Whatever way a number is spelled, its value decides.
        #[test]
        fn spelling_does_not_matter(value in any::<i64>(), zeros in 0usize..60, shift in 0usize..60) {
            let digits = value.unsigned_abs().to_string();
            let sign = if value < 0 { "-" } else { "" };
            let spellings = [
                format!("{sign}{digits}.{}", "0".repeat(zeros + 1)),
                format!("{sign}{digits}{}e-{zeros}", "0".repeat(zeros)),
                format!("{sign}0.{}{digits}E+{}", "0".repeat(shift), shift + digits.len()),
                format!("{sign}{digits}{}.{}e-{shift}", "0".repeat(shift), "0".repeat(zeros + 1)),
            ];
            for text in spellings {
                prop_assert_eq!(number(&text).to_i64(), Some(value), "{}", text);
                prop_assert_eq!(number(&text).to_decimal(0, MAX38), Some(i128::from(value)), "{}", text);
                prop_assert_eq!(number(&text).to_decimal(3, MAX38), Some(i128::from(value) * 1000), "{}", text);
                prop_assert_eq!(number(&text).to_f64().unwrap() as i64, value as f64 as i64, "{}", text);
            }
            let fraction = format!("{sign}{digits}.{}1", "0".repeat(zeros));
            prop_assert_eq!(number(&fraction).to_i64(), None);
        }

        #[test]
        fn floats_are_the_nearest(text in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?") {
            let double: f64 = text.parse().unwrap();
            let single: f32 = text.parse().unwrap();
            prop_assert_eq!(number(&text).to_f64().map(f64::to_bits), Some(double.to_bits()).filter(|_| double.is_finite()));
            prop_assert_eq!(number(&text).to_f32().map(f32::to_bits), Some(single.to_bits()).filter(|_| single.is_finite()));
        }
    }
}
