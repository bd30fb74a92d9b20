//! Files and links of other programs: whoever they name has a pid, and is held or dead on nobody's word but its host's.
#![no_main]

use leasehold::facts::{Facts, Observer};
use leasehold::legacy::{Content, FAMILIES, recognise};
use leasehold::verdict::judge;
use leasehold::{Pid, Verdict};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for (content, link) in [(Content::Text(text), false), (Content::Link(text), true)] {
        let Some(record) = recognise(content) else { continue };
        let pid = record.valid_pid().expect("whoever is recognised has a pid");
        assert!(pid.get() > 0 && Pid::new(pid.get().into()) == Some(pid));
        let family = &record.legacy.as_ref().expect("it says whose it is").family;
        assert!(FAMILIES.iter().any(|known| known.name == family));
        if link {
            // It is looked up, beside the link.
            assert!(
                !text.starts_with('/') && !text.split('/').any(|part| part == ".."),
                "{text:?}"
            );
        }
        let stranger = Observer {
            host: Some("a-host-that-no-file-names".into()),
            boot: Some("b".into()),
            ..Observer::default()
        };
        let facts = Facts {
            record,
            observer: stranger,
            ..Facts::default()
        };
        assert!(
            matches!(judge(&facts).verdict, Verdict::Undetermined | Verdict::Free),
            "{text:?}"
        );
    }
});
