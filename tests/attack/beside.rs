//! What stands at the record's path, or has the names beside it in advance.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use rustix::fs::FileType;

use crate::place::{OTHER, Place, TOKEN, USER, each, possible};
use crate::support::chmod;

/// A temp name that no host knows the writer of.
const TEMP: &str = ".x.lease.t-00000000000000010000000100000001";
const BALLOT: &str = ".x.lease.ballot-1";

const UNREADABLE: &str = "what only its owner may read";

/// Plants at one path of a place.
type Plant = fn(&Place, &Path);

const PLANTS: &[(&str, Plant)] = &[
    ("a link to nothing", |place, path| link(&place.outside("new"), path)),
    ("a link to a file", |place, path| link(&place.outside("secret"), path)),
    ("a link to a record", |place, path| {
        link(&place.outside("live.lease"), path)
    }),
    ("a link to a directory", |place, path| link(&place.outside(""), path)),
    ("a link out", |_, path| link("../outside/secret".as_ref(), path)),
    ("a loop", |_, path| link(path, path)),
    ("a loop of two", |place, path| {
        link(&place.beside("loop"), path);
        link(path, &place.beside("loop"));
    }),
    ("a link to the other temp file", |_, path| link(TEMP.as_ref(), path)),
    ("a link to a device", |place, path| {
        link(&place.device("zero", FileType::CharacterDevice, 1, 5), path);
    }),
    ("a link to our memory", |_, path| link("/proc/self/mem".as_ref(), path)),
    ("a FIFO", |place, path| {
        _ = place.device(name(path), FileType::Fifo, 0, 0)
    }),
    ("a socket", |_, path| {
        std::os::unix::net::UnixListener::bind(path).expect("bind");
    }),
    ("an endless device", |place, path| {
        place.device(name(path), FileType::CharacterDevice, 1, 5);
    }),
    ("a terminal", |place, path| {
        place.device(name(path), FileType::CharacterDevice, 5, 0);
    }),
    ("a disk that is not there", |place, path| {
        place.device(name(path), FileType::BlockDevice, 7, 250);
    }),
    ("a directory", |_, path| fs::create_dir(path).expect("mkdir")),
    ("a directory with a link in it", |place, path| {
        fs::create_dir(path).expect("mkdir");
        link(&place.outside(""), &path.join("up"));
    }),
    ("a file outside", |place, path| {
        fs::hard_link(place.outside("secret"), path).expect("link")
    }),
    ("a record outside", |place, path| {
        fs::hard_link(place.outside("live.lease"), path).expect("link");
    }),
    ("a huge file", |place, path| {
        place.plant(name(path), "{\"leasehold\":1,");
        let file = fs::File::options().write(true).open(path).expect("open");
        file.set_len(1 << 40).expect("tmpfs has holes");
    }),
    ("a file that is all brackets", |place, path| {
        _ = place.plant(name(path), "[".repeat(60_000))
    }),
    ("a record that is all brackets", |place, path| {
        let line = format!("{{\"leasehold\":1,\"token\":\"{TOKEN}\",\"x\":{}", "[".repeat(60_000));
        place.plant(name(path), line);
    }),
    ("zeros", |place, path| _ = place.plant(name(path), vec![0; 60_000])),
    ("nothing", |place, path| _ = place.plant(name(path), "")),
    ("the name of a file outside", |place, path| {
        _ = place.plant(name(path), "../outside/secret")
    }),
    (UNREADABLE, |place, path| {
        place.plant(name(path), "secret");
        chmod(path, 0o000);
    }),
];

fn link(target: &Path, path: &Path) {
    symlink(target, path).expect("symlink");
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).expect("a plain name")
}

#[test]
fn in_place_of_the_record() {
    if !possible() {
        return;
    }
    each(PLANTS, |(what, plant)| {
        println!("{what}");
        let place = Place::new();
        plant(&place, &place.path());
        place.every_verb();
    });
}

/// A claim comes through, and a holder's changes too.
fn is_taken_all_the_same(name: &str, what: &str, plant: Plant) {
    println!("{what}");
    let place = Place::new();
    plant(&place, &place.beside(name));
    let claim = |place: &Place| place.harmless(USER, &["claim", "PATH", "--owner", "PID"]);
    let claimed = claim(&place);
    claimed.expect_code(0);
    let token = claimed.stdout.trim();
    for verb in ["renew", "release"] {
        place.harmless(USER, &[verb, "PATH", "--token", token]).expect_code(0);
    }
    let again = claim(&place);
    let token = again.expect_code(0).stdout.trim();
    place
        .harmless(USER, &["release", "PATH", "--token", token])
        .expect_code(0);
    place.every_verb();
}

#[test]
fn in_place_of_ballots() {
    if !possible() {
        return;
    }
    each(PLANTS, |(what, plant)| {
        if *what != UNREADABLE {
            return is_taken_all_the_same(BALLOT, what, *plant);
        }
        // It may be the second name of a record: as good as one at the path itself.
        let place = Place::new();
        plant(&place, &place.beside(BALLOT));
        let claimed = place.harmless(USER, &["claim", "PATH", "--owner", "PID"]);
        claimed.expect_code(74).says(&["unreadable"]);
        place.every_verb();
    });
}

#[test]
fn in_place_of_temp_files() {
    if possible() {
        each(PLANTS, |(what, plant)| is_taken_all_the_same(TEMP, what, *plant));
    }
}

/// The rival that a ballot names is disarmed, whatever it is: only its name in the directory changes.
#[test]
fn in_place_of_a_rivals_temp_file() {
    if !possible() {
        return;
    }
    each(PLANTS, |(what, plant)| {
        println!("{what}");
        let place = Place::new();
        plant(&place, &place.beside(TEMP));
        place.plant(BALLOT, TEMP);
        let claimed = place.harmless(USER, &["claim", "PATH", "--owner", "PID"]);
        claimed.expect_code(0);
        assert!(
            fs::symlink_metadata(place.beside(TEMP)).is_err(),
            "{what} could be published"
        );
        place.is_unharmed();
    });
}

#[test]
fn in_place_of_evidence() {
    if !possible() {
        return;
    }
    each(PLANTS, |(what, plant)| {
        println!("{what}");
        let place = Place::new();
        place.put(USER, &place.record_of(place.sentinel(USER)));
        plant(&place, &place.beside("x.lease.broken-3"));
        let words = ["break", "PATH", "--token", TOKEN, "--reason", "gone", "--yes"];
        let broken = place.harmless(USER, &words);
        broken.expect_code(0);
        assert!(broken.stdout.ends_with("x.lease.broken-3.2\n"), "{}", broken.stdout);
        place.is_unharmed();
    });
}

/// A file lease, fcntl(2) F_SETLEASE, makes whoever opens the file wait until it is given up.
#[test]
fn a_file_with_a_kernel_lease_on_it_is_not_waited_for() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let path = place.plant("x.lease", place.record_of(place.sentinel(OTHER)).print());
    let file = fs::File::open(&path).expect("open");
    // SAFETY: these change nothing but how this process is told that somebody wants the file, and that lease.
    unsafe {
        nix::sys::signal::signal(nix::sys::signal::Signal::SIGIO, nix::sys::signal::SigHandler::SigIgn).expect("SIGIO");
        let taken = nix::libc::fcntl(file.as_raw_fd(), nix::libc::F_SETLEASE, nix::libc::F_RDLCK);
        assert_eq!(taken, 0, "a lease on the other user's file");
    }
    place.every_verb();
    let writer = fs::File::options().write(true).open(&path);
    drop(writer);
}

/// Names change under whoever looks: what was looked at is not what is opened.
#[test]
fn what_is_exchanged_all_the_time() {
    if !possible() {
        return;
    }
    let place = Place::new();
    place.device("fifo", FileType::Fifo, 0, 0);
    place.device("zero", FileType::CharacterDevice, 1, 5);
    link(&place.outside("secret"), &place.beside("link"));
    let forged = place.plant("forged", place.record_of(place.sentinel(OTHER)).print());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let names = ["../outside/live.lease", "fifo", "link", "forged", "zero"];
            for round in 0.. {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let swap = place.beside("swap");
                let _ = fs::remove_file(&swap);
                let source = place.beside(names[round % names.len()]);
                let _ = fs::hard_link(source, &swap).and_then(|()| fs::rename(&swap, place.path()));
                // Temp files of others become links to what they should not write to.
                for entry in fs::read_dir(place.shared()).expect("list").flatten() {
                    if entry.file_name().as_encoded_bytes().starts_with(b".x.lease.t-") {
                        let _ = fs::remove_file(entry.path());
                        let _ = match round % 2 {
                            0 => symlink(place.outside("secret"), entry.path()),
                            _ => fs::hard_link(place.outside("secret"), entry.path()),
                        };
                    }
                }
            }
        });
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| place.every_verb()));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Err(panic) = told {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(forged.exists());
}

/// The directory itself is deep, or named like a record.
#[test]
fn directories_without_end() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let mut dir = fs::File::open(place.shared())
        .map(rustix::fd::OwnedFd::from)
        .expect("open");
    for _ in 0..3000 {
        let mode = rustix::fs::Mode::from_raw_mode(0o777);
        rustix::fs::mkdirat(&dir, "d.lease", mode).expect("mkdir");
        let flags = rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::RDONLY;
        dir = rustix::fs::openat(&dir, "d.lease", flags, rustix::fs::Mode::empty()).expect("open");
    }
    link(&place.outside(""), &place.beside("away"));
    link(&place.shared(), &place.beside("round.lease"));
    let swept = place.harmless(USER, &["scan", "DIR", "--recursive", "--legacy"]);
    swept.expect_code(74);
    assert!(
        !swept.stdout.contains("live.lease"),
        "links to directories are not followed: {}",
        swept.stdout
    );
    place.every_verb();
}

/// Somebody writes into the record while it is held and renewed.
#[test]
fn what_is_written_into_a_held_record() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let claimed = place.harmless(USER, &["claim", "PATH", "--owner", "PID"]);
    let token = claimed.stdout.trim().to_owned();
    fs::hard_link(place.path(), place.beside("twin")).expect("link");
    place
        .harmless(USER, &["renew", "PATH", "--token", &token])
        .expect_code(0);
    let file = fs::File::options().write(true).open(place.path()).expect("open");
    file.write_all_at(&[b'x'; 65], 65_530).expect("write");
    place.every_verb();
}
