//! Who may take from whom: shared, sticky and group directories.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use crate::place::{GROUP, OTHER, Place, USER, possible};
use crate::support::call::{Done, Run};
use crate::support::chmod;

fn claim(place: &Place, uid: u32) -> Done {
    let owner = place.sentinel(uid).to_string();
    place.harmless(uid, &["claim", "PATH", "--owner", &owner])
}

/// In a sticky directory nobody replaces what another user has: not the record, not its leftovers. And nobody is hurt.
#[test]
fn a_sticky_directory_keeps_users_apart() {
    if !possible() {
        return;
    }
    let place = Place::new();
    chmod(place.shared(), 0o1777);
    let token = claim(&place, USER).expect_code(0).stdout.trim().to_owned();
    let record = fs::read(place.path()).expect("read");
    claim(&place, OTHER).expect_code(5);
    for words in [
        ["break", "PATH", "--token", &token, "--reason", "mine", "--yes"].as_slice(),
        &["release", "PATH", "--token", &token],
        &["note", "PATH", "--token", &token, "a=b"],
    ] {
        place
            .harmless(OTHER, words)
            .expect_code(74)
            .says(&["Operation not permitted"]);
        assert_eq!(fs::read(place.path()).expect("read"), record, "{words:?}");
    }
    place
        .harmless(USER, &["release", "PATH", "--token", &token])
        .expect_code(0);
    claim(&place, OTHER).expect_code(74).says(&["Operation not permitted"]);
    claim(&place, USER).expect_code(0);
    place.is_unharmed();
}

/// Members of a group that the directory belongs to, with the umask that such directories need.
#[test]
fn a_group_shares_a_directory() {
    if !possible() {
        return;
    }
    let place = Place::new();
    chown(place.shared(), Some(0), Some(GROUP)).expect("chown");
    chmod(place.shared(), 0o2770);
    let member = |uid: u32, words: &[&str]| {
        let groups = [
            format!("--reuid={uid}"),
            format!("--regid={uid}"),
            format!("--groups={GROUP}"),
        ];
        let mut run = Run::program("setpriv").args(groups).dir(place.shared());
        run = run.args(["sh", "-c", "umask 007; exec \"$0\" \"$@\""]);
        run.arg(place.shared().with_file_name("bin").join("leasehold"))
            .args(words)
            .done()
    };
    let (user, other) = (place.sentinel(USER).to_string(), place.sentinel(OTHER).to_string());
    let claimed = member(USER, &["claim", "x.lease", "--owner", &user]);
    let token = claimed.expect_code(0).stdout.trim();
    let stat = fs::metadata(place.path()).expect("a record");
    assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o660, USER, GROUP));
    member(OTHER, &["claim", "x.lease", "--owner", &other]).expect_code(5);
    // A member could have written the number into it.
    member(USER, &["stop", "x.lease"])
        .expect_code(64)
        .says(&["others may write into it"]);
    member(USER, &["release", "x.lease", "--token", token]).expect_code(0);
    member(OTHER, &["claim", "x.lease", "--owner", &other]).expect_code(0);
    let stat = fs::metadata(place.path()).expect("a record");
    assert_eq!((stat.mode() & 0o7777, stat.uid(), stat.gid()), (0o660, OTHER, GROUP));
    let stranger = place.run(USER, "judge").arg("x.lease").done();
    stranger.expect_code(2);
    place.is_unharmed();
}

/// A vacant record that somebody planted gives its mode to the next one, and nothing that runs or rises.
#[test]
fn no_mode_of_a_planted_record_gives_rights() {
    if !possible() {
        return;
    }
    for mode in [0o7777, 0o4755, 0o2755, 0o666, 0o600] {
        let place = Place::new();
        let mut vacant = place.record_of(place.sentinel(OTHER));
        vacant.owner.ended = Some("2026-01-01T00:00:00Z".into());
        place.put(OTHER, &vacant);
        chmod(place.path(), mode);
        let owner = place.sentinel(0).to_string();
        place.harmless(0, &["claim", "PATH", "--owner", &owner]).expect_code(0);
        let stat = fs::metadata(place.path()).expect("a record");
        assert_eq!(stat.mode() & 0o7000, 0, "{mode:o}");
        assert_eq!(stat.uid(), 0);
        place.is_unharmed();
    }
}
