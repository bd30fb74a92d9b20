//! Names of files for keys: each is one safe component of a path, and no two keys have the same.
#![no_main]

use leasehold::key::file_name;
use leasehold::names::LONGEST_COMPANION;
use libfuzzer_sys::fuzz_target;

/// The key of a name that was not shortened.
fn key(name: &str) -> Vec<u8> {
    let mut rest = name.strip_suffix(".lease").expect("the suffix").bytes();
    let mut key = Vec::new();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = std::str::from_utf8(&digits).expect("ASCII");
                key.extend(u8::from_str_radix(digits, 16));
            }
            byte => key.push(byte),
        }
    }
    key
}

fuzz_target!(|text: &str| {
    let input = text.split_once('|').unwrap_or((text, ""));
    let names = [input.0, input.1].map(|text| (text, file_name(text)));
    for (text, name) in &names {
        assert!(name.len() + LONGEST_COMPANION <= 255);
        assert!(!name.starts_with('.') && name.ends_with(".lease") && name.len() > ".lease".len());
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.%~".contains(&byte);
        assert!(name.bytes().all(plain), "{name}");
        if !name.contains('~') {
            assert_eq!(key(name), text.as_bytes());
        }
    }
    assert_eq!(names[0].1 == names[1].1, input.0 == input.1, "{names:?}");
});
