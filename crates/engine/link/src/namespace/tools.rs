//! Configures a network namespace with `ip`, `tc` and sysctl.

use super::Namespace;
use std::fs;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

impl Namespace {
    /// Runs `ip -batch` in the namespace with these lines.
    ///
    /// # Errors
    /// The I/O error if there is no `ip`, or its error output.
    pub fn ip(&self, lines: &str) -> io::Result<()> {
        self.tool("ip", &["-batch", "-"], lines).map(drop)
    }

    /// Runs `tc` in the namespace with arguments separated by blanks. Returns its output.
    ///
    /// # Errors
    /// The I/O error if there is no `tc`, or its error output.
    pub fn tc(&self, arguments: &str) -> io::Result<String> {
        self.tool("tc", &arguments.split_ascii_whitespace().collect::<Vec<_>>(), "")
    }

    /// Sets a sysctl such as `net/ipv4/ip_forward` in the namespace.
    ///
    /// # Errors
    /// The I/O error, preceded by the name of the parameter.
    pub fn set_parameter(&self, name: &str, value: &str) -> io::Result<()> {
        let result = self.run(|| fs::write(format!("/proc/sys/{name}"), value));
        result.and_then(|result| result).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot set {name} to {value:?}: {error}"))
        })
    }

    /// Runs a program in the namespace and returns its output.
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
