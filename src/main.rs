//! The command `leasehold`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
