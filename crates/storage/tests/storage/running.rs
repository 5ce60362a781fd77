//! A child process that runs one ignored test of this program as its own program, and prints what
//! is acknowledged.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a child runs.
pub struct Program {
    test: &'static str,
    variables: Vec<(&'static str, String)>,
    file_bytes_max: Option<u64>,
}

impl Program {
    pub fn new(test: &'static str) -> Self {
        Self { test, variables: Vec::new(), file_bytes_max: None }
    }

    /// An environment variable.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// The kernel lets no file of the child grow beyond this, a multiple of 512.
    pub fn with_file_bytes_max(mut self, bytes: u64) -> Self {
        self.file_bytes_max = Some(bytes);
        self
    }

    fn command(&self) -> Command {
        let this = std::env::current_exe().expect("this program");
        let mut command = match self.file_bytes_max {
            None => Command::new(this),
            Some(bytes) => {
                let mut shell = Command::new("sh");
                // Ignored, the signal leaves an error to the write; else it would kill.
                let limit = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", bytes / 512);
                shell.args(["-c", &limit]).arg(this);
                shell
            }
        };
        command.args(["--exact", self.test, "--ignored", "--nocapture"]);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// A variable that the parent set.
pub fn variable(name: &str) -> String {
    std::env::var(name).expect("the parent sets it")
}

/// Tells the parent.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more when the parent failed; it kills this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A child. It does not outlive this.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub fn start(program: &Program) -> Self {
        let mut child = program.command().spawn().expect("starts");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        // The child is to be held up by its disk and not by this reader.
        let (sender, lines) = sync_channel(100_000);
        thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// Waits until the child says that it is open, and what else it says then.
    pub fn wait_for_open(&self) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the child opens its folder");
            if let Some(rest) = line.strip_prefix("open ") {
                return rest.to_owned();
            }
        }
    }

    /// Waits for a number of acknowledgements. Returns the last.
    pub fn wait_for(&self, acknowledgements: u32) -> Option<u64> {
        let mut last = None;
        for _ in 0..acknowledgements {
            let line = self.lines.recv_timeout(PATIENCE).expect("the child works");
            last = acknowledged(&line).or(last);
        }
        last
    }

    /// Everything that was acknowledged before the child ended: the last.
    pub fn rest(&self) -> Option<u64> {
        let deadline = Instant::now() + PATIENCE;
        let mut last = None;
        while let Ok(line) =
            self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            last = acknowledged(&line).or(last);
        }
        last
    }

    /// Waits for a number of acknowledgements. Returns all of them.
    pub fn gather(&self, acknowledgements: usize) -> Vec<u64> {
        let mut all = Vec::new();
        while all.len() < acknowledgements {
            all.extend(acknowledged(&self.lines.recv_timeout(PATIENCE).expect("the child works")));
        }
        all
    }

    /// Everything that was acknowledged before the child ended.
    pub fn gather_rest(&self) -> Vec<u64> {
        let deadline = Instant::now() + PATIENCE;
        let left = || deadline.saturating_duration_since(Instant::now());
        let lines = std::iter::from_fn(|| self.lines.recv_timeout(left()).ok());
        lines.filter_map(|line| acknowledged(&line)).collect()
    }

    /// Kills the child, as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }

    /// Waits for the child's own end: its status, and what it said on standard error.
    pub fn ended(&mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "the child goes on");
            thread::yield_now();
        };
        let mut why = String::new();
        let mut err = self.child.stderr.take().expect("piped");
        err.read_to_string(&mut why).expect("text");
        (status, why)
    }
}

fn acknowledged(line: &str) -> Option<u64> {
    line.strip_prefix("acknowledged ").map(|number| number.parse().expect("a number"))
}
