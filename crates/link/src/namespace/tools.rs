//! What lays a network out: the tools of the system, run in it.

use super::Namespace;
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

impl Namespace {
    /// Runs `ip` in it with these lines, each a command without the `ip` before it.
    ///
    /// # Errors
    /// That there is no `ip`, or what it complains of.
    pub fn ip(&self, lines: &str) -> io::Result<()> {
        self.tool("ip", &["-batch", "-"], lines).map(drop)
    }

    /// Runs `tc` in it with arguments that blanks separate, and gives what it prints.
    ///
    /// # Errors
    /// That there is no `tc`, or what it complains of.
    pub fn tc(&self, arguments: &str) -> io::Result<String> {
        self.tool("tc", &arguments.split_ascii_whitespace().collect::<Vec<_>>(), "")
    }

    /// Sets one of its parameters, such as `net/ipv4/ip_forward`.
    ///
    /// # Errors
    /// What the system says, after the parameter's name.
    pub fn set_parameter(&self, name: &str, value: &str) -> io::Result<()> {
        let result = self.run(|| fs::write(format!("/proc/sys/{name}"), value));
        result.and_then(|result| result).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot set {name} to {value:?}: {error}"))
        })
    }

    /// Runs a tool of the system in it, and gives what it prints.
    fn tool(&self, tool: &str, arguments: &[&str], input: &str) -> io::Result<String> {
        let run = || -> io::Result<Output> {
            let mut child = Command::new(tool)
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes())?;
            }
            child.wait_with_output()
        };
        let output = self
            .run(run)
            .and_then(|output| output)
            .map_err(|error| io::Error::new(error.kind(), format!("{tool}: {error}")))?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("{tool}: {}", complaint.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
