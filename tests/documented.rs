//! The documents, taken at their word: README.md and docs/*.md. Their commands are run as printed and have to do what is
//! said beside them, and what they name has to exist.
//!
//! What the documents keep to, so that this can be done:
//! - Commands stand in blocks of `sh`. One shell runs all those of a document, in order, in a directory of its own with
//!   the repository's scripts/ in it. `ssh` leads to this machine as it is known to its operator: login-a.
//! - Each command ends with 0, unless its comment says `(exit 3)` or `(exit 0 or 2)`.
//! - A comment that begins with a verdict shows what is printed, columns two spaces apart. Verdict, reason and the last
//!   column have to be those, and their number; host and pid are this machine's.
//! - `<!-- before: COMMANDS -->` ahead of a block does what its reader has done by then.
//! - `<!-- not run: REASON -->` ahead of a block keeps it from being run. What it calls has to exist all the same.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::pty::OpenptyResult;
use support::{Answer, LEASEHOLD, chmod, clean, skip};

/// A block of code.
#[derive(Default)]
struct Block {
    /// Of its first line.
    line: usize,
    language: String,
    before: String,
    not_run: Option<String>,
    text: String,
}

struct Document {
    path: PathBuf,
    blocks: Vec<Block>,
    /// The rest, with the numbers of the lines.
    prose: Vec<(usize, String)>,
    /// Where code stands that is only indented. It is nobody's block, so that a command in it would be missed.
    indented: Vec<usize>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<Document> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let mut paths: Vec<PathBuf> = docs.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.push(root().join("README.md"));
    paths.sort();
    paths.into_iter().map(Document::read).collect()
}

impl Document {
    fn read(path: PathBuf) -> Self {
        let (mut blocks, mut prose, mut indented, mut next) = (Vec::new(), Vec::new(), Vec::new(), Block::default());
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().zip(1..);
        let mut blank = true;
        while let Some((line, number)) = lines.next() {
            let words = line.trim_start();
            let indent = line.len() - words.len();
            if let Some(language) = words.strip_prefix("```") {
                next.line = number + 1;
                next.language = language.to_owned();
                for (line, _) in lines.by_ref().take_while(|(line, _)| line.trim() != "```") {
                    next.text.push_str(line.get(indent..).unwrap_or_default());
                    next.text.push('\n');
                }
                blocks.push(std::mem::take(&mut next));
            } else if let Some(comment) = words.strip_prefix("<!-- ") {
                let mut comment = comment.to_owned();
                while !comment.contains("-->") {
                    let (more, _) = lines.next().expect("the end of a comment");
                    comment.push('\n');
                    comment.push_str(more);
                }
                let comment = comment.split("-->").next().unwrap().trim();
                match comment.split_once(": ") {
                    Some(("before", commands)) => next.before = commands.to_owned(),
                    Some(("not run", reason)) => next.not_run = Some(reason.to_owned()),
                    _ => {}
                }
            } else {
                if blank && indent >= 4 && !words.is_empty() {
                    indented.push(number);
                }
                prose.push((number, line.to_owned()));
            }
            blank = words.is_empty();
        }
        Self {
            path,
            blocks,
            prose,
            indented,
        }
    }

    fn name(&self) -> String {
        self.path.strip_prefix(root()).unwrap().display().to_string()
    }
}

/// The commands of a block, each with the number of its first line: as many lines as a shell takes for whole.
fn commands(block: &Block) -> Vec<(usize, String)> {
    let (mut commands, mut command, mut first) = (Vec::new(), String::new(), 0);
    for (line, number) in block.text.lines().zip(block.line..) {
        if command.is_empty() {
            first = number;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
        }
        command.push_str(line);
        command.push('\n');
        let whole = clean("sh")
            .args(["-nc", &command])
            .stderr(Stdio::null())
            .status()
            .unwrap();
        if whole.success() && !line.ends_with('\\') {
            commands.push((first, std::mem::take(&mut command)));
        }
    }
    assert_eq!(command, "", "line {first}: no whole command");
    commands
}

/// What is said behind a command.
fn comment(command: &str) -> &str {
    let line = command.trim_end().lines().last().unwrap();
    line.rsplit_once(" # ").map_or("", |(_, comment)| comment.trim())
}

/// The verdict that a comment shows, with what follows.
fn shown(comment: &str) -> Option<(i32, Vec<&str>)> {
    let columns: Vec<&str> = comment
        .split("  ")
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .collect();
    let verdicts = ["held", "dead", "undetermined", "free", "lapsed"];
    let code = verdicts.iter().position(|verdict| columns.first() == Some(verdict))?;
    (columns.len() > 1).then(|| (i32::try_from(code).unwrap(), columns))
}

/// With which codes the command may end, as its comment says.
fn codes(comment: &str) -> Vec<i32> {
    if let Some((_, after)) = comment.split_once("(exit ") {
        let codes = after.split(')').next().unwrap().split(" or ");
        return codes.map(|code| code.parse().expect("an exit code")).collect();
    }
    vec![shown(comment).map_or(0, |(code, _)| code)]
}

/// Runs commands in one shell, whose input is this terminal, where somebody says yes. The answers are those of the commands
/// that it came to.
fn follow(commands: &[String], pty: OpenptyResult) -> BTreeMap<usize, Answer> {
    let place = tempfile::tempdir().unwrap();
    let part = |name: &str| place.path().join(name);
    for folder in ["bin", "home", "answers"] {
        fs::create_dir(part(folder)).unwrap();
    }
    symlink(LEASEHOLD, part("bin/leasehold")).unwrap();
    let ssh = "#!/bin/sh\nshift $(($# - 1))\nLEASEHOLD_HOST_ID=login-a exec sh -c \"$1\"\n";
    fs::write(part("bin/ssh"), ssh).unwrap();
    chmod(part("bin/ssh"), 0o755);
    symlink(root().join("scripts"), part("home/scripts")).unwrap();

    let mut script = String::new();
    for (number, command) in commands.iter().enumerate() {
        let to = part(&format!("answers/{number}"));
        let to = to.display();
        writeln!(
            script,
            "{{\n{command}\n}} > '{to}.out' 2> '{to}.err'; echo $? > '{to}.code'"
        )
        .unwrap();
    }
    let mut keyboard = File::from(pty.master);
    keyboard.write_all(b"y\n").unwrap();
    let path = format!("{}:{}", part("bin").display(), std::env::var("PATH").unwrap());
    let mut shell = clean("sh");
    shell.args(["-c", &script]).current_dir(part("home")).stdin(pty.slave);
    shell.env("HOME", part("home")).env("PATH", path).status().unwrap();

    let answer = |number: usize| {
        let said = |what: &str| fs::read_to_string(part(&format!("answers/{number}.{what}"))).ok();
        let code = said("code")?.trim().parse().ok()?;
        let (stdout, stderr) = (said("out")?, said("err")?);
        Some((number, Answer { code, stdout, stderr }))
    };
    (0..commands.len()).filter_map(answer).collect()
}

/// What is wrong with an answer, given what is said about it.
fn fault(comment: &str, answer: Option<&Answer>) -> Option<String> {
    let Some(answer) = answer else {
        return Some("was never come to".into());
    };
    let codes = codes(comment);
    if !codes.contains(&answer.code) {
        return Some(format!("ends with {}, and not with {codes:?}", answer.code));
    }
    let (_, shown) = shown(comment)?;
    let printed: Vec<&str> = answer.stdout.trim_end().split('\t').collect();
    let same = printed.get(..2) == shown.get(..2)
        && (shown.len() == 2 || (printed.len() == shown.len() && printed.last() == shown.last()));
    (!same).then(|| format!("prints {printed:?}, and not {shown:?}"))
}

#[test]
fn commands_do_what_the_documents_say() {
    let mut faults = String::new();
    for document in documents() {
        let (mut all, mut told) = (Vec::new(), Vec::new());
        for block in &document.blocks {
            if block.language != "sh" || block.not_run.is_some() {
                continue;
            }
            if !block.before.is_empty() {
                told.push((block.line, String::new()));
                all.push(block.before.clone());
            }
            for (line, command) in commands(block) {
                told.push((line, comment(&command).to_owned()));
                all.push(command);
            }
        }
        let answers = match nix::pty::openpty(None, None) {
            Ok(pty) => follow(&all, pty),
            Err(error) => return skip(&format!("there are no terminals: {error}")),
        };
        for (number, ((line, comment), command)) in told.iter().zip(&all).enumerate() {
            let answer = answers.get(&number);
            if let Some(fault) = fault(comment, answer) {
                writeln!(faults, "{}:{line}: {command} {fault}: {answer:?}", document.name()).unwrap();
            }
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[test]
fn what_is_not_run_exists_and_is_told() {
    for document in documents() {
        for block in &document.blocks {
            let Some(reason) = &block.not_run else { continue };
            let at = format!("{}:{}", document.name(), block.line);
            let _ = writeln!(std::io::stderr(), "NOT RUN {at}: {reason}");
            if block.language != "sh" {
                continue;
            }
            for (_, command) in commands(block) {
                exists(&at, &command);
            }
        }
    }
}

/// Whether the scripts that a command calls can be, and the tests are there.
fn exists(at: &str, command: &str) {
    let words: Vec<&str> = command.split([' ', ';', '\n']).collect();
    for script in words.iter().filter(|word| word.starts_with("scripts/")) {
        let path = root().join(script);
        let mode = fs::metadata(&path)
            .unwrap_or_else(|error| panic!("{at}: {script}: {error}"))
            .permissions()
            .mode();
        assert!(mode & 0o111 != 0, "{at}: {script} cannot be executed");
        let parses = Command::new("bash").arg("-n").arg(&path).status().unwrap();
        assert!(parses.success(), "{at}: {script}");
    }
    for test in words.windows(2).filter(|pair| pair[0] == "--test").map(|pair| pair[1]) {
        let place = root().join("tests").join(test);
        let there = place.with_extension("rs").exists() || place.join("main.rs").exists();
        assert!(there, "{at}: there is no test {test}");
    }
}

/// The README's Rust is compiled by src/lib.rs.
#[test]
fn every_block_names_its_language_and_is_checked_or_said_not_to_be() {
    for document in documents() {
        assert!(
            document.indented.is_empty(),
            "{}: not fenced: {:?}",
            document.name(),
            document.indented
        );
        for block in &document.blocks {
            let at = format!("{}:{}", document.name(), block.line);
            match block.language.as_str() {
                "sh" | "text" | "json" | "toml" => {}
                "rust" | "rust,no_run" => {
                    let checked = document.name() == "README.md" || block.not_run.is_some();
                    assert!(checked, "{at}: code that nobody compiles");
                }
                other => panic!("{at}: a block of {other:?}"),
            }
        }
    }
}

/// The pieces of a line between backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn help(verb: &str) -> String {
    Answer::from(clean(LEASEHOLD).args([verb, "--help"]).output().unwrap()).ok()
}

/// The help of each verb.
fn verbs() -> BTreeMap<String, String> {
    let overview = Answer::from(clean(LEASEHOLD).arg("--help").output().unwrap()).ok();
    let (_, list) = overview.split_once("Commands:\n").expect("a list of the verbs");
    let verbs = list
        .lines()
        .map_while(|line| line.strip_prefix("  ")?.split(' ').next());
    let verbs = verbs.filter(|verb| *verb != "help");
    verbs.map(|verb| (verb.to_owned(), help(verb))).collect()
}

/// What a call names that is not there, given the help of each verb. Words without `leasehold` may be anything.
fn unknown(call: &str, verbs: &BTreeMap<String, String>) -> Option<String> {
    let mut words = call.split_whitespace().peekable();
    let named = words.next_if(|word| *word == "leasehold").is_some();
    let verb = words.next()?;
    let Some(help) = verbs.get(verb) else {
        let like_a_verb = verb.chars().all(|char| char.is_ascii_lowercase() || char == '-');
        let other = ["help", "--help", "--version"].contains(&verb);
        return (named && like_a_verb && !other).then(|| verb.to_owned());
    };
    let options = words.take_while(|word| !["--", "|"].contains(word));
    let mut options = options
        .filter(|word| word.starts_with("--"))
        .filter_map(|word| word.split('=').next());
    options
        .find(|option| !help.contains(&format!("{option} ")))
        .map(|option| format!("{verb} {option}"))
}

#[test]
fn calls_in_the_text_name_verbs_and_options_that_there_are() {
    let verbs = verbs();
    let mut strange = Vec::new();
    for document in documents() {
        let prose = document
            .prose
            .iter()
            .flat_map(|(line, text)| spans(text).map(move |span| (*line, span)));
        let text = document.blocks.iter().filter(|block| block.language == "text");
        let text = text.flat_map(|block| block.text.lines().map(move |line| (block.line, line)));
        let text = text.filter_map(|(line, text)| Some((line, &text[text.find("leasehold ")?..])));
        for (line, call) in prose.chain(text) {
            strange.extend(unknown(call, &verbs).map(|what| format!("{}:{line}: {what}", document.name())));
        }
    }
    assert!(strange.is_empty(), "{strange:#?}");
}

#[test]
fn every_verb_is_documented() {
    let all: String = documents()
        .iter()
        .map(|document| fs::read_to_string(&document.path).unwrap())
        .collect();
    for verb in verbs().keys() {
        let documented = [format!("leasehold {verb}"), format!("`{verb}`")];
        assert!(
            documented.iter().any(|words| all.contains(words)),
            "{verb} is in no document"
        );
    }
}

/// The name that a forge gives to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|char| char.is_alphanumeric() || [' ', '-', '_'].contains(char));
    kept.collect::<String>().replace(' ', "-")
}

fn headings(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        for (line, text) in &document.prose {
            let at = format!("{}:{line}", document.name());
            for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
                if link.contains("://") {
                    continue;
                }
                let (file, part) = link.split_once('#').unwrap_or((link, ""));
                let path = match file {
                    "" => document.path.clone(),
                    file => document.path.with_file_name(file),
                };
                if !path.exists() || (!part.is_empty() && !headings(&path).iter().any(|heading| heading == part)) {
                    broken.push(format!("{at}: {link}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn files_of_the_repository_that_are_named_are_there() {
    const FOLDERS: [&str; 6] = ["scripts/", "docs/", "tests/", "examples/", "src/", ".ci/"];
    let mut missing = Vec::new();
    for document in documents() {
        for (line, text) in &document.prose {
            let names = spans(text).filter_map(|span| span.split_whitespace().next());
            for name in names.filter(|name| FOLDERS.iter().any(|folder| name.starts_with(folder))) {
                let there = match name.split_once('*') {
                    Some((start, _)) => {
                        let start = root().join(start);
                        let folder = start.parent().unwrap();
                        let beginning = start.to_str().unwrap();
                        let mut names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
                        names.any(|name| name.to_str().unwrap().starts_with(beginning))
                    }
                    None => root().join(name).exists(),
                };
                if !there {
                    missing.push(format!("{}:{line}: {name}", document.name()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
