//! File names for keys: any text, such as a thread id or `team/name`, becomes one name, and no two texts the same.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// What every such name ends in.
const SUFFIX: &str = ".lease";

/// The longest encoded key that is used as it is, in bytes: with the suffix and the names that stand beside a record
/// during a change it fits the 255 bytes of filesystems in use.
const LONGEST: usize = 200;

/// How much of a longer one is kept before its digest, for people.
const KEPT: usize = 120;

/// The file name of a key.
///
/// Lower-case letters, digits, `-`, `_` and inner dots stand for themselves; every other byte of the UTF-8 text is `%`
/// and two lower-case hex digits, so names differ also where a filesystem folds case or normalises Unicode. A key whose
/// name would be too long ends in `%~` and the SHA-256 of the text.
///
/// ```
/// use leasehold::key::file_name;
/// assert_eq!(file_name("thread-0192f3"), "thread-0192f3.lease");
/// assert_eq!(file_name("team/Name"), "team%2f%4eame.lease");
/// assert_ne!(file_name("a"), file_name("A"));
/// ```
pub fn file_name(key: &str) -> String {
    let mut name = String::with_capacity(key.len() + SUFFIX.len());
    for (at, byte) in key.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            // A name must not begin with a dot: those are hidden, and mark what stands beside a record.
            b'.' if at > 0 => name.push('.'),
            _ => {
                let _ = write!(name, "%{byte:02x}");
            }
        }
    }
    if key.is_empty() {
        name.push('%');
    }
    if name.len() > LONGEST {
        // The cut may fall inside an escape: the digest tells keys apart.
        name.truncate(KEPT);
        let _ = write!(name, "%~{}", hex(&Sha256::digest(key)));
    }
    name + SUFFIX
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
