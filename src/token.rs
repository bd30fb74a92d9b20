//! Claim tokens: the name of one claim of a lease.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of one claim: 128 random bits, written as 32 lower-case hex digits.
///
/// A token is **no secret**. It stands in the record and in the environment of the processes that use the lease;
/// authority is write permission on the record's directory. The token guards against mistakes: a process that works
/// with the token of an ended claim is told that it has lost the lease instead of changing its successor's record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u128);

impl Token {
    /// A token of the given bits. They must be random: two claims must never share a token.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits.
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
    }
}

/// The text is not 32 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadToken;

impl fmt::Display for BadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token is 32 lower-case hex digits, as `leasehold claim` prints it")
    }
}

impl std::error::Error for BadToken {}

impl FromStr for Token {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<Self, BadToken> {
        parse_hex128(text.as_bytes()).map(Self).ok_or(BadToken)
    }
}

/// Exactly 32 lower-case hex digits: one spelling for one value, so that names and tokens compare as text too.
pub(crate) fn parse_hex128(text: &[u8]) -> Option<u128> {
    if text.len() != 32 {
        return None;
    }
    text.iter().try_fold(0u128, |bits, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(bits << 4 | u128::from(digit))
    })
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_one_token() {
        let token: Token = "000000000000000000000000000000ff".parse().expect("a token");
        assert_eq!(token.bits(), 255);
        assert_eq!(token.to_string(), "000000000000000000000000000000ff");
        for bad in [
            "",
            "ff",
            "000000000000000000000000000000FF",
            "000000000000000000000000000000fg",
        ] {
            assert_eq!(bad.parse::<Token>(), Err(BadToken), "{bad:?}");
        }
    }
}
