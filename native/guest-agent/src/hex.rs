//! Hexadecimal, lower case out, either case in.

use alloc::string::String;
use alloc::vec::Vec;

pub fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits?;
    if digits.len() % 2 == 1 {
        return None;
    }
    Some(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Compares without telling by its time where two secrets differ.
pub fn is_same_secret(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() || a.is_empty() {
        return false;
    }
    let mut difference = 0u8;
    for (x, y) in a.iter().zip(b) {
        difference |= core::hint::black_box(x ^ y);
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(encode(&[0, 0xaf, 255]), "00afff");
        assert_eq!(decode("00AFff"), Some(vec![0, 0xaf, 255]));
        assert_eq!(decode("0"), None);
        assert_eq!(decode("0g"), None);
    }

    #[test]
    fn an_empty_secret_matches_nothing() {
        assert!(is_same_secret(b"abc", b"abc"));
        assert!(!is_same_secret(b"abc", b"abd"));
        assert!(!is_same_secret(b"abc", b"ab"));
        assert!(!is_same_secret(b"", b""));
    }
}
