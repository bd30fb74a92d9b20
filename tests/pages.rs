//! What tells people how to call the command: help, manual pages, completions. All three are made from the definitions of
//! the command, and are looked at here as their readers get them.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{CommandFactory, Parser};
use support::{Answer, LEASEHOLD, clean, example};

#[allow(dead_code, reason = "its definitions are used, and not what it does")]
#[path = "../src/cli/mod.rs"]
mod cli;

/// A screen, in lines and columns.
const SCREEN: (usize, usize) = (40, 100);

/// The codes that a verb can end with, besides 70 and, for output that cannot be written, 74.
fn codes(verb: &str) -> &'static [u32] {
    match verb {
        "claim" => &[0, 2, 4, 5, 7, 64, 74, 75],
        "judge" | "ask" => &[0, 1, 2, 3, 4, 64, 74],
        "scan" | "settle" => &[0, 64, 74, 75],
        "show" => &[0, 2, 3, 64, 74],
        "verify" => &[0, 2, 6, 64, 74],
        "renew" | "release" | "hand-over" | "note" => &[0, 2, 6, 64, 74, 75],
        "run" => &[102, 104, 105, 106, 107, 126, 127, 164, 174, 175],
        "stop" => &[0, 1, 2, 3, 4, 5, 64, 74, 75],
        "path" | "id" => &[0, 64],
        "doctor" => &[0, 2, 64, 74, 75],
        "break" => &[0, 2, 6, 64, 74, 75],
        _ => panic!("say here with which codes {verb} can end"),
    }
}

/// The whole definition: that of a verb is made when it is needed.
fn definition() -> clap::Command {
    let mut command = cli::Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

fn verbs() -> Vec<String> {
    definition()
        .get_subcommands()
        .map(|verb| verb.get_name().to_owned())
        .collect()
}

/// The long options of each verb.
fn options() -> Vec<(String, Vec<String>)> {
    let longs = |verb: &clap::Command| {
        verb.get_arguments()
            .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
            .collect()
    };
    definition()
        .get_subcommands()
        .map(|verb| (verb.get_name().to_owned(), longs(verb)))
        .collect()
}

fn help(verb: &str) -> String {
    let answer: Answer = clean(LEASEHOLD).args([verb, "--help"]).output().unwrap().into();
    answer.ok()
}

fn examples(help: &str) -> Vec<&str> {
    let (_, after) = help.split_once("Examples:\n").expect("examples");
    after.lines().take_while(|line| !line.is_empty()).collect()
}

#[test]
fn the_help_of_each_verb_fits_a_screen() {
    let overview = Answer::from(clean(LEASEHOLD).arg("--help").output().unwrap()).ok();
    let helps = verbs().into_iter().map(|verb| (help(&verb), verb));
    for (help, verb) in helps.chain([(overview, "leasehold".to_owned())]) {
        let lines = help.lines().count();
        assert!(lines <= SCREEN.0, "{verb}: {lines} lines");
        let widest = help.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= SCREEN.1, "{verb}: {widest} columns");
    }
}

#[test]
fn the_help_of_each_verb_names_its_exit_codes() {
    for verb in verbs() {
        let help = help(&verb);
        let at = help
            .rfind("\n\nExit")
            .unwrap_or_else(|| panic!("{verb}: no exit codes"));
        let named: BTreeSet<u32> = help[at..]
            .split(|char: char| !char.is_alphanumeric())
            .filter_map(|word| word.parse().ok())
            // 128+n
            .filter(|code| *code != 128)
            .collect();
        assert_eq!(named, codes(&verb).iter().copied().collect(), "{verb}");
    }
}

/// What a shell makes of a line that calls `leasehold`: the words of each call. No call is carried out; each is taken for
/// one that failed.
fn calls(line: &str) -> Vec<Vec<OsString>> {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        leasehold() {
            set -- "$@" ${LEASEHOLD_TOKEN:+--token "$LEASEHOLD_TOKEN"} ${LEASEHOLD_PATH:+"$LEASEHOLD_PATH"}
            printf '%s\0' "$#" leasehold "$@" >> calls
            echo x
            return 1
        }
        sleep() { :; }
        append_to() { :; }
        eval "$1"
    "#;
    let mut shell = clean("sh");
    shell.args(["-c", script, "sh", line]).current_dir(dir.path());
    shell
        .env("token", "0".repeat(32))
        .env("id", "7")
        .env("pid", "42")
        .env("bridge_pid", "42");
    if line.contains("with LEASEHOLD_PATH and LEASEHOLD_TOKEN set") {
        shell
            .env("LEASEHOLD_PATH", "x.lease")
            .env("LEASEHOLD_TOKEN", "1".repeat(32));
    }
    let output = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{line}");
    let words = fs::read_to_string(dir.path().join("calls")).unwrap_or_default();
    let mut words = words.split_terminator('\0');
    let mut calls = Vec::new();
    while let Some(count) = words.next() {
        let count: usize = count.parse().unwrap();
        calls.push(words.by_ref().take(count + 1).map(OsString::from).collect());
    }
    calls
}

#[test]
fn each_verb_has_two_examples_and_every_example_is_a_good_call() {
    for verb in verbs() {
        let help = help(&verb);
        let mut of_this_verb = 0;
        for line in examples(&help) {
            let calls = calls(line);
            assert!(!calls.is_empty(), "{verb}: no call of leasehold: {line}");
            for call in calls {
                of_this_verb += usize::from(call[1] == *verb);
                if let Err(error) = cli::Cli::try_parse_from(&call) {
                    panic!("{verb}: {line}: {error}");
                }
            }
        }
        assert!(of_this_verb >= 2, "{verb}: {of_this_verb} examples");
    }
}

/// Manual pages and completions, as scripts/dist makes them.
fn pages() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new(example("pages"))
        .arg(dir.path())
        .arg("2026-01-02")
        .output()
        .unwrap();
    assert_eq!(Answer::from(made).ok(), "");
    dir
}

fn page(dir: &Path, verb: &str) -> (PathBuf, String) {
    let path = dir.join(format!("leasehold-{verb}.1"));
    let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{verb}: {error}"));
    (path, page)
}

/// Text as roff(7) has it.
fn in_roff(text: &str) -> String {
    text.replace('\\', r"\\").replace('-', r"\-")
}

#[test]
fn each_verb_has_a_manual_page_with_all_that_its_help_says() {
    let dir = pages();
    let overview = fs::read_to_string(dir.path().join("leasehold.1")).unwrap();
    for (verb, options) in options() {
        assert!(
            overview.contains(&in_roff(&format!("leasehold-{verb}(1)"))),
            "{verb} is in leasehold(1)"
        );
        let (_, page) = page(dir.path(), &verb);
        for option in options {
            // In bold.
            let option = format!("\\fB{}\\fR", in_roff(&option));
            assert!(page.contains(&option), "{verb}: {option} is in its page");
        }
        for line in examples(&help(&verb)) {
            assert!(
                page.contains(&in_roff(line.trim())),
                "{verb}: the example `{line}` is in its page"
            );
        }
        for title in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXAMPLES",
            "EXIT STATUS",
            "SEE ALSO",
        ] {
            let title = [format!(".SH {title}\n"), format!(".SH \"{title}\"\n")];
            assert!(title.iter().any(|title| page.contains(title)), "{verb}: {title:?}");
        }
    }
}

/// Whether a program is here that proves something about pages; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        support::skip_for("LEASEHOLD_REQUIRE_PAGES", &format!("{program} is missing"));
    }
    found
}

#[test]
fn manual_pages_are_well_formed() {
    if !has("mandoc") {
        return;
    }
    let dir = pages();
    let mut paths = vec![dir.path().join("leasehold.1")];
    paths.extend(verbs().iter().map(|verb| page(dir.path(), verb).0));
    let mut lint = clean("mandoc");
    let lint = Answer::from(
        lint.args(["-T", "lint", "-W", "warning"])
            .args(&paths)
            .output()
            .unwrap(),
    );
    assert_eq!((lint.code, lint.stdout.as_str(), lint.stderr.as_str()), (0, "", ""));
}

/// What a shell offers for a beginning: `words` are those before it.
fn offers(shell: &str, dir: &Path, words: &[&str], beginning: &str) -> Vec<String> {
    let script = match shell {
        "bash" => {
            r#". ./leasehold.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
               _leasehold leasehold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
               printf '%s\n' "${COMPREPLY[@]}""#
        }
        "fish" => "source leasehold.fish; complete -C \"$argv\"",
        other => panic!("no way to ask {other}"),
    };
    let mut command = clean(shell);
    if shell == "bash" {
        command.args(["--norc", "-c", script, "bash"]);
    } else {
        command.args(["--no-config", "-c", script]);
    }
    let command = command
        .arg("leasehold")
        .args(words)
        .arg(beginning)
        .current_dir(dir)
        .env("HOME", dir);
    let offered = Answer::from(command.output().unwrap()).ok();
    let first = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
    offered.lines().map(first).collect()
}

#[test]
fn shells_complete_verbs_and_options() {
    let dir = pages();
    for shell in ["bash", "fish"] {
        if !has(shell) {
            continue;
        }
        let offered = offers(shell, dir.path(), &[], "hand");
        assert_eq!(offered, ["hand-over"], "{shell}");
        for (verb, options) in options() {
            assert!(offers(shell, dir.path(), &[], &verb).contains(&verb), "{shell}: {verb}");
            let offered = offers(shell, dir.path(), &[&verb], "--");
            let missing: Vec<_> = options.iter().filter(|option| !offered.contains(option)).collect();
            assert!(
                missing.is_empty(),
                "{shell}: {verb}: {missing:?} are missing of {offered:?}"
            );
        }
    }
}

/// zsh offers completions in an editor only; here its file is read, and names all there is.
#[test]
fn zsh_reads_its_completions() {
    if !has("zsh") {
        return;
    }
    let dir = pages();
    let answer = Answer::from(
        clean("zsh")
            .args(["-f", "-n", "_leasehold"])
            .current_dir(dir.path())
            .output()
            .unwrap(),
    );
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""));
    let file = fs::read_to_string(dir.path().join("_leasehold")).unwrap();
    for (verb, options) in options() {
        let (_, own) = file
            .split_once(&format!("({verb})\n"))
            .unwrap_or_else(|| panic!("{verb} is missing"));
        let (own, _) = own.split_once("\n;;\n").unwrap();
        for option in options {
            let forms = [format!("{option}["), format!("{option}=[")];
            assert!(forms.iter().any(|form| own.contains(form)), "{verb}: {option}: {own}");
        }
    }
}
