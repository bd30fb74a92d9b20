pub mod ballot;
pub mod clock;
pub mod deadline;
pub mod doctor;
pub mod facts;
pub mod fs;
pub mod identity;
pub mod keeping;
pub mod key;
pub mod lapse;
pub mod legacy;
pub mod mount;
pub mod names;
pub mod testimony;
pub mod verdict;
pub use breaking::{Broken, break_lease};
pub use claim::Claim;
pub use error::{Error, Result};
pub use facts::Facts;
pub use lease::{Holder, Lease, Unreleased};
pub use observe::{Judge, KernelTable, ProcessTable, judge, resolve};
pub use orphans::{Orphan, Standing};
pub use owner::{FORMAT, Keeper, OwnerLine, Pid, SHORTEST_TTL};
pub use record::{Flaw, LARGEST, Record};
pub use run::{Descendants, Ending, Report, Run, end_by_signal};
pub use run_state::{Outcome, RunState};
pub use scan::{Failure, Finding, MOST_JOBS, Scan, Swept, Tally};
pub use settle::Settlement;
pub use stop::{Signal, Stop, Stopped};
pub use token::{BadToken, Token};
pub use verdict::{Judgement, Reason, Verdict};

// advice

impl Judgement {
    pub fn next(&self, path: &str) -> String {}
}
impl Tally {
    pub fn next(&self, places: &str) -> Vec<String> {}
}

// ballot

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Claim,
    Holder,
    Settle,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    pub token: Token,
    pub seq: u64,
    pub beat: u64,
}
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Look,
    Write { seq: u64 },
    Take { number: u64, temp: TempId },
    TakeFile { number: u64 },
    Sign { number: u64, temp: TempId },
    Inspect { number: u64 },
    Pause { rival: Option<TempId> },
    Disarm { temp: TempId },
    Retire { temp: TempId },
    DisarmAll { but: TempId },
    Ask,
    Link { temp: TempId },
    Create,
    Recheck,
    Untwin,
    Keep { number: u64 },
    Rename { temp: TempId },
    Withdraw { temp: TempId },
    Remove { number: u64 },
    Discard { temp: TempId },
    Forget { number: u64 },
    Finish(Outcome),
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Done,
    Exists,
    Missing,
    Unsupported,
    Failed,
    Seen { stamp: Option<Stamp>, twin: bool, own: bool },
    Odd,
    Refused,
    Written(TempId),
    Rival { temp: Option<TempId>, gone: bool, ended: bool },
    Still,
    Expired,
    Changed,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Committed { seq: u64, temp: TempId },
    Refused,
    GaveWay,
    Contended,
    Failed,
    Unknown,
}
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ballot {}
impl Ballot {
    pub fn new(kind: Kind, token: Token, give_way: bool) -> Self {}
    pub fn start(&self) -> Action {}
    pub fn seen(&self) -> Option<Stamp> {}
    pub fn advance(&mut self, reply: Reply) -> Action {}
}

// breaking

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Broken {
    pub record: Record,
    pub evidence: PathBuf,
}
pub fn break_lease(
    judge: Judge,
    path: &Path,
    token: Token,
    reason: &str,
) -> Result<Broken> {}

// claim

#[must_use = "a claim does nothing until `take` is called"]
pub struct Claim {}
impl fmt::Debug for Claim {}
impl Claim {
    pub fn new(path: impl Into<PathBuf>) -> Self {}
    pub fn owner(mut self, pid: Pid) -> Self {}
    pub fn ttl(mut self, ttl: Duration) -> Self {}
    pub fn wait(mut self, time: Duration) -> Self {}
    pub fn take_lapsed(mut self, yes: bool) -> Self {}
    pub fn accept_in_doubt(mut self, yes: bool) -> Self {}
    pub fn give_way(mut self, yes: bool) -> Self {}
    pub fn sole_writer(mut self, yes: bool) -> Self {}
    pub fn binds(mut self, file: impl Into<String>) -> Self {}
    pub fn budget(mut self, starts: u32, within: Duration) -> Self {}
    pub fn set(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {}
    pub fn from(mut self, judge: Judge) -> Self {}
    pub fn on_wait(mut self, call: impl FnMut(&Judgement) + Send + 'static) -> Self {}
    pub fn take(self) -> Result<Lease> {}
}

// clock

pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Duration;
    fn sleep(&self, time: Duration);
}
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;
impl Clock for BootClock {}

// deadline

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pulse {
    pub began: Duration,
    pub ended: Duration,
    pub written: bool,
    pub synced: bool,
    pub linked: bool,
}
impl Pulse {
    pub fn begun(now: Duration) -> Self {}
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Due {
    Nothing,
    Terminate,
    Kill,
    Stop,
}
impl Terms {
    pub fn new(ttl: Duration, grace: Duration) -> Self {}
    pub fn usual_grace(ttl: Duration) -> Duration {}
    pub fn ttl(self) -> Duration {}
    pub fn grace(self) -> Duration {}
    pub fn interval(self) -> Duration {}
    pub fn retry(self) -> Duration {}
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deadline {}
impl Deadline {
    pub fn new(terms: Terms, began: Duration) -> Self {}
    pub fn at(&self) -> Duration {}
    pub fn kill_at(&self) -> Duration {}
    pub fn terminate_at(&self) -> Duration {}
    pub fn beat(&mut self, pulse: Pulse) -> bool {}
    pub fn due(&self, now: Duration) -> Due {}
}

// doctor

pub const PATIENCE: Duration = Duration::from_secs(15);
pub fn apart(work: impl Fn() -> u8) -> Result<u8, i32> {}
#[must_use = "nothing is examined until `examine` or `meet` is called"]
#[derive(Debug)]
pub struct Doctor {}
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    pub findings: Vec<Finding>,
    pub facts: Facts,
    pub interrupted: Option<i32>,
}
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Met {
    pub findings: Vec<Finding>,
    pub hosts: Vec<Account>,
}
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Unmet {
    Nobody,
    Late,
    Gone(String),
    Disagreed,
    Io(String),
    Signal(i32),
}
impl fmt::Display for Unmet {}
impl std::error::Error for Unmet {}
impl Doctor {
    pub fn new(dir: impl Into<PathBuf>) -> Self {}
    pub fn from(mut self, judge: Judge) -> Self {}
    pub fn patience(mut self, time: Duration) -> Self {}
    pub fn until_signals(mut self, yes: bool) -> Self {}
    pub fn meet(self, word: &str, wait: Duration) -> Result<Met, Unmet> {}
    pub fn examine(self) -> Report {}
}

// error

#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    Uncertain(Box<Error>),
    Unreadable { path: PathBuf, why: String },
    NotARecord { path: PathBuf, why: String },
    Refused(Box<Judgement>),
    InDoubt(Box<Judgement>),
    Lost { path: PathBuf, why: String },
    Expiring { path: PathBuf, why: String },
    GaveWay { path: PathBuf },
    Contended { path: PathBuf },
    BudgetSpent { path: PathBuf, again_in: Duration },
    TimedOut { waited: Duration, last: Box<Error> },
    Invalid { path: PathBuf, what: String },
}
pub type Result<T> = std::result::Result<T, Error>;
impl fmt::Display for Error {}
impl std::error::Error for Error {}

// facts

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    pub record: RecordFacts,
    pub observer: Observer,
    pub process: Option<ProcessFacts>,
    pub lease: LeaseFacts,
    pub lock: LockFacts,
    pub payload: Option<PayloadFacts>,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RecordState {
    Present,
    Absent,
    Empty,
    Unreadable,
    Torn,
    Malformed,
    Symlink,
    NotAFile,
    TooLarge,
    NewerFormat,
    Ended,
}
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordFacts {
    pub state: RecordState,
    pub detail: Option<String>,
    pub host: Option<String>,
    pub machine: Option<String>,
    pub host_id: Option<String>,
    pub boot: Option<String>,
    pub pid: Option<Value>,
    pub start: Option<u64>,
    pub pidns: Option<u64>,
    pub timens: Option<u64>,
    pub pidfd: Option<u64>,
    pub uid: Option<u32>,
    pub token: Option<String>,
    pub epoch: Option<u64>,
    pub seq: Option<u64>,
    pub since: Option<String>,
    pub ttl: Option<u64>,
    pub lock: Option<String>,
    pub cmd: Option<String>,
    pub binds: Option<String>,
    pub keeper: Option<KeeperFacts>,
    pub intent: Option<String>,
    pub outcome: Option<String>,
    pub legacy: Option<LegacyFacts>,
}
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyFacts {
    pub family: String,
    pub started: Option<i64>,
    pub born: Option<i64>,
}
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperFacts {
    pub pid: Pid,
    pub start: Option<u64>,
}
impl RecordFacts {
    pub fn flawed(state: RecordState, detail: impl fmt::Display) -> Self {}
    pub fn valid_pid(&self) -> Option<Pid> {}
}
impl From<&Record> for RecordFacts {}
impl From<&Flaw> for RecordFacts {}
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observer {
    pub host: Option<String>,
    pub machine: Option<String>,
    pub host_id: Option<String>,
    pub boot: Option<String>,
    pub pidns: Option<u64>,
    pub timens: Option<u64>,
    pub uptime: Option<f64>,
    pub proc_is_own: Option<bool>,
}
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessFacts {
    pub exists: Option<bool>,
    pub leader: Option<bool>,
    pub start: Option<u64>,
    pub pidfd: Option<u64>,
    pub state: Option<String>,
    pub threads_alive: Option<bool>,
    pub start_readable: Option<bool>,
    pub keeper: Option<Box<ProcessFacts>>,
}
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaseFacts {
    pub unchanged_for: Option<f64>,
    pub renewal_seen: Option<bool>,
    pub changed_since_boot: Option<bool>,
}
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockFacts {
    pub asked: Option<bool>,
    pub held: Option<bool>,
    pub reaches_server: Option<bool>,
    pub protocol: Option<String>,
}
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PayloadFacts {
    pub exists: Option<bool>,
    pub pid: Option<i64>,
}

// fs

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Symlink,
    Directory,
    Other,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    pub device: u64,
    pub inode: u64,
    pub links: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub changed: Duration,
}
pub trait Fs: fmt::Debug + Send + Sync {
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    fn stat_file(&self, file: &File) -> io::Result<Stat>;
    fn is_named(&self, file: &File, path: &Path) -> io::Result<bool>;
    fn ask(&self, path: &Path) -> io::Result<()>;
    fn open(&self, path: &Path) -> io::Result<File>;
    fn reopen(&self, path: &Path) -> io::Result<File>;
    fn read(&self, file: &File, limit: usize) -> io::Result<Vec<u8>>;
    fn create(&self, path: &Path, like: Option<&Stat>) -> io::Result<File>;
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn sync(&self, file: &File) -> io::Result<()>;
    fn lock(&self, file: &File) -> io::Result<()>;
    fn is_locked(&self, file: &File) -> io::Result<bool>;
    fn read_link(&self, link: &Path) -> io::Result<OsString>;
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn unlink(&self, path: &Path) -> io::Result<()>;
    fn list(&self, dir: &Path, limit: usize) -> io::Result<Vec<OsString>>;
    fn touch(&self, _file: &File) -> io::Result<()> {}
    fn lock_range(&self, _file: &File) -> io::Result<()> {}
    fn space(&self, _dir: &Path) -> io::Result<Space> {}
    fn make_dir(&self, _dir: &Path) -> io::Result<()> {}
    fn remove_dir(&self, _dir: &Path) -> io::Result<()> {}
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    pub bytes: u64,
    pub files: Option<u64>,
    pub longest_name: u64,
}
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;
impl Fs for Disk {}

// identity

pub const HOST_ID_VARIABLE: &str = "LEASEHOLD_HOST_ID";
pub const HOST_ID_FILE: &str = "/etc/leasehold/host-id";
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    pub observer: Observer,
    pub host_id_source: Option<&'static str>,
}
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Weakness {
    pub id: &'static str,
    pub what: String,
    pub why: &'static str,
    pub remedy: String,
}
impl fmt::Display for Weakness {}
impl Host {
    pub fn here() -> Self {}
    pub fn weaknesses(&self) -> Vec<Weakness> {}
}
pub fn digest_machine_id(id: &str) -> Option<String> {}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    pub pid: Pid,
    pub start: u64,
    pub pidfd: Option<u64>,
}
impl Process {
    pub fn current() -> Result<Self> {}
    pub fn of(pid: Pid) -> Result<Self> {}
}

// keeping

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Rest(Duration),
    Write,
    Sync,
    Ask,
    Look,
    WinAgain,
    Confirm,
    Stop,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Rested { confirm: bool },
    Done,
    Failed,
    Moved,
    Lost,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keeping {}
impl Keeping {
    pub fn new(terms: Terms, won: Duration, now: Duration) -> Self {}
    pub fn start(&self) -> Action {}
    pub fn deadline(&self) -> Deadline {}
    pub fn advance(&mut self, reply: Reply, now: Duration) -> Action {}
}

// key

pub fn file_name(key: &str) -> String {}

// lapse

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    pub stamp: Stamp,
    pub written: Duration,
}
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Watch {}
impl Watch {
    pub fn saw(
        &mut self,
        mark: Option<Mark>,
        began: Duration,
        ended: Duration,
    ) -> LeaseFacts {}
}

// lease

#[must_use = "the lease is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Lease {}
impl Lease {
    pub fn claim(path: impl AsRef<Path>) -> Result<Self> {}
    pub fn epoch(&self) -> u64 {}
    pub fn token(&self) -> Token {}
    pub fn holder(&self) -> &Holder {}
    pub fn renew(&mut self) -> Result<Record> {}
    pub fn note<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        fields: &[(K, V)],
    ) -> Result<Record> {}
    pub fn release(
        mut self,
        outcome: Option<Outcome>,
    ) -> std::result::Result<(), Box<Unreleased>> {}
    pub fn leave(mut self) -> Token {}
}
impl Drop for Lease {}
#[derive(Debug)]
pub struct Unreleased {
    pub lease: Lease,
    pub error: Error,
}
impl fmt::Display for Unreleased {}
impl std::error::Error for Unreleased {}
#[derive(Clone, Debug)]
pub struct Holder {}
impl Holder {
    pub fn new(path: impl AsRef<Path>, token: Token) -> Result<Self> {}
    pub fn from(judge: Judge, path: impl AsRef<Path>, token: Token) -> Result<Self> {}
    pub fn token(&self) -> Token {}
    pub fn path(&self) -> &Path {}
    pub fn verify(&self, margin: Option<Duration>) -> Result<u64> {}
    pub fn renew(&self) -> Result<Record> {}
    pub fn note<K: AsRef<str>, V: AsRef<str>>(
        &self,
        fields: &[(K, V)],
    ) -> Result<Record> {}
    pub fn hand_over(&self, pid: Pid) -> Result<Record> {}
    pub fn release(&self, outcome: Option<Outcome>) -> Result<Record> {}
}

// legacy

#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    Text(&'a str),
    Link(&'a str),
}
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub name: &'static str,
    pub about: &'static str,
}
pub const FAMILIES: &[Family] = &[
    family("bare-pid", "a pid file: a number and nothing else", bare_pid),
    family("gnupg", "a lock of GnuPG (dotlock)", gnupg),
    family("pid-host", "a pid file with a host name on its second line", pid_host),
    family(
        "agmsg-holder",
        "the holder file of an agmsg configuration lock",
        agmsg_holder,
    ),
    family("agmsg-lease", "a lease file of agmsg", agmsg_lease),
    family("codex", "the pid file of a Codex app server", codex),
    family("codeflowmu", "a runtime lock of CodeFlowMu", codeflowmu),
    family("mercurial", "a lock of Mercurial", mercurial),
    family("emacs", "a lock of Emacs", emacs),
    family("chrome", "the singleton lock of a Chrome profile", chrome),
];
pub fn recognise(content: Content<'_>) -> Option<RecordFacts> {}

// mount

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum LockReach {
    Local,
    Nfs4,
    Nfs3,
    Cluster,
    NotShared,
    Unknown,
}
impl LockReach {
    pub const fn word(self) -> &'static str {}
    pub const fn can_be_asked(self) -> bool {}
    pub const fn is_seen_by_all(self) -> bool {}
}
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    pub id: u64,
    pub device: (u32, u32),
    pub target: String,
    pub kind: String,
    pub source: String,
    pub options: Vec<String>,
}
impl Mount {
    pub fn parse(line: &str) -> Option<Self> {}
    pub fn has(&self, name: &str) -> bool {}
    pub fn value(&self, name: &str) -> Option<&str> {}
    pub fn lock_reach(&self) -> LockReach {}
}
pub fn lock_reach(mountinfo: &str, device: (u32, u32)) -> LockReach {}

// names

pub const LONGEST_COMPANION: usize = 36;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TempId(());
impl Serialize for TempId {}
impl<'de> Deserialize<'de> for TempId {}
impl TempId {
    pub const fn new(scope: u64, pid: u32, nonce: u32) -> Self {}
    pub const fn scope(self) -> u64 {}
    pub const fn pid(self) -> u32 {}
}
pub fn temp(name: &OsStr, id: TempId) -> OsString {}
pub fn ballot(name: &OsStr, number: u64) -> OsString {}
pub fn void(name: &OsStr, id: TempId) -> OsString {}
pub fn withdrawn(name: &OsStr, id: TempId) -> OsString {}
pub fn kept(name: &OsStr, number: u64) -> OsString {}
pub fn broken(name: &OsStr, epoch: u64, number: usize) -> OsString {}
pub fn is_broken(candidate: &OsStr) -> bool {}
pub fn parse_temp(name: &OsStr, candidate: &OsStr) -> Option<TempId> {}
pub fn parse_void(name: &OsStr, candidate: &OsStr) -> Option<TempId> {}
pub fn parse_withdrawn(name: &OsStr, candidate: &OsStr) -> Option<TempId> {}
pub fn parse_ballot(name: &OsStr, candidate: &OsStr) -> Option<u64> {}
pub fn parse_kept(name: &OsStr, candidate: &OsStr) -> Option<u64> {}
pub fn is_companion(candidate: &OsStr) -> bool {}
pub fn is_temp(candidate: &OsStr) -> bool {}
pub fn is_second(candidate: &OsStr) -> bool {}
pub fn first_of(candidate: &OsStr) -> Option<&[u8]> {}

// observe

pub fn judge(path: impl AsRef<Path>) -> Judgement {}
pub trait ProcessTable: fmt::Debug + Send + Sync {
    fn probe(&self, pid: Pid, pidfd: bool) -> ProcessFacts;
}
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelTable;
impl ProcessTable for KernelTable {}
pub fn resolve(facts: &mut Facts, table: &dyn ProcessTable) -> Judgement {}
#[derive(Clone, Debug)]
pub struct Judge {}
impl Judge {
    pub fn here() -> Self {}
    pub fn with_fs(mut self, fs: Arc<dyn Fs>) -> Self {}
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {}
    pub fn with_lock_reach(mut self, reach: fn(&Path) -> LockReach) -> Self {}
    pub fn with_table(mut self, table: Arc<dyn ProcessTable>) -> Self {}
    pub fn host(&self) -> &Host {}
    pub fn read(&self, path: &Path) -> Result<Option<Record>> {}
    pub fn judge(&self, path: &Path) -> (Judgement, Facts) {}
    pub fn observe(&self, path: &Path, time: Duration) -> (Judgement, Facts) {}
}

// orphans

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Standing {
    RecordGone,
    RecordEnded,
    AnotherClaim,
    Unknown,
}
impl Standing {
    pub const fn word(self) -> &'static str {}
}
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Orphan {
    pub pid: Pid,
    pub standing: Standing,
    pub token: Token,
    pub path: PathBuf,
    pub cmd: Option<String>,
}
impl Judge {
    pub fn orphans(&self) -> Result<Vec<Orphan>> {}
}

// owner

pub const FORMAT: u64 = 1;
pub const SHORTEST_TTL: u64 = 5;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(());
impl Pid {
    pub fn new(number: i64) -> Option<Self> {}
    pub const fn get(self) -> i32 {}
}
impl fmt::Display for Pid {}
impl Serialize for Pid {}
impl<'de> Deserialize<'de> for Pid {}
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keeper {
    pub pid: Pid,
    pub start: u64,
    pub extra: Map<String, Value>,
}
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerLine {
    pub leasehold: u64,
    pub token: Token,
    pub epoch: u64,
    pub seq: u64,
    pub change: Option<TempId>,
    pub host: Option<String>,
    pub machine: Option<String>,
    pub host_id: Option<String>,
    pub boot: Option<String>,
    pub pid: Option<Pid>,
    pub start: Option<u64>,
    pub pidns: Option<u64>,
    pub timens: Option<u64>,
    pub pidfd: Option<u64>,
    pub uid: Option<u32>,
    pub keeper: Option<Keeper>,
    pub since: Option<String>,
    pub ttl: Option<u64>,
    pub lock: Option<String>,
    pub cmd: Option<String>,
    pub binds: Option<String>,
    pub adopted: Option<bool>,
    pub policy: Option<String>,
    pub ended: Option<String>,
    pub extra: Map<String, Value>,
}

// record

pub const LARGEST: usize = 64 * 1024;
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub owner: OwnerLine,
    pub state: RunState,
    pub beat: u64,
}
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    Empty,
    Torn,
    Malformed(String),
    NewerFormat(u64),
    BarePid(Pid),
}
impl fmt::Display for Flaw {}
impl Record {
    pub fn print(&self) -> Vec<u8> {}
    pub fn parse(bytes: &[u8]) -> Result<Self, Flaw> {}
}

// run

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Descendants {
    End,
    Wait,
    Leave,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Ending {
    Exit(i32),
    Signal(i32),
}
impl Ending {
    pub fn code(self) -> i32 {}
}
impl fmt::Display for Ending {}
pub fn end_by_signal(signal: i32) {}
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    pub token: Token,
    pub epoch: u64,
    pub ending: Option<Ending>,
    pub lost: Option<String>,
    pub not_started: Option<std::io::Error>,
    pub unreleased: Option<crate::Error>,
    pub outlived: bool,
    pub interrupted: bool,
}
#[must_use = "nothing runs until `run` is called"]
pub struct Run {}
impl fmt::Debug for Run {}
impl Run {
    pub fn new(claim: Claim, words: Vec<OsString>) -> Self {}
    pub fn ttl(mut self, ttl: Duration) -> Self {}
    pub fn grace(mut self, grace: Duration) -> Self {}
    pub fn descendants(mut self, descendants: Descendants) -> Self {}
    pub fn contain(mut self, yes: bool) -> Self {}
    pub fn on_outlived(mut self, call: impl FnMut() + 'static) -> Self {}
    pub fn run(self) -> Result<Report> {}
}

// run_state

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    Completed,
    Failed,
}
impl fmt::Display for Outcome {}
impl FromStr for Outcome {
    type Err = String;
}
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunState(());
impl RunState {
    pub fn fields(&self) -> &Map<String, Value> {}
    pub fn get(&self, key: &str) -> Option<&str> {}
    pub fn says(&self, key: &str, value: &str) -> bool {}
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {}
    pub fn intent(&self) -> Option<Cow<'_, str>> {}
    pub fn outcome(&self) -> Option<Outcome> {}
}
impl From<Map<String, Value>> for RunState {}

// scan

pub const MOST_JOBS: usize = 1024;
#[must_use = "a scan does nothing until `run` is called"]
#[derive(Debug)]
pub struct Scan<F = fn(usize)> {}
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    pub path: PathBuf,
    pub judgement: Judgement,
    pub facts: Facts,
    pub record: Option<Record>,
    pub age: Option<Duration>,
    pub now: Option<String>,
}
impl Finding {
    pub fn has(&self, fields: &[(String, String)]) -> bool {}
    pub fn was_read(&self) -> bool {}
}
#[derive(Debug)]
pub struct Failure {
    pub path: PathBuf,
    pub error: io::Error,
}
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Swept {
    pub files: usize,
    pub failures: Vec<Failure>,
}
#[derive(Clone, Debug, Default)]
pub struct Tally {}
impl Tally {
    pub const VERDICTS: [Verdict; 5] = [
        Verdict::Held,
        Verdict::Dead,
        Verdict::Lapsed,
        Verdict::Undetermined,
        Verdict::Free,
    ];
    pub fn add(&mut self, judgement: &Judgement) {}
    pub fn count(&self, verdict: Verdict) -> usize {}
    pub fn total(&self) -> usize {}
    pub fn has(&self, reason: Reason) -> bool {}
}
impl Scan {
    pub fn new<P: Into<PathBuf>>(roots: impl IntoIterator<Item = P>) -> Self {}
}
impl<F: FnMut(usize)> Scan<F> {
    pub fn from(mut self, judge: Judge) -> Self {}
    pub fn recursive(mut self, yes: bool) -> Self {}
    pub fn legacy(mut self, yes: bool) -> Self {}
    pub fn jobs(mut self, jobs: NonZeroUsize) -> Self {}
    pub fn on_progress<G: FnMut(usize)>(self, call: G) -> Scan<G> {}
    pub fn run(self, each: impl FnMut(Finding)) -> Swept {}
    pub fn run_with<T: Send>(
        mut self,
        made: impl Fn(Finding) -> T + Sync,
        mut each: impl FnMut(T),
    ) -> Swept {}
}

// settle

#[derive(Debug)]
#[non_exhaustive]
pub enum Settlement {
    Vacated(Box<Record>, Box<Judgement>),
    LeftAlone(Box<Judgement>),
}
impl Judge {
    pub fn settle(&self, path: impl AsRef<Path>) -> Result<Settlement> {}
}

// stop

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(());
impl Signal {
    pub const TERM: Self = Self(15);
    pub const KILL: Self = Self(9);
}
impl FromStr for Signal {
    type Err = String;
}
impl fmt::Display for Signal {}
#[derive(Clone, Debug)]
#[must_use = "nothing is stopped until `run` is called"]
pub struct Stop {}
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stopped {
    pub pid: Pid,
    pub signal: Signal,
    pub record: Option<Record>,
}
impl Stop {
    pub fn new(path: impl Into<PathBuf>) -> Self {}
    pub fn from(mut self, judge: Judge) -> Self {}
    pub fn signal(mut self, signal: Signal) -> Self {}
    pub fn grace(mut self, time: Duration) -> Self {}
    pub fn only_if(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {}
    pub fn run(self) -> Result<Stopped> {}
}
impl Judgement {
    pub fn may_be_stopped(&self) -> bool {}
}

// testimony

pub fn about<'a>(output: &'a [u8], path: &str) -> Result<&'a [u8], String> {}
pub fn weigh(
    facts: &Facts,
    age: Option<Duration>,
    answer: &[u8],
) -> Result<Judgement, String> {}
pub fn unanswered(facts: &Facts, why: &str) -> Judgement {}
pub fn may_help(judgement: &Judgement) -> bool {}

// token

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(());
impl Token {
    pub const fn from_bits(bits: u128) -> Self {}
    pub const fn bits(self) -> u128 {}
}
impl fmt::Display for Token {}
impl fmt::Debug for Token {}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadToken;
impl fmt::Display for BadToken {}
impl std::error::Error for BadToken {}
impl FromStr for Token {
    type Err = BadToken;
}
impl Serialize for Token {}
impl<'de> Deserialize<'de> for Token {}

// verdict

pub const INITIAL_PIDNS: u64 = 4_026_531_836;
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Verdict {
    Held,
    Dead,
    Undetermined,
    Free,
    Lapsed,
}
impl Verdict {
    pub const fn word(self) -> &'static str {}
}
impl fmt::Display for Verdict {}
impl Serialize for Reason {}
impl fmt::Display for Reason {}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Liveness {
    Running,
    Gone,
    Attested,
    Unknown,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Identity {
    Same,
    Other,
    Unknown,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Effect {
    Unrecorded,
    Completed,
    Failed,
    UnderWay,
    InDoubt,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Authority {
    Owner,
    Vacant,
    Successor,
    Expired,
    Unknown,
}
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub what: &'static str,
    pub recorded: Option<String>,
    pub found: Option<String>,
}
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judgement {
    pub verdict: Verdict,
    pub reason: Reason,
    pub sentence: String,
    pub liveness: Liveness,
    pub identity: Identity,
    pub effect: Effect,
    pub authority: Authority,
    pub owner: RecordFacts,
    pub observer: Observer,
    pub evidence: Vec<Evidence>,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Process { pid: Pid, pidfd: bool },
    Keeper(Pid),
}
pub fn judge(facts: &Facts) -> Judgement {}
pub fn examine(facts: &Facts) -> Result<Judgement, Question> {}
pub fn lapse_after(ttl: u64) -> Duration {}

// Reasons, and the verdicts that they stand for

// ProcessRunning = process-running (held)
// KeeperRunning = keeper-running (held)
// ServerAttested = server-attested (held)
// AskedHeld = asked (held)
// AskedDead = asked (dead)
// NoSuchProcess = no-such-process (dead)
// NotAProcess = not-a-process (dead)
// PidReused = pid-reused (dead)
// Zombie = zombie (dead)
// HostRebooted = host-rebooted (dead)
// NoRecord = no-record (free)
// Ended = ended (free)
// NotRenewed = not-renewed (lapsed)
// Unreadable = unreadable (undetermined)
// Empty = empty (undetermined)
// Torn = torn (undetermined)
// Malformed = malformed (undetermined)
// Symlink = symlink (undetermined)
// NotAFile = not-a-file (undetermined)
// TooLarge = too-large (undetermined)
// NewerFormat = newer-format (undetermined)
// NoHost = no-host (undetermined)
// NoBoot = no-boot (undetermined)
// PayloadMismatch = payload-mismatch (undetermined)
// ForeignHost = foreign-host (undetermined)
// OtherPidNamespace = other-pid-namespace (undetermined)
// NoPidNamespace = no-pid-namespace (undetermined)
// OtherTimeNamespace = other-time-namespace (undetermined)
// IdentityConflict = identity-conflict (undetermined)
// StartUnreadable = start-unreadable (undetermined)
// NoStartTime = no-start-time (undetermined)
