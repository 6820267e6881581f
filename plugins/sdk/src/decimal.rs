//! Exact decimal numbers.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A decimal number: `unscaled` divided by ten to the power of `scale`.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    unscaled: i128,
    scale: u8,
}

/// The most digits that a decimal can have, and its largest scale.
const MAX_DIGITS: u8 = 38;

impl Decimal {
    /// `unscaled` divided by ten to the power of `scale`: `new(1234, 2)` is 12.34. A scale above
    /// 38 counts as 38.
    pub const fn new(unscaled: i128, scale: u8) -> Self {
        Self { unscaled, scale: if scale > MAX_DIGITS { MAX_DIGITS } else { scale } }
    }

    /// The number without its point.
    pub const fn unscaled(self) -> i128 {
        self.unscaled
    }

    /// How many digits stand after the point.
    pub const fn scale(self) -> u8 {
        self.scale
    }

    /// The same number with another scale; `None` when digits would be lost or it would be too large.
    pub fn rescale(self, scale: u8) -> Option<Self> {
        if scale > MAX_DIGITS {
            return None;
        }
        let unscaled = if scale >= self.scale {
            self.unscaled.checked_mul(power(scale - self.scale))?
        } else {
            let divisor = power(self.scale - scale);
            if self.unscaled % divisor != 0 {
                return None;
            }
            self.unscaled / divisor
        };
        Some(Self { unscaled, scale })
    }

    /// The number rounded to `scale` digits after the point, halves away from zero; `None` when it
    /// would be too large.
    pub fn round(self, scale: u8) -> Option<Self> {
        if scale >= self.scale {
            return self.rescale(scale);
        }
        let divisor = power(self.scale - scale);
        let (whole, rest) = (self.unscaled / divisor, self.unscaled % divisor);
        let up = rest.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2);
        Some(Self { unscaled: if up { whole + self.unscaled.signum() } else { whole }, scale })
    }

    /// The sum, with the larger of both scales; `None` when it is too large.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let scale = self.scale.max(other.scale);
        let unscaled = self.rescale(scale)?.unscaled.checked_add(other.rescale(scale)?.unscaled)?;
        Some(Self { unscaled, scale })
    }

    /// The difference, with the larger of both scales; `None` when it is too large.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.checked_add(Self { unscaled: other.unscaled.checked_neg()?, scale: other.scale })
    }

    /// The product, whose scale is the sum of both; `None` when it is too large.
    pub fn checked_mul(self, other: Self) -> Option<Self> {
        let scale = self.scale.checked_add(other.scale).filter(|scale| *scale <= MAX_DIGITS)?;
        Some(Self { unscaled: self.unscaled.checked_mul(other.unscaled)?, scale })
    }

    /// The nearest double, or one beside it.
    pub fn to_f64(self) -> f64 {
        self.unscaled as f64 / power(self.scale) as f64
    }

    /// Whether it has at most `precision` digits, as in `decimal(precision,scale)`.
    pub fn fits(self, precision: u8) -> bool {
        precision > MAX_DIGITS || self.unscaled.unsigned_abs() < power(precision.min(MAX_DIGITS)).unsigned_abs()
    }
}

const fn power(exponent: u8) -> i128 {
    10_i128.pow(exponent as u32)
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self::new(number.into(), 0)
    }
}

/// Compares by value: 1.0 and 1.00 are equal.
impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = |decimal: &Self| {
            let divisor = power(decimal.scale);
            (decimal.unscaled.div_euclid(divisor), decimal.unscaled.rem_euclid(divisor))
        };
        let ((whole, rest), (other_whole, other_rest)) = (parts(self), parts(other));
        // A remainder is below ten to the power of its own scale, so that it can be scaled up to 38 digits.
        let align = |rest: i128, scale: u8| rest * power(MAX_DIGITS - scale);
        whole.cmp(&other_whole).then_with(|| align(rest, self.scale).cmp(&align(other_rest, other.scale)))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.unscaled.unsigned_abs().to_string();
        let scale = usize::from(self.scale);
        let padded = format!("{digits:0>width$}", width = scale + 1);
        let (whole, rest) = padded.split_at(padded.len() - scale);
        let point = if scale > 0 { "." } else { "" };
        f.pad_integral(self.unscaled >= 0, "", &format!("{whole}{point}{rest}"))
    }
}

/// A text that is not a decimal of at most 38 digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADecimal;

impl fmt::Display for NotADecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a decimal number of at most 38 digits")
    }
}

impl std::error::Error for NotADecimal {}

/// Reads digits with an optional sign, point and exponent; the scale is what the text has.
impl FromStr for Decimal {
    type Err = NotADecimal;

    fn from_str(text: &str) -> Result<Self, NotADecimal> {
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().map_err(|_| NotADecimal)?),
            None => (text, 0),
        };
        let (negative, digits) = match mantissa.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
        };
        let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.len() + rest.len() == 0 || !whole.bytes().chain(rest.bytes()).all(|byte| byte.is_ascii_digit()) {
            return Err(NotADecimal);
        }
        let mut unscaled = 0_i128;
        for digit in whole.bytes().chain(rest.bytes()).map(|byte| i128::from(byte - b'0')) {
            unscaled = unscaled.checked_mul(10).and_then(|n| n.checked_add(digit)).ok_or(NotADecimal)?;
        }
        let scale = i64::try_from(rest.len()).map_err(|_| NotADecimal)? - i64::from(exponent);
        let (unscaled, scale) = match u8::try_from(scale) {
            Ok(scale) if scale <= MAX_DIGITS => (unscaled, scale),
            _ if unscaled == 0 => (0, 0),
            _ if scale < 0 && scale >= -i64::from(MAX_DIGITS) => {
                let factor = power(scale.unsigned_abs() as u8);
                (unscaled.checked_mul(factor).ok_or(NotADecimal)?, 0)
            }
            _ => return Err(NotADecimal),
        };
        let decimal = Self { unscaled: if negative { -unscaled } else { unscaled }, scale };
        if decimal.fits(MAX_DIGITS) { Ok(decimal) } else { Err(NotADecimal) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Decimal;

    fn read(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn text() {
        for text in ["0", "12.34", "-0.05", "0.00", "99999999999999999999999999999999999999", "-1"] {
            assert_eq!(read(text).to_string(), text);
        }
        for (text, canonical) in [
            ("+1.50", "1.50"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1.5E-3", "0.0015"),
            ("-12e-1", "-1.2"),
            ("0e999", "0"),
            ("0e-999", "0"),
        ] {
            assert_eq!(read(text).to_string(), canonical, "{text}");
        }
        for text in [
            "",
            ".",
            "-",
            "1.2.3",
            "1e",
            "e1",
            "1e99",
            "1e-99",
            "0x1",
            "1_0",
            "NaN",
            "١",
            "100000000000000000000000000000000000000",
            "--1",
            "1e99999",
        ] {
            assert!(text.parse::<Decimal>().is_err(), "{text}");
        }
        assert_eq!(format!("{:>8}|{:08}", read("-1.5"), read("-1.5")), "    -1.5|-00001.5");
    }

    #[test]
    fn scales() {
        assert_eq!(read("1.50").rescale(1).unwrap().unscaled(), 15);
        assert!(read("1.55").rescale(1).is_none());
        assert_eq!(read("1.5").rescale(4).unwrap().unscaled(), 15_000);
        assert!(read("99999999999999999999").rescale(38).is_none());
        assert!(read("1").rescale(39).is_none());
        for (text, rounded) in [("1.45", "1.5"), ("-1.45", "-1.5"), ("1.44", "1.4"), ("0.95", "1.0"), ("-0.04", "0.0")]
        {
            assert_eq!(read(text).round(1).unwrap().to_string(), rounded, "{text}");
        }
        assert!(read("99.99").fits(4) && !read("100.00").fits(4) && read("0").fits(0));
    }

    #[test]
    fn arithmetic() {
        assert_eq!(read("1.5").checked_add(read("0.25")).unwrap().to_string(), "1.75");
        assert_eq!(read("1.5").checked_sub(read("2")).unwrap().to_string(), "-0.5");
        assert_eq!(read("1.5").checked_mul(read("-0.5")).unwrap().to_string(), "-0.75");
        assert!(Decimal::new(i128::MAX, 0).checked_add(Decimal::new(1, 0)).is_none());
        assert!(Decimal::new(0, 0).checked_sub(Decimal::new(i128::MIN, 0)).is_none());
        assert_eq!(read("12.34").to_f64(), 12.34);
    }

    #[test]
    fn order_is_by_value() {
        assert_eq!(read("1.0"), read("1.000"));
        assert!(read("-0.5") < read("-0.25") && read("-1") < read("0.1") && read("10") > read("9.99"));
        assert!(Decimal::new(i128::MAX, 0) > Decimal::new(i128::MAX, 38));
        assert!(Decimal::new(i128::MIN, 0) < Decimal::new(i128::MIN, 38));
    }
}
