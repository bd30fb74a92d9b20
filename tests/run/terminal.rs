//! Jobs of an interactive shell on a terminal: the command behaves as if it ran alone.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::sync::{Arc, Mutex};

use nix::libc;

use crate::scene::Scene;
use crate::support::{LEASEHOLD, PATIENCE, Process, Running, eventually};

/// An interactive bash on a terminal of its own.
struct Shell {
    scene: Scene,
    bash: Running,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen has been read.
    read: usize,
}

impl Shell {
    fn start() -> Self {
        let scene = Scene::new();
        let pty = nix::pty::openpty(None, None).unwrap();
        let (keyboard, slave): (File, OwnedFd) = (pty.master.into(), pty.slave);
        // What is typed does not show, so that only what is printed can be met.
        let mut modes = nix::sys::termios::tcgetattr(&slave).unwrap();
        modes.local_flags.remove(nix::sys::termios::LocalFlags::ECHO);
        nix::sys::termios::tcsetattr(&slave, nix::sys::termios::SetArg::TCSANOW, &modes).unwrap();
        let mut command = scene.command("bash");
        command
            .args(["--norc", "--noprofile", "--noediting", "-i"])
            .env("L", LEASEHOLD)
            .env("PS1", "<$?>")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave);
        // SAFETY: system calls only.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                if libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let bash = Running::start(&mut command);
        drop(command);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut output, shown) = (keyboard.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // EIO once everything that has the terminal open is gone.
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                shown
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        let mut shell = Self {
            scene,
            bash,
            keyboard,
            screen,
            read: 0,
        };
        shell.meet("<0>");
        shell
    }

    fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is printed, after all that was met before.
    #[track_caller]
    fn meet(&mut self, what: &str) {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.read..].find(what) {
                self.read += at + what.len();
                return;
            }
            assert!(
                std::time::Instant::now() < end,
                "{what:?} is not printed: {:?}\n{}",
                &screen[self.read..],
                self.processes()
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// For a test that fails: what runs on this terminal.
    fn processes(&self) -> String {
        let session = self.bash.process.pid.to_string();
        let ps = std::process::Command::new("ps")
            .args(["-o", "pid,ppid,pgid,tpgid,stat,args", "-s", &session])
            .output();
        ps.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default()
    }

    /// Starts a run in the foreground, whose script has to write its pid to `child`: the command, and its supervisor.
    #[track_caller]
    fn run(&mut self, line: &str) -> (Process, Process) {
        self.type_in(&format!("{line}\n"));
        let child = self.scene.pid("child");
        let keeper = self.scene.record().owner.keeper.expect("a keeper").pid.get();
        (child, Process::find(keeper))
    }
}

const CAT: &str = "\"$L\" run x.lease --ttl 30s -- sh -c 'echo $$ > child; exec cat'";

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let mut shell = Shell::start();
    let (child, supervisor) = shell.run(CAT);
    shell.type_in("one\n");
    shell.meet("one");
    for round in ["two", "three"] {
        shell.type_in("\x1a");
        shell.meet("Stopped");
        shell.meet("<148>");
        assert!(child.is_stopped() && supervisor.is_stopped());
        shell.type_in("echo $((40 + 2))\n");
        shell.meet("42");
        shell.meet("<0>");
        shell.type_in(&format!("fg\n{round}\n"));
        shell.meet(round);
        assert!(!child.is_stopped());
    }
    shell.type_in("\x04");
    shell.meet("<0>");
    assert!(!child.is_alive());
    assert_eq!(shell.scene.verdict(), "free/ended");
}

/// The prompt comes back only when all of the job has stopped: the shell of a script as well.
#[test]
fn ctrl_z_stops_a_script_around_it() {
    let mut shell = Shell::start();
    let line = format!("sh -c '{}; echo after $?'", CAT.replace('\'', "'\\''"));
    let (child, supervisor) = shell.run(&line);
    shell.type_in("\x1a");
    shell.meet("Stopped");
    shell.meet("<148>");
    assert!(child.is_stopped() && supervisor.is_stopped());
    shell.type_in("fg\nagain\n");
    shell.meet("again");
    shell.type_in("\x04");
    shell.meet("after 0");
    shell.meet("<0>");
}

#[test]
fn a_pipeline_reads_the_terminal_stops_and_goes_on() {
    let mut shell = Shell::start();
    let (child, _) = shell.run(&format!("{CAT} | cat"));
    shell.type_in("one\n");
    shell.meet("one");
    shell.type_in("\x1a");
    shell.meet("Stopped");
    shell.meet("<148>");
    assert!(child.is_stopped());
    shell.type_in("fg\ntwo\n");
    shell.meet("two");
    shell.type_in("\x04");
    shell.meet("<0>");
    assert!(!child.is_alive());
}

#[test]
fn a_pipeline_into_it_stops_and_goes_on() {
    let mut shell = Shell::start();
    let (child, supervisor) = shell.run(&format!("sh -c 'read a; echo $a; read b; echo $b' | {CAT}"));
    shell.type_in("one\n");
    shell.meet("one");
    shell.type_in("\x1a");
    shell.meet("Stopped");
    shell.meet("<148>");
    assert!(child.is_stopped() && supervisor.is_stopped());
    shell.type_in("fg\ntwo\n");
    shell.meet("two");
    shell.meet("<0>");
}

#[test]
fn a_background_job_runs_and_comes_to_the_front() {
    let mut shell = Shell::start();
    let script = "echo $$ > child; while ! [ -e go ]; do sleep 0.02; done; read line; echo got-$line";
    let (child, _) = shell.run(&format!("\"$L\" run x.lease --ttl 30s -- sh -c '{script}' &"));
    shell.meet("<0>");
    shell.type_in("echo $((40 + 2))\n");
    shell.meet("42");
    shell.meet("<0>");
    // Now it wants the terminal, which the shell has.
    std::fs::write(shell.scene.file("go"), "").unwrap();
    eventually("it has stopped", || child.is_stopped());
    let mut told = false;
    eventually("the shell says so", || {
        shell.type_in("true\n");
        shell.meet("<0>");
        told |= shell.screen.lock().unwrap().contains("Stopped");
        told
    });
    shell.type_in("fg\nline\n");
    shell.meet("got-line");
    shell.meet("<0>");
    assert_eq!(shell.scene.verdict(), "free/ended");
}

#[test]
fn bg_lets_a_stopped_job_go_on() {
    let mut shell = Shell::start();
    let go = shell.scene.fifo("go");
    let script = "echo $$ > child; read line < go; exit 9";
    let (child, _) = shell.run(&format!("\"$L\" run x.lease --ttl 30s -- sh -c '{script}'"));
    shell.type_in("\x1a");
    shell.meet("<148>");
    shell.type_in("bg\n");
    shell.meet("<0>");
    eventually("it goes on", || !child.is_stopped());
    std::fs::write(go, "\n").unwrap();
    shell.type_in("wait %1\n");
    shell.meet("<9>");
}

#[test]
fn ctrl_c_is_for_the_whole_group() {
    let mut shell = Shell::start();
    let inner = "trap \\\"echo helper > helper-got; exit\\\" INT; echo x > helper; while :; do sleep 0.05; done";
    let script = format!("trap : INT; echo $$ > child; sh -c \"{inner}\"; exit 5");
    let (child, _) = shell.run(&format!("\"$L\" run x.lease -- sh -c '{script}'"));
    shell.scene.line("helper");
    shell.type_in("\x03");
    shell.meet("<5>");
    assert_eq!(shell.scene.line("helper-got"), "helper");
    assert!(!child.is_alive());
}

#[test]
fn ctrl_c_ends_a_command_and_a_loop_around_it() {
    for around in ["sh", "bash"] {
        let mut shell = Shell::start();
        let run = "\"$L\" run x.lease -- sh -c \"echo \\$\\$ > child; exec sleep 1000\"";
        let (child, _) = shell.run(&format!("{around} -c 'while :; do {run}; echo round > round; done'"));
        shell.type_in("\x03");
        shell.meet("<130>");
        assert!(!child.is_alive());
        assert!(!shell.scene.file("round").exists(), "the loop of {around} went on");
        assert_eq!(shell.scene.verdict(), "free/ended");
    }
}

/// The terminal is with whoever comes next, also when nothing could be started.
#[test]
fn the_terminal_comes_back_from_a_command_that_cannot_start() {
    let mut shell = Shell::start();
    shell.type_in(
        "sh -c '\"$L\" run x.lease -- /no/such/program 2>/dev/null; echo code-$?; read line; echo got-$line'\n",
    );
    shell.meet("code-127");
    shell.type_in("line\n");
    shell.meet("got-line");
    shell.meet("<0>");
}

/// While it was stopped somebody took the lease: it must not run again.
#[test]
fn fg_after_a_loss_ends_the_command() {
    let mut shell = Shell::start();
    let script = "echo $$ > child; trap \"echo yes > ran\" TERM CONT; read line; read line";
    let (child, _) = shell.run(&format!("\"$L\" run x.lease --ttl 30s -- sh -c '{script}'"));
    shell.type_in("\x1a");
    shell.meet("<148>");
    shell.scene.take_from_elsewhere();
    let before = std::fs::read(shell.scene.lease()).unwrap();
    shell.type_in("fg\n");
    shell.meet("<106>");
    assert!(!child.is_alive());
    assert!(!shell.scene.file("ran").exists());
    assert_eq!(std::fs::read(shell.scene.lease()).unwrap(), before);
}

/// In an orphaned process group the terminal stops nobody; the command must not stay stopped for ever.
#[test]
fn without_a_shell_ctrl_z_does_nothing() {
    let mut shell = Shell::start();
    let (child, _) = shell.run(&format!("exec {CAT}"));
    shell.type_in("one\n");
    shell.meet("one");
    shell.type_in("\x1atwo\n");
    shell.meet("two");
    assert!(!child.is_stopped());
    shell.type_in("\x04");
    assert_eq!(shell.bash.code(), 0);
}
