//! Writes the manual pages of the command, and its completions for bash, zsh and fish, into a directory: `pages DIR DATE`.
//! They are made from the definitions that the command itself is made from; `scripts/dist` packages them.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, roman};

#[allow(dead_code, reason = "its definitions are used, and not what it does")]
#[path = "../src/cli/mod.rs"]
mod cli;

fn main() -> io::Result<()> {
    let mut words = std::env::args_os().skip(1);
    let (Some(dir), Some(date)) = (words.next().map(PathBuf::from), words.next()) else {
        eprintln!("usage: pages DIR DATE");
        std::process::exit(64);
    };
    let date = date.to_string_lossy();
    let mut command = cli::Cli::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "leasehold", &dir)?;
    }
    let mut command = cli::Cli::command().disable_help_subcommand(true);
    command.build();
    for command in std::iter::once(&command).chain(command.get_subcommands()) {
        fs::write(dir.join(format!("{}.1", name(command))), page(command, &date)?)?;
    }
    Ok(())
}

/// `leasehold`, or `leasehold-VERB`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command, date: &str) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .date(date)
        .source(concat!("leasehold ", env!("CARGO_PKG_VERSION")))
        .manual("Leasehold");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let usage = command.clone().render_usage().to_string();
    let mut synopsis = Roff::new();
    verbatim(
        &mut synopsis,
        usage.lines().map(|line| line.trim_start_matches("Usage:")),
    );
    section(&mut page, "SYNOPSIS", &synopsis);
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (mut examples, mut notes, mut codes) = (Roff::new(), Roff::new(), Roff::new());
    for paragraph in after.split("\n\n") {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        match first {
            "Examples:" => verbatim(&mut examples, rest.lines()),
            first if first.starts_with("Exit codes") => verbatim(&mut codes, rest.lines()),
            first if first.starts_with("Exit") => filled(&mut codes, paragraph.trim_start_matches("Exit: ")),
            _ => filled(&mut notes, paragraph),
        }
    }
    section(&mut page, "EXAMPLES", &examples);
    section(&mut page, "NOTES", &notes);
    section(&mut page, "EXIT STATUS", &codes);
    if !command.has_subcommands() {
        section(&mut page, "SEE ALSO", Roff::new().control("BR", ["leasehold", "(1)"]));
    }
    Ok(page)
}

fn section(page: &mut Vec<u8>, title: &str, text: &Roff) {
    if *text != Roff::new() {
        page.extend(Roff::new().control("SH", [title]).to_roff().into_bytes());
        page.extend(text.to_roff().into_bytes());
    }
}

/// Lines as they are.
fn verbatim<'a>(text: &mut Roff, lines: impl Iterator<Item = &'a str>) {
    text.control("nf", []);
    for line in lines {
        text.text([roman(line.trim())]);
    }
    text.control("fi", []);
}

/// A paragraph; a line of the help that ends before the margin is a line here, too.
fn filled(text: &mut Roff, paragraph: &str) {
    if *text != Roff::new() {
        text.control("PP", []);
    }
    for (at, line) in paragraph.lines().enumerate() {
        if at > 0 {
            text.control("br", []);
        }
        text.text([roman(line)]);
    }
}
